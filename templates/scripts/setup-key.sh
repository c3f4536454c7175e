#!/usr/bin/env bash
# Generates the key pair `path` in `folder`, with `comment`.
: "${folder:?}" "${path:?}" "${comment:?}"
set -e
umask 077
# shellcheck disable=SC2174
mkdir -p -m 755 -- "$folder"
t=$(mktemp -d -- "$folder"/.new.XXXXXX)
trap 'rm -rf -- "$t"' EXIT
ssh-keygen -q -t ed25519 -N '' -C "$comment" -f "$t/key"
mv -f -- "$t/key" "$path"
