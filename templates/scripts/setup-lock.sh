#!/usr/bin/env bash
# Locks the cluster for the rest of this SSH session.
# The lock lives as long as the SSH connection through which it was taken: a process that waits for
# the end of this connection's sshd holds it. A killed ascendboot leaves no stale lock.
# One line in the file `lock` of the cluster's folder `b` names the holder; --break-lock ends the
# process in its brackets.
# Arguments: the holder; something where the lock is taken from another; for how many seconds the
# other side may be silent.
: "${b:?}"
# shellcheck source=templates/scripts/processes.sh
. processes.sh
session=$$
until [ "$session" -le 1 ]; do
  case $(cat "/proc/$session/comm" 2>/dev/null) in sshd*) break;; esac
  session=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$session/status" 2>/dev/null)
  session=${session:-0}
done
[ "$session" -gt 1 ] || { echo "this is not an SSH session" >&2; exit 1; }
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
read_stat "$session"
TZ=UTC printf '%s, since %(%Y-%m-%d %H:%M:%S UTC)T (process %s %s)' \
  "$1" -1 "$session" "${fields[19]}" >/proc/$$/fd/9
# sshd does not notice for hours that the other machine has vanished, but the kernel knows when the
# last data came: a control machine that is there sends some every few seconds. The session is ended
# with the lock, so that a machine that comes back finds no connection to go on with.
is_silent() {
  local line found=
  while IFS= read -r line; do
    [[ $line =~ lastrcv:([0-9]+) ]] || continue
    [ "${BASH_REMATCH[1]}" -ge "${silent}000" ] || return 1
    found=1
  done < <(ss -Htin "sport = :$to and dport = :$from" 2>/dev/null)
  [ -n "$found" ]
}
watch_session() {
  local session=$1 silent=$2 from=$4 to=$6
  while timeout 5 tail --pid="$session" -s 0.2 -f /dev/null; [ $? = 124 ]; do
    is_silent || continue
    kill -TERM "$session"; sleep 1; kill -KILL "$session"
    break
  done
}
export -f is_silent watch_session
# shellcheck disable=SC2086
setsid bash -c 'watch_session "$@"' watch "$session" "$3" $SSH_CONNECTION \
  </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- &
echo "$free"
