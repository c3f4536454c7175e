"""The ends of a job's logs, from its nodes: for a verdict on a job that nobody followed."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.launch.cause.collect import TAIL_BYTES
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ascendboot.launch.record import JobRecord
    from ascendboot.transport.api import Transport

TAILS: Final = r"""
bytes=$2
cd -- "$1" 2>/dev/null || { echo end; exit 0; }
shift 2
for name; do
  [ -s "$name" ] || continue
  size=$(stat -c %s -- "$name")
  from=$((size > bytes ? size - bytes : 0))
  printf 'tail %s %s ' "$name" "$from"
  tail -c "+$((from + 1))" -- "$name" | head -c "$bytes" | base64 -w 0
  echo
done
echo end
"""
"""Prints `tail NAME FROM BASE64` for each log that holds anything; `end`. Writes nothing.

Arguments: job folder, how many bytes, names."""

_LINE: Final = re.compile(r"tail ([A-Za-z0-9._-]+) (\d+) ([A-Za-z0-9+/=]+)")


def fetch_tails(
    job: JobRecord, transports: Mapping[str, Transport], place: Path, *, forks: int
) -> dict[str, NodeError]:
    """Put the ends of the job's logs into a folder here, by their names; who could not give them.

    One byte more than the verdict reads: so it begins with the same whole line as in a whole log.
    Before them is a hole, for every byte has its place: where a rank began again is known by it.
    """
    answers = on_each(transports, lambda node: _tails(job, transports[node]), forks=forks)
    errors: dict[str, NodeError] = {}
    for node, answer in answers.items():
        if isinstance(answer, NodeError):
            errors[node] = answer
            continue
        for name, (begins_at, tail) in answer.items():
            with (place / name).open("wb") as file:
                file.seek(begins_at)
                file.write(tail)
    return errors


def _tails(job: JobRecord, transport: Transport) -> dict[str, tuple[int, bytes]]:
    """By the name of a log: where its end begins, and that end."""
    node = transport.node
    words = (str(job.job_folder), str(TAIL_BYTES + 1), *job.logs_on(node))
    command = Command(
        argv=("bash", "-c", TAILS, "tails", *words),
        purpose=f"read the ends of the logs of job {job.job_id}",
        effect=Effect.READ,
        most_bytes=2 * (TAIL_BYTES + 1) * (1 + len(job.logs_on(node))),
    )
    found: dict[str, tuple[int, bytes]] = {}
    *lines, last = transport.run(command).checked().lines or ("",)
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise _not_understood(node, command, number, line)
        found[match[1]] = int(match[2]), base64.b64decode(match[3])
    if last != "end":
        raise _not_understood(node, command, len(lines) + 1, last)
    return {name: tail for name, tail in found.items() if name in job.logs_on(node)}


def _not_understood(node: str, command: Command, number: int, line: str) -> CommandError:
    problem = NotUnderstoodError("the logs", number, line[:80], "tail or end")
    return CommandError(node, f"could not {command.purpose}: {problem}")
