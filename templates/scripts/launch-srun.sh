#!/usr/bin/env bash
# Functions of `launch.sh` for srun. Needs `allocation`, the job id of Slurm.
# shellcheck source=templates/scripts/launch-single.sh
. launch-single.sh
# On SIGTERM srun (22.05) would end its tasks by SIGKILL at once. So they get SIGCONT through Slurm: with
# it rank-exec begins to end its rank, within the grace. When srun is killed, Slurm lets its tasks run.
launcher() {
  local srun code
  run &
  srun=$!
  trap 'end_step || kill -TERM "$srun"' TERM INT HUP
  while kill -0 "$srun" 2>/dev/null; do wait "$srun"; done
  wait "$srun"
  code=$?
  [ "$code" = 0 ] || end_step
  return "$code"
}
# The step has the name of the job.
end_step() {
  local step
  step=$(timeout -k 1 10 squeue --noheader --steps --jobs="${allocation:?}" --format='%i %j' |
    awk -v name="${job##*/}" '$2 == name { print $1 }')
  [ -n "$step" ] && timeout -k 1 10 scancel --signal=CONT "$step"
}
