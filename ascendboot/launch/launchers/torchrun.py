"""The command line of torchrun on each node; elastic jobs go on with fewer nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ascendboot.errors import LaunchError
from ascendboot.templates import script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath

    from ascendboot.model.cluster import LauncherChoice, NodeClocks

# They meet by c10d at the primary, which holds the store: without it the job is over. An agent
# whose rank fails restarts its ranks by itself, and the others follow; of a node that is gone
# nobody tells them, so the primary's minder ends the ranks that wait for it.

_FIRST_RANK: Final = "ASCENDBOOT_FIRST_RANK"
"""Names to `rank-exec` the place of a node's first rank in the plan, which stays its."""
_RESTARTS: Final = 3
"""So often an agent restarts its ranks besides once for each node that may be lost."""
_CLOCKS_APART_S: Final = 5.0
"""Who was not heard of for 15 s, by the clock of whoever looks, counts as gone (torch 2.13)."""


@dataclass(frozen=True)
class ElasticRendezvous:
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

    def supervision(self) -> str:
        """A node or a rank may fail."""
        return script("supervise-elastic.sh", least=self.min_nodes)

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


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """How torchrun is to be called on every node of a job."""

    python: str
    job_id: str
    log_dir: PurePosixPath
    master_addr: str
    master_port: int
    ranks: tuple[int, ...]
    """How many ranks each node has, by node rank."""


class Rendezvous(Protocol):
    """What holds the torchruns of a job together: how they meet, and what one without others is."""

    def nodes(self, torchrun: Torchrun) -> str:
        """How many of them there are to be."""
        ...

    def words(self, torchrun: Torchrun, node_rank: int) -> tuple[str, ...]:
        """How the one of a node finds the others, and what it does when a rank fails."""
        ...

    def env(self, torchrun: Torchrun, node_rank: int) -> Mapping[str, str]:
        """What the ranks of a node are told besides, by the environment of their torchrun."""
        ...

    def supervision(self) -> str:
        """The shell functions of `supervise-static.sh` for this job."""
        ...


class StaticRendezvous:
    """Every rank is needed, and keeps the number that the placement gives it.

    The rendezvous is static: with c10d nodes are numbered by their names.
    """

    def nodes(self, torchrun: Torchrun) -> str:
        """All of them."""
        return f"{len(torchrun.ranks)}"

    def words(self, torchrun: Torchrun, node_rank: int) -> tuple[str, ...]:
        """One after another as placed; no rank is started twice."""
        return (
            f"--node_rank={node_rank}",
            "--rdzv_backend=static",
            f"--rdzv_id={torchrun.job_id}",
            f"--master_addr={torchrun.master_addr}",
            f"--master_port={torchrun.master_port}",
            "--max_restarts=0",
        )

    def env(self, torchrun: Torchrun, node_rank: int) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def supervision(self) -> str:
        """One that fails ends the others."""
        return script("supervise-static.sh")


def torchrun_command(
    torchrun: Torchrun, bond: Rendezvous, node_rank: int, program: Sequence[str]
) -> tuple[str, ...]:
    """The argv that runs `program` once per rank of one node.

    `-m` needs no `torchrun` on any PATH and takes the very Python of the job; words with `_` are
    those that every torch since 1.9 knows.
    """
    return (
        *(torchrun.python, "-m", "torch.distributed.run"),
        f"--nnodes={bond.nodes(torchrun)}",
        f"--nproc_per_node={torchrun.ranks[node_rank]}",
        *bond.words(torchrun, node_rank),
        # Before 2.3 or so a rank that ended was noticed after five seconds only.
        "--monitor_interval=0.5",
        f"--log_dir={torchrun.log_dir}",
        "--no_python",
        *(literal(word) for word in program),
    )


def torchrun_env(env: Mapping[str, str], ranks: int) -> dict[str, str]:
    """What torchrun itself needs besides: it must load torch, and no NPU."""
    # Torchrun would set the first by itself, with five lines about it. Without the second `import
    # torch` loads torch_npu, which wants CANN's libraries; the ranks have it unset.
    threads = {"OMP_NUM_THREADS": "1"} if ranks > 1 else {}
    return {**env, **threads, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def literal(word: str) -> str:
    """`word` so that it arrives as it is: torchrun replaces `$…` (torch 2.13, elastic/utils)."""
    return word.replace("$", "$$")
