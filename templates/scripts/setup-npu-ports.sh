#!/usr/bin/env bash
# Sets network ports of NPUs with hccn_tool, one after the other, and ends at the first failure. `b` is
# the cluster's folder. Stdin where `mode` is set: per line `ID WHAT was VALUE…` (`-`: none), what is
# there before, and `ID WHAT set VALUE…`. The first value that was there is noted in
# npu-network.before; where `mode` is restore, the ports get these values back.
: "${b:?}" "${mode:?}" "${busy_s:?}" "${link_s:?}" "${call_s:?}"
# shellcheck source=templates/scripts/processes.sh
. processes.sh
export LC_ALL=C
note=$b/npu-network.before
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
# has ID WHAT VALUE…: whether the device answers that it has these values
has() {
  hccn -i "$1" "-$2" -g || return 1
  case $2 in
    ip) [[ $answer == *"ipaddr:$3"*"netmask:$4"* ]] && [[ $answer$'\n' == *":$3"$'\n'*":$4"$'\n'* ]] ;;
    gateway) [[ $answer$'\n' == *"gateway:$3"[,$'\n']* ]] ;;
    netdetect) [[ $answer$'\n' =~ addr(ess)?:\ ?"$3"[[:space:]] ]] ;;
    mtu) [[ $answer$'\n' == *"mtu:$3"$'\n'* ]] ;;
    tls) [[ $answer == *"tls switch[$3]"* ]] ;;
  esac
}
set_port() { # ID WHAT VALUE…
  local words
  case $2 in
    ip) words=(address "$3" netmask "$4"); changed+=" $1" ;;
    netdetect) words=(address "$3") ;;
    mtu) words=(size "$3") ;;
    tls) words=(enable "$3") ;;
    *) words=("$2" "$3") ;;
  esac
  hccn -i "$1" -process -g
  case $answer in *'process: exist'*) fail "device $1 is in use (hccn_tool -i $1 -process -g)" ;; esac
  hccn -i "$1" "-$2" -s "${words[@]}" ||
    fail "hccn_tool -i $1 -$2 -s ${words[*]}: ${answer//$'\n'/ }"
  has "$@" || fail "device $1 has another $2 after hccn_tool -i $1 -$2 -s ${words[*]}: ${answer//$'\n'/ }"
}
changed=
if [ "$mode" = restore ]; then
  [ -e "$note" ] || exit 0
  # Addresses first: hccn_tool refuses a gateway of another network. The last one set comes first:
  # it also refuses an address that another device still has.
  while read -r -u 3 id what values; do
    # shellcheck disable=SC2086 # values are words
    [ "$values" = - ] || has "$id" "$what" $values || set_port "$id" "$what" $values
  done 3< <(grep ' ip ' "$note" | tac; grep -v ' ip ' "$note")
  rm -f -- "$note"
else
  (umask 022 && mkdir -p -- "$b") || exit 1
  while read -r -u 3 id what verb values; do
    if [ "$verb" = was ]; then
      grep -qs "^$id $what " "$note" || echo "$id $what $values" >>"$note" || exit 1
    else
      # shellcheck disable=SC2086 # values are words
      set_port "$id" "$what" $values
    fi
  done 3<&0
fi
# A new address takes the link down for about 15 s. The pings that follow tell what does not work.
read_uptime; until=$((up + link_s))
for id in $changed; do
  while hccn -i "$id" -link -g; [[ $answer == *DOWN* ]] && read_uptime && [ "$up" -lt "$until" ]; do
    sleep 0.5
  done
done
exit 0
