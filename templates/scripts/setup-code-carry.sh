#!/usr/bin/env bash
# Sends the contents of the files whose names, each with a NUL behind it, are on standard input.
# Runs on the primary. Arguments: the cluster's folder; the root of the code; the address of the
# node; what to run there with the contents.
set -o pipefail
cd -P -- "$2" || exit 1
xargs -0 -r cat -- | ssh -F "$1/trust/ssh_config" -o LogLevel=INFO "$3" "$4"
