#!/usr/bin/env bash
# Prints the state of jobs on this node. Writes nothing.
# Arguments: the folder of all jobs, 1 for details of the ranks, and the ids of the jobs; without
# ids it prints of every job only what still runs.
# Prints `process PID JOB_ID` for each process that carries a job's id; for each job `job JOB_ID`,
# `event …` for each of its events, `alive WHO NUMBER PID` for those that still run; as details
# `silent SECONDS NAME` since a log was last written, `last NAME TEXT`, `loss NAME TEXT` for a loss of
# nan or inf in the end of a log, `pace LINES SECONDS NAME`, and `use …` (rates in rank-usage.sh); then `end`.
jobs=$1 details=$2; shift 2
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/rank-usage.sh
. rank-usage.sh

# print_job JOB_ID brief|full
print_job() {
  local line who number key pid start
  printf 'job %s\n' "$1"
  if [ "$2" = full ]; then
    while IFS= read -r line; do printf 'event %s\n' "$line"; done <"$1/events"
  fi
  while read -r who number key pid _ start; do
    [ "$key" = pid ] && runs "$pid" "$start" && printf 'alive %s %s %s\n' "$who" "$number" "$pid"
  done <"$1/events"
}

# print_pace LOG: the lines of the last minute at most, by the marks: what size the log had when.
print_pace() {
  local at size from='' since part
  while read -r at size _; do
    [[ "$at $size" =~ ^[0-9]+\.[0-9]+\ [0-9]+$ ]] || continue
    from=$size since=${at%.*}
    [ $((now - since)) -gt 60 ] || break
  done < <(tail -n 13 -- "${1%.log}.marks" 2>/dev/null)
  [ -n "$from" ] && size=$(stat -c %s -- "$1") && [ "$size" -ge "$from" ] || return 0
  part=$((size - from < 65536 ? size - from : 65536))
  printf 'pace %s %s %s\n' $((part ? $(tail -c "$part" -- "$1" | wc -l) * (size - from) / part : 0)) \
    $((now > since ? now - since : 1)) "${1##*/}"
}

print_last_lines() {
  local name line now log
  now=$(date +%s)
  (cd -- "$1" && stat -c '%Y %n' -- rank.*.log 2>/dev/null) |
    while read -r line name; do printf 'silent %s %s\n' "$((now - line))" "$name"; done
  for log in "$1"/rank.*.log; do
    [ -e "$log" ] || continue
    line=$(tail -c 4096 -- "$log" | tr -d '\0' | tail -n 1)
    line=${line%"${line##*[!$'\r']}"} line=${line##*$'\r'}
    printf 'last %s %s\n' "${log##*/}" "${line:0:400}"
    line=$(tail -c 65536 -- "$log" | tr '\0\r' '\n' | LC_ALL=C grep -aim 1 -E 'loss.{0,24}(nan|inf)')
    [ -z "$line" ] || printf 'loss %s %s\n' "${log##*/}" "${line:0:1000}"
    print_pace "$log"
  done
}

while read -r process; do printf 'process %s\n' "$process"; done < <(job_processes)
if cd -- "$jobs" 2>/dev/null; then
  if [ "$#" = 0 ]; then
    for id in *; do [ ! -r "$id/events" ] || print_job "$id" brief; done
  fi
  for id; do
    [ -r "$id/events" ] || continue
    print_job "$id" full
    [ "$details" = 1 ] || continue
    print_last_lines "$id"
    rates "$id/events"
  done
fi
echo end
