#!/usr/bin/env bash
# Queries Python, Open MPI and disk of the workload side.
# Argument: the interpreter. `b`: the cluster's folder.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${b:?}"
version_of() {
  section "$1" 0 "$found"
  query_both "$1_version" timeout -k 1 20 "$found" --version
}
python=
if locate "$1"; then python=$found; version_of python
else section python 127 "$1 is not a program on PATH"; fi
if locate mpirun /usr/local/openmpi/bin/mpirun; then version_of mpirun
else section mpirun 127 'mpirun is neither on PATH nor in /usr/local/openmpi/bin'; fi
# No check reads these, only `report`. A framework takes seconds to import, so the folders beside it are read.
for home in "$ASCEND_HOME_PATH" /usr/local/Ascend/cann /usr/local/Ascend/ascend-toolkit/latest ~/Ascend/{cann,ascend-toolkit/latest}; do
  for info in "$home"/*-linux/ascend_toolkit_install.info; do
    value=$(sed -n 's/^version=\([A-Za-z0-9._-]\{1,40\}\)$/\1/p' "$info" 2>/dev/null | head -n 1)
    [ -z "$value" ] || { section cann_version 0 "$value"; break 2; }
  done
done
[ -z "$python" ] || while read -r name value; do section "${name}_version" 0 "$value"; done < <(
  timeout -k 1 20 "$python" -c '
import os, re, sys
known = "torch torch_npu tensorflow tensorflow_cpu npu_bridge npu_device mindspore horovod mpi4py".split()
form = re.compile(r"([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9._+]{0,40}?)(-py[0-9.]+)?\.(dist|egg)-info$")
for folder in sys.path[1:]:
    for entry in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        found = form.match(entry)
        if found and found.group(1).lower() in known:
            known.remove(found.group(1).lower())
            print(found.group(1).lower(), found.group(2))
' 2>/dev/null </dev/null)
while [ ! -e "$b" ] && [ -n "$b" ]; do b=${b%/*}; done
query disk timeout -k 1 20 df -B1 --output=avail,itotal,iavail,target -- "${b:-/}" /tmp
if [ -w "${b:-/}" ]; then section place 0 "$(timeout -k 1 5 stat -f -c %T -- "${b:-/}" || echo unknown)"
else section place 1 "${USER:-this user} cannot write in ${b:-/}; is it mounted read-only?"; fi
# In a container it holds what the image and `run -e` set; not every user may read it.
if { : </proc/1/environ; } 2>/dev/null; then section first_process 0 readable
else section first_process 1 "$(id -un) may not read it: process 1 is of $(stat -c %U /proc/1)"; fi
section end 0 ''
