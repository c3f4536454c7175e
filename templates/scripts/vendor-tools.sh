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
    code=0
    if [ "$merged" ]; then output=$(both_of "$@") || code=$?
    else
      output=$(stdout_of "$@") || code=$?
      case $code in 0 | 124 | 137 | 141) ;; *) output=$(both_of "$@"); code=$? ;; esac
    fi
    [ "${#output}" -le "$most" ] || break
    case $output in *'is busy'* | *'because the device is used'*) ;; *) break ;; esac
    [ "$left" -gt 0 ] || break
    sleep "$((pause / 10)).$((pause % 10))"
    left=$((left - pause)); pause=$((pause * 2)); [ "$pause" -le 20 ] || pause=20
  done
  section "$name" "$code" "$output"
  [ "${#output}" -le "$most" ] || output=
}
for lib in /usr/local/Ascend/driver/lib64{,/driver,/common}; do
  [ -d "$lib" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
output=; up=; read_uptime; began=$up; most=131072
