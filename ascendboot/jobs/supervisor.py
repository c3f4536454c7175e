"""Runs a job in generations: after a fault the next one starts on the nodes that are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from ascendboot.errors import LaunchError
from ascendboot.jobs.follow import Interrupts, Timeouts
from ascendboot.jobs.node_watch import RETURNING, Nodes, NodeWatch
from ascendboot.jobs.progress import Progress, has_started
from ascendboot.launch.plan import Job, JobRecord, LaunchPlan
from ascendboot.model.job import CauseKind, JobReport, JobState
from ascendboot.supervise.core import ACTIVE, Action, Core, End, Launch, State, Stop, Wait
from ascendboot.supervise.policy import Fault, FaultKind, Level, Status, first_cause
from ascendboot.value import Struct, Value, replace

CORRELATE_S = 2.0
"""How long to wait for an earlier cause: the end of a generation has queried all its nodes."""
TIMEOUTS = Timeouts(beat_s=2.0, node_s=6.0, silence_s=300.0, reconnect_s=4.0, drain_s=4.0)
"""A node without a sign of life is lost after 6 s and one failed attempt to connect. If all are
silent, it is rather the network of this machine, and they are lost after 300 s."""
_LOOK_S = 5.0
"""How often lost nodes are looked for while the job waits for one."""
_PAUSE_S = 0.2


class NotReadyError(LaunchError):
    """Some nodes cannot take part in a generation; others may."""

    def __init__(self, nodes: Mapping[str, str], lost: Collection[str]) -> None:
        super().__init__(*(f"{node}: {why}" for node, why in nodes.items()))
        self.nodes, self.lost = nodes, lost
        """Why, by node, and those of them that cannot be reached."""


class Generations(Nodes, Protocol):
    """What starts and follows one generation on the nodes."""

    def plan(self, launch: Launch) -> LaunchPlan:
        """Check the nodes of a generation and plan it; nothing is started.

        Raises:
            NotReadyError: some nodes cannot take part.
            LaunchError: the generation cannot start on any nodes.
        """

    def running(self, generation: int) -> JobRecord | None:
        """The record of a generation that another supervisor started, if it can be followed."""

    def run(self, plan: Job, progress: Progress) -> JobReport:
        """Start a planned generation and follow it to its end; `progress` is filled.

        One that was started before is only followed, or LaunchError raised if it cannot be.
        """

    def stop(self, generation: int) -> Collection[str]:
        """End a generation that another supervisor started; return the nodes not verified."""

    def tell(self, words: str) -> None:
        """Print what happened."""


class Supervised(Value):
    """How a supervised job ended."""

    end: End
    report: JobReport | None
    """Of the last generation that was started; None: none was."""


class Supervisor(Struct, kw_only=True, eq=False):
    """Does what the core decides, and reports to it what happened."""

    core: Core
    generations: Generations
    interrupts: Interrupts
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    keep: Callable[[], None] = lambda: None
    """Keeps the state of the core; called after each of its decisions."""
    requested: Callable[[], Sequence[Action]] = tuple
    """Carries out a request of the operator, if there is one."""
    _report: JobReport | None = None
    _unverified: Collection[str] = ()
    _ended: int = 0
    """The last generation that was followed to its end."""

    def run(self) -> Supervised:
        """Run generations until the core ends the job; continue one that was read from a file."""
        actions = self._begun()
        while True:
            self.keep()
            match actions[0] if actions else Wait(self.clock() + _LOOK_S):
                case Launch() as launch:
                    actions = self._launched(launch)
                case Stop(generation=generation):
                    if generation != self._ended:
                        self._unverified = self.generations.stop(generation)
                    actions = self.core.stopped(self.clock(), self._unverified)
                case Wait(until=until):
                    found = self._waited(until)
                    actions = self.core.tick(self.clock()) if found is None else found
                case End() as end:
                    return Supervised(end, self._report)

    def _begun(self) -> Sequence[Action]:
        """Begin the job, or continue where the last supervisor ended."""
        core = self.core
        if core.state is State.IDLE:
            return core.begin(self.clock())
        job = self.generations.running(core.generation) if core.state in ACTIVE else None
        if job is not None:
            core.resume(self.clock(), alive=True)
            self.keep()
            try:
                return self._run_to_end(job)
            except LaunchError as error:
                self._ended = 0
                self.generations.tell(str(error))
        return core.resume(self.clock(), alive=False)

    def _waited(self, until: float) -> Sequence[Action] | None:
        """Wait until a time; return what is to be done earlier, None: nothing."""
        look_at = self.clock()
        while self.clock() < until:
            if self.interrupts.count:
                return self.core.interrupt(self.clock())
            if actions := self.requested():
                return actions
            if self.core.state is State.WAITING and self.clock() >= look_at:
                look_at = self.clock() + _LOOK_S
                if actions := self._look_for_lost():
                    return actions
            self.pause(_PAUSE_S)
        return None

    def _look_for_lost(self) -> Sequence[Action]:
        """Look at all of them first: the next generation starts on as many as possible."""
        nodes = self.core.nodes.items()
        lost = [name for name, s in nodes if s.status in RETURNING and s.until is None]
        back = self.generations.ready_among(lost)
        for name in back:
            self.generations.tell(f"{name}: answers again")
        return self.core.node_up(self.clock(), *back)

    def _launched(self, launch: Launch) -> Sequence[Action]:
        """Run one generation to its end; return what follows."""
        if (earlier := self._waited(launch.not_before)) is not None:
            return earlier
        self._unverified, self._ended = (), launch.generation
        try:
            plan = self.generations.plan(launch)
        except NotReadyError as error:
            return self._excluded(error)
        except LaunchError as error:
            self.generations.tell(str(error))
            return self._fault(FaultKind.START_FAILED, "", str(error))
        return self.requested() or self._run_to_end(plan)

    def _run_to_end(self, plan: Job) -> Sequence[Action]:
        """Follow one generation to its end; return what follows."""
        progress = Progress()
        self._ended = self.core.generation
        self.interrupts.why = ""
        watch = NodeWatch(
            core=self.core,
            nodes=self.generations,
            interrupts=self.interrupts,
            clock=self.clock,
            keep=self.keep,
            requested=self.requested,
        )
        with watch.watching(partial(has_started, plan, progress)):
            self._report = self.generations.run(plan, progress)
        return self._followed(plan, self._report, progress)

    def _followed(self, plan: Job, report: JobReport, progress: Progress) -> Sequence[Action]:
        """Tell the core how a generation has ended; return what follows."""
        at = self.clock()
        if has_started(plan, progress):
            self.core.launched(at - report.duration_s)
        if self.core.state is State.STOPPING:  # the watch has ended it
            if progress.interrupted:
                self.core.interrupt(at)
            self._unverified = progress.unverified
            return self.core.stopped(at, self._unverified)
        if report.state in (JobState.INTERRUPTED, JobState.STOPPED):
            return self.core.interrupt(at, report.message)
        if report.exit_code == 0:
            return self.core.completed(at)
        self._unverified = progress.unverified | progress.lost.keys()
        left = [node for node in plan.nodes if node not in self._unverified]
        if (step := self.generations.newest_step(left)) is not None:
            self.core.checkpoint(at, step)
        return self.core.fault(first_cause(faults_of(report, progress, at), at))

    def _excluded(self, error: NotReadyError) -> Sequence[Action]:
        """Continue without the nodes that are not ready; the operator must mend those."""
        first: Sequence[Action] = ()
        self._unverified = tuple(error.lost)
        for node, why in error.nodes.items():
            self.generations.tell(f"{node}: cannot take part: {why}")
            if node in error.lost:
                actions = self._fault(FaultKind.NODE_DOWN, node, why)
            else:
                status: Status = "soft-quarantine" if self._may_pass(node) else "quarantined"
                actions = self.core.quarantine(self.clock(), [node], why, status=status)
            first = first or actions
        return first

    def _may_pass(self, node: str) -> bool:
        """Whether the devices of a node may be well again without an operator, by their codes."""
        faults = self.generations.faults([node], self.clock())
        levels = [fault.severity for fault in faults if fault.kind is FaultKind.NPU_FAULT]
        return bool(levels) and max(levels) <= Level.RESTART_NPU

    def _fault(self, kind: FaultKind, node: str, words: str) -> Sequence[Action]:
        return self.core.fault(Fault(kind=kind, at=self.clock(), node=node, words=words))


def faults_of(report: JobReport, progress: Progress, at: float) -> list[Fault]:
    """Return what ended a generation, from its report; at least one."""
    lost = dict.fromkeys(progress.lost)
    if report.cause is not None and report.cause.kind is CauseKind.NODE:
        lost |= dict.fromkeys(report.cause.nodes)
    if lost:
        seen = {node: progress.lost.get(node, "its launcher lost it") for node in lost}
        return [Fault(kind=FaultKind.NODE_DOWN, at=at, node=n, words=seen[n]) for n in lost]
    if report.state is JobState.HUNG:
        return [Fault(kind=FaultKind.HANG, at=at, words=report.message)]
    if report.state is JobState.NOT_STARTED:
        return [Fault(kind=FaultKind.START_FAILED, at=at, words=report.message)]
    failed, cause = report.first_failure, report.cause
    words = cause.title if cause else report.message
    fault = Fault(kind=FaultKind.RANK_EXIT, at=at, exit_code=report.exit_code, words=words)
    is_chance = cause is not None and (cause.kind is CauseKind.ALIKE or bool(cause.unsure))
    if failed is None or is_chance:  # another rank may be the first next time
        return [fault]
    return [replace(fault, node=failed.node, rank=failed.rank, exit_code=failed.exit_code)]
