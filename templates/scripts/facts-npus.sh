#!/usr/bin/env bash
# Queries the NPUs with npu-smi and hccn_tool; each call may take `call_s` seconds. Arguments: `ports` to
# query how the ports are set; `lldp` and the ids of the devices whose LLDP neighbour is queried (none: all).
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
: "${call_s:?}"
more=
if [ "${1-}" = ports ]; then
  more='gateway netdetect mtu'; shift
  [ ! -e /etc/hccn.conf ] || content hccn_conf /etc/hccn.conf
fi
npu_smi=
if locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  npu_smi=$found
  query_vendor mapping '' timeout -k 1 30 "$found" info -m
else
  for name in table mapping; do
    section "$name" 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
  done
fi
read_mapping "$output"
if [ -z "$column" ]; then
  set +f
  for node in /dev/davinci[0-9]*; do
    id=${node#/dev/davinci}
    case $id in *[!0-9]*) ;; *) ids="$ids $id" ;; esac
  done
  set -f
fi
section ids 0 "${ids# }"
vnic=
if [ "$family" = a3 ]; then
  vnic=vnic
  for chip in $chips; do
    card=${chip#*/}
    query_vendor "${chip%%/*}/spod" merged timeout -k 1 "$call_s" "$npu_smi" info -t spod-info \
      -i "${card%/*}" -c "${card#*/}"
  done
fi
if [ "$family" = a5 ]; then
  # Its hccn_tool has other commands; HCCL reads this file.
  info=/etc/hccl_rootinfo.json
  content root_info $info
  topology='"topo_file_path"[[:space:]]*:[[:space:]]*"([^"]*)"'
  if [[ $({ echo "$(<$info)"; } 2>/dev/null) =~ $topology ]] && [ ! -e "${BASH_REMATCH[1]}" ]; then
    section topology 1 "${BASH_REMATCH[1]}"
  fi
  section hccn_tool 0 ''
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for id in $ids; do
    for what in ip link tls $vnic $more; do
      query_vendor "$id/$what" merged timeout -k 1 "$call_s" "$found" -i "$id" "-$what" -g
    done
  done
else
  section hccn_tool 127 \
    'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
if [ "${1-}" = lldp ] && [ "$family" != a5 ] && [ "$found" ]; then
  shift
  used=$*
  for id in ${used:-$ids}; do
    query_vendor "$id/lldp" merged timeout -k 1 "$call_s" "$found" -i "$id" -lldp -g
  done
fi
# Comes last: only a warning depends on it, and it must not use up the time of the others.
[ -z "$npu_smi" ] || query_vendor table '' timeout -k 1 "$call_s" "$npu_smi" info
section end 0 ''
