#!/usr/bin/env bash
# Ends whatever of a job still runs on this node: known by pid and start time, or by the job's id.
#
#   JOB_FOLDER LINGER GRACE
#
# LINGER: tenths of a second in which processes may end without a signal. GRACE: the same after SIGTERM.
# Prints `ended PID COMMAND` for what it ended, `left PID COMMAND` for what it could not end, `size
# BYTES NAME` for the files of the job, and `full BYTES FOLDER` where almost no space is free.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
job=$1 linger=$2 grace=$3
unset ASCENDBOOT_JOB_ID
print_each() {
  local pid words
  for pid in "${pids[@]}"; do
    words=$({ tr '[:cntrl:]' ' ' </proc/"$pid"/cmdline | head -c 200; } 2>/dev/null)
    printf '%s %s %s\n' "$1" "$pid" "$words"
  done
}
if ! all_end_within find_all "$job" "$linger"; then
  print_each ended
  kill -TERM "${pids[@]}" 2>/dev/null
  all_end_within find_all "$job" "$grace" || kill_processes find_all "$job" || print_each left
fi
cd -- "$job" 2>/dev/null || exit 0
stat -c 'size %s %n' -- *.log events
read -r free block < <(stat -f -c '%f %S' .)
[ $((free * block)) -ge 1048576 ] || printf 'full %s %s\n' $((free * block)) "$job"
rm -f -- open ending
