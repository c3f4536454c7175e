"""Defines what every launcher provides, and finds them: each module here defines a `LAUNCHER`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import PurePosixPath
from pkgutil import iter_modules
from typing import ClassVar, Protocol

from ascendboot.launch.plan import LaunchRequest
from ascendboot.model.cluster import LAUNCHER_NAMES, LauncherChoice
from ascendboot.templates import script
from ascendboot.transport.api import FileWrite
from ascendboot.value import Value


class Traits(Value, kw_only=True):
    """Facts about a launcher that other packages act on."""

    kind: str
    """Its word for `launcher.kind` in the inventory."""
    rank_variables: tuple[str, str, str]
    """Variables with which it gives each process its rank, local rank and world size."""
    openmpi: bool = False
    """Every node needs `mpirun` and `orted`."""
    module: str = ""
    """The Python module that every node needs."""
    packages: frozenset[str] = frozenset()
    """Python packages that a job uses whatever its script imports."""
    on_every_node: bool = False
    """ascendboot starts it on every node; otherwise on the primary, and it reaches the others."""
    sets_meeting: bool = False
    """It always needs MASTER_ADDR and MASTER_PORT, and gives them to the ranks itself."""
    control_variables: tuple[str, ...] = ()
    """Variables that it gets from the environment of ascendboot."""
    loads_libraries: bool = False
    """It loads libraries of the ranks, so it gets their LD_LIBRARY_PATH and PYTHONPATH."""
    ssh_shim: bool = False
    """It takes no ssh configuration: a script named `ssh` goes first in its PATH."""
    spreads_failure: bool = False
    """Its agents end the ranks of all nodes at once when one fails; otherwise rank-exec does."""
    collective_ways: tuple[str, ...] = ("mpi", "gloo")
    """Libraries with which its ranks can meet in the collective check, best first."""

    @property
    def library_names(self) -> tuple[str, ...]:
        """The variables of the ranks that it gets, too."""
        return LAUNCHER_NAMES if self.loads_libraries else ()


class Launcher(Protocol):
    """Starts the ranks of a job; each launcher derives from it. Node rank 0 is the primary."""

    traits: ClassVar[Traits]

    def command(
        self, job: LaunchRequest, program: Sequence[str], node_rank: int
    ) -> tuple[str, ...]:
        """Return the argv on one node that runs `program` once per rank."""
        ...

    def path(self, job: LaunchRequest) -> tuple[PurePosixPath, ...]:
        """Return the folders that go first in its PATH."""
        return ()

    def env(self, job: LaunchRequest, node_rank: int) -> Mapping[str, str]:
        """Return variables that it needs itself; the inventory's values override them."""
        return {}

    def functions(self, job: LaunchRequest, node_rank: int) -> str:
        """Return the shell functions `launcher` and `clean` of `launch.sh`.

        `run` becomes the command. `launch-single.sh` serves every launcher that is not on every
        node. The exit code of `launcher` is how the launcher ended.
        """
        return script("launch-single.sh")

    def files(self, job: LaunchRequest, node_rank: int) -> tuple[FileWrite, ...]:
        """Return more files for the job's folder on one node."""
        return ()


def sigkill_timeout_s(grace_s: float) -> int:
    """Return for how long a launcher must wait before SIGKILL; rank-exec ends its rank earlier."""
    return max(1, math.ceil(grace_s)) + 2


def ends_within_s(grace_s: float) -> float:
    """Return the longest time that a launcher takes to end a job after SIGTERM."""
    # Open MPI (4.1.4) waits twice, before SIGTERM and again before SIGKILL. Each rank that ends
    # meanwhile cuts what is left of a wait down to whole seconds.
    return 2 * sigkill_timeout_s(grace_s) + 5.0


LAUNCHERS: dict[str, Launcher] = {}
for _module in iter_modules(__path__, f"{__name__}."):
    _launcher: Launcher = import_module(_module.name).LAUNCHER
    LAUNCHERS[_launcher.traits.kind] = _launcher


def traits_of(choice: LauncherChoice) -> Traits:
    """Return the facts about the launcher that was chosen."""
    return LAUNCHERS[choice.kind].traits
