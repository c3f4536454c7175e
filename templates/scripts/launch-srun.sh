#!/usr/bin/env bash
# Functions of `launch.sh` for srun. Needs `allocation`, the job id of Slurm.
# shellcheck source=templates/scripts/launch-single.sh
. launch-single.sh
# On SIGTERM srun (22.05) would end its tasks by SIGKILL at once. So they get SIGCONT through Slurm: with
# it rank-exec begins to end its rank, within the grace.
launcher() {
  local srun
  run &
  srun=$!
  trap 'end_step "$srun"' TERM INT HUP
  while kill -0 "$srun" 2>/dev/null; do wait "$srun"; done
  wait "$srun"
}
# end_step PID: of srun, whose step has the name of the job.
end_step() {
  local step
  step=$(timeout -k 1 10 squeue --noheader --steps --jobs="${allocation:?}" --format='%i %j' |
    awk -v name="${job##*/}" '$2 == name { print $1 }')
  if [ -z "$step" ] || ! timeout -k 1 10 scancel --signal=CONT "$step"; then kill -TERM "$1"; fi
}
