#!/usr/bin/env bash
# is_lost, in the job's folder: whether the events show that the launcher or agent of this node
# started and is gone without a recorded end; `lost` is which of them. Needs processes.sh.
# shellcheck disable=SC2034 # lost is a result
is_lost() {
  local who number key pid word start began=1
  lost='launcher -'
  while read -r who number key pid word start; do
    case "$who $key" in
      'launcher exit' | 'launcher lost' | 'agent exit' | 'agent lost') return 1 ;;
      'launcher pid' | 'agent pid' | 'supervisor pid')
        began=0; runs "$pid" "$start" && return 1
        [ "$who" != agent ] || lost="agent $number" ;;
    esac
  done <events
  return "$began"
}
