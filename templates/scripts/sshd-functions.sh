#!/usr/bin/env bash
# Functions that find the sshd of the cluster at `b`: a process of this user with our configuration
# whose parent is not one (sessions have such a parent). So they find it without its record too. A
# process below another root belongs to a container: the host sees it, but it uses other files.
# shellcheck source=templates/scripts/processes.sh
. processes.sh
: "${b:?}"
# start_of PID: prints its start time.
start_of() {
  local fields
  read_stat "$1" || return 1
  echo "${fields[19]}"
}
has_our_config() {
  # If the process ends meanwhile, bash's `read` leaves the old value in `word`.
  local word words=
  while word= && { IFS= read -r -d '' word || [ -n "$word" ]; }; do words+="$word "
  done 2>/dev/null <"/proc/$1/cmdline"
  [[ $words == *"-f $b/sshd/sshd_config "* ]]
}
is_sshd_of_ours() {
  local key parent
  [ -O "/proc/$1" ] && [ "/proc/$1/root" -ef / ] && has_our_config "$1" || return 1
  case $(readlink "/proc/$1/exe") in */sshd | */sshd' (deleted)') ;; *) return 1 ;; esac
  while read -r key parent && [ "$key" != PPid: ]; do :; done 2>/dev/null <"/proc/$1/status"
  ! has_our_config "$parent"
}
# sshds_of_ours [PID]: prints their pids without PID.
sshds_of_ours() {
  local pid
  while IFS= read -r pid; do
    pid=${pid#/proc/} pid=${pid%/cmdline}
    if [ "$pid" != "${1-}" ] && is_sshd_of_ours "$pid"; then echo "$pid"; fi
  done < <(grep -lsF -- "$b/sshd/sshd_config" /proc/[0-9]*/cmdline)
}
