#!/usr/bin/env bash
# The processors of this side, then scripts: a file, or those directly in a folder.
nproc
[ ! -d "$1" ] || set -- "$1"/*.py
head -v -c 200000 -- "$@" 2>/dev/null
exit 0
