"""PyTorch's torchrun, one on each node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ascendboot.launch.events import ENDING
from ascendboot.launch.launchers import Launcher, Traits
from ascendboot.launch.plan import TORCH_LOGS, LaunchRequest
from ascendboot.templates import script
from ascendboot.transport.api import FileWrite


class Torchrun(Launcher):
    """Starts ranks with `python -m torch.distributed.run`, an agent on each node.

    Agents do not notice a node that is gone: the supervisor of the primary ends the job.
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
    )

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """`-m` needs no `torchrun` on PATH and takes the Python of the job.

        Options are written with `_`, which every torch since 1.9 accepts.
        """
        return (
            *(job.python, "-m", "torch.distributed.run"),
            f"--nnodes={len(job.placement.nodes)}",
            f"--nproc_per_node={_ranks_on(job, node_rank)}",
            f"--node_rank={node_rank}",
            # So each rank keeps its number; c10d would sort nodes by name.
            "--rdzv_backend=static",
            f"--rdzv_id={job.job_id}",
            f"--master_addr={job.meeting['MASTER_ADDR']}",
            f"--master_port={job.meeting['MASTER_PORT']}",
            "--max_restarts=0",
            # Before about 2.3 it noticed the end of a rank only after five seconds.
            "--monitor_interval=0.5",
            f"--log_dir={job.folder / TORCH_LOGS}",
            "--no_python",
            *(literal(word) for word in program),
        )

    def env(self, job: LaunchRequest, node_rank: int) -> Mapping[str, str]:
        """Settings for the agent, which must load torch but no NPU."""
        # torchrun would set this itself, with five lines about it.
        threads = {"OMP_NUM_THREADS": "1"} if _ranks_on(job, node_rank) > 1 else {}
        # Otherwise `import torch` loads torch_npu, which needs CANN's libraries; rank-exec unsets
        # it for the ranks.
        return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **threads}

    def functions(self, job: LaunchRequest, node_rank: int) -> str:
        """Each agent has a supervisor; the one of the primary watches the other nodes."""
        return script(
            "supervise.sh",
            watch=shlex.quote(str(job.folder / "watch.sh")),
            is_watched="1" if node_rank else "",
            ending=ENDING,
        )

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
        text = f"#!/bin/bash\numask go-w\n{watch}"
        return (
            FileWrite(job.folder / "watch.sh", text.encode(errors="surrogateescape"), 0o700),
            FileWrite(job.folder / "watched", b"", 0o644),
        )


LAUNCHER = Torchrun()


def literal(word: str) -> str:
    """Double each `$` of a word: torchrun (torch 2.13, elastic/utils) replaces `$…`."""
    return word.replace("$", "$$")


def _ranks_on(job: LaunchRequest, node_rank: int) -> int:
    return len(job.placement.ranks_on(job.placement.nodes[node_rank]))
