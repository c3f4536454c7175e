#!/usr/bin/env bash
# Lists the running containers of each engine, with their images. `limit_s`: seconds for each call.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${limit_s:?}"
for engine in docker podman; do
  locate "$engine" "/usr/local/bin/$engine" "/usr/bin/$engine" || continue
  query "$engine" timeout -k 1 "$limit_s" "$found" ps --format '{{.Names}} {{.Image}}'
done
section end 0 ''
