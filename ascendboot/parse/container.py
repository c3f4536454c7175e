"""What `docker inspect` and `docker ps` say of containers, and podman's the same."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "{{.Id}} {{.State.Status}} {{.Config.Image}}"
TOOL = "docker inspect"
RUNNING = "running"

_LINE = re.compile(r"([0-9a-f]{64}) ([a-z]+) ?(\S*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class Container:
    """The container that was asked for, as an engine knows it."""

    engine: str
    """Absolute path of the program that knows it."""
    id: str
    status: str
    """As the engine calls it: running, exited, paused …"""
    image: str = ""
    """Empty where it was made from a directory."""
    obstacle: str = ""
    """Why no bash can be run in it, in the engine's words; empty when one can."""
    lacks: tuple[str, ...] = ()
    """Programs that our scripts need and that are not on its PATH."""
    lacks_capabilities: bool = False
    """We are root in it without what an sshd of root needs."""

    @property
    def is_ready(self) -> bool:
        """Whether something can be run in it."""
        return self.status == RUNNING and not self.obstacle and not self.lacks


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What the engines of a node know of the container that was asked for."""

    container: Container | None = None
    names: tuple[str, ...] = ()
    """Of the containers that there are, where the one asked for is not."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What an engine said that would not answer, by its path."""


def parse_inspect(text: str, engine: str) -> Container:
    """The line that `FORMAT` makes.

    Raises:
        NotUnderstoodError: it has another form.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None:
        raise NotUnderstoodError(TOOL, 1, text.strip(), "an id, a state and an image")
    identity, status, image = match.groups()
    return Container(engine=engine, id=identity, status=status, image=image)


def parse_names(text: str) -> tuple[str, ...]:
    """The names that `ps -a --format {{.Names}}` lists, sorted.

    Raises:
        NotUnderstoodError: a line is no name.
    """
    lines = text.split()
    for number, line in enumerate(lines, 1):
        for name in line.split(","):  # docker joins links to other containers with a comma
            if not _NAME.fullmatch(name.rpartition("/")[2]):
                raise NotUnderstoodError("docker ps", number, line, "the name of a container")
    return tuple(sorted(line.split(",")[0] for line in lines))
