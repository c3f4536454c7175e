#!/usr/bin/env bash
# Adds paths to the list of what ascendboot made in the cluster's folder.
# Runs before they are written, so that a setup that was cut off leaves nothing that is not listed.
# Arguments: the cluster's folder; the paths.
umask 022
mkdir -p -- "$1" && cd -- "$1" || exit 1
shift
for path; do
  grep -qsxF -- "$path" made || printf '%s\n' "$path" >>made || exit 1
done
