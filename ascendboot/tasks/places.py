"""Where the ranks of a job are, as `status --stacks` asks and shows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ascendboot.launch.whereabouts import Whereabouts, look_at_ranks

if TYPE_CHECKING:
    from ascendboot.tasks.jobs import FoundJob


def where_ranks_are(found: FoundJob, python: str) -> Whereabouts | None:
    """Asked from the nodes and kept in the folder of the job's run; None: no rank runs."""
    if not any(node.alive for node in found.status.nodes):
        return None
    record = found.job.record
    return look_at_ranks(
        found.transports,
        record.job_folder,
        python,
        folder=found.job.folder,
        why="stacks",
        forks=found.forks,
    )


def shown_places(seen: Whereabouts | None) -> list[str]:
    """Lines for a person."""
    if seen is None:
        return []
    kept = [f"all of it is in {os.path.relpath(seen.file)}"] if seen.file is not None else []
    return [*seen.lines, *kept]


def places_json(seen: Whereabouts | None) -> dict[str, object]:
    """What `status --json` has of it."""
    if seen is None:
        return {}
    file = None if seen.file is None else str(seen.file)
    return {"stacks": {"lines": list(seen.lines), "file": file}}
