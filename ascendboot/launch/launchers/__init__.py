"""Launchers of jobs: each module but `protocol` defines one, as `LAUNCHER`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ascendboot.errors import LaunchError
from ascendboot.launch.launchers.protocol import Launcher, Traits
from ascendboot.model.cluster import LauncherChoice

LAUNCHERS: dict[str, Launcher] = {}
for _module in iter_modules(__path__, f"{__name__}."):
    if not _module.name.endswith(".protocol"):
        _launcher: Launcher = import_module(_module.name).LAUNCHER
        LAUNCHERS[_launcher.traits.kind] = _launcher


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
