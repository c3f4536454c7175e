#!/usr/bin/env bash
# Functions of `launch.sh` for a launcher that starts the ranks of all nodes from the primary.
# Needs `now` and `stopped` of launch-start.sh, `grace` in tenths of a second, `within` in seconds, and
# `addresses` of the other nodes.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/start-limit.sh
. start-limit.sh
: "${base:?}" "${job:?}" "${who:?}" "${grace:?}"
launcher() { run; }
# clean CODE: ends the ranks that a failed launcher left on its own node. Nothing else here notices
# that it was killed.
clean() {
  [ "$1" != 0 ] && find_marked "$job" || return 0
  now
  # shellcheck disable=SC2154 # set by `now`
  printf '%s ends at %s\n' "$who" "$time" >>events
  end_processes find_marked "$job" "$grace"
}
query() {
  printf '%s\ncd -- %q && behind\n' "$(declare -f behind)" "$job" |
    timeout -k 1 10 ssh -F "$base/trust/ssh_config" "$1" 'exec bash -s'
}
waits_for() {
  local pid words
  for pid in "${pids[@]}"; do
    words=$(tr '\0' ' ' <"/proc/$pid/cmdline")
    case ${words%% *} in ssh | */ssh) ;; *) continue ;; esac
    case $words in *" $1 "*) return 0 ;; esac
  done
  return 1
}
is_going() {
  read -r -t 0.01 _
  [ "$?" -gt 128 ] && [ ! -s ending ] && ! stopped
}
# Ends the launcher when a rank has not begun `within` seconds after the start; its input ends with the
# launcher. Open MPI (4.1, orte_startup_timeout) waits for ever for a node that does not answer, and
# after `train --detach` nobody follows the job. The other nodes are queried over the cluster's own
# trust: only their events show what began there. A node that does not answer, or for which the
# launcher's ssh still waits (Open MPI's ends once its daemon runs), is recorded and decides nothing.
end_overdue() {
  local up due number held key pid start tick late=() awaited=() asked=()
  read_uptime
  due=$((up + within))
  while [ "$up" -lt "$due" ]; do
    read -r -t $((due - up)) _
    [ "$?" -gt 128 ] || return
    read_uptime
  done
  is_going || return
  # shellcheck disable=SC2154 # `launch.sh` begins with it
  for number in "${!addresses[@]}"; do
    exec {held}< <(query "${addresses[number]}")
    asked[number]=$held
  done
  take "$(behind)"
  find_marked "$job"
  for number in "${!asked[@]}"; do
    if take "$(cat <&"${asked[number]}")" && ! waits_for "${addresses[number]}"; then continue; fi
    awaited+=($((number + 1)))
  done
  [ "${#late[@]}" != 0 ] && is_going || return
  note_late
  while read -r who _ key pid _ start; do
    [ "$who $key" != 'launcher pid' ] || break
  done <events
  runs "$pid" "$start" && kill -TERM "$pid"
  for ((tick = 0; tick < 2 * grace + 110; tick++)); do
    runs "$pid" "$start" || return
    sleep 0.1
  done
  kill -KILL "$pid"
}
