#!/usr/bin/env bash
# Functions that read processes from /proc, and find and end those of a job on this node.
# Processes of a job carry its id in their environment, or stand in its events with pid and start.
# shellcheck disable=SC2034 # variables are results

# read_uptime: sets `up` to the whole seconds since boot; SECONDS jumps when the clock is set.
read_uptime() { read -r up _ </proc/uptime; up=${up%.*}; }

# read_stat PID: sets `fields` to what follows the process's name in its stat, in one read, for the
# process may end between two. 0 is its state, 1 its parent, 19 its start time.
read_stat() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2206 # a here string would need a file, and the disk may be full
  fields=(${line##*) })
}

# runs PID START: whether this process still exists and is no zombie.
runs() {
  local fields
  read_stat "$1" && [ "${fields[19]}" = "$2" ] && [ "${fields[0]}" != Z ]
}

# is_ours PID: whether this user started it. Any user can set the variable that holds a job's id:
# all four user ids must be this user's, and no setuid program may have set them.
is_ours() {
  local key uids
  while read -r key uids && [ "$key" != Uid: ]; do :; done 2>/dev/null <"/proc/$1/status"
  [ "${uids//[[:space:]]/ }" = "$EUID $EUID $EUID $EUID" ] && [ ! -u "/proc/$1/exe" ]
}

# job_processes: prints `PID JOB_ID` of this user's processes that carry the id of any job.
job_processes() {
  local entry pid
  while IFS= read -r -d '' entry; do
    pid=${entry#/proc/} pid=${pid%%/*}
    ! is_ours "$pid" || printf '%s %s\n' "$pid" "${entry#*ASCENDBOOT_JOB_ID=}"
  done < <(set +f; exec grep -sazoHx 'ASCENDBOOT_JOB_ID=[A-Za-z0-9._-][A-Za-z0-9._-]*' \
    /proc/[0-9]*/environ)
}

# find_marked JOB_FOLDER: puts the pids of all processes with this job's id, but this shell's, into
# `pids`; whether there are any.
find_marked() {
  local file
  pids=()
  while IFS= read -r file; do
    file=${file%/environ} file=${file#/proc/}
    [ "$file" = "$$" ] || pids+=("$file")
  done < <(grep -lszxF -- "ASCENDBOOT_JOB_ID=${1##*/}" /proc/[0-9]*/environ)
  [ "${#pids[@]}" -gt 0 ]
}

# find_all JOB_FOLDER: as find_marked, with what the job's events record but the supervisor.
find_all() {
  local who number key pid word start
  find_marked "$1"
  if [ -r "$1/events" ]; then
    while read -r who number key pid word start; do
      if [ "$who" = supervisor ] || [ "$key" != pid ]; then continue; fi
      case " ${pids[*]} " in *" $pid "*) continue ;; esac
      if runs "$pid" "$start"; then pids+=("$pid"); fi
    done <"$1/events"
  fi
  [ "${#pids[@]}" -gt 0 ]
}

# all_end_within FIND JOB_FOLDER TENTHS: whether FIND (find_marked or find_all) finds nothing more
# within so many tenths of a second; `pids` are those that are left.
all_end_within() {
  local tick
  for ((tick = 0; ; tick++)); do
    "$1" "$2" || return 0
    [ "$tick" -lt "$3" ] || return 1
    sleep 0.1
  done
}

# kill_processes FIND JOB_FOLDER: SIGKILL until nothing is left, five times at most.
kill_processes() {
  local round
  for round in 1 2 3 4 5; do
    "$1" "$2" || return 0
    kill -KILL "${pids[@]}" 2>/dev/null
    if all_end_within "$1" "$2" 10; then return 0; fi
  done
  return 1
}

# end_processes FIND JOB_FOLDER TENTHS: SIGTERM, so many tenths of a second, SIGKILL; whether
# nothing is left.
end_processes() {
  "$1" "$2" || return 0
  kill -TERM "${pids[@]}" 2>/dev/null
  all_end_within "$1" "$2" "$3" || kill_processes "$1" "$2"
}

# words_of PID: sets `words` to the beginning of its command line.
words_of() {
  # If the process ends meanwhile, bash's `read` leaves the old value in `word`.
  local word
  words=
  while word= && [ "${#words}" -lt 120 ] && { IFS= read -r -d '' word || [ -n "$word" ]; }; do
    words+="${words:+ }${word//[$'\n\t']/ }"
  done 2>/dev/null <"/proc/$1/cmdline"
  words=${words:0:120}
}
