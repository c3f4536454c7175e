#!/usr/bin/env bash
# Calls npu-smi and hccn_tool, which answer one caller at a time; needs sections.sh, processes.sh.
# `left`: how long all calls together wait for a busy tool, in tenths of a second. After `enough`
# seconds no further call is made.
: "${left:?}" "${enough:?}"
set -f
# query_vendor NAME MERGED PROGRAM...: as query or query_both, but waits while the tool is busy and
# does not repeat a call that hung; sets `output`
query_vendor() {
  local name=$1 merged=$2 code pause=1; shift 2
  read_uptime
  if [ "$((up - began))" -ge "$enough" ]; then
    section "$name" 124 "not queried: the devices before took $((up - began)) s"; return
  fi
  while :; do
    if [ "$merged" ]; then both_of "$@"; else answer_of "$@"; fi
    [ "${#output}" -le "$most" ] || break
    case $output in *'is busy'* | *'because the device is used'*) ;; *) break ;; esac
    [ "$left" -gt 0 ] || break
    sleep "$((pause / 10)).$((pause % 10))"
    left=$((left - pause)); pause=$((pause * 2)); [ "$pause" -le 20 ] || pause=20
  done
  section "$name" "$code" "$output"
  [ "${#output}" -le "$most" ] || output=
}
# In a table without physical ids the NPU ids stand for them if they count up from 0, as does the
# single id of a 950. Otherwise npu-smi runs once more, which takes time.
counts_up() { # TABLE
  local bar id name next=0
  case $1 in *Phy-ID*) return ;; esac
  while read -r bar id name _; do
    case $bar$id in '|' | '|'*[!0-9]* | [!\|]*) continue ;; esac
    case $name in *[!0-9\|]*) [ "$id" = "$next" ] || return 1; next=$((next + 1)) ;; esac
  done <<<"${1%%Process id*}"
}
# read_ill TABLE: sets `ill` to the ids of NPUs that `npu-smi info` does not show as OK
# shellcheck disable=SC2034 # variables are results
read_ill() {
  local first second third word
  ill=
  while IFS='|' read -r _ first second third _; do
    first=${first#"${first%%[0-9]*}"}; first=${first%%[!0-9]*}
    for word in $second $third; do
      case $first$word in [0-9]*Warning | [0-9]*Alarm | [0-9]*Critical | [0-9]*UNKNOWN) ill+=" $first" ;; esac
    done
  done <<<"${1%%Process id*}"
}
# read_mapping TEXT: sets `ids`, the physical ids that `npu-smi info -m` lists, `chips` (ID/NPU/CHIP
# of each), `family` (a3, a5 or nothing) and `column` (empty: the text is not understood)
# shellcheck disable=SC2034 # variables are results
read_mapping() {
  local lines line cells word i ifs=$IFS
  ids=; column=; chips=; family=; IFS=$'\n'
  # shellcheck disable=SC2206 # a here string would need a file, and set -f is on
  lines=($1); IFS=$ifs
  for line in "${lines[@]}"; do
    case $line in *'NPU ID'*'Chip Name'*)
      line=${line//NPU ID/npu}; line=${line//Slot ID/slot}; line=${line//Chip ID/chip}
      line=${line//Chip Logic ID/logic}; line=${line//Chip Phy-ID/physical}
      i=0; for word in $line; do
        case $word in physical) column=$i ;; logic) column=${column:-$i} ;; esac
        i=$((i + 1))
      done
      continue ;;
    esac
    [ "$column" ] || continue
    # shellcheck disable=SC2206 # likewise
    cells=($line)
    [ "${cells[0]}" != -1 ] || continue
    # A3 has two chips on a card; a single one of that name is a 910
    case $line in
      *Ascend910_93*) family=a3 ;;
      *' Ascend910' | *' Ascend910 '*) [ "${cells[1]}" = 0 ] || family=a3 ;;
      *Ascend950*) family=a5 ;;
    esac
    case ${cells[column]-} in '' | *[!0-9]*) continue ;; esac
    ids="$ids ${cells[column]}"; chips="$chips ${cells[column]}/${cells[0]}/${cells[1]}"
  done
}
for lib in /usr/local/Ascend/driver/lib64{,/driver,/common}; do
  [ -d "$lib" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
output=; up=; read_uptime; began=$up; most=131072
