#!/usr/bin/env bash
# Queries how the network ports of NPUs are set, and who uses the NPUs. Arguments: ID:WHAT,WHAT… of
# each device; each call may take `call_s` seconds.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
# shellcheck source=templates/scripts/npu-users.sh
. npu-users.sh
: "${call_s:?}"
section uid 0 "$EUID"
content hccn_conf /etc/hccn.conf
if locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  query_vendor processes merged timeout -k 1 "$call_s" "$found" info
  table=$output
  counts_up "$table" || query_vendor mapping '' timeout -k 1 "$call_s" "$found" info -m
  list_users "$table"
  section holders 0 "$out"
else
  section processes 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
fi
if locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for each; do
    id=${each%%:*} whats=,${each#*:},
    whats=${whats//,ip,/,} whats=${whats//,gateway,/,}
    for what in ip gateway ${whats//,/ } process; do
      query_vendor "$id/$what" merged timeout -k 1 "$call_s" "$found" -i "$id" "-$what" -g
    done
  done
else
  section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section end 0 ''
