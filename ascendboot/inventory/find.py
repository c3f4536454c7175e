"""Which file is meant by `--inventory NAME`, or by no name at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT = 1024 * 1024
"""The largest inventory, in bytes; ranges keep thousands of nodes far below it."""

FOLDER = "inventories"
VARIABLE = "ASCENDBOOT_INVENTORY"
CURRENT = Path(".ascendboot", "current")
"""Holds the path of the inventory last set up, from the working directory or absolute."""


def locate(name: str | None, *, cwd: Path, environ: Mapping[str, str]) -> Path:
    """The inventory called `name`; without a name the one in the environment, or last set up.

    Raises:
        UsageError: there is no such file; the text says what was tried.
    """
    if name is not None:
        return _named(name, cwd, said_by="--inventory")
    from_environment = environ.get(VARIABLE)
    if from_environment:
        return _named(from_environment, cwd, said_by=f"${VARIABLE}")
    return _current(cwd)


def _named(name: str, cwd: Path, *, said_by: str) -> Path:
    if not name.strip() or "\0" in name:
        raise UsageError(f"{said_by}: no inventory is named; name a YAML file")
    names = [name] if name.endswith((".yaml", ".yml")) else [name, f"{name}.yaml"]
    tried = [*map(Path, names), *(Path(FOLDER, n) for n in names if not Path(n).is_absolute())]
    for path in tried:
        if _is_there(cwd / path):
            return cwd / path
    raise UsageError(
        f"{said_by}: could not find the inventory {name}: tried "
        f"{', '.join(map(str, tried))}{_offer(cwd)}"
    )


def _current(cwd: Path) -> Path:
    try:
        recorded = os.fsdecode((cwd / CURRENT).read_bytes()).strip()
    except FileNotFoundError as error:
        raise UsageError(
            f"no inventory is named: --inventory is not given, ${VARIABLE} is not set, and no "
            f"cluster was set up from here ({CURRENT} is not there){_offer(cwd)}"
        ) from error
    except OSError as error:
        raise UsageError(f"{CURRENT}: could not be read: {error}; use --inventory") from error
    if not recorded or not _is_there(cwd / recorded):
        raise UsageError(
            f"{CURRENT}: names the inventory {recorded or '(nothing)'}, which is not there; "
            "use --inventory, or run setup again"
        )
    return cwd / recorded


def _is_there(path: Path) -> bool:
    """Whether a file of any kind is there, readable or not: `load` says why it cannot be read."""
    return os.path.lexists(path) and not path.is_dir()


def _offer(cwd: Path) -> str:
    names = sorted(path.stem for path in (cwd / FOLDER).glob("*.yaml"))
    return (
        f"; {FOLDER}/ holds {', '.join(names)}: use --inventory NAME"
        if names
        else "; use --inventory FILE"
    )
