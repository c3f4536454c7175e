"""The end of a start that does not come to its end: what sees it on the nodes, and its words.

Open MPI (4.1, orte_startup_timeout) waits for ever for a node that does not answer, or for a
wrapper that does not come to start its rank. Who follows a job sees that; nobody follows one that
was started with `--detach`, or whose `train` was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascendboot.launch.scripts import RUNS
from ascendboot.model.names import fold, ranks_named
from ascendboot.transport.shell import UPTIME

if TYPE_CHECKING:
    from collections.abc import Collection

    from ascendboot.launch.events import StartOverdue
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.record import JobRecord

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
