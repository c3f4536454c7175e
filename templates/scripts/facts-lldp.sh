#!/usr/bin/env bash
# Queries the LLDP neighbour of each device with hccn_tool; each call may take `call_s` seconds.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
: "${call_s:?}"
ids=
set +f
for device in /dev/davinci[0-9]*; do
  id=${device#/dev/davinci}
  case $id in *[!0-9]*) ;; *) ids="$ids $id" ;; esac
done
set -f
section ids 0 "${ids# }"
if locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for id in $ids; do
    query_vendor "$id/lldp" merged timeout -k 1 "$call_s" "$found" -i "$id" -lldp -g
  done
else
  section hccn_tool 127 \
    'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section end 0 ''
