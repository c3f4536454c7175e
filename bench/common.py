"""What the figures share: a practice cluster of their own, timed calls, a table, a verdict."""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ascendboot.lab.cluster import Lab, down, up
from ascendboot.lab.host import RangeInUseError
from ascendboot.lab.shape import Shape

T = TypeVar("T")

PROJECT = Path(__file__).resolve().parent.parent
PROGRAM = Path(sys.executable).with_name("ascendboot")
CODE = "/workspace/little_demo"
"""`code.path` of a practice cluster's inventory."""
BASE = "/var/lib/ascendboot/lab"

_RANGES = [f"198.18.{third}.0/20,198.19.{third}.0/20" for third in range(128, 256, 16)]
_CALL_TIMEOUT_S = 600.0
_REST, _REST_LOOK_S = 0.85, 0.5

_WIPE = f"""\
if read -r pid start _ 2>/dev/null <{BASE}/sshd/started && kill "$pid" 2>/dev/null; then
  while [ -e "/proc/$pid" ]; do sleep 0.02; done
fi
rm -rf /var/lib/ascendboot
"""


@dataclass(frozen=True)
class Practice:
    """A practice cluster and an operator who works with it."""

    lab: Lab

    @property
    def primary(self) -> str:
        """The node from which jobs are started."""
        return self.lab.nodes[0].name

    def argv(self, *words: str) -> list[str]:
        """The call of ascendboot with this cluster's inventory."""
        verb, *rest = words
        return [str(PROGRAM), verb, "--inventory", str(self.lab.inventory), *rest]

    def call(self, *words: str) -> tuple[float, str]:
        """Call ascendboot as a process of its own: how long it took, and its standard output."""
        return timed(self.argv(*words), cwd=self.lab.directory)

    def sh(self, node: str, script: str) -> tuple[float, str]:
        """Run a shell script on a node, past its sshd: how long it took, and its output."""
        began = time.perf_counter()
        done = self.lab.exec(node, ["bash", "-c", script], timeout_s=_CALL_TIMEOUT_S)
        return time.perf_counter() - began, done.stdout.decode(errors="replace")

    def wipe(self) -> None:
        """Take everything of ascendboot off all nodes: the next setup is a first one."""
        for node in self.lab.nodes:
            self.sh(node.name, _WIPE)

    def put_job(self, name: str) -> None:
        """Put one of the programs of `bench/jobs` where the nodes have their code."""
        text = (PROJECT / "bench/jobs" / name).read_bytes()
        for node in self.lab.nodes:
            self.lab.exec(node.name, ["bash", "-c", f"cat >{CODE}/{name}"], input=text)

    def command_line(self, *words: str) -> str:
        """The very mpirun command that `train --plan` prints, ready for a shell of the primary."""
        _, out = self.call("train", "--plan", "--json", *words)
        return str(json.loads(out)["command_line"])


@contextmanager
def practice(nodes: int, devices: int = 8) -> Iterator[Practice]:
    """A practice cluster on a free range, in a working directory of its own; ended afterwards."""
    if os.geteuid() != 0:
        sys.exit("bench: the practice cluster needs root; say it with sudo")
    with tempfile.TemporaryDirectory(prefix="ascendboot-bench-") as directory, _sigterm_raises():
        lab = _up_somewhere(nodes, devices, Path(directory))
        try:
            yield Practice(lab)
        finally:
            down(lab.lab_id)


def timed(argv: Sequence[str], *, cwd: Path) -> tuple[float, str]:
    """Run a program to its end: how long it took, and its standard output; it must succeed.

    It may keep its bytecode, as one that is installed has it: compiling is no part of what it does.
    """
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**env, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=_CALL_TIMEOUT_S,
    )
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"bench: {' '.join(argv)} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return took, done.stdout


def in_pairs(
    asked: argparse.Namespace, ours: Callable[[], T], theirs: Callable[[], T]
) -> list[tuple[T, T]]:
    """What both sides measure when they take turns; one round before does not count."""

    def after_rest(side: Callable[[], T]) -> T:
        _wait_for_rest(asked.rest)
        return side()

    rounds = [(after_rest(ours), after_rest(theirs)) for _ in range(asked.pairs + 1)]
    return rounds[1:]


def _wait_for_rest(at_most_s: float) -> None:
    """Until the processors have little to do, but not for ever."""
    deadline = time.monotonic() + at_most_s
    idle, total = _processor_time()
    while time.monotonic() < deadline:
        time.sleep(_REST_LOOK_S)
        idle_now, total_now = _processor_time()
        if idle_now - idle >= _REST * (total_now - total):
            return
        idle, total = idle_now, total_now


def _processor_time() -> tuple[int, int]:
    """Ticks of all processors since the start of the machine: idle, and all."""
    with Path("/proc/stat").open() as stat:
        ticks = [int(word) for word in stat.readline().split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)


@dataclass(frozen=True)
class Verdict:
    """What some pairs of seconds, ours and theirs, say about a promise."""

    pairs: Sequence[tuple[float, float]]
    compare: Callable[[float, float], float]
    """A ratio or a difference of a pair; smaller is better."""
    limit: float

    @property
    def values(self) -> list[float]:
        """What each pair gives."""
        return [self.compare(ours, theirs) for ours, theirs in self.pairs]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def fastest(self) -> float:
        """The fastest of ours against the fastest of theirs: what else runs only ever delays."""
        return self.compare(min(ours for ours, _ in self.pairs), min(t for _, t in self.pairs))

    @property
    def word(self) -> str:
        """`kept`; `broken`; `unclear` when it is not kept, but could be without what else runs."""
        if self.median <= self.limit:
            return "kept"
        over = sum(value > self.limit for value in self.values)
        agreed = over >= 0.75 * len(self.pairs) and self.fastest > self.limit
        return "broken" if agreed else "unclear"

    def seconds(self) -> tuple[float, float]:
        """The medians of ours and of theirs."""
        ours, theirs = zip(*self.pairs, strict=True)
        return statistics.median(ours), statistics.median(theirs)


def options(text: str, *, pairs: int = 7) -> argparse.ArgumentParser:
    """The parser with the flags that all figures have."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--pairs", type=int, default=pairs, help=f"how many pairs ({pairs})")
    parser.add_argument(
        "--rest",
        type=float,
        default=0.0,
        metavar="S",
        help="before each measurement wait up to S seconds for other work to rest (0)",
    )
    parser.add_argument("--json", action="store_true", help="print the figure as JSON")
    return parser


def show(
    title: str, promise: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool, notes: str = ""
) -> None:
    """Print the table and leave: 0, or 1 when a row says `broken`."""
    broken = any(row["promise"] == "broken" for row in rows)
    load = round(os.getloadavg()[0], 2)
    if as_json:
        document = {"figure": title, "promise": promise, "rows": list(rows), "load": load}
        print(json.dumps(document, indent=2))
    else:
        print(f"{title}\npromise: {promise}\n")
        _print_table(rows)
        print(f"\n{notes}load of this machine at the end: {load}, {os.cpu_count()} processors")
    sys.exit(broken)


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    head = list(rows[0])
    lines = [head, *([_cell(row[name]) for name in head] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _up_somewhere(nodes: int, devices: int, directory: Path) -> Lab:
    for networks in _RANGES[:-1]:
        with suppress(RangeInUseError):
            return _up(nodes, devices, networks, directory)
    return _up(nodes, devices, _RANGES[-1], directory)


def _up(nodes: int, devices: int, networks: str, directory: Path) -> Lab:
    return up(Shape.requested(nodes, devices, networks), directory=directory, project=PROJECT)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Else the practice cluster would outlive a bench that is told to end."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        sys.exit(143)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
