"""The command line of `torchrun` on each node of one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def torchrun_command(torchrun: Torchrun, node_rank: int, program: Sequence[str]) -> tuple[str, ...]:
    """The argv that runs `program` once per rank of one node.

    The rendezvous is static: with c10d nodes are numbered as they come, and ranks would not match
    the placement. `-m` needs no `torchrun` on any PATH and takes the very Python of the job; words
    with `_` are those that every torch since 1.9 knows.
    """
    return (
        *(torchrun.python, "-m", "torch.distributed.run"),
        f"--nnodes={len(torchrun.ranks)}",
        f"--nproc_per_node={torchrun.ranks[node_rank]}",
        f"--node_rank={node_rank}",
        "--rdzv_backend=static",
        f"--rdzv_id={torchrun.job_id}",
        f"--master_addr={torchrun.master_addr}",
        f"--master_port={torchrun.master_port}",
        "--max_restarts=0",
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
