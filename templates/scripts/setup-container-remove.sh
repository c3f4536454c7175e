#!/usr/bin/env bash
# Lists the container and the volume that setup created, or removes them where `mode` is remove.
# Arguments: the cluster, the name of the container, its volume, the engines to try in order.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${mode:?}"
cluster=$1 name=$2 volume=$3; shift 3
is_ours() { # container or volume, where its labels are, name
  local label
  label=$("$found" "$1" inspect --format "{{index .$2 \"ascendboot.cluster\"}}" "$3" 2>/dev/null)
  [ "$label" = "$cluster" ]
}
# remove KIND NAME WORDS...
remove() {
  printf '%s %s\n' "$1" "$2"
  [ "$mode" = remove ] || return
  "$found" "${@:3}" "$2" >/dev/null 2>&1 || printf 'problem could not remove the %s %s\n' "$1" "$2"
}
for engine; do
  locate "$engine" "/usr/local/bin/$engine" "/usr/bin/$engine" || continue
  for each in "$name" "$name-ascendboot-new" "$name-ascendboot-old"; do
    ! is_ours container Config.Labels "$each" || remove container "$each" rm --force
  done
  ! is_ours volume Labels "$volume" || { remove volume "$volume" volume rm; break; }
done
echo end
