#!/usr/bin/env bash
# Prints where each rank of a job on this node is. It pauses nothing and writes nothing.
# Arguments: job folder, its python, seconds that py-spy may take for one attempt.
# Prints for each rank `rank RANK PID STATE WCHAN` of its first thread, WCHAN being the kernel function
# in which it waits, or -; `file` (what the number in the first argument of its system call stands
# for); `command`; behind `=` its threads and its kernel stack, for people; where there is a py-spy,
# `spy` with its exit code, and behind `|` its output. Then `end`.
job=$1 python=$2 limit=$3
# shellcheck source=templates/scripts/rank-usage.sh
. rank-usage.sh
find_spy() {
  local found
  set -- "${job%/jobs/*}/env/node.env" "$python"  # the inventory may have any other variables
  # shellcheck disable=SC1090 # a file of the node
  [ ! -r "$1" ] || . "$1" >/dev/null
  found=$(command -v -- "$2")
  found=${found%/*}/py-spy
  if [ -x "$found" ]; then printf '%s\n' "$found"; else command -v py-spy; fi
}
# Without a pause py-spy may miss what runs; the next attempt may not.
run_spy() {
  local out code line
  for _ in 1 2 3; do
    out=$(timeout -k 1 "$limit" "$spy" dump --nonblocking --pid "$1" 2>&1 </dev/null)
    code=$?
    [ "$code" != 0 ] || break
  done
  printf 'spy %s\n' "$code"
  while IFS= read -r line; do printf '|%s\n' "$line"; done < <(printf '%s\n' "$out" | head -c 200000)
}
# read_thread DIR: sets `letter`, `comm`, `where` and `call` of a thread; what the kernel does not show
# is empty.
read_thread() {
  local line
  letter='?' comm='' where='' call=''
  { IFS= read -r line <"$1/stat"; } 2>/dev/null || return
  letter=${line##*) } comm=${line#*(}
  letter=${letter%% *} comm=${comm%)*}
  { IFS= read -r where <"$1/wchan"; IFS= read -r call <"$1/syscall"; } 2>/dev/null
  [ "$where" != 0 ] || where=
}
print_thread() {
  printf '=thread %s (%s) state %s%s%s\n' "${1##*/}" "$comm" "$letter" \
    "${where:+, in $where of the kernel}" "${call:+, system call $call}"
}
print_rank() {
  local pid=$1 task=/proc/$1/task/$1 thread line number=0 argument target letter comm where call
  read_thread "$task"
  printf 'rank %s %s %s %s\n' "${rank_of[$pid]}" "$pid" "$letter" "${where:--}"
  argument=${call#* } argument=${argument%% *}
  case $argument in
    0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f])
      target=$(readlink "/proc/$pid/fd/$((argument))" 2>/dev/null) &&
        printf 'file %s\n' "${target//$'\n'/ }" ;;
  esac
  # A process that cannot be interrupted may hold what is needed to read its command line.
  [ "$letter" = D ] ||
    printf 'command %s\n' "$({ tr '\0\n' '  ' </proc/"$pid"/cmdline | head -c 400; } 2>/dev/null)"
  print_thread "$task"
  while IFS= read -r line; do printf '=%s\n' "$line"; done 2>/dev/null </proc/"$pid"/stack
  for thread in /proc/"$pid"/task/[0-9]*; do
    [ "$thread" != "$task" ] || continue
    number=$((number + 1))
    [ "$number" -le 64 ] && read_thread "$thread" && print_thread "$thread"
  done
  [ "$number" -le 64 ] || printf '=and %s more threads\n' "$((number - 64))"
}
if [ -r "$job/events" ]; then
  know_ranks "$job/events"
  spy=$(find_spy </dev/null 2>/dev/null)
  spies=()
  if [ -n "$spy" ]; then
    for pid in "${!rank_of[@]}"; do
      exec {descriptor}< <(run_spy "$pid")
      # shellcheck disable=SC2154 # exec sets it
      spies[pid]=$descriptor
    done
  fi
  for pid in "${!rank_of[@]}"; do
    print_rank "$pid"
    [ -z "${spies[pid]-}" ] || cat <&"${spies[pid]}"
  done
fi
echo end
