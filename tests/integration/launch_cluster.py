"""A cluster for launch tests: its node is a folder here, its launcher the real mpirun."""

from __future__ import annotations

import getpass
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ascendboot.errors import NodeError
from ascendboot.jobs.run import Following
from ascendboot.jobs.start import prepare, start
from ascendboot.jobs.stop import Terminated, stop_job
from ascendboot.launch.plan import LaunchPlan, LaunchRequest, Login
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Placement, Slot
from ascendboot.model.job import FirstFailure, JobCause, JobReport
from ascendboot.setup.cluster_plan import rendered
from ascendboot.transport.api import Command, Result
from tests.unit.transport.builders import node

MPIRUN = shutil.which("mpirun")
HEAD = "import os, signal, subprocess, sys, time\nrank = int(os.environ['RANK'])\n"
"""How most scripts of these jobs begin."""


class LocalStream:
    """A running command of this machine; see `Stream`."""

    def __init__(self, argv: Sequence[str], on_bytes: Callable[[bytes], None]) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._on_bytes = on_bytes
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self._on_bytes(data)
        self._on_bytes(b"")

    def close(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self._reader.join()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class LocalTransport:
    """This machine as a node, or what `way` leads to; see `Transport`."""

    def __init__(self, node: str, way: tuple[str, ...] = ()) -> None:
        self.node = node
        self.way = way
        self.ran: list[Command] = []
        self.streams: list[LocalStream] = []
        self.gone: NodeError | None = None
        """What it says when it is asked to run anything."""

    def run(self, command: Command) -> Result:
        return self.run_all((command,))[0]

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        return tuple(self._run(command) for command in commands)

    def _run(self, command: Command) -> Result:
        if self.gone is not None:
            raise self.gone
        self.ran.append(command)
        began = time.monotonic()
        done = subprocess.run(
            (*self.way, *command.argv),
            input=command.stdin,
            capture_output=True,
            timeout=command.timeout_s,
            check=False,
        )
        return Result(
            node=self.node,
            command=command,
            exit_code=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr,
            duration_s=time.monotonic() - began,
        )

    def stream(self, command: Command, on_bytes: Callable[[bytes], None]) -> LocalStream:
        self.streams.append(LocalStream((*self.way, *command.argv), on_bytes))
        return self.streams[-1]

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


class Screenful:
    """Collects what a run shows, and tells when a text has been seen."""

    def __init__(self) -> None:
        self.shown = b""
        self._changed = threading.Condition()

    def __call__(self, block: bytes) -> None:
        with self._changed:
            self.shown += block
            self._changed.notify_all()

    def and_then(self, action: Callable[[], object]) -> Callable[[bytes], None]:
        """A sink that does something once both ranks say that they are up."""

        def sink(block: bytes) -> None:
            self(block)
            if self.shown.count(b"up") == 2:
                action()

        return sink

    def wait_for(self, text: bytes, times: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.shown.count(text) >= times, 30), self.shown

    def of(self, rank: int, node: str = "lab-1") -> list[bytes]:
        start = f"{node}:{rank} | ".encode()
        return [
            line.removeprefix(start) for line in self.shown.split(b"\n") if line.startswith(start)
        ]


def cause_of(report: JobReport) -> JobCause:
    """Why a job failed, which must be known."""
    assert report.cause is not None
    return report.cause


def failure_of(report: JobReport) -> FirstFailure:
    """The rank that failed first, which must be known."""
    assert report.first_failure is not None
    return report.first_failure


def processes_of(job_id: str) -> list[int]:
    """The processes of this machine that carry the id of a job."""
    wanted, found = f"ASCENDBOOT_JOB_ID={job_id}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def furnish(base: Path) -> None:
    """What every node has after `setup`, as far as a launch needs it."""
    for name in ("env", "resources", "trust"):
        (base / name).mkdir(parents=True)
    rank_exec = base / "env" / "rank-exec"
    rank_exec.write_text(rendered("env/rank-exec.j2", in_container=False, by_leaf=False, devices=8))
    rank_exec.chmod(0o755)
    (base / "env" / "keep.sh").write_text(rendered("env/keep.sh"))
    (base / "env" / "node.env").write_text(
        "export FROM_NODE='node value'\nexport CM_WORKER_IP='198.18.0.1'\n"
        "export OMPI_MCA_mpi_yield_when_idle='1'\n"
    )


@dataclass
class LocalCluster:
    """One node `lab-1` with its base folder, as `setup` leaves it."""

    base: Path
    runs: Path
    ranks: int = 2
    transport: LocalTransport = field(default_factory=lambda: LocalTransport("lab-1"))

    def __post_init__(self) -> None:
        furnish(self.base)
        self.table.write_text("{}")

    @property
    def transports(self) -> dict[str, LocalTransport]:
        return {"lab-1": self.transport}

    @property
    def table(self) -> Path:
        return self.base / "resources" / f"hccl_json_{self.ranks}p.json"

    def run(
        self, made: LaunchPlan, sink: Callable[[bytes], None] | None = None, **options: Any
    ) -> JobReport:
        """Run a job; its lines go to `sink`."""
        options = {"folder": self.runs / made.job_id, "forks": 4, **options}
        options = {"plan": made, "transports": self.transports, **options}
        return Following(sink=sink or Screenful(), **options).run()

    def start(self, made: LaunchPlan) -> None:
        """Start a job that nobody follows."""
        prepare(made, self.transports, forks=4)
        start(made, self.transports, forks=4)

    def stop(self, made: LaunchPlan) -> Terminated:
        """Stop a job, and return what was ended."""
        terminated = stop_job(self.transports, made, forks=4)["lab-1"]
        assert isinstance(terminated, Terminated)
        return terminated

    def job(self, source: str | bytes, /, *args: str, **changes: object) -> LaunchPlan:
        return plan(self.request(source, *args, **changes))

    def request(self, source: str | bytes, /, *args: str, **changes: object) -> LaunchRequest:
        alone = node("lab-1", "127.0.0.1", user=getpass.getuser())
        slots = tuple(Slot(alone, 4 + i, None, i) for i in range(self.ranks))
        values: dict[str, object] = {
            "job_id": f"job-{os.getpid()}-{time.monotonic_ns()}",
            "cluster": "lab",
            "placement": Placement(slots),
            "base": PurePosixPath(self.base),
            "login": Login(
                user=getpass.getuser(), uid=os.getuid(), home=PurePosixPath(Path.home())
            ),
            "mpirun": PurePosixPath(MPIRUN or "mpirun"),
            "networks": ("127.0.0.0/8",),
            "rank_table": PurePosixPath(self.table),
            "rank_table_sha256": hashlib.sha256(self.table.read_bytes()).hexdigest(),
            "python": sys.executable,
            "script": PurePosixPath("main.py"),
            "script_content": source.encode() if isinstance(source, str) else source,
            "script_args": args,
            "grace_s": 1.0,
            # Other tests run jobs on the same machine.
            "alone": False,
            **changes,
        }
        return LaunchRequest(**values)  # type: ignore[arg-type]  # a test may change any of them
