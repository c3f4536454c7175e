#!/usr/bin/env bash
# Queries what a container that setup creates needs on this host: the image, and paths that exist.
# Arguments: the image, the number of engines, the engines; paths or patterns of paths.
# `limit_s`: seconds for each call.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${limit_s:?}"
image=$1 engines=("${@:3:$2}"); shift "$(($2 + 2))"
for engine in "${engines[@]}"; do
  locate "$engine" "/usr/local/bin/$engine" "/usr/bin/$engine" || continue
  section "$engine" 0 "$found"
  query "$engine/image" timeout -k 1 "$limit_s" "$found" image inspect --format '{{.Id}}' "$image"
done
section places 0 "$(for place in "$@"; do compgen -G "$place"; done)"
section end 0 ''
