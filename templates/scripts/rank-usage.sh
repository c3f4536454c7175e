#!/usr/bin/env bash
# Functions that measure what the ranks of a job use.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
declare -A rank_of used memory state
# know_ranks EVENTS: sets `rank_of` to the number of each rank that runs, by pid.
know_ranks() {
  local who number key pid start fields
  rank_of=()
  while read -r who number key pid _ start; do
    case "$who $key" in
      'rank pid')
        read_stat "$pid" || continue
        [ "${fields[19]-}" != "$start" ] || rank_of[$pid]=$number ;;
    esac
  done <"$1"
}
# Sets by rank `used` (CPU in ms since it began), `memory` (KiB) and `state` (one letter), summed over
# its process and all descendants. Only stat is read: reading the command line or environment of a
# process may wait for what that process waits for.
use_of_ranks() {
  local file pid up number depth clock page fields
  local -A parent=() ticks=() pages=() states=()
  used=() memory=() state=()
  [ "${#rank_of[@]}" != 0 ] || return 0
  for file in /proc/[0-9]*/stat; do
    pid=${file#/proc/} pid=${pid%/stat}
    read_stat "$pid" || continue
    if [ "${#fields[@]}" -le 21 ] || [ "${fields[1]}" = 2 ]; then continue; fi  # 2: of the kernel
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
# Sets `sampled` to one line with the CPU time of the ranks of the job in this folder, in ms; starts
# no process.
sample() {
  local up number
  know_ranks events
  use_of_ranks
  read -r up _ </proc/uptime
  sampled="sample $up"
  for number in "${!used[@]}"; do
    sampled+=" $number:${used[$number]}"
  done
}
# rates EVENTS: prints for each rank that runs `use RANK STATE CPU SPAN MEMORY`: milliseconds of CPU
# within SPAN milliseconds, and KiB.
rates() {
  local number up began span
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
