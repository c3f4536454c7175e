"""Detects a job that makes no progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ascendboot.errors import one_line
from ascendboot.jobs.stacks import read_stacks
from ascendboot.launch.events import NodeSample
from ascendboot.launch.plan import Job
from ascendboot.model.names import span
from ascendboot.transport.api import Transport
from ascendboot.value import Value

IDLE: Final = 0.05
"""Share of one processor; a rank that uses less only waits or polls."""
_SAMPLES: Final = 10
"""Number of samples within the timeout."""
_MOST_SELDOM_S: Final = 60


class Standstill(Value, kw_only=True):
    """No rank has written output for the whole timeout."""

    silent_s: float
    """For how long no rank has written output."""
    idle_s: float
    """For how long no rank has used its processors either."""
    is_hang: bool
    """Whether no rank has used its processors for the whole timeout either."""


class _NodeView:
    """The state of one node; times by its own clock."""

    def __init__(self, first: NodeSample) -> None:
        self.last = first
        self._wrote_at_s = first.at_s
        self._busy_at_s = first.at_s

    def take(self, sample: NodeSample) -> None:
        """Compare a sample with the one before it."""
        span_s = sample.at_s - self.last.at_s
        now, before = sample.cpu_s, self.last.cpu_s
        has_begun = bool(now.keys() - before.keys())
        used = [now[rank] - before[rank] for rank in now.keys() & before.keys()]
        if sample.wrote or has_begun:
            self._wrote_at_s = sample.at_s
        # Less than before: a process of the rank has ended, and its CPU time no longer counts.
        if any(seconds < 0 or seconds > IDLE * span_s for seconds in used):
            self._busy_at_s = sample.at_s
        self.last = sample

    @property
    def silent_s(self) -> float:
        return self.last.at_s - self._wrote_at_s

    @property
    def idle_s(self) -> float:
        return self.last.at_s - max(self._wrote_at_s, self._busy_at_s)


class Detector:
    """Detects from the samples of all nodes, each node's in order, that a job makes no progress.

    Time is counted by the clocks of the nodes, and checked when all nodes have sent a new sample: a
    lost connection or a stopped control machine is not a hang.
    """

    def __init__(self, nodes: Iterable[str], timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._views: dict[str, _NodeView] = {}
        self._nodes = set(nodes)
        self._due = set(self._nodes)
        self._reported_hang = self._reported_silence = False

    def take(self, node: str, sample: NodeSample) -> Standstill | None:
        """Return what to report now, if anything.

        A hang is reported once until a rank does something again. Silence alone is reported once
        per job: a program may work without output.
        """
        self._views.setdefault(node, _NodeView(sample)).take(sample)
        self._due.discard(node)
        if self._due:
            return None
        self._due = set(self._nodes)
        views = self._views.values()
        silent_s = min(view.silent_s for view in views)
        idle_s = min(view.idle_s for view in views)
        is_hang = idle_s >= self._timeout_s
        was_reported = self._reported_hang if is_hang else self._reported_silence
        self._reported_hang = self._reported_hang and is_hang
        is_silent = silent_s >= self._timeout_s and any(view.last.cpu_s for view in views)
        if was_reported or not is_silent:
            return None
        self._reported_silence = True
        self._reported_hang = is_hang
        return Standstill(silent_s=silent_s, idle_s=idle_s, is_hang=is_hang)


class HangRules(Value, kw_only=True):
    """What to do about a job that makes no progress."""

    timeout_s: float = 0.0
    """A job hangs after so long without output and work; 0: no detection."""
    stops: bool = False
    """Whether to stop a job that hangs; otherwise only report it."""
    tell: Callable[[str], None] = lambda _words: None

    @property
    def sample_s(self) -> int:
        """How often nodes send what their ranks use; 0: never."""
        if not self.timeout_s:
            return 0
        return max(1, min(_MOST_SELDOM_S, int(self.timeout_s / _SAMPLES)))

    def beat_s(self, usual_s: float) -> float:
        """How often a node sends a sign of life, so that samples come in time."""
        return min(usual_s, self.sample_s) if self.sample_s else usual_s


class HungJob(Value):
    """A job that makes no progress, and where its ranks are."""

    words: str
    is_hang: bool


@dataclass(eq=False)
class HangWatch:
    """Takes samples from reader threads; reads the stacks of a hung job in a thread of its own."""

    rules: HangRules
    plan: Job
    transports: Mapping[str, Transport]
    folder: Path
    on_found: Callable[[HungJob], None]
    forks: int

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._detector = Detector(self.plan.nodes, self.rules.timeout_s)

    def take(self, node: str, sample: NodeSample) -> None:
        """Add a sample of a node."""
        with self._lock:
            found = self._detector.take(node, sample)
        if found is not None:
            threading.Thread(target=self._look, args=(found,), name="hang", daemon=True).start()

    def _look(self, found: Standstill) -> None:
        plan = self.plan
        lines, file = read_stacks(
            self.transports,
            plan.job_folder,
            plan.python,
            folder=self.folder,
            why="hang",
            forks=self.forks,
        )
        head = (
            f"job {plan.job_id}: no rank has written output for {span(found.silent_s)}, while ranks"
            " use their processors: they compute, or poll in a collective that does not end"
        )
        if found.is_hang:
            idle = span(found.idle_s)
            head = f"job {plan.job_id} hangs: no rank has written output or computed for {idle}"
        lines += [] if file is None else [f"Details: {file}"]
        words = [head, *(f"  {line}" for line in lines)]
        self.on_found(HungJob("\n".join(map(one_line, words)), found.is_hang))
