# shellcheck shell=bash
# Lists the users of devices; needs processes.sh.
# list_users TABLE: sets `out` to pid, job and command of each process in the table of npu-smi info
# that can be seen from here
# shellcheck disable=SC2034 # variables are results
list_users() {
  local pid seen=' ' id entry words
  out=''
  while IFS='|' read -r _ _ pid _; do
    pid=${pid//[[:space:]]/}
    case $pid in '' | *[!0-9]*) continue ;; esac
    case $seen in *" $pid "*) continue ;; esac
    seen+="$pid " id=
    [ -e "/proc/$pid" ] || continue
    while IFS= read -r -d '' entry; do
      case $entry in ASCENDBOOT_JOB_ID=*) id=${entry#*=} ;; esac
    done 2>/dev/null <"/proc/$pid/environ"
    is_ours "$pid" || id=
    words_of "$pid"
    out+="$pid ${id:--} $words"$'\n'
  done <<<"${1#*Process id}"
}
