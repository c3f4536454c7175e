"""The command line of `torchrun` on each node of one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ascendboot.launch.minding import NEEDS_ALL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath


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


class Bond(Protocol):
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

    def minding(self) -> str:
        """Shell functions as `NEEDS_ALL` has them."""
        ...


class AllTogether:
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

    def minding(self) -> str:
        """One that fails ends the others."""
        return NEEDS_ALL


def torchrun_command(
    torchrun: Torchrun, bond: Bond, node_rank: int, program: Sequence[str]
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
