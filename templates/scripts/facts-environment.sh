#!/usr/bin/env bash
# Queries what ranks get: device nodes, limits, confinement, single-copy.
# Arguments: the interpreter (empty: do not try single-copy) and a Python program that tries it.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
single=allowed
seccomp=; while read -r key value; do
  case $key in Seccomp:) seccomp=$value ;; esac
done </proc/self/status
# Without a seccomp filter the kernel allows it between processes of one user.
if [ "$seccomp" != 0 ] && [ -n "$1" ]; then
  single=unknown
  if locate "$1" && output=$(timeout -k 1 10 "$found" -c "$2" 2>/dev/null </dev/null); then
    single=$output
  elif [ -e /.dockerenv ]; then single='refused in Docker as a rule, and it could not be tried'
  fi
fi
section single_copy 0 "$single"
nodes=
for node in /dev/davinci[0-9]* /dev/davinci_manager /dev/devmm_svm /dev/hisi_hdc; do
  [ ! -c "$node" ] || nodes+="${node#/dev/} "
done
section device_nodes 0 "$nodes"
visible=
while IFS= read -r -d '' entry; do
  case $entry in ASCEND_VISIBLE_DEVICES=*) visible=$entry ;; esac
done 2>/dev/null </proc/1/environ
section visible 0 "$visible"
section memlock 0 "$(ulimit -l)"
label=; { IFS= read -r -d '' label || [ -n "$label" ]; } 2>/dev/null </proc/self/attr/current
section label 0 "${label%%$'\n'*}"
section end 0 ''
