#!/usr/bin/env bash
# Detects a launcher or agent that disappeared.
# shellcheck disable=SC2034 # the callers read `lost`
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# is_lost: whether, by the events of the job in this folder, the launcher or agent of this node began
# and is gone without having recorded its end; sets `lost` to which of them.
is_lost() {
  local who number key pid start began=1
  lost='launcher -'
  while read -r who number key pid _ start; do
    case "$who $key" in
      'launcher exit' | 'launcher lost' | 'agent exit' | 'agent lost') return 1 ;;
      'launcher pid' | 'agent pid' | 'supervisor pid')
        began=0
        runs "$pid" "$start" && return 1
        [ "$who" != agent ] || lost="agent $number" ;;
    esac
  done <events
  return "$began"
}
