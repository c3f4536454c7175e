"""JobRecord: what the operator's side keeps of a job's plan, so that it is found again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.errors import AscendbootError
from ascendboot.launch.plan import PlannedRank, rank_log, start_log
from ascendboot.model.clocks import NodeClocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ascendboot.launch.plan import LaunchPlan

PLAN_FILE = "plan.json"
PREFLIGHT = "preflight"
"""Folder, in that of a run, of the preflight before its job."""


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as its plan said it; the names are those of `LaunchPlan`."""

    job_id: str
    cluster: str
    job_folder: PurePosixPath
    nodes: tuple[str, ...]
    ranks: tuple[PlannedRank, ...]
    started_on: tuple[str, ...]
    """The nodes on which ascendboot started something: the launcher, or an agent of its."""
    command_line: str
    grace_s: float
    started: str
    """When it was about to be started, ISO 8601, UTC."""
    clocks: NodeClocks
    """As they stood then."""
    log_limit: int = 0
    """As `LaunchPlan.log_limit`."""
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """As `LaunchPlan.addresses`."""
    notes: tuple[str, ...] = ()
    """As `LaunchPlan.notes`."""
    script_json: Mapping[str, str | None] | None = None
    """As `LaunchPlan.script_json`."""

    @property
    def primary(self) -> str:
        """The node from which the job was started."""
        return self.nodes[0]

    def ranks_on(self, node: str) -> tuple[PlannedRank, ...]:
        """The ranks of one node, ascending."""
        return tuple(rank for rank in self.ranks if rank.node == node)

    def logs_on(self, node: str) -> tuple[str, ...]:
        """Names of the logs in the job's folder of one node."""
        ranks = (rank_log(rank.rank) for rank in self.ranks_on(node))
        starts = (start_log(self.nodes.index(node)),) if node in self.started_on else ()
        return (*ranks, *starts)


def preflight_id(job_id: str) -> str:
    """The id of the preflight before a job."""
    return f"{job_id}.{PREFLIGHT}"


def record_folder(runs: Path, job_id: str) -> Path | None:
    """Where the record of the job, or preflight, with this id would be; None: not an id of one."""
    run_id = job_id.removesuffix(preflight_id(""))
    run = runs / run_id
    if run.parent != runs:
        return None
    return run if run_id == job_id else run / PREFLIGHT


def record_of(plan: LaunchPlan, *, started: str, clocks: NodeClocks) -> dict[str, object]:
    """The plan as it is kept beside the job's logs; `read_record` reads it."""
    return {
        **plan.to_json(),
        "grace_s": plan.grace_s,
        "started": started,
        "notes": list(plan.notes),
        "clock_offsets": dict(clocks.offsets),
        "clock_uncertainty_s": clocks.uncertainty_s,
    }


def read_record(folder: Path) -> JobRecord | None:
    """The record in the folder of a run; None when the run was not one that starts a job.

    Raises:
        AscendbootError: there is one that cannot be read.
    """
    path = folder / PLAN_FILE
    try:
        return _from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise AscendbootError(
            f"{path}: could not be read ({error!r}); it was written by another version or damaged"
        ) from error


def _from_json(document: Mapping[str, Any]) -> JobRecord:
    ranks = tuple(
        PlannedRank(e["rank"], e["node"], e["device"], e["local_rank"], e.get("device_ip"))
        for e in document["ranks"]
    )
    return JobRecord(
        job_id=document["job_id"],
        cluster=document["cluster"],
        job_folder=PurePosixPath(document["folder"]),
        nodes=tuple(dict.fromkeys(rank.node for rank in ranks)),
        ranks=ranks,
        # Plans of before there were several starts name none.
        started_on=tuple(start["node"] for start in document.get("starts", document["ranks"][:1])),
        command_line=document["command_line"],
        grace_s=document["grace_s"],
        started=document["started"],
        clocks=NodeClocks(document["clock_offsets"], document.get("clock_uncertainty_s", 0.0)),
        log_limit=document.get("log_limit", 0),
        addresses={node: tuple(names) for node, names in document.get("addresses", {}).items()},
        notes=tuple(document.get("notes", ())),
        script_json=document.get("script"),
    )
