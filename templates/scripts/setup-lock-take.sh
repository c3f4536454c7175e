#!/usr/bin/env bash
# Takes the lock of the cluster's folder `b`. One line in it names the holder; --break-lock ends the
# process in its brackets, which is `session` or this one.
# Arguments: the holder; something where the lock is taken from another.
: "${b:?}" "${session=}"
# shellcheck source=templates/scripts/processes.sh
. processes.sh
read_holder() { IFS= read -r -n 400 line <"$b/lock"; was=${line% (process *}; }
break_lock() {
  [[ $line =~ \(process\ ([0-9]+)\ ([0-9]+)\)$ ]] || return
  local pid=${BASH_REMATCH[1]} since=${BASH_REMATCH[2]} signal
  for signal in TERM KILL; do
    read_stat "$pid" && [ "${fields[19]}" = "$since" ] || return
    kill -"$signal" "$pid"
    flock -w 3 9 && return
  done
}
# shellcheck disable=SC2174
mkdir -p -m 755 -- "$b" && exec 9>>"$b/lock" || exit 1
free=locked
# The script that includes this one prints `free`.
# shellcheck disable=SC2034
flock -n 9 || {
  free=waited
  [ -z "$2" ] || { read_holder; break_lock; free="broke $was"; }
  flock -w 3 9
} || { read_holder; echo "held by $was"; exit 0; }
[ "$b/lock" -ef /proc/$$/fd/9 ] || { echo "held by a reset that has just ended"; exit 0; }
# Where others may write, it could lead to a file of the system, now or in a moment.
[ ! -L "$b/lock" ] || { echo "$b/lock is a link, and not ascendboot's; remove it" >&2; exit 1; }
# Who may read a file may lock it, for ever.
chmod 600 /proc/$$/fd/9 || exit 1
process=${session:-$$}
read_stat "$process"
TZ=UTC printf '%s, since %(%Y-%m-%d %H:%M:%S UTC)T (process %s %s)' \
  "$1" -1 "$process" "${fields[19]}" >/proc/$$/fd/9
