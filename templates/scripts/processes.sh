#!/usr/bin/env bash
# Functions that read processes from /proc without a program of their own.
# read_stat PID: sets `fields` to what follows the process's name in its stat, in one read, for the
# process may end between two. `${fields[0]}` is its state, `${fields[19]}` its start time.
read_stat() {
  local line
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # shellcheck disable=SC2034,SC2206
  fields=(${line##*) })
}
