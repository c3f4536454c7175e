"""PyTorch's torchrun, one on each node; an elastic job continues with fewer nodes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from ascendboot.launch.events import ENDING
from ascendboot.launch.launchers import Launcher, Traits
from ascendboot.launch.plan import TORCH_LOGS, LaunchRequest
from ascendboot.templates import script
from ascendboot.transport.api import FileWrite

_RESTARTS: Final = 3
"""How often an agent may restart its ranks, in addition to once for each node that may be lost."""


class Torchrun(Launcher):
    """Starts ranks with `python -m torch.distributed.run`, an agent on each node.

    In an elastic job the agents meet by c10d at the primary, which holds the store: without it the
    job is over. An agent whose rank fails restarts its ranks itself, and the others follow. Agents
    do not notice a node that is gone: the primary's supervisor ends the ranks that wait for it.
    """

    traits = Traits(
        kind="torchrun",
        rank_variables=("RANK", "LOCAL_RANK", "WORLD_SIZE"),
        module="torch",
        packages=frozenset({"torch", "torch_npu"}),
        on_every_node=True,
        sets_meeting=True,
        loads_libraries=True,
        spreads_failure=True,
        collective_ways=("gloo",),
        elastic=True,
    )

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """`-m` needs no `torchrun` on PATH and takes the Python of the job.

        Options are written with `_`, which every torch since 1.9 accepts.
        """
        nodes = job.placement.nodes
        count = len(nodes) if job.min_nodes is None else f"{job.min_nodes}:{len(nodes)}"
        return (
            *(job.python, "-m", "torch.distributed.run", f"--nnodes={count}"),
            f"--nproc_per_node={_ranks(job)[node_rank]}",
            *(_static(job, node_rank) if job.min_nodes is None else _elastic(job, node_rank)),
            # Before about 2.3 it noticed the end of a rank only after five seconds.
            "--monitor_interval=0.5",
            f"--log_dir={job.folder / TORCH_LOGS}",
            "--no_python",
            *(literal(word) for word in program),
        )

    def env(self, job: LaunchRequest, node_rank: int) -> Mapping[str, str]:
        """Settings for the agent, which must load torch but no NPU."""
        ranks = _ranks(job)
        env = {
            # Otherwise `import torch` loads torch_npu, which needs CANN's libraries; rank-exec
            # unsets it for the ranks.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }
        if ranks[node_rank] > 1:
            # torchrun would set this itself, with five lines about it.
            env["OMP_NUM_THREADS"] = "1"
        if job.min_nodes is not None:
            # For rank-exec: the number of the node's first rank in the plan, which does not change.
            env["ASCENDBOOT_FIRST_RANK"] = str(sum(ranks[:node_rank]))
            # The ranks meet at a new store each time: a node that joins later does not know the
            # store that torch would keep (2.13).
            env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        return env

    def functions(self, job: LaunchRequest, node_rank: int) -> str:
        """Each agent has a supervisor; the one of the primary watches the other nodes."""
        supervise = script(
            "supervise.sh",
            watch=shlex.quote(str(job.folder / "watch.sh")),
            is_watched="1" if node_rank else "",
            ending=ENDING,
        )
        return f"{_failure_functions(job)}{supervise}"

    def files(self, job: LaunchRequest, node_rank: int) -> tuple[FileWrite, ...]:
        """The script that the primary runs on every other node to watch its agent."""
        if not node_rank:
            return ()
        watch = script(
            "supervise-watch.sh",
            job=job.folder,
            grace=round(job.grace_s * 10),
            node=job.placement.nodes[node_rank].name,
        )
        text = f"#!/bin/bash\numask go-w\n{_failure_functions(job)}{watch}"
        return (
            FileWrite(job.folder / "watch.sh", text.encode(errors="surrogateescape"), 0o700),
            FileWrite(job.folder / "watched", b"", 0o644),
        )


LAUNCHER: Final = Torchrun()


def literal(word: str) -> str:
    """Double each `$` of a word: torchrun (torch 2.13, elastic/utils) replaces `$…`."""
    return word.replace("$", "$$")


def _ranks(job: LaunchRequest) -> tuple[int, ...]:
    """Return the number of ranks of each node, by node rank."""
    return tuple(len(job.placement.ranks_on(node)) for node in job.placement.nodes)


def _static(job: LaunchRequest, node_rank: int) -> tuple[str, ...]:
    """Return options with which each rank keeps its number; c10d would sort nodes by name."""
    return (
        f"--node_rank={node_rank}",
        "--rdzv_backend=static",
        f"--rdzv_id={job.job_id}",
        f"--master_addr={job.meeting['MASTER_ADDR']}",
        f"--master_port={job.meeting['MASTER_PORT']}",
        "--max_restarts=0",
    )


def _elastic(job: LaunchRequest, node_rank: int) -> tuple[str, ...]:
    """Return options with which the nodes meet at the primary.

    torch (1.9 to 2.13) numbers them in the order of their names there, and the ranks meet at the
    first of these names. No address begins with `node`, so the primary is always the first and the
    others keep their order.
    """
    primary = job.meeting["MASTER_ADDR"]
    spare = len(job.placement.nodes) - (job.min_nodes or 0)
    return (
        "--rdzv_backend=c10d",
        f"--rdzv_id={job.job_id}",
        f"--rdzv_endpoint={primary}:{job.meeting['MASTER_PORT']}",
        f"--rdzv_conf=is_host={'false' if node_rank else 'true'}",
        f"--local_addr={f'node-{node_rank:05}' if node_rank else primary}",
        f"--max_restarts={_RESTARTS + spare}",
    )


def _failure_functions(job: LaunchRequest) -> str:
    """Return what a supervisor does when a node or a rank fails."""
    if job.min_nodes is None:
        return script("supervise-static.sh")
    return script("supervise-elastic.sh", least=job.min_nodes)
