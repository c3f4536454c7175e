#!/usr/bin/env bash
# Creates a container, re-creates it, or starts it. What it replaces is removed only when the new one
# runs, and is started again if that fails.
# Arguments: create, replace or start; the engine, the name, the cluster, its volume, the image, `pull`
# or nothing, then the words of `create`. Standard input has three lines of labels, then variables.
mode=$1 engine=$2 name=$3 cluster=$4 volume=$5 image=$6 pull=$7; shift 7
new=$name-ascendboot-new old=$name-ascendboot-old
# Reaps what ends in the container, and ends on SIGTERM.
init='trap exit TERM; while :; do sleep infinity & wait $!; done'
{ IFS= read -r first && IFS= read -r second && IFS= read -r third; } || exit
variables=$(cat)

label_of() {
  "$engine" "$1" inspect --format "{{index .$2 \"ascendboot.cluster\"}}" "$3" 2>/dev/null </dev/null
}
is_ours() { [ "$(label_of container Config.Labels "$1")" = "$cluster" ]; }
# Removes what an earlier run left when it was cut off.
remove_left() { ! is_ours "$1" || "$engine" rm --force "$1" >/dev/null; }
quietly() { "$engine" "$@" </dev/null >/dev/null; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

# Variables and labels reach the engine by pipes: everybody can read the arguments of a program.
create() {
  "$engine" create --name "$1" --label-file <(printf '%s\n' "$first" "$second" "$third") \
    --env-file <(printf '%s\n' "$variables") "${@:2}" --entrypoint bash "$image" -c "$init" \
    </dev/null >/dev/null
}

if [ "$mode" = start ]; then
  is_ours "$name" || fail "$name is not ascendboot's"
  quietly start "$name" && remove_left "$old"
  exit
fi
if [ -n "$pull" ] && ! quietly image inspect "$image" 2>/dev/null; then
  quietly pull "$image" || exit
fi
# Host keys, certificates and logs of jobs outlive the container.
label=$(label_of volume Labels "$volume") || {
  quietly volume create --label "ascendboot.cluster=$cluster" "$volume" || exit
  label=$cluster
}
[ "$label" = "$cluster" ] || fail "the volume $volume exists and is not ascendboot's; remove it"

remove_left "$new" || exit
if [ "$mode" = create ]; then
  create "$name" "$@" || exit
  quietly start "$name" || { quietly rm --force "$name"; exit 1; }
  remove_left "$old"
  exit
fi
is_ours "$name" || fail "$name is not ascendboot's"
remove_left "$old" && create "$new" "$@" || exit
quietly stop "$name" && quietly rename "$name" "$old" && quietly rename "$new" "$name" &&
  quietly start "$name" && { quietly rm "$old" || exit; exit 0; }
# Back to what was there.
if is_ours "$old"; then
  ! is_ours "$name" || quietly rm --force "$name"
  quietly rename "$old" "$name"
fi
remove_left "$new"
quietly start "$name"
exit 1
