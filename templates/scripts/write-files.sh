#!/usr/bin/env bash
# Writes files atomically. Arguments: size, mode and path of each; stdin: their contents, joined.
# mktemp creates mode 0600: a secret must not be readable even before it is renamed. The kernel reports
# how much was written, without a program.
set -e; umask 022
while [ $# -gt 0 ]; do
size=$1 mode=$2 p=$3; shift 3
[ -d "${p%/*}/" ] || mkdir -p -- "${p%/*}/"
t=$(mktemp -- "$p.XXXXXX")
trap 'rm -f -- "$t"' EXIT
{ head -c "$size" >&3; read -r _ written </proc/self/fdinfo/3; } 3>"$t"
[ "$written" = "$size" ] || { echo "short write to $p" >&2; exit 1; }
[ "$mode" = 0600 ] || chmod "$mode" -- "$t"
mv -fT -- "$t" "$p"; trap - EXIT
done
