#!/usr/bin/env bash
# Prints where each rank of a job on this node is. It pauses nothing and writes nothing.
# Arguments: job folder, its python, seconds that py-spy may take for one attempt.
# Prints for each rank `rank RANK PID STATE WCHAN` of its first thread, WCHAN being the kernel function
# in which it waits, or -; `command`; behind `=` its threads, what the number in the first argument of
# its system call is as a file descriptor, and its kernel stack, for people; where there is a py-spy,
# `spy` with its exit code, and behind `|` its output. Then `end`.
job=$1 python=$2 limit=$3
# shellcheck source=templates/scripts/rank-usage.sh
. rank-usage.sh
# shellcheck source=templates/env/rank-stack.sh
. ../env/rank-stack.sh
if [ -r "$job/events" ]; then
  know_ranks "$job/events"
  spy=$(
    exec </dev/null 2>/dev/null
    set -- "${job%/jobs/*}/env/node.env" "$python"  # the inventory may have any other variables
    # shellcheck disable=SC1090 # a file of the node
    [ ! -r "$1" ] || . "$1" >/dev/null
    find_spy "$2"
  )
  spies=()
  if [ -n "$spy" ]; then
    for pid in "${!rank_of[@]}"; do
      exec {descriptor}< <(run_spy "$spy" "$pid" "$limit" 3)
      # shellcheck disable=SC2154 # exec sets it
      spies[pid]=$descriptor
    done
  fi
  for pid in "${!rank_of[@]}"; do
    print_rank "$pid" "${rank_of[$pid]}"
    [ -z "${spies[pid]-}" ] || cat <&"${spies[pid]}"
  done
fi
echo end
