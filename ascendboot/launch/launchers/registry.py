"""Finds the launcher of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError
from ascendboot.launch.launchers.horovodrun import Horovodrun
from ascendboot.launch.launchers.mpirun import Mpirun
from ascendboot.launch.launchers.torchrun import Torchrun

if TYPE_CHECKING:
    from ascendboot.launch.launchers.protocol import Launcher, Traits
    from ascendboot.model.cluster import LauncherChoice

LAUNCHERS: dict[str, Launcher] = {
    launcher.traits.kind: launcher
    for launcher in (Mpirun(), Horovodrun(), Torchrun())  # type: tuple[Launcher, ...]
}


def launcher_of(choice: LauncherChoice) -> Launcher:
    """Return the launcher of the kind that was chosen.

    Raises:
        LaunchError: there is no such kind.
    """
    if choice.kind not in LAUNCHERS:
        raise LaunchError(
            f'launcher: could not use "{choice.kind}": there are {", ".join(sorted(LAUNCHERS))}'
        )
    return LAUNCHERS[choice.kind]


def traits_of(choice: LauncherChoice) -> Traits:
    """Return the facts about the launcher that was chosen."""
    return launcher_of(choice).traits
