#!/usr/bin/env bash
# Functions that measure CPU and memory of the ranks of a job on this node.
# shellcheck disable=SC2206 # lines of /proc are split on purpose
# shellcheck disable=SC2034 # variables are results
declare -A rank_of used memory state

# know_ranks EVENTS: fills `rank_of`, by pid, with the ranks that run.
know_ranks() {
  local who number key pid word start line rest fields
  rank_of=()
  while read -r who number key pid word start; do
    case "$who $key" in
      'rank pid')
        { IFS= read -r line </proc/"$pid"/stat; } 2>/dev/null || continue
        rest=${line##*) }
        fields=($rest)
        [ "${fields[19]-}" != "$start" ] || rank_of[$pid]=$number ;;
    esac
  done <"$1"
}

# use_of_ranks: fills, by rank, `used` (CPU in ms since the start), `memory` (KiB) and `state` (one
# letter). Sums over a rank's process and its descendants. It reads stat alone: reading the command
# line or environment of a process may wait for what that process waits for.
use_of_ranks() {
  local file line rest fields pid up number depth clock page
  local -A parent=() ticks=() pages=() states=()
  used=() memory=() state=()
  [ "${#rank_of[@]}" != 0 ] || return 0
  for file in /proc/[0-9]*/stat; do
    { IFS= read -r line <"$file"; } 2>/dev/null || continue
    rest=${line##*) }
    case $rest in '? 2 '*) continue ;; esac
    fields=($rest)
    [ "${#fields[@]}" -gt 21 ] || continue
    pid=${line%% *}
    parent[$pid]=${fields[1]} states[$pid]=${fields[0]} pages[$pid]=${fields[21]}
    ticks[$pid]=$((fields[11] + fields[12] + fields[13] + fields[14]))
  done
  [ -n "${hertz-}" ] || { hertz=$(getconf CLK_TCK) page_bytes=$(getconf PAGESIZE); } 2>/dev/null
  clock=${hertz:-100} page=${page_bytes:-4096}
  for pid in "${!parent[@]}"; do
    up=$pid
    for ((depth = 0; depth < 64; depth++)); do
      number=${rank_of[$up]-}
      [ -z "$number" ] || break
      up=${parent[$up]-}
      [ -n "$up" ] || break
    done
    [ -n "$number" ] || continue
    used[$number]=$((${used[$number]-0} + ticks[$pid] * 1000 / clock))
    memory[$number]=$((${memory[$number]-0} + pages[$pid] * (page / 1024)))
    [ "$up" != "$pid" ] || state[$number]=${states[$pid]}
  done
}

# sample, in the job's folder: puts the use of the ranks into `said`, one line; forks nothing.
sample() {
  local up _ number
  know_ranks events
  use_of_ranks
  read -r up _ </proc/uptime
  said="sample $up"
  for number in "${!used[@]}"; do
    said+=" $number:${state[$number]-?}:${used[$number]}:${memory[$number]}"
  done
}

# rates EVENTS: prints for each rank that runs `use RANK STATE CPU SPAN MEMORY`: milliseconds of
# CPU within so many milliseconds, and KiB.
rates() {
  local number up _ began span
  local -A before=()
  know_ranks "$1"
  [ "${#rank_of[@]}" != 0 ] || return 0
  read -r up _ </proc/uptime
  began=${up/./}
  use_of_ranks
  for number in "${!used[@]}"; do before[$number]=${used[$number]}; done
  sleep 0.5
  read -r up _ </proc/uptime
  span=$(((10#${up/./} - 10#$began) * 10))
  use_of_ranks
  for number in "${!used[@]}"; do
    [ -z "${before[$number]-}" ] || printf 'use %s %s %s %s %s\n' "$number" \
      "${state[$number]-?}" "$((used[$number] - before[$number]))" "$span" "${memory[$number]}"
  done
}
