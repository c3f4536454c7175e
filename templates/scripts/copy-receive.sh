#!/usr/bin/env bash
# Puts `it` of the tar on standard input at a path, or below that path where it is a folder or ends in /.
# The new files appear at once: first they are all beside it. Prints where it is.
# Arguments: the path; the name in a folder.
set -e
to=$1
if [ -d "$to" ] || [ "${to%/}" != "$to" ]; then to=${to%/}/$2; fi
beside=$(dirname -- "$to")
mkdir -p -- "$beside"
part=$(mktemp -d -- "$beside/.ascendboot-copy.XXXXXX")
trap 'rm -rf -- "$part"' EXIT
tar --no-same-owner -xpf - -C "$part"
[ -e "$part/whole" ] || { echo "the connection ended early" >&2; exit 1; }
if [ -d "$part/it" ] && [ ! -L "$part/it" ] && [ -d "$to" ]; then
  cp -alfT -- "$part/it" "$to" # each file by a rename
else
  mv -fT -- "$part/it" "$to"
fi
printf '%s' "$to"
