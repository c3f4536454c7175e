#!/usr/bin/env bash
# Locks the cluster for the rest of this SSH session.
# The lock lives as long as the SSH connection through which it was taken: a process that waits for
# the end of this connection's sshd holds it. A killed ascendboot leaves no stale lock.
# Arguments: those of setup-lock-take.sh; for how many seconds the other side may be silent.
session=$$
until [ "$session" -le 1 ]; do
  case $(cat "/proc/$session/comm" 2>/dev/null) in sshd*) break;; esac
  session=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$session/status" 2>/dev/null)
  session=${session:-0}
done
[ "$session" -gt 1 ] || { echo "this is not an SSH session" >&2; exit 1; }
# shellcheck source=templates/scripts/setup-lock-take.sh
. setup-lock-take.sh
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
