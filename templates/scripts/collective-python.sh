#!/usr/bin/env bash
# Runs a program in the environment of the node's ranks. Arguments: base, the program and its words.
# shellcheck source=/dev/null
[ ! -r "$1/env/node.env" ] || . "$1/env/node.env" >/dev/null 2>&1
shift
exec "$@" </dev/null
