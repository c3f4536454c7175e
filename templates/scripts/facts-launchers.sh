#!/usr/bin/env bash
# Queries ssh, torch and Horovod. Arguments: the interpreter, "try" to test Horovod's build, a Python
# program that prints the versions of torch (or nothing), NAME=VALUE ... In a %NAME=VALUE `{packages}`
# stands for the folder of the interpreter's packages.
# shellcheck source=templates/scripts/sections.sh
. sections.sh
if locate ssh /usr/bin/ssh; then section ssh 0 "$found"; query_both ssh_version "$found" -V
else section ssh 127 'ssh is neither on PATH nor /usr/bin/ssh'; fi
locate "$1"
run=${found%/*}/horovodrun python=$1 try=$2 torch=$3; shift 3
packages=
for setting; do
  case $setting in
    %*)
      [ -n "$packages" ] || packages=${found%/*/*}/lib/python$(
        "${found:-false}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages
      setting=${setting#%}
      export "${setting//'{packages}'/$packages}" ;;
    *) export "${setting?}" ;;
  esac
done
if [ -n "$torch" ] && [ -n "$found" ]; then query torch timeout -k 1 30 "$found" -c "$torch"
else section torch 127 "there is no $python"; fi
if [ -n "$found" ] && [ -x "$run" ]; then
  section horovodrun 0 "$run"
  query horovod_version timeout -k 1 30 "$run" --version
  # It loads whole frameworks, so it runs only where its answer matters.
  [ -z "$try" ] || query horovod_build timeout -k 1 90 "$run" --check-build
else
  section horovodrun 127 "there is no horovodrun beside $python"
fi
section end 0 ''
