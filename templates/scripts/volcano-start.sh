#!/bin/bash
# Starts the ranks of one pod of a VolcanoJob that export.volcano made.
#
#   start.sh torchrun -- PYTHON SCRIPT [ARGUMENT ...]              an agent in every pod
#   start.sh mpirun|horovod [OPTION ...] -- PYTHON SCRIPT [...]    from pod 0; the others serve ssh
#   start.sh rank PYTHON SCRIPT [ARGUMENT ...]                     one rank under mpirun
#
# The plugins env and svc of Volcano set VC_TASK_INDEX and VC_WORKER_HOSTS, ssh the keys of root.

# The folder of the vendor's rank-table routing; its bootstrap.sh leaves two files there.
folder=${ROUTING_FOLDER:-/tmp}
environment=$folder/ascendboot-environment
port=7722

if [ "$1" = rank ]; then
  shift
  # sshd gives its sessions nothing of the container's environment.
  # shellcheck disable=SC1090
  . "$environment"
  export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
  export RANK_ID=$RANK RANK_SIZE=$WORLD_SIZE DEVICE_ID=$LOCAL_RANK
  exec "$@"
fi

launcher=$1
options=()
shift
while [ "$1" != -- ]; do
  options+=("$1")
  shift
done
shift

if [ -n "$OPEN_SCRIPT_ADDRESS" ]; then
  # Not in the working directory: routing fails where servers share it.
  (cd "$folder" && wget -q "$OPEN_SCRIPT_ADDRESS/bootstrap.sh" && bash bootstrap.sh) ||
    echo "rank-table routing: $OPEN_SCRIPT_ADDRESS/bootstrap.sh failed; ranks keep the order of the pods" >&2
fi
index=$(cat "$folder/RANK_AFTER_ACC" 2>/dev/null)
first=$(cat "$folder/MASTER_INDEX" 2>/dev/null)
export RANK_AFTER_ACC=${index:-$VC_TASK_INDEX} MA_MASTER_INDEX=${first:-0}
export MASTER_ADDR=$MA_VJ_NAME-$MA_TASK_NAME-$MA_MASTER_INDEX.$MA_VJ_NAME
# The plugin configmap1980 mounts it, and names it in newer versions.
table=/user/config/jobstart_hccl.json
[ -n "$RANK_TABLE_FILE" ] || [ ! -e "$table" ] || export RANK_TABLE_FILE=$table

if [ "$launcher" = torchrun ]; then
  # torchrun replaces $NAME in words of its command line.
  exec "$1" -m torch.distributed.run --nnodes="$MA_NUM_HOSTS" --node_rank="$RANK_AFTER_ACC" \
    --nproc_per_node="$MA_NUM_GPUS" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" \
    --no_python "${@//\$/\$\$}"
fi

(umask 077 && export -p >"$environment")
if [ "$VC_TASK_INDEX" != 0 ]; then
  mkdir -p /run/sshd && ssh-keygen -A >/dev/null
  # It ends with 0 when pod 0 ends it.
  exec "$(command -v sshd)" -D -e -p "$port" -o PidFile="$folder/ascendboot-sshd.pid"
fi

IFS=, read -r -a hosts <<<"$VC_WORKER_HOSTS"
for host in "${hosts[@]:1}"; do
  tries=0
  until ssh -n -p "$port" "$host" true; do
    tries=$((tries + 1))
    [ "$tries" -lt "${SSH_TRIES:-150}" ] || {
      echo "$host: could not start ranks: ssh does not answer on port $port; are sshd and the plugin ssh in its pod?" >&2
      exit 125
    }
    sleep 2
  done
done
slots=$(printf ",%s:$MA_NUM_GPUS" "${hosts[@]}")
number=$((${#hosts[@]} * MA_NUM_GPUS))
if [ "$launcher" = horovod ]; then
  [ ${#options[@]} = 0 ] || options=("--mpi-args=${options[*]@Q}")
  horovodrun --mpi -np "$number" -H "${slots#,}" -p "$port" "${options[@]}" bash "$0" rank "$@"
else
  mpirun --allow-run-as-root -np "$number" -H "${slots#,}" --map-by slot --bind-to none \
    -mca plm_rsh_args "-p $port" "${options[@]}" bash "$0" rank "$@"
fi
code=$?
for host in "${hosts[@]:1}"; do
  ssh -n -p "$port" "$host" "kill \$(cat $folder/ascendboot-sshd.pid)"
done
exit "$code"
