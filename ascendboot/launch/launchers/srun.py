"""Slurm's `srun`, a step of the allocation in which ascendboot runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ascendboot.errors import LaunchError
from ascendboot.launch.launchers import Launcher, Traits
from ascendboot.launch.plan import LaunchRequest
from ascendboot.templates import script
from ascendboot.transport.api import FileWrite

_ALLOCATION = "SLURM_JOB_ID"
_HOSTS = "srun.hosts"


class Srun(Launcher):
    """Starts ranks with `srun` on the primary; slurmd on each node starts its processes.

    When a task fails, Slurm sends SIGCONT and SIGTERM to all others at once, as Open MPI does.
    """

    traits = Traits(
        kind="srun",
        rank_variables=("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
        control_variables=(_ALLOCATION,),
        collective_ways=("gloo",),
    )

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """The hosts are in a file, one line per rank, which gives each rank its node."""
        if not job.launcher_env.get(_ALLOCATION):
            raise LaunchError(
                f"job {job.job_id}: could not be planned: launcher.kind is srun, and "
                f"{_ALLOCATION} is not set; call ascendboot inside salloc or sbatch"
            )
        return (
            *("srun", f"--job-name={job.job_id}"),
            *(f"--ntasks={job.placement.world_size}", "--distribution=arbitrary"),
            # A shell of the allocation (srun --pty) may hold all of it.
            "--overlap",
            # Otherwise each rank may get a single processor.
            "--cpu-bind=none",
            *("--kill-on-bad-exit=1", "--input=none"),
            *program,
        )

    def env(self, job: LaunchRequest, node_rank: int) -> Mapping[str, str]:
        """The file of the hosts."""
        return {"SLURM_HOSTFILE": str(job.folder / _HOSTS)}

    def functions(self, job: LaunchRequest, node_rank: int) -> str:
        """A `launcher` that ends the step of Slurm with the grace of the job."""
        return script("launch-srun.sh", allocation=job.launcher_env[_ALLOCATION])

    def files(self, job: LaunchRequest, node_rank: int) -> tuple[FileWrite, ...]:
        """The node of each rank, by its name in Slurm."""
        names = "".join(f"{slot.node.name}\n" for slot in job.placement.slots)
        return (FileWrite(job.folder / _HOSTS, names.encode(), 0o644),)


LAUNCHER = Srun()
