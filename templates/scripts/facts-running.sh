#!/usr/bin/env bash
# facts-running.sh ENGINE: lists its running containers with their images, if it is there, for at
# most `limit_s` seconds.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${limit_s:?}"
if locate "$1" "/usr/local/bin/$1" "/usr/bin/$1"; then
  query "$1" timeout -k 1 "$limit_s" "$found" ps --format '{{.Names}} {{.Image}}'
fi
section end 0 ''
