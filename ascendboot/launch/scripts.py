"""The scripts that start a job on its nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ascendboot.transport.api import UPTIME

USAGE: Final = r"""
declare -A rank_of used memory state
# Of each rank that has begun and has not ended: its process, by the events of the job.
know_ranks() {
  local who number key pid word start line rest fields
  rank_of=()
  while read -r who number key pid word start; do
    case "$who $key" in
      'rank pid')
        { IFS= read -r line </proc/"$pid"/stat; } 2>/dev/null || continue
        rest=${line##*) }
        fields=($rest)
        [ "${fields[19]-}" != "$start" ] || rank_of[$pid]=$number ;;
    esac
  done <"$1"
}
# Sums by rank over its process and all that descends from it; stat alone is read, as reading the
# command line or environment of a process may wait for what that process waits for.
use_of_ranks() {
  local file line rest fields pid up number depth clock page
  local -A parent=() ticks=() pages=() states=()
  used=() memory=() state=()
  [ "${#rank_of[@]}" != 0 ] || return 0
  for file in /proc/[0-9]*/stat; do
    { IFS= read -r line <"$file"; } 2>/dev/null || continue
    rest=${line##*) }
    case $rest in '? 2 '*) continue ;; esac
    fields=($rest)
    [ "${#fields[@]}" -gt 21 ] || continue
    pid=${line%% *}
    parent[$pid]=${fields[1]} states[$pid]=${fields[0]} pages[$pid]=${fields[21]}
    ticks[$pid]=$((fields[11] + fields[12] + fields[13] + fields[14]))
  done
  [ -n "${hertz-}" ] || { hertz=$(getconf CLK_TCK) page_bytes=$(getconf PAGESIZE); } 2>/dev/null
  clock=${hertz:-100} page=${page_bytes:-4096}
  for pid in "${!parent[@]}"; do
    up=$pid
    for ((depth = 0; depth < 64; depth++)); do
      number=${rank_of[$up]-}
      [ -z "$number" ] || break
      up=${parent[$up]-}
      [ -n "$up" ] || break
    done
    [ -n "$number" ] || continue
    used[$number]=$((${used[$number]-0} + ticks[$pid] * 1000 / clock))
    memory[$number]=$((${memory[$number]-0} + pages[$pid] * (page / 1024)))
    [ "$up" != "$pid" ] || state[$number]=${states[$pid]}
  done
}
"""
"""Shell functions: `know_ranks EVENTS` finds the ranks of a job that run, `use_of_ranks` then
fills, by rank, `used` (CPU in ms since it began), `memory` (KiB) and `state` (one letter)."""

SAMPLE: Final = r"""
sample() {
  local up _ number
  know_ranks events
  use_of_ranks
  read -r up _ </proc/uptime
  said="sample $up"
  for number in "${!used[@]}"; do
    said+=" $number:${state[$number]-?}:${used[$number]}:${memory[$number]}"
  done
}
"""
"""Shell function: `sample` puts what the ranks of the job in whose folder we are use into `said`,
one line; starts no process; needs `USAGE`."""

RATES: Final = r"""
rates() {
  local number up _ began span
  local -A before=()
  know_ranks "$1"
  [ "${#rank_of[@]}" != 0 ] || return 0
  read -r up _ </proc/uptime
  began=${up/./}
  use_of_ranks
  for number in "${!used[@]}"; do before[$number]=${used[$number]}; done
  sleep 0.5
  read -r up _ </proc/uptime
  span=$(((10#${up/./} - 10#$began) * 10))
  use_of_ranks
  for number in "${!used[@]}"; do
    [ -z "${before[$number]-}" ] || printf 'use %s %s %s %s %s\n' "$number" \
      "${state[$number]-?}" "$((used[$number] - before[$number]))" "$span" "${memory[$number]}"
  done
}
"""
"""Shell function: `rates EVENTS` prints for each rank that runs `use RANK STATE CPU SPAN MEMORY`:
milliseconds of CPU within so many milliseconds, and KiB; needs `USAGE`."""

_SAMPLE = re.compile(r"sample (\d+\.\d+)((?: \d+:\S:\d+:\d+)*)")
_KIB = 1024


@dataclass(frozen=True, kw_only=True)
class RankUse:
    """What one rank, with all that descends from it, uses."""

    rank: int
    state: str
    """Of its own process, one letter as `ps` shows it."""
    cpu_s: float
    """Since it began."""
    memory_bytes: int
    """Resident; what processes of it share counts for each of them."""


@dataclass(frozen=True, kw_only=True)
class NodeSample:
    """What the ranks of a node use at one moment."""

    at_s: float
    """By the node's own clock, which begins when it boots."""
    ranks: tuple[RankUse, ...]
    """Ranks that run, ascending."""
    wrote: bool = False
    """Whether any rank of the node put out anything since the sample before."""


def parse_sample(line: str, *, wrote: bool = False) -> NodeSample | None:
    """The sample that a line stands for; None when it is no whole one."""
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    ranks = (_rank_use(*word.split(":")) for word in match[2].split())
    return NodeSample(
        at_s=float(match[1]), ranks=tuple(sorted(ranks, key=lambda use: use.rank)), wrote=wrote
    )


def _rank_use(rank: str, state: str, milliseconds: str, kib: str) -> RankUse:
    return RankUse(
        rank=int(rank),
        state=state,
        cpu_s=int(milliseconds) / 1000,
        memory_bytes=int(kib) * _KIB,
    )


JOB_PROCESSES: Final = r"""
is_ours() {
  local key uids
  while read -r key uids && [ "$key" != Uid: ]; do :; done 2>/dev/null <"/proc/$1/status"
  [ "${uids//[[:space:]]/ }" = "$EUID $EUID $EUID $EUID" ] && [ ! -u "/proc/$1/exe" ]
}
job_processes() {
  local entry pid
  while IFS= read -r -d '' entry; do
    pid=${entry#/proc/} pid=${pid%%/*}
    ! is_ours "$pid" || printf '%s %s\n' "$pid" "${entry#*ASCENDBOOT_JOB_ID=}"
  done < <(set +f; grep -sazoHx 'ASCENDBOOT_JOB_ID=[A-Za-z0-9._-][A-Za-z0-9._-]*' \
    /proc/[0-9]*/environ)
}
"""
"""Shell function: `job_processes` prints `PID JOB_ID` of what carries a job's id.

Any user can set that variable. `is_ours` takes only what this user has started: all four user ids
are his own, and no setuid program has given them to a process that somebody else started."""

PREPARE: Final = (
    JOB_PROCESSES
    + r"""
base=$1 job=$2 mpirun=$3 python=$4 script=$5 workdir=$6 table=$7 digest=$8
chief=$9 alone=${10} write=${11}
shift 11
bad=0 made=
refuse() { printf '%s\n' "$1"; bad=1; }
if [ -n "$mpirun" ]; then
  for program in "$mpirun" "${mpirun%/*}/orted"; do
    [ -x "$program" ] || refuse "no program $program; install Open MPI or run setup"
  done
fi
if [ ! -e "$base/env/rank-exec" ]; then refuse "no program $base/env/rank-exec; run setup"
elif [ ! -x "$base/env/rank-exec" ]; then
  refuse "$base/env/rank-exec cannot be run; mount the file system of $base without noexec"
fi
[ -r "$base/env/node.env" ] || refuse "no file $base/env/node.env; run setup"
if [ -n "$table" ]; then
  found=$(sha256sum -- "$table" 2>/dev/null)
  [ -n "$found" ] || refuse "no rank table $table; run setup"
  [ -z "$found" ] || [ "${found%% *}" = "$digest" ] ||
    refuse "the rank table $table is not the one of this plan; run setup"
fi
# The ranks meet there: whoever answers now is not one of them.
if [ -n "$chief" ] && timeout 2 bash -c ': 3<>"/dev/tcp/$1"' - "$chief" 2>/dev/null; then
  refuse "port ${chief#*/} of ${chief%/*}, where the ranks are to meet, is taken; \
end what listens there, or state another resources.chief_port"
fi
[ -z "$script" ] || [ -r "$script" ] || refuse "no script $script"
case $workdir in "$job"/*) ;; *) [ -d "$workdir" ] || refuse "no folder $workdir" ;; esac
( set -- "$workdir" "$python"  # the inventory may have variables of any other name
  [ ! -r "$base/env/node.env" ] || . "$base/env/node.env"
  cd -- "$1" 2>/dev/null
  command -v -- "$2" ) </dev/null >/dev/null ||
  refuse "no program $python; install it or state another as code.python in the inventory"
if [ "$bad" = 0 ]; then
  mkdir -p -- "$base/jobs" && mkdir -m 0700 -- "$job" && made=1 && : >"$job/making" || bad=1
fi
# Of two that are made ready at once the first goes on, which the other cannot but see. One that is
# ready has seen nobody, and is about to start.
starting() {
  local making=(-name making -newermt '-90 seconds') ready=(-name open -newermt '-30 seconds') sign
  find "${base%/*}"/*/jobs -mindepth 2 -maxdepth 2 "${making[@]}" -o "${ready[@]}" 2>/dev/null |
    while IFS= read -r sign; do
      [ "${sign%/*}" != "$job" ] && [ ! -s "${sign%/*}/events" ] || continue
      [ "${sign##*/}" = making ] && [ "$job/making" -ot "$sign" ] || basename -- "${sign%/*}"
    done
}
told=' '
tell() { case $told in *" $1 "*) ;; *) told+="$1 "; refuse "job $1 $2" ;; esac; }
if [ -n "$alone" ]; then
  for other in $(job_processes | cut -d ' ' -f 2); do
    tell "$other" "runs on this node; wait for its end, or end it: stop --job $other"
  done
  for other in $(starting); do
    tell "$other" "is being started on this node, too; see what becomes of it: status --job $other"
  done
fi
[ "$bad" = 0 ] || { [ -z "$made" ] || rm -rf -- "$job"; exit 1; }
bash -c "$write" && cd -- "$job" && {
  for file in "$@" events made ending open; do
    case $file in *.log) : >"${file%.log}.marks" ;; esac
    : >"$file" || break
  done
  # How the job ends must find room, whatever fills the disk meanwhile.
  fallocate -n -l 524288 events 2>/dev/null
  # A rank that is killed is held against this number: was it the kernel, for want of memory?
  grep -s '^oom_kill ' /proc/vmstat >memory
  # What is not on this list when the job is over is the user's: checkpoints, caches.
  [ -e open ] && rm making && find . -type f >made
} && exit 0
rm -rf -- "$job"
exit 1
"""
)
"""Sees whether the node can take part, then makes the job's folder with its empty logs.

Arguments: base, job folder, mpirun ("" where none takes part), python, script ("" when it is
copied), working directory, rank table ("" without one), its digest, ADDRESS/PORT where the ranks
will meet ("" on other nodes and where they do not), something where no other job may run or be
about to start on the node, a script that writes the job's files from stdin, then the names of the
logs.
What is missing is printed, one reason per line; then nothing is left."""

DISCARD: Final = 'rm -rf -- "$1"'
"""Takes a job's folder away. Argument: the folder."""

LAUNCH: Final = r"""
trap : TERM INT HUP
cd -- "$job" || exit 1
exec </dev/null >>"$log" 2>&1
now() {
  time=${EPOCHREALTIME-}
  if [ -n "$time" ]; then time=${time/,/.}; else time=$(date +%s.%6N); fi
}
stamp() {
  local line rest fields
  read -r line </proc/self/stat
  rest=${line##*) }
  fields=($rest)
  printf '%s pid %s start %s\n' "$1" "$BASHPID" "${fields[19]}" >>"$job/events"
}
stamp 'supervisor -' || exit 1
exec 3>&2 2>/dev/null
if [ "$limit" -gt 0 ] && [ -r "$base/env/keep.sh" ]; then
  exec {hold}> >(. "$base/env/keep.sh" && keep "$log" "$limit" >/dev/null)
  keeper=$!
fi
# Stamped first, then asked: a stop either finds the launcher recorded or is found here.
stopped() { case $(<events) in *'launcher - stop at '*) return 0 ;; esac; return 1; }
if declare -F end_overdue >/dev/null; then
  exec {going}> >([ -z "$keeper" ] || exec {hold}>&-; end_overdue)
fi
( [ -z "$keeper" ] || exec {hold}>&-
  [ -z "$going" ] || exec {going}>&-
  exec 2>&3 3>&-; stamp "$who" && { ! stopped || exit 143; } && launcher )
code=$?
[ -z "$going" ] || exec {going}>&-
[ -z "$keeper" ] || exec {hold}>&-
clean "$code"
[ -z "$keeper" ] || wait "$keeper"
now
printf '%s exit %s at %s\n' "$who" "$code" "$time" >>events
"""
"""The rest of `launch.sh`: runs `launcher`, waits for it, records it, and has it cleaned up.

Needs `base`; `job`, the folder; `log`, the name of its log, and `limit`, how many bytes of it are
kept (0: all); `who` it is in the events: `launcher -` or `agent NODE_RANK`; the shell functions
`launcher` and `clean CODE`; and `end_overdue`, where that is to look after the start."""

HASTEN: Final = r"""
[ ! -e "$1/open" ] || echo now >"$1/ending"
"""
"""Has what looks after the ranks of this node end them. Argument: the job's folder."""

START: Final = r"""
setsid bash "$1/launch.sh" </dev/null >/dev/null 2>&1 &
"""
"""Starts `launch.sh` so that it outlives the connection. Argument: the job's folder."""

RUNS: Final = r"""
runs() {
  local line rest fields
  { read -r line </proc/"$1"/stat; } 2>/dev/null || return 1
  rest=${line##*) }
  fields=($rest)
  [ "${fields[19]}" = "$2" ] && [ "${fields[0]}" != Z ]
}
"""
"""Shell function: `runs PID START` says whether this process still is there."""

IS_LOST: Final = r"""
is_lost() {
  local who number key pid word start began=1
  lost='launcher -'
  while read -r who number key pid word start; do
    case "$who $key" in
      'launcher exit' | 'launcher lost' | 'agent exit' | 'agent lost') return 1 ;;
      'launcher pid' | 'agent pid' | 'supervisor pid')
        began=0; runs "$pid" "$start" && return 1
        [ "$who" != agent ] || lost="agent $number" ;;
    esac
  done <events
  return "$began"
}
"""
"""Shell function: says by the events of the job in whose folder we are that the launcher or agent
of this node began and is gone without having recorded its end, and sets `lost` to which of them;
needs `RUNS`."""

FOLLOW: Final = (
    r"""
job=$1 nonce=$2 beat=$3 every=$4; shift 4
cd -- "$job" && mkdir -- "$nonce" && : >"$nonce/beat" || exit 1
fallocate -n -l 65536 "$nonce/beat" 2>/dev/null  # signs of life, also on a full disk
names=()
for name; do names+=("$nonce/../$name"); done
# Looking twenty times a second (0.1 % of a processor) is cheaper than inotify, which wakes up, and
# holds up the rank, at each write: 1.5 s of CPU for 200,000 lines (coreutils 9.1). More seldom is
# cheaper still; but a job is over for its operator when this has seen it.
tail ---disable-inotify -v -n +1 -s 0.05 -f -- "${names[@]}" "$nonce/beat" &
tail=$!
trap 'kill "$tail" 2>/dev/null; rm -rf -- "$nonce"' EXIT
"""
    + RUNS
    + IS_LOST
    + USAGE
    + SAMPLE
    + UPTIME
    + r"""
said= bytes=0 next=0
while :; do
  IFS= read -r -t "$beat" _
  [ "$?" -gt 128 ] || break
  said=
  look_up
  if [ "$every" -gt 0 ] && [ "$up" -ge "$next" ]; then
    sample
    next=$((up + every))
  fi
  # A job of weeks: tail goes on from the beginning of a file that has become shorter.
  bytes=$((bytes + ${#said} + 1))
  if [ "$bytes" -gt 65536 ]; then
    bytes=${#said}
    : >"$nonce/beat"
    fallocate -n -l 65536 "$nonce/beat" 2>/dev/null
  fi
  printf '%s\n' "$said" >>"$nonce/beat"
  if is_lost; then echo "$lost lost" >>events; fi
done
"""
)
"""Sends what is in some files of the job's folder and all that is added, until its stdin closes.

Arguments: job folder, a name that nobody can guess, seconds between signs of life, after how many
whole seconds such a sign also says what the ranks use (0: never), file names.
Notes in the events when a launcher that began is gone without having recorded its end."""

TERMINATE: Final = (
    r"""
job=$1 mark=$2
"""
    + RUNS
    + r"""
if [ -n "$mark" ]; then
  ended=0
  while read -r line; do
    case $line in 'launcher - exit'* | 'launcher - lost' | 'launcher - stop'*) ended=1 ;; esac
  done <"$job/events" || exit 1
  [ "$ended" = 1 ] || printf 'launcher - stop at %s\n' "$(date +%s.%6N)" >>"$job/events"
fi
while read -r who number key pid word start; do
  if [ "$who $key" = 'launcher pid' ] && runs "$pid" "$start"; then kill -TERM "$pid"; fi
done <"$job/events"
:
"""
)
"""Asks the launcher to end the job. Arguments: the job's folder, "stop" to record who asked."""

SWEEP: Final = (
    r"""
job=$1 id=$2 linger=$3 grace=$4
unset ASCENDBOOT_JOB_ID
"""
    + RUNS
    + r"""
find_all() {
  local file pid who number key word start
  pids=()
  for file in $(grep -lszxF -- "ASCENDBOOT_JOB_ID=$id" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    [ "$pid" = "$$" ] || pids+=("$pid")
  done
  [ -r "$job/events" ] || return 0
  while read -r who number key pid word start; do
    [ "$who" != supervisor ] && [ "$key" = pid ] || continue
    case " ${pids[*]} " in *" $pid "*) continue ;; esac
    if runs "$pid" "$start"; then pids+=("$pid"); fi
  done <"$job/events"
}
all_end_within() {  # tenths of a second
  local tick
  for ((tick = 0; ; tick++)); do
    find_all
    [ "${#pids[@]}" -gt 0 ] || return 0
    [ "$tick" -lt "$1" ] || return 1
    sleep 0.1
  done
}
tell() {
  local pid words
  for pid in "${pids[@]}"; do
    words=$({ tr '[:cntrl:]' ' ' </proc/"$pid"/cmdline | head -c 200; } 2>/dev/null)
    printf '%s %s %s\n' "$1" "$pid" "$words"
  done
}
if ! all_end_within "$linger"; then
  tell ended
  kill -TERM "${pids[@]}" 2>/dev/null
  if ! all_end_within "$grace"; then
    for round in 1 2 3 4 5; do
      kill -KILL "${pids[@]}" 2>/dev/null
      if all_end_within 10; then break; fi
    done
    tell left
  fi
fi
cd -- "$job" 2>/dev/null || exit 0
stat -c 'size %s %n' -- *.log events
read -r free block < <(stat -f -c '%f %S' .)
[ $((free * block)) -ge 1048576 ] || printf 'full %s %s\n' $((free * block)) "$job"
rm -f -- open ending
"""
)
"""Ends whatever of a job still lives on the node: known by pid and start time, or by its job id.

Arguments: job folder, job id, then in tenths of a second how long things may take to end by
themselves and how long after SIGTERM. Prints `ended PID COMMAND` for what had to be ended, `left
PID COMMAND` for what could not be, `size BYTES NAME` for the files of the job, and `full BYTES
FOLDER` where next to nothing is free for them."""
