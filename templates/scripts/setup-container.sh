#!/usr/bin/env bash
# Creates a container beside the one that it replaces. That is removed only when the new one runs.
# `containers.created` in the cluster's folder `b` names the engine, which `reset` asks what to remove.
# Arguments: the engine, the cluster, the name, the id of the old container or nothing, the volume, the
# image, then words of `create`. Standard input has two lines of labels, then variables.
# `places`: patterns of devices and files that the container gets where they exist.
: "${b:?}" "${places?}"
shopt -s nullglob
engine=$1 cluster=$2 name=$3 old=$4 volume=$5 image=$6; shift 6
new=$name-ascendboot-new
# Reaps what ends in the container, and ends on SIGTERM.
init='trap exit TERM; while :; do sleep infinity & wait $!; done'
{ IFS= read -r first && IFS= read -r second; } || exit
variables=$(cat)
(umask 022 && mkdir -p -- "$b" && printf '%s\n' "$engine" >>"$b/containers.created") || exit
exec </dev/null >/dev/null

for path in $places; do
  [ -e "$path" ] || continue
  case $path in
    /dev/*) set -- "$@" "--device=$path" ;;
    *) set -- "$@" --mount "type=bind,source=$path,target=$path,readonly" ;;
  esac
done
why=$("$engine" image inspect "$image" 2>&1 >/dev/null) || {
  printf '%s; load or pull the image on this node\n' "$why" >&2
  exit 1
}
# What an earlier run left when it was cut off.
left=$("$engine" ps -aq --filter "name=^$new\$" --filter "label=ascendboot.cluster=$cluster") || exit
[ -z "$left" ] || "$engine" rm --force "$left" || exit
# Host keys, certificates and logs of jobs outlive the container.
"$engine" volume inspect "$volume" 2>/dev/null ||
  "$engine" volume create --label "ascendboot.cluster=$cluster" "$volume" || exit
# Variables and labels reach the engine by pipes: everybody can read the arguments of a program.
"$engine" create --name "$new" --label-file <(printf '%s\n' "$first" "$second") \
  --env-file <(printf '%s\n' "$variables") "$@" --entrypoint bash "$image" -c "$init" || exit
why=$("$engine" start "$new" 2>&1 >/dev/null) || {
  "$engine" rm --force "$new"
  # docker says in one more line that it failed
  printf '%s\n' "${why%$'\n'Error: failed to start containers*}" >&2
  exit 1
}
[ -z "$old" ] || "$engine" rm --force "$old" || exit
"$engine" rename "$new" "$name"
