"""Elastic jobs of torchrun: how its agents meet anew, and who minds them meanwhile.

They meet by c10d at the primary, which holds the store: without it the job is over. An agent whose
rank fails restarts its ranks by itself, and the others follow; of a node that is gone nobody tells
them, so the primary's minder ends the ranks that wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.launch.torchrun import Torchrun
    from ascendboot.model.clocks import NodeClocks
    from ascendboot.model.launcher import LauncherChoice

_FIRST_RANK: Final = "ASCENDBOOT_FIRST_RANK"
"""Names to `rank-exec` the place of a node's first rank in the plan, which stays its."""
_RESTARTS: Final = 3
"""So often an agent restarts its ranks besides once for each node that may be lost."""
_CLOCKS_APART_S: Final = 5.0
"""Who was not heard of for 15 s, by the clock of whoever looks, counts as gone (torch 2.13)."""


@dataclass(frozen=True)
class Elastic:
    """The job goes on with fewer nodes, down to so many, and its ranks are numbered anew."""

    min_nodes: int

    def nodes(self, torchrun: Torchrun) -> str:
        """From so many to all."""
        return f"{self.min_nodes}:{len(torchrun.ranks)}"

    def words(self, torchrun: Torchrun, node_rank: int) -> tuple[str, ...]:
        """They meet at the primary."""
        is_host = "false" if node_rank else "true"
        return (
            "--rdzv_backend=c10d",
            f"--rdzv_id={torchrun.job_id}",
            f"--rdzv_endpoint={torchrun.master_addr}:{torchrun.master_port}",
            f"--rdzv_conf=is_host={is_host}",
            f"--local_addr={self._name(torchrun, node_rank)}",
            f"--max_restarts={_RESTARTS + len(torchrun.ranks) - self.min_nodes}",
        )

    def env(self, torchrun: Torchrun, node_rank: int) -> Mapping[str, str]:
        """The place of its first rank; and the ranks meet at a store that is new each time."""
        # Of the store that is kept one that joins later never hears (torch 2.13).
        return {
            _FIRST_RANK: str(sum(torchrun.ranks[:node_rank])),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def minding(self) -> str:
        """A node or a rank may fail."""
        return f"least={self.min_nodes}\n{_NEEDS_SOME}"

    @staticmethod
    def _name(torchrun: Torchrun, node_rank: int) -> str:
        """What a node is called at the meeting.

        There nodes are numbered in the order of their names (torch 1.9 to 2.13), and the name of
        the first is where the ranks meet. So the primary is always the first, as no address begins
        with `node`, and the others keep their order.
        """
        return f"node-{node_rank:05}" if node_rank else torchrun.master_addr


def why_not_elastic(
    min_nodes: int, nodes: int, launcher: LauncherChoice, *, with_table: bool
) -> str | None:
    """Why a job cannot be told to go on with `min_nodes` of its nodes; None when it can."""
    if not launcher.torchrun:
        return (
            f"only torchrun can go on without a node, and {launcher.words}; "
            "state `launcher: {kind: torchrun}`, or leave --elastic out"
        )
    if with_table:
        return (
            "a rank table fixes how many ranks there are; "
            "state `resources: {mode: root-info}`, or leave --elastic out"
        )
    if min_nodes > nodes:
        return f"--elastic {min_nodes} is more than its nodes, which are {nodes}; state fewer"
    return None


def refuse_clocks_apart(clocks: NodeClocks) -> None:
    """Refuse nodes of which one would take another for gone.

    Raises:
        LaunchError: names those whose clocks are furthest apart.
    """
    offsets = clocks.offsets
    ahead = sorted(offsets, key=lambda node: offsets[node])
    apart_s = offsets[ahead[-1]] - offsets[ahead[0]] if ahead else 0.0
    if apart_s > _CLOCKS_APART_S:
        raise LaunchError(
            f"{ahead[-1]}: could not take part in an elastic job: its clock is {apart_s:.0f} s "
            f"ahead of that of {ahead[0]}, and torchruns hear of each other by their clocks; "
            f"{_CLOCKS_APART_S:.0f} s are the most; set the clocks, or leave --elastic out"
        )


_NEEDS_SOME: Final = r"""
lost=0 words=() regrouping=
told() { words+=("$1"); }
goes_on_without() {
  local node=${nodes[$1]} number=$(($1 + 1)) line code left of="lost it: ssh ended with $2"
  while read -r -t 0.1 -u "$said" line; do told "$line"; done
  for line in "${words[@]}"; do
    case $line in "$node: "*) of=${line#*: } ;; esac
  done
  # One that gives up, and was not killed, closes the meeting for all (torch 2.13).
  code=${of#torchrun ended with }
  if [ "$code" != "$of" ] && [ "$code" -lt 128 ]; then
    why="$node: $of"
    return 1
  fi
  lost=$((lost + 1))
  left=$((1 + ${#addresses[@]} - lost))
  now
  printf 'agent %s left at %s: %s\n' "$number" "$time" "$of" >>events
  if [ "$left" -lt "$least" ]; then
    why="$node: $of; nodes left: $left, needed: $least"
    return 1
  fi
  printf 'ascendboot: goes on without %s: %s\n' "$node" "$of"
  regrouping=1
  echo now >ending
}
goes_on() {
  failed=
  [ -n "$regrouping" ] && ! has_ranks || return 0
  regrouping=
  : >ending
}
has_ranks() {
  local who number key pid word start
  local -A of=()
  while read -r who number key pid word start; do
    case "$who $key" in
      'rank pid') of[$number]="$pid $start" ;;
      'rank exit') unset "of[$number]" ;;
    esac
  done <events
  for number in "${of[@]}"; do
    if runs $number; then return 0; fi
  done
  return 1
}
"""
"""Shell functions in place of `NEEDS_ALL`: the job goes on while `least` nodes are left.

Of a node that is gone no torchrun hears, and ranks may wait for it for long: so those of the
primary are ended by `ending`, which is taken back once they have; the other nodes follow."""
