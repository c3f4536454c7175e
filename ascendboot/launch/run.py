"""Running a LaunchPlan: all nodes ready or nothing starts, followed to its end, nothing left."""

from __future__ import annotations

import queue
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError, NodeError, UnreachableError
from ascendboot.launch.course import Course
from ascendboot.launch.deadline import who_is_missing
from ascendboot.launch.detached import take_back
from ascendboot.launch.events import LauncherEnded, LauncherStarted, NodeLeft, RankEnded
from ascendboot.launch.follow import Followers, NodeEvent
from ascendboot.launch.outlet import Outlet
from ascendboot.launch.patience import Interrupts, Limits
from ascendboot.launch.prefixes import plain
from ascendboot.launch.prepare import nowhere, prepare, start
from ascendboot.launch.signs import signs_of
from ascendboot.launch.sweep import ends_within_s, hasten, stop_job, terminate_launcher
from ascendboot.launch.verdict import report_on
from ascendboot.launch.watch import HangRules, Standing, Watch
from ascendboot.model.clocks import NodeClocks
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import FORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ascendboot.launch.events import Event
    from ascendboot.launch.patience import Box
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.model.job import JobReport
    from ascendboot.transport.api import Transport

_ANSWER = Command(
    argv=("true",),
    purpose="see whether it still answers",
    effect=Effect.READ,
    timeout_s=10.0,
)


def run(
    plan: LaunchPlan,
    transports: Mapping[str, Transport],
    *,
    folder: Path,
    sink: Callable[[bytes], None],
    prefix: Callable[[str, int], bytes] = plain,
    interrupts: Interrupts | None = None,
    clocks: NodeClocks | None = None,
    limits: Limits | None = None,
    hangs: HangRules | None = None,
    forks: int = FORKS,
) -> JobReport:
    """Start the job, follow it and see that nothing of it is left; one report, however it went.

    `folder` on the operator's side gets one log per rank and the launcher's. `sink` gets blocks of
    whole lines `NODE:RANK | text`, one block at a time, from other threads; of a node and a rank
    `prefix` gives what stands before the text. `hangs` says what is done about a job that stands
    still: nothing by default.

    Raises:
        UnreachableError: the primary was lost while the job ran; the job goes on there.
    """
    nodes = {n: transports[n] for n in plan.nodes}
    job = _Job(
        plan,
        nodes,
        folder,
        interrupts=interrupts,
        limits=limits or Limits(),
        hangs=hangs or HangRules(),
        forks=forks,
    )
    began, started = time.monotonic(), datetime.now(timezone.utc)
    course = job.through(sink, prefix)
    return report_on(
        plan,
        course,
        folder=folder,
        started=started.isoformat(timespec="milliseconds"),
        duration_s=time.monotonic() - began,
        clocks=clocks or NodeClocks(),
    )


class _Job:
    """One job on its way through: what was seen, and until when something has to be seen."""

    def __init__(
        self,
        plan: LaunchPlan,
        transports: Mapping[str, Transport],
        folder: Path,
        *,
        interrupts: Interrupts | None,
        limits: Limits,
        hangs: HangRules,
        forks: int,
    ) -> None:
        self._plan = plan
        self._transports = transports
        self._folder = folder
        self._limits = limits
        self._hangs = hangs
        self._forks = forks
        self._course = Course()
        self._signs = signs_of(plan)
        self._box: Box = queue.SimpleQueue()
        self._interrupts = interrupts or Interrupts()
        self._interrupts.wake(self._box)
        self._watch = Watch(hangs, plan, transports, folder, self._box.put)
        self._start_by: float | None = None
        self._end_by: float | None = None
        self._stopping = False
        self._hastened = False
        self._over = False

    def through(self, sink: Callable[[bytes], None], prefix: Callable[[str, int], bytes]) -> Course:
        try:
            prepare(self._plan, self._transports, forks=self._forks)
        except LaunchError as error:
            self._course.not_started = str(error)
            return self._course
        outlet = Outlet(sink, is_hurried=lambda: self._interrupts.count > 0)
        followers = Followers(
            self._plan,
            folder=self._folder,
            sink=outlet,
            on_event=self._box.put,
            on_sample=self._watch.take,
            sample_s=self._hangs.sample_s,
            prefix=prefix,
        )
        self._course.arrivals = followers.arrivals
        try:
            started = self._started(followers)
            if started:
                self._wait(followers)
                self._settle(followers)
        except (UnreachableError, KeyboardInterrupt):
            raise  # the job goes on, as the operator is told
        except BaseException:
            self._stop_after_trouble()
            raise
        finally:
            followers.close()
            if lost := outlet.close():
                followers.output.lose(lost)
        if not started:
            self._course.unsure += take_back(self._plan, self._transports, forks=self._forks)
        problems = [followers.output.problem] if followers.output.problem else []
        problems += [p for follower in followers.nodes.values() for p in follower.problems]
        self._course.notes += tuple(problems)
        return self._course

    def _settle(self, followers: Followers) -> None:
        # No start of a job waits for what only its end needs.
        from ascendboot.launch.aftermath import Aftermath  # noqa: PLC0415

        after = Aftermath(
            self._plan,
            self._transports,
            self._course,
            interrupts=self._interrupts,
            box=self._box,
            forks=self._forks,
        )
        after.settle(followers, patience_s=self._limits.drain_s)

    def _stop_after_trouble(self) -> None:
        """Whatever is passed on from here, no job is left to itself without a word."""
        plan = self._plan
        stop_job(
            self._transports,
            plan.job_folder,
            primary=plan.primary,
            grace_s=plan.grace_s,
            forks=self._forks,
        )

    def _started(self, followers: Followers) -> bool:
        try:
            beat_s = self._hangs.beat_s(self._limits.beat_s)
            followers.open(self._transports, beat_s=beat_s, forks=self._forks)
            if not self._interrupts.count:
                start(self._plan, self._transports, forks=self._forks)
                self._start_by = time.monotonic() + self._limits.start_s
                return True
            self._course.interrupted = True
        except (NodeError, OSError) as error:
            what = (
                f"could not keep the output here: {error}" if isinstance(error, OSError) else error
            )
            self._course.not_started = f"{what}\n{nowhere(self._plan.job_id)}"
        return False

    def _wait(self, followers: Followers) -> None:
        while not self._over:
            primary = followers.nodes[self._plan.primary]
            waits = [self._limits.silence_s - primary.silent_s]
            now = time.monotonic()
            waits += [by - now for by in (self._start_by, self._end_by) if by is not None]
            try:
                seen = self._box.get(timeout=max(0.0, min(waits)))
            except queue.Empty:
                self._be_overdue(primary.silent_s)
            else:
                self._take(seen)

    def _take(self, seen: NodeEvent | Standing | None) -> None:
        if seen is None:
            self._be_interrupted()
        elif isinstance(seen, Standing):
            self._stand_still(seen)
        elif seen.event is not None:
            self._note(seen.event)
        elif seen.node == self._plan.primary:
            raise self._cut()

    def _note(self, event: Event) -> None:
        course = self._course
        course.note(event)
        if self._signs.has_begun(course):
            self._start_by = None
        if self._signs.will_end(event, course):
            self._expect_end(failed=isinstance(event, RankEnded) and event.exit_code != 0)
        match event:
            case LauncherStarted() if self._stopping:
                self._stop()
            case NodeLeft(node_rank=node_rank):
                self._watch.forget(self._plan.nodes[node_rank])
            case LauncherEnded():
                self._over = True
            case _:
                pass

    def _stand_still(self, seen: Standing) -> None:
        if self._end_by is not None:
            return  # it ends already, for a better reason
        self._hangs.tell(seen.words)
        if seen.is_hang and self._hangs.stops:
            self._course.hung = seen.words
            self._stop()
        else:
            self._course.notes += (seen.words,)

    def _be_interrupted(self) -> None:
        self._course.interrupted = True
        if self._interrupts.count > 1:
            self._over = True
        else:
            self._stop()

    def _be_overdue(self, silent_s: float) -> None:
        now = time.monotonic()
        if silent_s >= self._limits.silence_s:
            raise self._out_of_sight(f"nothing came for {silent_s:.0f} s")
        if self._start_by is not None and now >= self._start_by:
            self._start_by = None
            self._course.not_started = self._who_is_missing()
            self._stop()
        elif self._end_by is not None and now >= self._end_by:
            if self._stopping:
                self._over = True
            else:
                self._course.is_overdue = True
                self._stop()

    def _cut(self) -> UnreachableError:
        """The primary asked once more: its container may have ended where it has not itself."""
        try:
            self._transports[self._plan.primary].run(_ANSWER)
        except UnreachableError:
            pass
        except NodeError as error:
            return self._out_of_sight(error.message, and_so="nobody sees what became of the job")
        return self._out_of_sight("its connection has ended")

    def _out_of_sight(self, seen: str, *, and_so: str = "the job goes on") -> UnreachableError:
        job = f"job {self._plan.job_id}"
        reason = f"could not follow {job} any longer: {seen}; {and_so}; invoke status"
        return UnreachableError(self._plan.primary, reason)

    def _stop(self) -> None:
        """Have the launcher end the job; when that cannot be, the sweep will."""
        self._stopping, self._start_by, self._end_by = True, None, None
        try:
            terminate_launcher(self._transports[self._plan.primary], self._plan.job_folder)
        except NodeError as error:
            self._course.notes += (str(error),)
            self._over = True
        self._expect_end()

    def _hasten(self) -> None:
        """Have all nodes end the ranks at once; torchrun's are minded where they run."""
        if self._hastened or self._plan.launcher.torchrun:
            return
        self._hastened = True
        words = (self._transports, self._plan.job_folder)
        threading.Thread(target=hasten, args=words, name="hasten", daemon=True).start()

    def _expect_end(self, *, failed: bool = False) -> None:
        """From here the launcher ends the job by itself within a known time."""
        self._start_by = None
        if failed:
            self._hasten()
        if self._end_by is None:
            self._end_by = time.monotonic() + ends_within_s(self._plan.grace_s)

    def _who_is_missing(self) -> str:
        missing = {rank.rank for rank in self._plan.ranks} - self._course.started
        return who_is_missing(self._plan, missing, self._limits.start_s)
