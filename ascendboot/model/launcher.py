"""Which program starts the ranks of a cluster's jobs, and why that one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LauncherChoice:
    """The program; `horovodrun` is its absolute path on the primary, None where it is mpirun."""

    why: str
    horovodrun: str | None = None

    @property
    def name(self) -> str:
        """As people call the program."""
        return "horovodrun" if self.horovodrun else "mpirun"

    @property
    def words(self) -> str:
        """A sentence for reports and plans."""
        return f"{self.name} starts jobs: {self.why}"


MPIRUN = LauncherChoice("nothing else was asked for")
