"""The bash that asks a node; each answers in sections (`ascendboot.facts.parsers.base`).

They run on bash 4.2 and fork little: setup runs them on every node every time.
"""

from __future__ import annotations

from ascendboot.templates import script
from ascendboot.transport.api import UPTIME

COMMON = script("sections.sh")

SYSTEM = script("facts-system.sh")

SERVICES = script("facts-services.sh")

WORK = (
    COMMON
    + r"""
version_of() {
  section "$1" 0 "$found"
  ask_both "$1_version" timeout -k 1 20 "$found" --version
}
if locate "$1"; then version_of python
else section python 127 "$1 is not a program on PATH"; fi
if locate mpirun /usr/local/openmpi/bin/mpirun; then version_of mpirun
else section mpirun 127 'mpirun is neither on PATH nor in /usr/local/openmpi/bin'; fi
while [ ! -e "$b" ] && [ -n "$b" ]; do b=${b%/*}; done
ask disk timeout -k 1 20 df -B1 --output=avail,itotal,iavail,target -- "${b:-/}" /tmp
if [ -w "${b:-/}" ]; then section place 0 "${b:-/}"
else section place 1 "${USER:-this user} cannot write in ${b:-/}; is it mounted read-only?"; fi
# of a container it has what the image and `run -e` set; the kernel lets not every user read it
if { : </proc/1/environ; } 2>/dev/null; then section first_process 0 readable
else section first_process 1 "$(id -un) may not read it: process 1 is of $(stat -c %U /proc/1)"; fi
if [ -n "$2" ]; then
  state=absent
  if [ -e "$2" ]; then
    state=unreadable
    if [ -d "$2" ]; then [ -r "$2" ] && [ -x "$2" ] && state=readable
    elif [ -r "$2" ]; then state=readable; fi
  fi
  section code 0 "$state"
fi
section end 0 ''
"""
)
"""Behind `base_script`. Arguments: the interpreter, the path of the code or nothing."""

RETRIES_FOR_S = 10
CALL_TIMEOUT_S = 10
STOP_ASKING_AFTER_S = 150

TABLE_TIMEOUT_S = 10

VENDOR_TOOLS = (
    UPTIME + r"""
set -f
# tell NAME MERGED PROGRAM...: as ask or ask_both, but waits while the tool is busy, and is not
# asked again when it hung; sets `said`
tell() {
  local name=$1 merged=$2 code pause=1; shift 2
  look_up
  if [ "$((up - began))" -ge "$enough" ]; then
    section "$name" 124 "not asked: the devices before took $((up - began)) s"; return
  fi
  while :; do
    code=0
    if [ "$merged" ]; then said=$(both_of "$@") || code=$?
    else
      said=$(stdout_of "$@") || code=$?
      case $code in 0 | 124 | 137 | 141) ;; *) said=$(both_of "$@"); code=$? ;; esac
    fi
    [ "${#said}" -le "$most" ] || break
    case $said in *'is busy'* | *'because the device is used'*) ;; *) break ;; esac
    [ "$left" -gt 0 ] || break
    sleep "$((pause / 10)).$((pause % 10))"
    left=$((left - pause)); pause=$((pause * 2)); [ "$pause" -le 20 ] || pause=20
  done
  section "$name" "$code" "$said"
  [ "${#said}" -le "$most" ] || said=
}
for lib in /usr/local/Ascend/driver/lib64{,/driver,/common}; do
  [ -d "$lib" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$lib"
done
said=; look_up; began=$up; most=131072
"""
    f"left={RETRIES_FOR_S}0; enough={STOP_ASKING_AFTER_S}\n"
)
"""For npu-smi and hccn_tool, which answer one caller at a time: one call after the other.

`left` is how long all calls together wait for a busy tool, in tenths of a second; after `enough`
seconds nothing more is asked.
"""

NPUS = (
    COMMON
    + VENDOR_TOOLS
    + r"""
npu_smi=
if locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  npu_smi=$found
  tell mapping '' timeout -k 1 30 "$found" info -m
  mapped=$said
  tell list '' timeout -k 1 30 "$found" info -l
  said=$mapped
else
  for name in list table mapping; do
    section $name 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
  done
fi
ids=; column=; chips=; family=; ifs=$IFS; IFS=$'\n'; lines=($said); IFS=$ifs
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
"""
    + rf"""
    tell "${{chip%%/*}}/spod" merged timeout -k 1 {CALL_TIMEOUT_S} "$npu_smi" info -t spod-info \
      -i "${{card%/*}}" -c "${{card#*/}}"
"""
    + r"""
  done
fi
if [ "$family" = a5 ]; then
  # its hccn_tool has other words; what HCCL wants to know is in this file
  info=/etc/hccl_rootinfo.json
  content root_info $info
  topology='"topo_file_path"[[:space:]]*:[[:space:]]*"([^"]*)"'
  if [[ $({ echo "$(<$info)"; } 2>/dev/null) =~ $topology ]] && [ ! -e "${BASH_REMATCH[1]}" ]; then
    section topology 1 "${BASH_REMATCH[1]}"
  fi
  section hccn_tool 0 ''
elif locate hccn_tool /usr/local/Ascend/driver/tools/hccn_tool; then
  section hccn_tool 0 "$found"
"""
    + rf"""
  for id in $ids; do
    for what in ip link tls $vnic; do
      tell "$id/$what" merged timeout -k 1 {CALL_TIMEOUT_S} "$found" -i "$id" -$what -g
    done
  done
"""
    + r"""
else
  section hccn_tool 127 \
    'hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools'
fi
# what is only worth a warning comes last: it takes neither time nor patience from the rest
"""
    + rf"""
[ -z "$npu_smi" ] || tell table '' timeout -k 1 {TABLE_TIMEOUT_S} "$npu_smi" info
section end 0 ''
"""
)
