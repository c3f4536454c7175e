#!/usr/bin/env bash
# `watch.sh`: the primary's ssh runs it on every other node of a job with one agent for each node.
# It prints why the job cannot continue, ends it here when the primary closes the connection, and stays
# until it has ended. It exits with 0 only when all went well here.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/supervise-events.sh
. supervise-events.sh
: "${job:?}" "${grace:?}" "${node:?}"
end_with() {
  printf '%s: %s\n' "$node" "$1"
  end
}
end() {
  local tick
  for ((tick = 0; tick < grace + 30; tick++)); do
    read_events
    [ -z "$ended" ] || exit 1
    is_alive "$agent_pid" "$agent_start" || break
    if [ "$tick" = 0 ]; then leave_stacks "$job"; kill -TERM "$agent_pid" 2>/dev/null; fi
    sleep 0.1
  done
  is_alive "$supervisor_pid" "$supervisor_start" || end_processes find_marked "$job" "$grace"
  exit 1
}
cd -- "$job" || { printf '%s: there is no folder of the job\n' "$node"; exit 1; }
read_stat "$BASHPID"
printf '%s %s\n' "$BASHPID" "${fields[19]}" >watched
read_uptime
beat_at=$up started_by=$((up + 60))
while :; do
  IFS= read -r -t 0.2 _
  got=$?
  read_uptime
  if [ "$got" = 0 ]; then beat_at=$up
  elif [ "$got" -le 128 ]; then end
  elif [ $((up - beat_at)) -gt 30 ]; then end_with 'no sign of the primary for 30 s'; fi
  read_events
  if [ "$ended" = 0 ]; then exit 0; fi
  [ -z "$failed" ] || end_with "$failed"
  [ -z "$ended" ] || end_with "torchrun ended with $ended"
  if [ -z "$began" ]; then
    [ "$up" -lt "$started_by" ] || end_with 'nothing was started there within 60 s'
  elif ! is_alive "$agent_pid" "$agent_start" && ! is_alive "$supervisor_pid" "$supervisor_start"; then
    read_events
    [ -n "$ended" ] || end_with 'torchrun and its supervisor are gone'
  fi
done
