#!/usr/bin/env bash
# Queries the state of some devices. Arguments: what to query, the most important first: `health` and
# `ecc` of npu-smi, `ill` for its table and the health of the devices that are not OK there, `link`, `net_health`, `link_stat` and `stat` of hccn_tool, `killed` for the processes
# that the kernel ended out of memory; then the physical ids of the devices. Each call may take `call_s`
# seconds, all together about `enough`: what is left then is not queried.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/vendor-tools.sh
. vendor-tools.sh
: "${call_s:?}" "${unlisted:?}"
npu_smi_of() { # QUESTION ID
  local chip npu
  case " $chips " in *" $2/"*) ;; *)
    section "$2/$1" 1 "$absent"; return ;;
  esac
  chip=${chips##* "$2/"}; chip=${chip%% *}; npu=${chip%/*}; chip=${chip#*/}
  # there is no -c on 950, whose physical id is the NPU's
  if [ "$family" = a5 ]; then set -- "$1" "$2" -i "$2"; else set -- "$1" "$2" -i "$npu" -c "$chip"; fi
  query_vendor "$2/$1" merged timeout -k 1 "$call_s" "$npu_smi" info -t "$1" "${@:3}"
}
list_chips() {
  absent='npu-smi info -m was not understood'
  query_vendor mapping '' timeout -k 1 "$call_s" "$npu_smi" info -m
  read_mapping "$output"
  [ -z "$column" ] || absent=$unlisted
}
health_of_ill() { # ID...
  local id chip ill
  if [ -z "$npu_smi" ]; then section table 127 "$absent"; return; fi
  query_vendor table merged timeout -k 1 "$call_s" "$npu_smi" info
  read_ill "$output"
  [ -n "$ill" ] || ! counts_up "$output" || return 0
  [ "$chips" ] || list_chips
  for id; do
    chip=${chips##* "$id/"}; chip=${chip%% *}
    case " $chips " in *" $id/"*) case "$ill " in *" ${chip%/*} "*) npu_smi_of health "$id" ;; esac ;; esac
  done
}
questions=$1; shift
chips=; family=; npu_smi=; hccn_tool=
absent='npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
case " $questions " in *' health '* | *' ecc '* | *' ill '*)
  if locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
    npu_smi=$found
    case " $questions " in *' health '* | *' ecc '*) list_chips ;; esac
  fi ;;
esac
if locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then hccn_tool=$found
else section hccn_tool 127 'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'; fi
for question in $questions; do
  case $question in
    killed)
      read -r up _ </proc/uptime
      section killed 0 "$up"$'\n'"$(timeout -k 1 1 dmesg 2>/dev/null </dev/null |
        grep -aE 'ut of memory: Kill(ed)? process [0-9]+ \(' | tail -n 20)" ;;
    ill) health_of_ill "$@" ;;
    health | ecc) for id; do npu_smi_of "$question" "$id"; done ;;
    *)
      for id; do
        if [ "$family" = a5 ]; then break # its tool has other commands
        elif [ "$hccn_tool" ]; then
          query_vendor "$id/$question" merged timeout -k 1 "$call_s" "$hccn_tool" -i "$id" \
            "-$question" -g
        fi
      done ;;
  esac
done
section end 0 ''
