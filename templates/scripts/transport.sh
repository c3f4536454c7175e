#!/usr/bin/env bash
# Runs commands one after the other and frames what each gives back; see transport/script.py.
exec 3>&1
# Whatever the login has, only its user may write to what is made here.
umask go-w
unset BASH_ENV
# The last part of a pipeline is no process of its own.
shopt -s lastpipe
# SHLVL: a bash that sshd started and that takes itself for the first one (as after `exec`) reads
# ~/.bashrc even with -c, and its output would count as output of the command.
export LC_ALL=C SHLVL=3 PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
if [ -n "${EPOCHREALTIME-}" ]; then now() { t=${EPOCHREALTIME/[^0-9]/}; }
else now() { t=$(date +%s%6N); }; fi

# start BEGIN LEFT_RUNNING: waits for processes that a start-up file has left running, because their
# output would count as output of the command; then prints BEGIN.
start() {
  local i h p
  for ((i = 0; ; i++)); do
    h='' p=''; read -r p </proc/$$/task/$$/children
    for p in $p; do [ ! "/proc/$p/fd/1" -ef /proc/$$/fd/1 ] || h=$p; done
    [ "$h" ] || break
    [ "$i" -lt 50 ] || { read -r p <"/proc/$h/comm"; echo "$2 $h ($p)"; exit 1; }
    sleep 0.1
  done 2>/dev/null
  printf '\n%s\n' "$1"
}

# step MARK INDEX MOST_BYTES MOST_ERRORS STDIN COMMAND...: runs COMMAND with STDIN (base64), prints
# its output and then a line with MARK, INDEX, exit code, microseconds and standard error (base64).
# Neither output needs a file, and neither can be too much: standard output beyond the limit ends
# the command, standard error beyond it is thrown away. A command must not keep descriptor 3, or a
# daemon that it starts would hold the reply.
step() {
  local mark=$1 index=$2 most=$3 errors=$4 input=$5 began e c
  shift 5
  now; began=$t
  {
    set -o pipefail
    # printf is a builtin: it takes what no argv takes, and needs no file as `<<` does.
    # A command that does not read all of its stdin is no error: hence 2>/dev/null.
    if [ "$input" ]; then
      { printf %s "$input" | base64 -d || :; } 2>/dev/null | "$@" 2>&4 3>&- 4>&-
    else exec "$@" </dev/null 2>&4 3>&- 4>&-
    fi | head -c "$most" >&3 4>&-
  } 4>&1 | {
    IFS= read -rN "$errors" e
    ! read -rN 1 _ || head -c 1125899906842624 >/dev/null
  } 3>&-
  c=${PIPESTATUS[0]}
  now
  [ -z "$e" ] || e=$(printf %s "$e" | base64 -w0)
  printf '\n%s %s %s %s %s\n' "$mark" "$index" "$c" "$((t - began))" "$e"
}
