"""Four ranks on two nodes, on which all is well."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from ascendboot.checks.collective.findings import MARK, RankNotes
from ascendboot.checks.collective.hccl_test import HcclTest
from ascendboot.checks.collective.node_check import NodeCheck
from ascendboot.model.cluster import Slot
from ascendboot.model.job import JobReport, JobState, RankEnd
from templates.scripts.meet import SHM
from tests.unit.checks.well import node

DIGEST = "d" * 64
SLOTS = tuple(Slot(node(1 + rank // 2), 4 + rank % 2, None, rank % 2) for rank in range(4))


def facts(rank: int, **changes: Any) -> dict[str, Any]:
    """What a rank sees of itself when all is well."""
    slot = SLOTS[rank]
    return {
        "rank": str(rank),
        "size": "4",
        "local_rank": str(slot.local_rank),
        "device": str(slot.device_id),
        "visible": "",
        "logic_ids": "",
        "host": slot.node.name,
        "container": "",
        "elsewhere": {},
        "table": {
            "sha256": DIGEST,
            "server": slot.node.server_id,
            "device": str(slot.device_id),
            "problem": "",
        },
        "versions": {"Python": "3.7.5", "mpi4py": "4.0.3"},
        "env": {"HCCL_CONNECT_TIMEOUT": "600", "PATH": "/usr/bin:/bin"},
        "unset": [],
        "limits": {"ulimit -l": "unlimited", "ulimit -n": "1024", SHM: "64 MiB"},
        **changes,
    }


def all_well(**changes: dict[int, Any]) -> dict[int, RankNotes]:
    """All ranks at the end; `env={3: {…}}` replaces that fact of rank 3."""
    notes = {}
    for rank in range(4):
        mine = {name: by_rank[rank] for name, by_rank in changes.items() if rank in by_rank}
        notes[rank] = RankNotes(at="done", facts=facts(rank, **mine), digest=f"{rank}")
    return notes


def log(rank: int, *notes: dict[str, Any]) -> str:
    """A rank's log: its facts and these notes."""
    start = {"at": "start", "facts": json.dumps(facts(rank))}
    return "".join(f"{MARK}{json.dumps(note)}\n" for note in (start, *notes))


def noted(result: dict[str, Any] | str) -> RankNotes:
    """What a rank measured; a text is why it failed."""
    return RankNotes(failed=result) if isinstance(result, str) else RankNotes(measured=result)


def lines(check: HcclTest | NodeCheck) -> list[tuple[str, str, tuple[str, ...], str]]:
    """Id, level, nodes and text of each finding."""
    return [(f.id, f.level, f.nodes, f.text) for f in check.findings]


def digest(rank: int) -> str:
    """Of the facts in `log`."""
    return sha256(json.dumps(facts(rank)).encode()).hexdigest()


def report(exit_code: int = 0, **changes: Any) -> JobReport:
    """The launcher's report of the preflight."""
    values: dict[str, Any] = {
        "job_id": "job.preflight",
        "state": JobState.FAILED if exit_code else JobState.SUCCEEDED,
        "exit_code": exit_code,
        "started": "2026-01-02T03:04:05.678+00:00",
        "command": "mpirun",
        "first_failure": None,
        "ranks": tuple(end(rank) for rank in range(4)),
        "duration_s": 1.5,
        "folder": "runs",
        **changes,
    }
    return JobReport(**values)


def end(rank: int, exit_code: int | None = 0, signal: int | None = None) -> RankEnd:
    """How a rank ended."""
    slot = SLOTS[rank]
    return RankEnd(
        rank=rank, node=slot.node.name, device=slot.device_id, exit_code=exit_code, signal=signal
    )
