#!/usr/bin/env bash
# Locks the cluster in a container, where no process of this connection's sshd can be seen: for as
# long as standard input has a line every few seconds.
# Arguments: those of setup-lock-take.sh; for how many seconds there may be no line.
# shellcheck source=templates/scripts/setup-lock-take.sh
. setup-lock-take.sh
echo "$free"
while read -r -t "$3" _; do :; done
