"""The list of what setup makes on a node, by which `reset` takes back that and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import PurePosixPath

    from ascendboot.steps.api import Change

# Written before the files are, so that a setup that was cut off leaves nothing that is not listed.
_NOTE = """\
umask 022
mkdir -p -- "$1" && cd -- "$1" || exit 1
shift
for path; do
  grep -qsxF -- "$path" made || printf '%s\\n' "$path" >>made || exit 1
done
"""


def note_made(base: PurePosixPath, changes: Iterable[Change]) -> list[Command]:
    """The command that lists the files of these changes; none when they have none."""
    paths = [str(file.path.relative_to(base)) for change in changes for file in change.files]
    if not paths:
        return []
    note = Command(
        argv=("bash", "-c", _NOTE, "note", str(base), *paths),
        purpose="note what is made here",
        effect=Effect.WRITE,
    )
    return [note]
