"""Supervises torchrun on every node and limits the time of a start."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from ascendboot.launch.scripts import RUNS
from ascendboot.model.names import fold, ranks_named
from ascendboot.transport.api import UPTIME

if TYPE_CHECKING:
    from collections.abc import Collection

    from ascendboot.launch.events import StartOverdue
    from ascendboot.launch.plan import JobRecord, LaunchPlan

# Open MPI (4.1, orte_startup_timeout) waits for ever for a node that does not answer, or for a
# wrapper that does not come to start its rank. Who follows a job sees that; nobody follows one
# that was started with `--detach`, or whose `train` was killed.

WITHIN_S: Final = 150
"""From the start until every rank has begun; whoever follows the job is to be the first to say."""

BEHIND: Final = r"""
behind() {
  local who number rest
  local -A heard=()
  while read -r who number rest; do [ "$who" != rank ] || heard[$number]=1; done <events
  while read -r who number rest; do [ -n "${heard[$number]}" ] || echo "$number"; done <ranks
  echo end
}
take() {
  case $'\n'$1 in *$'\nend') late+=(${1%end}) ;; *) return 1 ;; esac
}
note_late() {
  local IFS=,
  now
  printf '%s late %s awaited %s after %s at %s\n' \
    "$who" "${late[*]}" "${awaited[*]:--}" "$within" "$time" >>events
}
"""
"""Shell functions, in the job's folder: `behind` prints the ranks of this node of which nothing was
heard, `take ANSWER` adds those of such an answer to `late`, and `note_late` notes them. Needs
`who`, `within` and `now`, as `LAUNCH` does."""

END_OVERDUE: Final = (
    RUNS
    + UPTIME
    + BEHIND
    + r"""
ask() {
  printf '%s\ncd -- %q && behind\n' "$(declare -f behind)" "$job" |
    timeout -k 1 10 ssh -F "$base/trust/ssh_config" "$1" 'exec bash -s'
}
waits_for() {
  local pid words
  for pid in "${pids[@]}"; do
    words=$(tr '\0' ' ' <"/proc/$pid/cmdline")
    case ${words%% *} in ssh | */ssh) ;; *) continue ;; esac
    case $words in *" $1 "*) return 0 ;; esac
  done
  return 1
}
is_going() {
  read -r -t 0.01
  [ "$?" -gt 128 ] && [ ! -s ending ] && ! stopped
}
end_overdue() {
  local up due number held key pid word start tick late=() awaited=() asked=()
  look_up
  due=$((up + within))
  while [ "$up" -lt "$due" ]; do
    read -r -t $((due - up))
    [ "$?" -gt 128 ] || return
    look_up
  done
  is_going || return
  for number in "${!addresses[@]}"; do
    exec {held}< <(ask "${addresses[number]}")
    asked[number]=$held
  done
  take "$(behind)"
  marked
  for number in "${!asked[@]}"; do
    if take "$(cat <&"${asked[number]}")" && ! waits_for "${addresses[number]}"; then continue; fi
    awaited+=($((number + 1)))
  done
  [ "${#late[@]}" != 0 ] && is_going || return
  note_late
  while read -r who number key pid word start; do
    [ "$who $key" != 'launcher pid' ] || break
  done <events
  runs "$pid" "$start" && kill -TERM "$pid"
  for ((tick = 0; tick < 2 * grace + 110; tick++)); do
    runs "$pid" "$start" || return
    sleep 0.1
  done
  kill -KILL "$pid"
}
"""
)
"""Shell functions for `launch.sh`: `end_overdue` ends the launcher when a rank is known not to have
begun `within` seconds after the start; its input ends with the launcher.

The other nodes are asked with the cluster's own trust: what began there stands in their events
alone. One that gives no answer, or for which the launcher's ssh still waits (Open MPI's ends once
its daemon runs), is noted and decides nothing. Needs `base`, `job`, `grace` in tenths of a second,
`within`, `addresses` of the other nodes, `marked`, and `now` and `stopped` of `LAUNCH`."""


def words_on(plan: LaunchPlan | JobRecord, overdue: StartOverdue) -> str:
    """What became of a start that was ended on the primary."""
    awaited = [plan.nodes[number] for number in overdue.awaited]
    seen = f"ssh from {plan.nodes[0]} waits for {fold(awaited)}; " if awaited else ""
    return who_is_missing(plan, overdue.late, overdue.within_s, seen)


def who_is_missing(
    plan: LaunchPlan | JobRecord, missing: Collection[int], within_s: float, seen: str = ""
) -> str:
    """That the start of a job was given up, for want of these ranks."""
    nodes = dict.fromkeys(rank.node for rank in plan.ranks if rank.rank in missing)
    return (
        f"{fold(nodes)}: could not start {ranks_named(missing)} of job {plan.job_id} "
        f"within {within_s:g} s: "
        f"the launcher has not begun them; {seen}its log is "
        f"{plan.job_folder}/launcher.log"
    )


# torchrun leaves the other nodes alone when one fails (torch 2.13: 400 s until the last had
# ended, and a SIGTERM had no effect while it waited for them). So what starts it on a node minds
# it: the primary's also holds one ssh to every other node, with the cluster's own trust, and what
# runs at its other end tells how that node is, and ends the job there once the primary lets go.

ENDING: Final = "ascendboot: ends torchrun on this node: "
"""Begins the line that says why; what torchrun says after it is only the consequence."""

_MARKED: Final = r"""
marked() {
  local file
  pids=()
  for file in $(grep -lszxF -- "ASCENDBOOT_JOB_ID=$id" /proc/[0-9]*/environ); do
    file=${file%/environ}
    pids+=("${file#/proc/}")
  done
  [ "${#pids[@]}" -gt 0 ]
}
kill_marked() {
  local round
  for round in 1 2 3 4 5; do
    marked || return 0
    kill -KILL "${pids[@]}" 2>/dev/null
    sleep 0.1
  done
}
end_marked() {
  local tick
  marked || return 0
  kill -TERM "${pids[@]}" 2>/dev/null
  for ((tick = 0; tick < grace; tick++)); do
    marked || return 0
    sleep 0.1
  done
  kill_marked
}
"""
"""Shell functions: find and end what carries the id of the job on this node; needs `id`, `grace`
in tenths of a second."""

CLEAN: Final = (
    _MARKED
    + r"""
clean() {
  [ "$1" != 0 ] && marked || return 0
  now
  printf '%s ends at %s\n' "$who" "$time" >>events
  end_marked
}
"""
)
"""Shell function for `launch.sh`: `clean CODE` ends the ranks that an mpirun which failed has left
on its own node: of those nobody else sees that it was killed. Needs `id`, `who` and `grace`."""

_HEARD: Final = r"""
hear() {
  local who number key value word start
  failed= ended= began= agent_pid= agent_start= keeper_pid= keeper_start= ranks=0
  while read -r who number key value word start; do
    case "$who $key" in
      'rank pid') ranks=$((ranks + 1)) ;;
      'rank exit')
        ranks=$((ranks - 1))
        [ "$value" = 0 ] || [ -n "$failed" ] || failed="rank $number ended with $value" ;;
      'agent pid') began=1 agent_pid=$value agent_start=$start ;;
      'supervisor pid') keeper_pid=$value keeper_start=$start ;;
      'agent exit') ended=$value ;;
    esac
  done <events
}
lives() { [ -n "$1" ] && runs "$1" "$2"; }
"""
"""Shell function: what the events of this node say."""

NEEDS_ALL: Final = r"""
told() { why=$1; return 1; }
goes_on_without() { why="${nodes[$1]}: lost it: ssh ended with $2"; return 1; }
goes_on() { why=$failed; [ -z "$failed" ]; }
"""
"""Shell functions for `MIND` and `WATCH` by which a job needs every rank of every node.

Each says whether the job goes on, and if not puts the reason into `why`: `told LINE` after what is
told of another node, `goes_on_without NUMBER CODE` when the ssh to one has ended with an error,
`goes_on` after what was heard of this one."""

MIND: Final = (
    RUNS
    + UPTIME
    + _MARKED
    + _HEARD
    + BEHIND
    + rf"""
ending={shlex.quote(ENDING)}
"""
    + r"""
clean() { [ "$1" = 0 ] || end_marked; }
is_over() { ! kill -0 "$1" 2>/dev/null; }
guard() {
  local held
  exec <"/dev/fd/${beats[$1]}" >"/dev/fd/$said"
  for held in "${beats[@]}" "$said"; do exec {held}>&-; done
  exec ssh -F "$base/trust/ssh_config" -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
    "${addresses[$1]}" "exec bash $watch"
}
watcher_is_gone() {
  local pid start
  [ -n "$is_watched" ] || return 1
  { read -r pid start <watched; } 2>/dev/null
  look_up
  if [ -n "$pid" ]; then ! lives "$pid" "$start"; else [ "$up" -ge "$watched_by" ]; fi
}
is_overdue() {
  local late=() awaited=()
  look_up
  [ -n "$begun_by" ] && [ "$up" -ge "$begun_by" ] || return 1
  begun_by=
  take "$(behind)"
  [ "${#late[@]}" != 0 ] || return 1
  note_late
  why="not every rank has begun within $within s"
}
launcher() {
  local agent number held beat line code=0 why= tick=0 up watched_by begun_by
  look_up
  watched_by=$((up + 60)) begun_by=${within:+$((up + within))}
  asked= said= beats=() guards=()
  trap 'asked=1' TERM INT HUP
  agent &
  agent=$!
  # Pipes without a name, open at both ends: reading waits, and nothing is left behind.
  exec {said}<> <(:)
  for number in "${!addresses[@]}"; do
    exec {held}<> <(:)
    beats[number]=$held
  done
  for number in "${!addresses[@]}"; do
    guard "$number" &
    guards[number]=$!
  done
  while :; do
    if read -r -t 0.2 -u "$said" line && ! told "$line"; then break; fi
    if [ -n "$asked" ]; then why='was asked to end' code=143; break; fi
    if [ -n "$agent" ] && is_over "$agent"; then
      wait "$agent"
      code=$? agent=
      if [ "$code" != 0 ]; then why="torchrun ended with $code"; break; fi
    fi
    for number in "${!guards[@]}"; do
      is_over "${guards[number]}" || continue
      wait "${guards[number]}"
      held=$?
      # Beats that nobody takes any more would fill the pipe, and one day stop this shell.
      beat=${beats[number]}
      exec {beat}>&-
      unset "guards[number]" "beats[number]"
      if [ "$held" != 0 ] && ! goes_on_without "$number" "$held"; then break 2; fi
    done
    [ -n "$agent" ] || [ "${#guards[@]}" != 0 ] || return 0
    hear
    goes_on || break
    tick=$((tick + 1))
    if [ $((tick % 5)) = 0 ] && watcher_is_gone; then why='the primary is gone'; break; fi
    if [ $((tick % 5)) = 0 ] && is_overdue; then break; fi
    if [ $((tick % 25)) = 0 ]; then for held in "${beats[@]}"; do echo >&"$held"; done; fi
  done
  now
  printf '%s ends at %s\n' "$who" "$time" >>events
  printf '%s%s\n' "$ending" "$why"
  for held in "${beats[@]}"; do exec {held}>&-; done
  finish
  for ((tick = 0; tick < grace + 30 && ${#guards[@]}; tick++)); do
    for number in "${!guards[@]}"; do
      if is_over "${guards[number]}"; then unset "guards[number]"; fi
    done
    sleep 0.1
  done
  [ "${#guards[@]}" = 0 ] || kill -KILL "${guards[@]}"
  [ "$code" != 0 ] || code=1
  return "$code"
}
finish() {
  local tick patience=$grace idle=0
  if [ -n "$agent" ]; then
    # Of a rank that failed here torchrun knows: it ends the others, and says what it saw.
    if [ -n "$failed" ]; then patience=$((grace + 15)); else kill -TERM "$agent"; fi
    # Without ranks it needs a moment for its words, and seconds to unload torch: not so long.
    for ((tick = 0; tick < patience && idle < 10; tick++)); do
      is_over "$agent" && break
      hear
      if [ "$ranks" = 0 ]; then idle=$((idle + 1)); fi
      sleep 0.1
    done
    is_over "$agent" || kill_marked
    wait "$agent"
  fi
  end_marked
}
"""
)
"""Shell functions for `launch.sh`: `launcher` runs `agent`, a function, and minds it; `clean CODE`
ends what it left.

Needs `base`, `id`, `who` (as in events), `grace` in tenths of a second; `nodes` and `addresses` of
those to guard, and `watch`, the path of their `watch.sh` as a shell reads it; `is_watched` where
the primary guards this node; `within`, in how many seconds every rank of the node must have begun,
empty for no limit; and functions as `NEEDS_ALL` has them."""

WATCH: Final = (
    RUNS
    + UPTIME
    + _MARKED
    + _HEARD
    + r"""
tell() {
  printf '%s: %s\n' "$node" "$1"
  end
}
end() {
  local tick
  for ((tick = 0; tick < grace + 30; tick++)); do
    hear
    [ -z "$ended" ] || exit 1
    lives "$agent_pid" "$agent_start" || break
    [ "$tick" != 0 ] || kill -TERM "$agent_pid" 2>/dev/null
    sleep 0.1
  done
  lives "$keeper_pid" "$keeper_start" || end_marked
  exit 1
}
cd -- "$job" || { printf '%s: there is no folder of the job\n' "$node"; exit 1; }
read -r line </proc/self/stat
rest=${line##*) }
fields=($rest)
printf '%s %s\n' "$BASHPID" "${fields[19]}" >watched
look_up
heard=$up started_by=$((up + 60))
while :; do
  IFS= read -r -t 0.2 line
  got=$?
  look_up
  if [ "$got" = 0 ]; then heard=$up
  elif [ "$got" -le 128 ]; then end
  elif [ $((up - heard)) -gt 30 ]; then tell 'heard nothing of the primary for 30 s'; fi
  hear
  if [ "$ended" = 0 ]; then exit 0; fi
  goes_on || tell "$why"
  [ -z "$ended" ] || tell "torchrun ended with $ended"
  if [ -z "$began" ]; then
    [ "$up" -lt "$started_by" ] || tell 'nothing was started there within 60 s'
  elif ! lives "$agent_pid" "$agent_start" && ! lives "$keeper_pid" "$keeper_start"; then
    hear
    [ -n "$ended" ] || tell 'torchrun is gone, and what minded it'
  fi
done
"""
)
"""The rest of `watch.sh`, after `job`, `id`, `grace`, `node` and functions as `NEEDS_ALL` has them:
what the primary's ssh runs on every other node. Says why the job cannot go on, ends it here when
the primary lets go, and stays until it has ended; ends with 0 only when all went well here."""
