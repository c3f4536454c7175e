"""What the ranks of a node use: CPU and memory, read from /proc where they run, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
