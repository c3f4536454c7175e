"""Which program starts the ranks of a cluster's jobs, and why that one."""

from __future__ import annotations

from dataclasses import dataclass

LAUNCHER_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH")
"""What horovodrun and torchrun may need to load their libraries; no other variable of the ranks
reaches a launcher."""


@dataclass(frozen=True)
class LauncherChoice:
    """The program: mpirun, unless one of the others is named."""

    why: str
    horovodrun: str | None = None
    """Its absolute path on the primary."""
    torchrun: bool = False
    """One of it runs on every node: `-m torch.distributed.run` of the job's own Python."""

    @property
    def name(self) -> str:
        """As people call the program."""
        if self.torchrun:
            return "torchrun"
        return "horovodrun" if self.horovodrun else "mpirun"

    @property
    def words(self) -> str:
        """A sentence for reports and plans."""
        return f"{self.name} starts jobs: {self.why}"


MPIRUN = LauncherChoice("nothing else was asked for")
