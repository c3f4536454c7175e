"""The code that setup sent to a node, found again and removed where nobody has changed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.code.scripts import TAKE_BACK
from ascendboot.errors import CommandError, NotUnderstoodError
from ascendboot.facts.own import base_script
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.transport.api import Result


@dataclass(frozen=True)
class SentCode:
    """What is left on a node of the code that was sent there."""

    files: int
    """So many are as they were sent. Those that were there before the code was sent count not."""
    changed: tuple[str, ...] = ()
    """Absolute paths of those that somebody has changed since; they are never touched."""
    problems: tuple[str, ...] = ()
    """What could not be taken back."""


def sent_code_question(cluster: str) -> Command:
    """Asks what there is to take back; `parse_sent_code` reads the answer."""
    return _command(cluster, "look", "look for the code that was sent", Effect.READ)


def sent_code_removal(cluster: str) -> Command:
    """Removes the files that were sent and are as they were, and folders that were made."""
    return _command(cluster, "remove", "take back the code that was sent", Effect.WRITE)


def parse_sent_code(result: Result) -> SentCode:
    """What was there before, by the answer to either command.

    Raises:
        CommandError: the command failed on the node, or its answer was not understood.
    """
    files, values = 0, dict[str, list[str]](changed=[], problem=[])
    *lines, last = result.checked().lines or ("",)
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if kind == "files":
            files = int(rest)
        elif kind in values:
            values[kind].append(rest)
        else:
            problem = NotUnderstoodError("sent code", number, line, "files, changed or problem")
            raise CommandError(result.node, f"could not {result.command.purpose}: {problem}")
    if last != "end":
        raise CommandError(result.node, f"could not {result.command.purpose}: it did not end")
    return SentCode(files, tuple(values["changed"]), tuple(values["problem"]))


def _command(cluster: str, mode: str, purpose: str, effect: Effect) -> Command:
    head = f"mode={mode}\n{base_script(cluster)}"
    return Command(
        argv=("bash", "-c", head + TAKE_BACK), purpose=purpose, effect=effect, timeout_s=120.0
    )
