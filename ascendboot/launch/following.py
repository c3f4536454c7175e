"""Following a job from its start until it is over, and what is done about what is seen."""

from __future__ import annotations

import queue
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.launch.deadline import who_is_missing
from ascendboot.launch.events import LauncherEnded, LauncherStarted, NodeLeft, RankEnded
from ascendboot.launch.follow import Back
from ascendboot.launch.signs import signs_of
from ascendboot.launch.sweep import ends_within_s, hasten, terminate_launcher
from ascendboot.launch.watch import Standing

if TYPE_CHECKING:
    from ascendboot.launch.events import Event
    from ascendboot.launch.follow import NodeEvent, NodeFollower
    from ascendboot.launch.lifelines import Lifelines
    from ascendboot.launch.patience import Limits
    from ascendboot.launch.running import Running
    from ascendboot.launch.watch import HangRules, Watch


class Following:
    """What was seen of one job that runs, and until when something has to be seen."""

    def __init__(
        self,
        job: Running,
        lifelines: Lifelines,
        *,
        limits: Limits,
        hangs: HangRules,
        watch: Watch,
    ) -> None:
        self._job = job
        self._lifelines = lifelines
        self._limits = limits
        self._hangs = hangs
        self._watch = watch
        self._signs = signs_of(job.plan)
        self._start_by: float | None = None
        self._end_by: float | None = None
        self._stopping = False
        self._hastened = False
        self._over = False

    def to_the_end(self, primary: NodeFollower) -> None:
        """Wait for the end of a job that was just started, and bring it about where it must be.

        Raises:
            UnreachableError: the primary was lost; the job goes on there.
        """
        self._start_by = time.monotonic() + self._limits.start_s
        while not self._over:
            patience_s = self._patience_s(primary.silent_s)
            try:
                seen = self._job.box.get(timeout=patience_s)
            except queue.Empty:
                self._be_overdue(primary.silent_s)
            else:
                self._take(seen)

    def _patience_s(self, silent_s: float) -> float | None:
        """How long to wait for what comes next; while the primary is away its `Back` ends it."""
        if self._lifelines.is_away(self._job.plan.primary):
            return None
        now = time.monotonic()
        waits = [by - now for by in (self._start_by, self._end_by) if by is not None]
        return max(0.0, min([self._limits.silence_s - silent_s, *waits]))

    def _take(self, seen: NodeEvent | Back | Standing | None) -> None:
        if seen is None:
            self._be_interrupted()
        elif isinstance(seen, Standing):
            self._stand_still(seen)
        elif isinstance(seen, Back):
            self._be_back(seen)
        elif seen.event is not None:
            self._note(seen.event)
        else:
            self._lifelines.bring_back(seen.node)

    def _note(self, event: Event) -> None:
        course = self._job.course
        course.note(event)
        if self._signs.has_begun(course):
            self._start_by = None
        if self._signs.will_end(event, course):
            self._expect_end(failed=isinstance(event, RankEnded) and event.exit_code != 0)
        match event:
            case LauncherStarted() if self._stopping:
                self._stop()
            case NodeLeft(node_rank=node_rank):
                self._watch.forget(self._job.plan.nodes[node_rank])
            case LauncherEnded():
                self._over = True
            case _:
                pass

    def _stand_still(self, seen: Standing) -> None:
        if self._end_by is not None:
            return  # it ends already, for a better reason
        self._hangs.tell(seen.words)
        if seen.is_hang and self._hangs.stops:
            self._job.course.hung = seen.words
            self._stop()
        else:
            self._job.course.notes += (seen.words,)

    def _be_interrupted(self) -> None:
        self._job.course.interrupted = True
        if self._job.interrupts.count > 1:
            self._over = True
        else:
            self._stop()

    def _be_overdue(self, silent_s: float) -> None:
        now = time.monotonic()
        if silent_s >= self._limits.silence_s:
            raise self._out_of_sight(f"nothing came for {silent_s:.0f} s")
        if self._start_by is not None and now >= self._start_by:
            self._start_by = None
            self._job.course.not_started = self._who_is_missing()
            self._stop()
        elif self._end_by is not None and now >= self._end_by:
            if self._stopping:
                self._over = True
            else:
                self._job.course.is_overdue = True
                self._stop()

    def _be_back(self, back: Back) -> None:
        """Go on where a node is followed again; without its primary no job can be followed."""
        if back.node != self._job.plan.primary:
            return  # what is left there, and what it wrote, is seen once the job is over
        if isinstance(back.error, UnreachableError):
            raise self._out_of_sight("its connection has ended")
        if back.error is not None:  # its container may have ended where it has not itself
            and_so = "nobody sees what became of the job"
            raise self._out_of_sight(back.error.message, and_so=and_so)
        # What it did meanwhile is about to come.
        soon = time.monotonic() + self._limits.drain_s
        self._start_by = None if self._start_by is None else max(self._start_by, soon)
        self._end_by = None if self._end_by is None else max(self._end_by, soon)

    def _out_of_sight(self, seen: str, *, and_so: str = "the job goes on") -> UnreachableError:
        job = f"job {self._job.plan.job_id}"
        reason = f"could not follow {job} any longer: {seen}; {and_so}; invoke status"
        return UnreachableError(self._job.plan.primary, reason)

    def _stop(self) -> None:
        """Have the launcher end the job; when that cannot be, the sweep will."""
        self._stopping, self._start_by, self._end_by = True, None, None
        try:
            terminate_launcher(
                self._job.transports[self._job.plan.primary], self._job.plan.job_folder
            )
        except NodeError as error:
            self._job.course.notes += (str(error),)
            self._over = True
        self._expect_end()

    def _hasten(self) -> None:
        """Have all nodes end the ranks at once; torchrun's are minded where they run."""
        if self._hastened or self._job.plan.launcher.torchrun:
            return
        self._hastened = True
        order = partial(
            hasten, self._job.transports, self._job.plan.job_folder, forks=self._job.forks
        )
        threading.Thread(target=order, name="hasten", daemon=True).start()

    def _expect_end(self, *, failed: bool = False) -> None:
        """From here the launcher ends the job by itself within a known time."""
        self._start_by = None
        if failed:
            self._hasten()
        if self._end_by is None:
            self._end_by = time.monotonic() + ends_within_s(self._job.plan.grace_s)

    def _who_is_missing(self) -> str:
        missing = {rank.rank for rank in self._job.plan.ranks} - self._job.course.started
        return who_is_missing(self._job.plan, missing, self._limits.start_s)
