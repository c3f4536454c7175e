#!/usr/bin/env bash
# Reads the events of this node in a job with one agent for each node.
# shellcheck source=templates/env/rank-stack.sh
. ../env/rank-stack.sh
declare -A ascendboot_running
# shellcheck disable=SC2034 # the callers use what it sets
read_events() {
  local who number key value start
  failed='' ended='' began='' agent_pid='' agent_start='' supervisor_pid='' supervisor_start='' ascendboot_running=()
  while read -r who number key value _ start; do
    case "$who $key" in
      'rank pid') ascendboot_running[$number]=$value ;;
      'rank exit')
        unset "ascendboot_running[$number]"
        [ "$value" = 0 ] || [ -n "$failed" ] || failed="rank $number ended with $value" ;;
      'agent pid') began=1 agent_pid=$value agent_start=$start ;;
      'supervisor pid') supervisor_pid=$value supervisor_start=$start ;;
      'agent exit') ended=$value ;;
    esac
  done <events
}
is_alive() { [ -n "$1" ] && runs "$1" "$2"; }
