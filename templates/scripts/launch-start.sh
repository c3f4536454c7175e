#!/usr/bin/env bash
# The end of every `launch.sh`: runs `launcher`, waits for it, records its end, and calls `clean CODE`.
# Needs processes.sh and the functions `launcher` and `clean`; where a function `end_overdue` exists, it runs beside the
# launcher. `log` is the name of the launcher's log, `limit` how many bytes of it are kept (0: all),
# `who` its name in the events: `launcher -` or `agent NODE_RANK`.
: "${base:?}" "${job:?}" "${log:?}" "${limit:?}" "${who:?}"
trap : TERM INT HUP
cd -- "$job" || exit 1
exec </dev/null >>"$log" 2>&1
now() {
  time=${EPOCHREALTIME-}
  if [ -n "$time" ]; then time=${time/,/.}; else time=$(date +%s.%6N); fi
}
stamp() {
  local fields
  read_stat "$BASHPID"
  printf '%s pid %s start %s\n' "$1" "$BASHPID" "${fields[19]}" >>"$job/events"
}
stamp 'supervisor -' || exit 1
exec 3>&2 2>/dev/null
keeper='' going=''
if [ "$limit" -gt 0 ] && [ -r "$base/env/keep.sh" ]; then
  # shellcheck source=templates/env/keep.sh
  exec {hold}> >(. "$base/env/keep.sh" && keep "$log" "$limit" >/dev/null)
  keeper=$!
fi
stopped() { case $(<events) in *'launcher - stop at '*) return 0 ;; esac; return 1; }
if declare -F end_overdue >/dev/null; then
  exec {going}> >([ -z "$keeper" ] || exec {hold}>&-; end_overdue)
fi
# First recorded, then compared with the events: a `stop` either finds the launcher or is found here.
( [ -z "$keeper" ] || exec {hold}>&-
  [ -z "$going" ] || exec {going}>&-
  exec 2>&3 3>&-; stamp "$who" && { ! stopped || exit 143; } && launcher )
code=$?
[ -z "$going" ] || exec {going}>&-
[ -z "$keeper" ] || exec {hold}>&-
clean "$code"
[ -z "$keeper" ] || wait "$keeper"
now
printf '%s exit %s at %s\n' "$who" "$code" "$time" >>events
