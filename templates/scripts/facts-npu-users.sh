#!/usr/bin/env bash
# Prints the processes that have an NPU open, one per line: process id and name.
find /proc/[0-9]*/fd -lname '/dev/davinci[0-9]*' 2>/dev/null | cut -d/ -f3 | sort -nu |
  while read -r pid; do
    if read -r name 2>/dev/null <"/proc/$pid/comm"; then printf '%s %s\n' "$pid" "$name"; fi
  done
echo end
