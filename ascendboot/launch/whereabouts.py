"""Where the ranks of a job are: gathered, kept whole in a file here, and told in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError
from ascendboot.launch.places import told, whole
from ascendboot.launch.stacks import RankView, gather

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path, PurePosixPath

    from ascendboot.transport.api import Transport


@dataclass(frozen=True)
class Whereabouts:
    """Where the ranks of a job were."""

    lines: tuple[str, ...]
    """A line for each place, the odd ones first, and what could not be learnt."""
    file: Path | None
    """Where all of it is kept; None when it could not be."""


def look_at_ranks(
    transports: Mapping[str, Transport],
    job_folder: PurePosixPath,
    python: str,
    *,
    folder: Path,
    why: str,
    forks: int,
) -> Whereabouts:
    """See where the ranks are; all of it goes to `WHY-TIME.txt` in `folder`, of the job's run."""
    answers = gather(transports, job_folder, python, forks=forks)
    views: list[RankView] = []
    problems: list[NodeError] = []
    for answer in answers.values():
        if isinstance(answer, NodeError):
            problems.append(answer)
        else:
            views += answer
    views.sort(key=lambda view: view.rank)
    lines = told(views, problems)
    now = datetime.now(timezone.utc)
    file = folder / f"{why}-{now:%Y%m%d-%H%M%S}.txt"
    head = f"job {job_folder.name}, {now.isoformat(timespec='seconds')}"
    words = "\n".join((head, *lines, *whole(views), ""))
    try:
        file.write_bytes(words.encode(errors="backslashreplace"))
    except OSError as error:
        lines.append(f"{file}: could not be kept: {error.strerror or error}")
        return Whereabouts(tuple(lines), None)
    return Whereabouts(tuple(lines), file)
