"""A job of two nodes on which all is well, for tests that change one thing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import Answered
from ascendboot.readiness.checks import readiness_findings
from ascendboot.readiness.queries import DeviceIps, JobRequirements, Jobs, NodeProbe, Packages
from ascendboot.value import replace

JOB = JobRequirements(
    base=PurePosixPath("/var/lib/ascendboot/lab"),
    python="python3",
    mpirun="/usr/bin/mpirun",
    module="",
    script=PurePosixPath("/workspace/main.py"),
    primary="lab-1",
    meeting_port=61000,
    hccl_ports=dict.fromkeys(("lab-1", "lab-2"), tuple(range(60000, 60032))),
    hccl_is_stated=frozenset(),
    sshd_port=7722,
    containers={"lab-1": None, "lab-2": "rec-sdk"},
    devices={f"lab-{n}": {i: f"198.19.{n}.{i}" for i in range(4)} for n in (1, 2)},
    linked={"lab-1": (), "lab-2": ()},
    data=(),
    used=frozenset(),
    skipped=frozenset(),
)


def probe(number: int, **changes: Any) -> NodeProbe:
    """The answers of a node on which all is well."""
    plain = NodeProbe(
        lacks=Answered(()),
        opening=Answered(""),
        packages=Answered(Packages("3.10.4", {"torch": "2.3.1", "numpy": "1.26.4"})),
        data=Answered(()),
        jobs=Answered(Jobs()),
        listeners=Answered(()),
        disk=Answered(FileSystem(mount_point="/", free_bytes=10**11, free_inodes=10**6)),
        holders=Answered(()),
        present=Answered((0, 1, 2, 3)),
        health=Answered(dict.fromkeys(range(4), "OK")),
        device_ips=Answered(DeviceIps({i: f"198.19.{number}.{i}" for i in range(4)})),
    )
    return replace(plain, **changes)


def findings(
    first: NodeProbe, second: NodeProbe, job: JobRequirements = JOB, used: Iterable[str] = ()
) -> list[str]:
    """Check, level, nodes, text and remedy of every finding."""
    return [
        f"{found.id} {found.level} {','.join(found.nodes)}: {found.text}; {found.remedy}"
        for found in readiness_findings(job, {"lab-1": first, "lab-2": second}, used)
    ]


def second(job: JobRequirements = JOB, used: Iterable[str] = (), **changes: Any) -> list[str]:
    """What is found when the second node differs."""
    return findings(probe(1), probe(2, **changes), job, used)
