#!/usr/bin/env bash
# Queries the devices before a job. Arguments: "users" to list the users of the devices; which of
# `link` and `tls` to query, and of which devices; "pods" if these are in several super pods; then
# DEVICE=IP as in the rank table. A busy tool
# gets little time (`left`): the job waits too.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
: "${call_s:?}"
processes=$1 questions=$2 linked=$3 pods=$4; shift 4
table=
if [ -z "$processes" ]; then :
elif locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  query_vendor processes merged timeout -k 1 "$call_s" "$found" info
  table=$output
  counts_up "$table" || query_vendor mapping '' timeout -k 1 "$call_s" "$found" info -m
  out=''; seen=' '
  while IFS='|' read -r _ _ pid _; do
    pid=${pid//[[:space:]]/}
    case $pid in '' | *[!0-9]*) continue ;; esac
    case $seen in *" $pid "*) continue ;; esac
    seen+="$pid " id=
    [ -e "/proc/$pid" ] || continue
    while IFS= read -r -d '' entry; do
      case $entry in ASCENDBOOT_JOB_ID=*) id=${entry#*=} ;; esac
    done 2>/dev/null <"/proc/$pid/environ"
    is_ours "$pid" || id=
    words_of "$pid"
    out+="$pid ${id:--} $words"$'\n'
  done <<<"${table#*Process id}"
  section holders 0 "$out"
else
  section processes 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
fi
suspects=
if [ "$#" -gt 0 ] && [ -e /etc/hccn.conf ]; then
  content hccn_conf /etc/hccn.conf
  conf=$'\n'$output
  for pair; do
    id=${pair%%=*}
    case $conf in *$'\n'"address_$id="*) ;; *) continue ;; esac
    value=${conf#*$'\n'"address_$id="}; value=${value%%[$'\r\n ']*}
    [ "$value" = "${pair#*=}" ] || suspects+=" $id"
  done
fi
# In a super pod, devices of A3 (their table has Phy-ID) need neither link nor TLS.
case $pods$table in *Phy-ID*) [ -n "$pods" ] || questions= ;; esac
# hccn_tool takes up to a second per device: addresses only where the file already disagrees, and
# links before TLS, because without a link no job runs.
if [ -z "$suspects$questions" ]; then :
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
  for id in $suspects; do query_vendor "$id/ip" merged timeout -k 1 "$call_s" "$found" -i "$id" -ip -g; done
  for what in $questions; do
    for id in $linked; do
      query_vendor "$id/$what" merged timeout -k 1 "$call_s" "$found" -i "$id" "-$what" -g
    done
  done
else
  section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
section end 0 ''
