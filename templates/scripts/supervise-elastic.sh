#!/usr/bin/env bash
# The functions of supervise-static.sh for an elastic job: it continues while `least` nodes are left.
# torchrun does not notice that a node is gone, and ranks may wait for it for long. So `ending` ends the
# ranks of the primary and is taken back once they have ended; the other nodes follow.
# shellcheck disable=SC2034,SC2154 # variables of the callers
lost=0 reports=() regrouping=''
on_report() { reports+=("$1"); }
on_node_lost() {
  local node=${nodes[$1]} number=$(($1 + 1)) line code left of="lost it: ssh ended with $2"
  while read -r -t 0.1 -u "$reports_fd" line; do on_report "$line"; done
  for line in "${reports[@]}"; do
    case $line in "$node: "*) of=${line#*: } ;; esac
  done
  # An agent that gives up, and was not killed, closes the rendezvous for all (torch 2.13).
  code=${of#torchrun ended with }
  if [ "$code" != "$of" ] && [ "$code" -lt 128 ]; then
    why="$node: $of"
    return 1
  fi
  lost=$((lost + 1))
  left=$((1 + ${#addresses[@]} - lost))
  now
  printf 'agent %s left at %s: %s\n' "$number" "$time" "$of" >>events
  if [ "$left" -lt "$least" ]; then
    why="$node: $of; nodes left: $left, needed: $least"
    return 1
  fi
  printf 'ascendboot: goes on without %s: %s\n' "$node" "$of"
  regrouping=1
  echo now >ending
}
on_events() {
  failed=''
  [ -n "$regrouping" ] && ! has_ranks || return 0
  regrouping=''
  : >ending
}
has_ranks() {
  local who number key pid start
  local -A of=()
  while read -r who number key pid _ start; do
    case "$who $key" in
      'rank pid') of[$number]="$pid $start" ;;
      'rank exit') unset "of[$number]" ;;
    esac
  done <events
  for number in "${of[@]}"; do
    if runs "${number% *}" "${number#* }"; then return 0; fi
  done
  return 1
}
