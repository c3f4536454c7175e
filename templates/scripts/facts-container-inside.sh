#!/usr/bin/env bash
# Runs in a container: prints which of the given programs are missing and our capabilities.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
for program; do type -P -- "$program" >/dev/null || echo "lacks $program"; done
while read -r key value; do
  [ "$key" != CapEff: ] || echo "may $value $EUID"
done </proc/self/status
