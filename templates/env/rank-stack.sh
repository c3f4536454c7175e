# shellcheck shell=bash
# Bash functions that print where ranks are, and note it before the ranks are ended.

# The py-spy beside a Python, or else on PATH.
find_spy() {
  local found
  found=$(command -v -- "$1")
  found=${found%/*}/py-spy
  if [ -x "$found" ]; then printf '%s\n' "$found"; else command -v py-spy; fi
}
# run_spy SPY PID SECONDS ATTEMPTS: without a pause py-spy may miss what runs; the next attempt may not.
run_spy() {
  local out code line attempt
  for ((attempt = 0; attempt < $4; attempt++)); do
    out=$(timeout -k 0.3 "$3" "$1" dump --nonblocking --pid "$2" 2>&1 </dev/null)
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
# print_rank PID RANK
print_rank() {
  local pid=$1 task=/proc/$1/task/$1 thread line number=0 argument target letter comm where call
  read_thread "$task"
  printf 'rank %s %s %s %s\n' "$2" "$pid" "$letter" "${where:--}"
  # A process that cannot be interrupted may hold what is needed to read its command line.
  [ "$letter" = D ] ||
    printf 'command %s\n' "$({ tr '\0\n' '  ' </proc/"$pid"/cmdline | head -c 400; } 2>/dev/null)"
  print_thread "$task"
  argument=${call#* } argument=${argument%% *}
  case $argument in
    0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f])
      target=$(readlink "/proc/$pid/fd/$((argument))" 2>/dev/null) &&
        printf '=file descriptor %s: %s\n' "$((argument))" "${target//$'\n'/ }" ;;
  esac
  while IFS= read -r line; do printf '=%s\n' "$line"; done 2>/dev/null </proc/"$pid"/stack
  for thread in /proc/"$pid"/task/[0-9]*; do
    [ "$thread" != "$task" ] || continue
    number=$((number + 1))
    [ "$number" -le 64 ] && read_thread "$thread" && print_thread "$thread"
  done
  [ "$number" -le 64 ] || printf '=and %s more threads\n' "$((number - 64))"
}
# leave_stack JOB PID RANK: notes where a rank is in rank.RANK.stack, in at most two seconds. In a shell of
# its own, as another `read` may be under way in the caller's, and with the rank's PATH.
leave_stack() (
  place=$1/.stack.$3 program='' word=''
  IFS= read -r -d '' program <"/proc/$2/cmdline"
  while IFS= read -r -d '' word; do
    case $word in PATH=*) PATH=${word#*=} ;; esac
  done <"/proc/$2/environ"
  spy=$(find_spy "$program")
  {
    print_rank "$2" "$3"
    [ -z "$spy" ] || run_spy "$spy" "$2" 0.8 1 | head -c 40000
    printf '\nend\n'
  } | sed '/^$/d' >"$place" && mv -f -- "$place" "$1/rank.$3.stack"
) 2>/dev/null
# leave_stacks JOB: the same for the ranks in `ascendboot_running` (their pids by number), once for a job on this
# node: who calls it while it runs waits for its end.
leave_stacks() (
  if (set -C && : >"$1/.stacks") 2>/dev/null; then
    # shellcheck disable=SC2154 # the callers set it
    for rank in "${!ascendboot_running[@]}"; do leave_stack "$1" "${ascendboot_running[$rank]}" "$rank" & done
    wait
    echo end >"$1/.stacks"
  fi
  for ((tick = 0; tick < 20; tick++)); do
    [ ! -s "$1/.stacks" ] || break
    sleep 0.1
  done
)
