#!/usr/bin/env bash
# Prints where each rank of a job on this node is. It pauses nothing and writes nothing.
# Arguments: job folder, its python, seconds that py-spy may take for one attempt.
# Prints `machine NAME`, `spy PATH`; then for each rank `rank RANK PID`, `thread TID STATE NAME` of
# its first thread, with `wchan`, `syscall` and `file` (what the number in its first argument stands
# for) where the kernel shows them, `kernel` with its stack there, `command`, the same of its other
# threads, `threads COUNT`, and behind `|` py-spy's exit code and output; `end`.
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
  local out code
  for _ in 1 2 3; do
    out=$(timeout -k 1 "$limit" "$spy" dump --nonblocking --pid "$1" 2>&1 </dev/null)
    code=$?
    [ "$code" != 0 ] || break
  done
  printf '%s\n%s\n' "$code" "$out" | head -c 200000
}
print_thread() {
  local line rest comm where='' call=''
  { IFS= read -r line <"$1/stat"; } 2>/dev/null || return 0
  rest=${line##*) }
  comm=${line#*(}
  { IFS= read -r where <"$1/wchan"; IFS= read -r call <"$1/syscall"; } 2>/dev/null
  printf 'thread %s %s %s\n' "${1##*/}" "${rest%% *}" "${comm%)*}"
  [ -z "$where" ] || [ "$where" = 0 ] || printf 'wchan %s\n' "$where"
  [ -z "$call" ] || printf 'syscall %s\n' "$call"
}
print_rank() {
  local pid=$1 thread line call number=0 target state
  printf 'rank %s %s\n' "${rank_of[$pid]}" "$pid"
  print_thread "/proc/$pid/task/$pid"
  call=
  { read -r _ call _ </proc/"$pid"/syscall; } 2>/dev/null
  case $call in
    0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f])
      target=$(readlink "/proc/$pid/fd/$((call))" 2>/dev/null) &&
        printf 'file %s\n' "${target//$'\n'/ }" ;;
  esac
  while IFS= read -r line; do printf 'kernel %s\n' "$line"; done 2>/dev/null </proc/"$pid"/stack
  { IFS= read -r line <"/proc/$pid/stat"; } 2>/dev/null
  state=${line##*) }
  # A process that cannot be interrupted may hold what is needed to read its command line.
  [ "${state%% *}" = D ] ||
    printf 'command %s\n' "$({ tr '\0\n' '  ' </proc/"$pid"/cmdline | head -c 400; } 2>/dev/null)"
  for thread in /proc/"$pid"/task/[0-9]*; do
    [ "${thread##*/}" != "$pid" ] || continue
    number=$((number + 1))
    [ "$number" -gt 64 ] || print_thread "$thread"
  done
  printf 'threads %s\n' "$((number + 1))"
}
if [ -r "$job/events" ]; then
  know_ranks "$job/events"
  spy=$(find_spy </dev/null 2>/dev/null)
  printf 'machine %s\nspy %s\n' "$(uname -m)" "$spy"
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
    [ -z "${spies[pid]-}" ] || paste -d '|' /dev/null - <&"${spies[pid]}"
  done
fi
echo end
