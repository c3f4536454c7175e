"""Running a LaunchPlan: all nodes ready or nothing starts, followed to its end, nothing left."""

from __future__ import annotations

import queue
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from ascendboot.errors import LaunchError, NodeError, UnreachableError
from ascendboot.launch.course import Course
from ascendboot.launch.detached import take_back
from ascendboot.launch.follow import Followers
from ascendboot.launch.outlet import Outlet
from ascendboot.launch.patience import Interrupts, Limits
from ascendboot.launch.prefixes import plain
from ascendboot.launch.prepare import nowhere, prepare, start
from ascendboot.launch.running import Running
from ascendboot.launch.sweep import stop_job
from ascendboot.launch.verdict import report_on
from ascendboot.launch.watch import HangRules, Watch
from ascendboot.model.clocks import NodeClocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.model.job import JobReport
    from ascendboot.transport.api import Transport


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
    connect: Callable[[str], Transport] | None = None,
    forks: int,
) -> JobReport:
    """Start the job, follow it and see that nothing of it is left; one report, however it went.

    `folder` on the operator's side gets one log per rank and the launcher's. `sink` gets blocks of
    whole lines `NODE:RANK | text`, one block at a time, from other threads; of a node and a rank
    `prefix` gives what stands before the text. `hangs` says what is done about a job that stands
    still: nothing by default. `connect` opens the connection to a node again that was lost while
    the job ran; without it one that is lost stays so.

    Raises:
        UnreachableError: the primary was lost for good while the job ran; the job goes on there.
    """
    job = Running(
        plan=plan,
        transports={n: transports[n] for n in plan.nodes},
        course=Course(),
        interrupts=interrupts or Interrupts(),
        box=queue.SimpleQueue(),
        forks=forks,
    )
    way = _Way(job, folder, limits=limits or Limits(), hangs=hangs or HangRules(), connect=connect)
    began, started = time.monotonic(), datetime.now(timezone.utc)
    course = way.through(sink, prefix)
    return report_on(
        plan,
        course,
        folder=folder,
        started=started.isoformat(timespec="milliseconds"),
        duration_s=time.monotonic() - began,
        clocks=clocks or NodeClocks(),
    )


class _Way:
    """The way of one job, from all nodes ready to nothing left."""

    def __init__(
        self,
        job: Running,
        folder: Path,
        *,
        limits: Limits,
        hangs: HangRules,
        connect: Callable[[str], Transport] | None,
    ) -> None:
        self._job = job
        self._connect = connect
        self._folder = folder
        self._limits = limits
        self._hangs = hangs
        found = job.box.put
        self._watch = Watch(hangs, job.plan, job.transports, folder, found, forks=job.forks)
        job.interrupts.wake(job.box)

    def through(self, sink: Callable[[bytes], None], prefix: Callable[[str, int], bytes]) -> Course:
        job = self._job
        try:
            prepare(job.plan, job.transports, forks=job.forks)
        except LaunchError as error:
            job.course.not_started = str(error)
            return job.course
        outlet = Outlet(sink, is_hurried=lambda: job.interrupts.count > 0)
        followers = Followers(
            job.plan,
            folder=self._folder,
            sink=outlet,
            on_event=job.box.put,
            on_sample=self._watch.take,
            sample_s=self._hangs.sample_s,
            prefix=prefix,
            forks=job.forks,
        )
        job.course.arrivals = followers.arrivals
        try:
            started = self._started(followers)
            if started:
                self._go_on(followers)
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
            job.course.unsure += take_back(job.plan, job.transports, forks=job.forks)
        problems = [followers.output.problem] if followers.output.problem else []
        problems += [p for follower in followers.nodes.values() for p in follower.problems]
        job.course.notes += tuple(problems)
        return job.course

    def _go_on(self, followers: Followers) -> None:
        """Follow the job that was started to its end, and clear up behind it."""
        # No start of a job waits for what comes after it.
        from ascendboot.launch.aftermath import Aftermath  # noqa: PLC0415
        from ascendboot.launch.following import Following  # noqa: PLC0415
        from ascendboot.launch.lifelines import Lifelines  # noqa: PLC0415

        job, limits, hangs = self._job, self._limits, self._hangs
        lifelines = Lifelines(
            job, followers, connect=self._connect, tell=hangs.tell, within_s=limits.back_s
        )
        following = Following(job, lifelines, limits=limits, hangs=hangs, watch=self._watch)
        try:
            following.to_the_end(followers.nodes[job.plan.primary])
            Aftermath(job, lifelines).settle(followers, patience_s=limits.drain_s)
        finally:
            lifelines.close()

    def _stop_after_trouble(self) -> None:
        """Whatever is passed on from here, no job is left to itself without a word."""
        job, plan = self._job, self._job.plan
        stop_job(
            job.transports,
            plan.job_folder,
            primary=plan.primary,
            grace_s=plan.grace_s,
            forks=job.forks,
        )

    def _started(self, followers: Followers) -> bool:
        job = self._job
        try:
            beat_s = self._hangs.beat_s(self._limits.beat_s)
            followers.open(job.transports, beat_s=beat_s)
            if not job.interrupts.count:
                start(job.plan, job.transports, forks=job.forks)
                return True
            job.course.interrupted = True
        except (NodeError, OSError) as error:
            what = (
                f"could not keep the output here: {error}" if isinstance(error, OSError) else error
            )
            job.course.not_started = f"{what}\n{nowhere(job.plan.job_id)}"
        return False
