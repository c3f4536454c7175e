#!/usr/bin/env bash
# Queries Python, Open MPI, disk and training code of the workload side.
# Arguments: the interpreter, the path of the code or nothing. `b`: the cluster's folder.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
: "${b:?}"
version_of() {
  section "$1" 0 "$found"
  query_both "$1_version" timeout -k 1 20 "$found" --version
}
if locate "$1"; then version_of python
else section python 127 "$1 is not a program on PATH"; fi
if locate mpirun /usr/local/openmpi/bin/mpirun; then version_of mpirun
else section mpirun 127 'mpirun is neither on PATH nor in /usr/local/openmpi/bin'; fi
while [ ! -e "$b" ] && [ -n "$b" ]; do b=${b%/*}; done
query disk timeout -k 1 20 df -B1 --output=avail,itotal,iavail,target -- "${b:-/}" /tmp
if [ -w "${b:-/}" ]; then section place 0 "$(timeout -k 1 5 stat -f -c %T -- "${b:-/}" || echo unknown)"
else section place 1 "${USER:-this user} cannot write in ${b:-/}; is it mounted read-only?"; fi
# In a container it holds what the image and `run -e` set; not every user may read it.
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
