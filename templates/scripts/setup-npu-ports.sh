#!/usr/bin/env bash
# Sets network ports of NPUs with hccn_tool, one after the other, and ends at the first failure. `b` is
# the cluster's folder. Stdin: calls of hccn_tool, and before them lines `device ID: WHAT VALUE`, what a
# port has now. The first value of each is noted in npu-network.before, which ends where `mode` is
# restore. What was set is not read back: a query follows.
: "${b:?}" "${mode:?}" "${call_s:?}"
# shellcheck source=templates/scripts/processes.sh
. processes.sh
export LC_ALL=C
busy_s=20 link_s=25 note=$b/npu-network.before
for lib in /usr/local/Ascend/driver/lib64{,/driver,/common}; do
  [ -d "$lib" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
tool=$(type -P hccn_tool) || tool=/usr/local/Ascend/driver/tools/hccn_tool
fail() { echo "$1" >&2; exit 1; }
# hccn ARGUMENT…: one call; waits while the tool is busy; sets `answer`
hccn() {
  local code until
  read_uptime; until=$((up + busy_s))
  while :; do
    code=0; answer=$(timeout -k 1 "$call_s" "$tool" "$@" 2>&1 </dev/null) || code=$?
    case $answer in *'is busy'*) ;; *) return "$code" ;; esac
    read_uptime; [ "$up" -lt "$until" ] || return "$code"
    sleep 0.5
  done
}
(umask 022 && mkdir -p -- "$b") || exit 1
changed=
while IFS= read -r -u 3 line; do
  read -r -a words <<<"$line"
  id=${words[2]}
  case $line in
    device*)
      grep -qsF "${words[*]:0:3} " "$note" || echo "$line" >>"$note" || exit 1
      continue ;;
    *' -ip -s '*) changed+=" $id" ;;
  esac
  hccn -i "$id" -process -g
  case $answer in *'process: exist'*) fail "device $id is in use (hccn_tool -i $id -process -g)" ;; esac
  hccn "${words[@]:1}" || {
    case $answer in *conflicted*) answer+=' Another NPU of this server has it; set unused addresses first.' ;; esac
    fail "$line: ${answer//$'\n'/ }"
  }
done 3<&0
# A new address takes the link down for about 15 s. The pings that follow tell what does not work.
read_uptime; until=$((up + link_s))
for id in $changed; do
  while hccn -i "$id" -link -g; [[ $answer == *DOWN* ]] && read_uptime && [ "$up" -lt "$until" ]; do
    sleep 0.5
  done
done
[ "$mode" = restore ] || exit 0
rm -f -- "$note"
rmdir -- "$b" 2>/dev/null && rmdir -- "${b%/*}" 2>/dev/null
exit 0
