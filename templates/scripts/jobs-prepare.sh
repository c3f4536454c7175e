#!/usr/bin/env bash
# Checks that this node can take part in a job, then creates the job's folder with its empty logs.
# Prints what is missing, one reason per line; then nothing of the folder is left.
#
#   BASE JOB_FOLDER MPIRUN PYTHON SCRIPT WORKDIR RANK_TABLE DIGEST MEETING_POINT ALONE WRITE LOG...
#
# Empty: MPIRUN where none takes part, SCRIPT when it is copied, RANK_TABLE and DIGEST without one,
# MEETING_POINT (ADDRESS/PORT) on nodes where the ranks do not meet, ALONE where other jobs may run.
# WRITE is a script that writes the job's files from stdin.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
base=$1 job=$2 mpirun=$3 python=$4 script=$5 workdir=$6 table=$7 digest=$8
chief=$9 alone=${10} write=${11}
shift 11
bad=0 made=''
refuse() { printf '%s\n' "$1"; bad=1; }
if [ -n "$mpirun" ]; then
  for program in "$mpirun" "${mpirun%/*}/orted"; do
    [ -x "$program" ] || refuse "no program $program; install Open MPI or run setup"
  done
fi
if [ ! -e "$base/env/rank-exec" ]; then refuse "no program $base/env/rank-exec; run setup"
elif [ ! -x "$base/env/rank-exec" ]; then
  refuse "$base/env/rank-exec cannot be run; mount the file system of $base without noexec"
fi
[ -r "$base/env/node.env" ] || refuse "no file $base/env/node.env; run setup"
check_table() {
  local found
  found=$(sha256sum -- "$table" 2>/dev/null)
  [ -n "$found" ] || refuse "no rank table $table; run setup"
  [ -z "$found" ] || [ "${found%% *}" = "$digest" ] ||
    refuse "the rank table $table is not the one of this plan; run setup"
}
# A table of this job alone is written below.
case $table in '' | "$job"/*) ;; *) check_table ;; esac
# Whatever answers now is not one of the ranks that will meet there.
# shellcheck disable=SC2016 # the inner bash expands it
if [ -n "$chief" ] && timeout 2 bash -c ': 3<>"/dev/tcp/$1"' - "$chief" 2>/dev/null; then
  refuse "port ${chief#*/} of ${chief%/*}, where the ranks are to meet, is taken; \
end what listens there, or state another resources.chief_port"
fi
[ -z "$script" ] || [ -r "$script" ] || refuse "no script $script"
case $workdir in "$job"/*) ;; *) [ -d "$workdir" ] || refuse "no folder $workdir" ;; esac
( set -- "$workdir" "$python"  # the inventory may have variables of any other name
  # shellcheck disable=SC1091 # setup wrote it
  [ ! -r "$base/env/node.env" ] || . "$base/env/node.env"
  cd -- "$1" 2>/dev/null
  command -v -- "$2" ) </dev/null >/dev/null ||
  refuse "no program $python; install it or state another as code.python in the inventory"
if [ "$bad" = 0 ]; then
  mkdir -p -- "$base/jobs" && mkdir -m 0700 -- "$job" && made=1 && : >"$job/making" || bad=1
fi
# Prints other jobs that are about to start. Of two that are prepared at the same time only the first
# starts: its `making` is older. A job that is ready (`open`) did not see this one and will start.
starting() {
  local making=(-name making -newermt '-90 seconds') ready=(-name open -newermt '-30 seconds') sign
  find "${base%/*}"/*/jobs -mindepth 2 -maxdepth 2 "${making[@]}" -o "${ready[@]}" 2>/dev/null |
    while IFS= read -r sign; do
      if [ "${sign%/*}" = "$job" ] || [ -s "${sign%/*}/events" ]; then continue; fi
      if [ "${sign##*/}" = making ] && [ "$job/making" -ot "$sign" ]; then continue; fi
      basename -- "${sign%/*}"
    done
}
reported=' '
refuse_job() {
  case $reported in *" $1 "*) ;; *) reported+="$1 "; refuse "job $1 $2" ;; esac
}
if [ -n "$alone" ]; then
  for other in $(job_processes | cut -d ' ' -f 2); do
    refuse_job "$other" "runs on this node; wait for its end, or end it: stop --job $other"
  done
  for other in $(starting); do
    refuse_job "$other" \
      "is being started on this node, too; see what becomes of it: status --job $other"
  done
fi
[ "$bad" = 0 ] || { [ -z "$made" ] || rm -rf -- "$job"; exit 1; }
bash -c "$write" && cd -- "$job" && {
  case $table in "$job"/*) check_table ;; esac
  folders=()
  for file in "$@" events made ending open; do
    case $file in *.log) : >"${file%.log}.marks" ;; esac
    case $file in rank.*.log) folders+=("${file%.log}.plog") ;; esac
    : >"$file" || break
  done
  # For the own logs of the NPU software.
  [ "${#folders[@]}" = 0 ] || mkdir -m 0700 -- "${folders[@]}"
  # The end of the job must find room even when the disk fills up.
  fallocate -n -l 524288 events 2>/dev/null
  # rank-exec compares this count at the end of a rank: did the OOM killer end processes meanwhile?
  grep -s '^oom_kill ' /proc/vmstat >memory
  # Files that are not on this list when the job is over are the user's: checkpoints, caches.
  [ -e open ] && [ "$bad" = 0 ] && rm making && find . -type f >made
} && exit 0
rm -rf -- "$job"
exit 1
