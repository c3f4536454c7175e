"""Runs a job in the foreground from its start to its report."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from ascendboot.errors import LaunchError, NodeError, UnreachableError
from ascendboot.jobs.follow import (
    Followers,
    Interrupts,
    NodeEvent,
    Reconnected,
    Reconnector,
    Running,
    Timeouts,
)
from ascendboot.jobs.gather import NodeLogs
from ascendboot.jobs.hang import HangRules, HangWatch, HungJob
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.output import OutputWriter, plain
from ascendboot.jobs.progress import Progress, has_started, will_end
from ascendboot.jobs.start import not_checked, not_started_anywhere, prepare, start, undo_start
from ascendboot.jobs.stop import (
    LINGER_S,
    Survivor,
    Terminated,
    end_ranks,
    stop_job,
    terminate_launcher,
    terminate_processes,
)
from ascendboot.launch.events import (
    Event,
    LauncherEnded,
    LauncherStarted,
    NodeLeft,
    RankEnded,
    not_started_message,
)
from ascendboot.launch.launchers.protocol import ends_within_s
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.launch.plan import LaunchPlan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import JobReport
from ascendboot.transport.api import Transport

_SHOWN_SURVIVORS = 5
_FULL = "the disk of {folder} is full: what its ranks wrote last may be missing; make room there"


def run(
    plan: LaunchPlan,
    transports: Mapping[str, Transport],
    *,
    folder: Path,
    sink: Callable[[bytes], None],
    prefix: Callable[[str, int], bytes] = plain,
    interrupts: Interrupts | None = None,
    clocks: NodeClocks | None = None,
    limits: Timeouts | None = None,
    hangs: HangRules | None = None,
    connect: Callable[[str], Transport] | None = None,
    forks: int,
) -> JobReport:
    """Start the job, follow it, end what is left of it, and report.

    `folder` on the control machine gets one log per rank and the launcher's. `sink` gets blocks of
    whole lines `NODE:RANK | text`, one block at a time, from other threads; `prefix` makes what
    stands before the text from node and rank. `hangs`: what to do about a job that makes no
    progress, by default nothing. `connect` opens a lost connection to a node again; without it
    the node stays lost.

    Raises:
        UnreachableError: the primary was lost for good while the job ran; the job goes on there.
    """
    job = Running(
        plan=plan,
        transports={n: transports[n] for n in plan.nodes},
        progress=Progress(),
        interrupts=interrupts or Interrupts(),
        inbox=queue.SimpleQueue(),
        forks=forks,
    )
    job.interrupts.wake(job.inbox)
    limits, hangs = limits or Timeouts(), hangs or HangRules()
    watch = HangWatch(hangs, plan, job.transports, folder, job.inbox.put, forks=forks)
    began, started = time.monotonic(), datetime.now(timezone.utc)
    try:
        prepare(plan, job.transports, forks=forks)
    except LaunchError as error:
        job.progress.not_started = str(error)
    else:
        writer = OutputWriter(sink, is_hurried=lambda: job.interrupts.count > 0)
        followers = Followers(
            plan,
            folder=folder,
            sink=writer,
            on_event=job.inbox.put,
            on_sample=watch.take,
            sample_s=hangs.sample_s,
            prefix=prefix,
            forks=forks,
        )
        job.progress.arrivals = followers.arrivals
        reconnector = Reconnector(
            plan,
            job.transports,
            job.progress,
            follow=followers.follow,
            on_end=job.inbox.put,
            connect=connect,
            tell=hangs.tell,
            within_s=limits.reconnect_s,
        )
        following = Following(job, reconnector, limits=limits, hangs=hangs, watch=watch)
        _start_and_follow(following, followers, writer)
    return report_on(
        plan,
        job.progress,
        folder=folder,
        started=started.isoformat(timespec="milliseconds"),
        duration_s=time.monotonic() - began,
        clocks=clocks or NodeClocks(),
    )


def _start_and_follow(following: Following, followers: Followers, writer: OutputWriter) -> None:
    """Start a prepared job, and follow it until its output is written."""
    job, plan = following.job, following.job.plan
    try:
        if started := _started(following, followers):
            following.to_the_end(followers.nodes[plan.primary])
            clean_up(following, followers)
    except (UnreachableError, KeyboardInterrupt):
        raise  # the job goes on, and the message says so
    except BaseException:
        grace_s = plan.grace_s
        stop_job(
            job.transports, plan.job_folder, primary=plan.primary, grace_s=grace_s, forks=job.forks
        )
        raise
    finally:
        following.reconnector.close()
        followers.close()
        if lost := writer.close():
            followers.output.lose(lost)
    if not started:
        job.progress.unsure += undo_start(plan, job.transports, forks=job.forks)
    problems = [followers.output.problem]
    for logs in followers.nodes.values():
        problems += [*logs.problems, logs.problem]
    job.progress.notes += tuple(filter(None, problems))


def _started(following: Following, followers: Followers) -> bool:
    """Open the streams and start the job; False with a reason in the job's progress."""
    job = following.job
    try:
        beat_s = following.hangs.beat_s(following.limits.beat_s)
        followers.open(job.transports, beat_s=beat_s)
        if not job.interrupts.count:
            start(job.plan, job.transports, forks=job.forks)
            return True
        job.progress.interrupted = True
    except (NodeError, OSError) as error:
        what = f"could not keep the output here: {error}" if isinstance(error, OSError) else error
        job.progress.not_started = f"{what}\n{not_started_anywhere(job.plan.job_id)}"
    return False


class Following:
    """Follows one job that runs, and its deadlines."""

    def __init__(
        self,
        job: Running,
        reconnector: Reconnector,
        *,
        limits: Timeouts,
        hangs: HangRules,
        watch: HangWatch,
    ) -> None:
        self.job = job
        self.reconnector = reconnector
        self.limits = limits
        self.hangs = hangs
        self._watch = watch
        self._start_by: float | None = None
        self._end_by: float | None = None
        self._stopping = False
        self._ranks_ended = False
        self._over = False

    def to_the_end(self, primary: NodeLogs) -> None:
        """Wait for the end of a job that was just started; end it where necessary.

        Raises:
            UnreachableError: the primary was lost; the job goes on there.
        """
        self._start_by = time.monotonic() + self.limits.start_s
        while not self._over:
            try:
                message = self.job.inbox.get(timeout=self._timeout_s(primary.silent_s))
            except queue.Empty:
                self._on_timeout(primary.silent_s)
                continue
            match message:
                case None:
                    self.job.progress.interrupted = True
                    if self.job.interrupts.count > 1:
                        self._over = True
                    else:
                        self._stop()
                case HungJob():
                    self._on_hang(message)
                case Reconnected():
                    self._on_reconnected(message)
                case NodeEvent(node=node, event=event):
                    if event is None:
                        self.reconnector.reconnect(node)
                    else:
                        self._note(event)

    def _timeout_s(self, silent_s: float) -> float | None:
        """How long to wait for the next message; no limit while the primary reconnects."""
        if self.reconnector.is_reconnecting(self.job.plan.primary):
            return None
        now = time.monotonic()
        waits = [by - now for by in (self._start_by, self._end_by) if by is not None]
        return max(0.0, min([self.limits.silence_s - silent_s, *waits]))

    def _on_timeout(self, silent_s: float) -> None:
        now = time.monotonic()
        if silent_s >= self.limits.silence_s:
            raise self._lost_primary(f"nothing came for {silent_s:.0f} s")
        if self._start_by is not None and now >= self._start_by:
            plan = self.job.plan
            missing = {rank.rank for rank in plan.ranks} - self.job.progress.started
            words = not_started_message(plan, missing, self.limits.start_s)
            self.job.progress.not_started = words
            self._stop()
        elif self._end_by is not None and now >= self._end_by:
            if self._stopping:
                self._over = True
            else:
                self.job.progress.is_overdue = True
                self._stop()

    def _note(self, event: Event) -> None:
        progress = self.job.progress
        progress.note(event)
        if has_started(self.job.plan, progress):
            self._start_by = None
        if will_end(self.job.plan, event, progress):
            self._expect_end(failed=isinstance(event, RankEnded) and event.exit_code != 0)
        match event:
            case LauncherStarted() if self._stopping:
                self._stop()
            case NodeLeft(node_rank=node_rank):
                self._watch.forget(self.job.plan.nodes[node_rank])
            case LauncherEnded():
                self._over = True
            case _:
                pass

    def _on_hang(self, seen: HungJob) -> None:
        if self._end_by is not None:
            return  # it is ending already
        self.hangs.tell(seen.words)
        if seen.is_hang and self.hangs.stops:
            self.job.progress.hung = seen.words
            self._stop()
        else:
            self.job.progress.notes += (seen.words,)

    def _on_reconnected(self, back: Reconnected) -> None:
        """Go on with a node that is followed again; without the primary no job can be followed."""
        if back.node != self.job.plan.primary:
            return  # the cleanup at the end of the job sees that node
        if isinstance(back.error, UnreachableError):
            raise self._lost_primary("its connection has ended")
        if back.error is not None:  # its container may have ended, and the node not
            and_so = "the state of the job is unknown"
            raise self._lost_primary(back.error.message, and_so=and_so)
        # Events of the meantime arrive now.
        soon = time.monotonic() + self.limits.drain_s
        self._start_by = None if self._start_by is None else max(self._start_by, soon)
        self._end_by = None if self._end_by is None else max(self._end_by, soon)

    def _lost_primary(self, seen: str, *, and_so: str = "the job goes on") -> UnreachableError:
        job = f"job {self.job.plan.job_id}"
        reason = f"could not follow {job} any longer: {seen}; {and_so}; invoke status"
        return UnreachableError(self.job.plan.primary, reason)

    def _stop(self) -> None:
        """End the launcher; where that fails, the cleanup ends the job."""
        self._stopping, self._start_by, self._end_by = True, None, None
        plan = self.job.plan
        try:
            terminate_launcher(self.job.transports[plan.primary], plan.job_folder)
        except NodeError as error:
            self.job.progress.notes += (str(error),)
            self._over = True
        self._expect_end()

    def _expect_end(self, *, failed: bool = False) -> None:
        """From now on the launcher ends the job within a known time.

        Once a rank failed, the ranks on all nodes are ended at once. Each node's supervisor of
        torchrun does that by itself.
        """
        job, plan = self.job, self.job.plan
        self._start_by = None
        if failed and not (self._ranks_ended or traits_of(plan.request.launcher).spreads_failure):
            self._ranks_ended = True
            order = partial(end_ranks, job.transports, plan.job_folder, forks=job.forks)
            threading.Thread(target=order, name="hasten", daemon=True).start()
        if self._end_by is None:
            self._end_by = time.monotonic() + ends_within_s(plan.grace_s)


def clean_up(following: Following, followers: Followers) -> None:
    """End what is left of a job on any node, and wait for output while it arrives.

    Its launcher has ended, or is no longer waited for.
    """
    job, progress = following.job, following.job.progress
    patience_s = following.limits.drain_s
    found = _terminate_all(job)
    # A node of which only the connection was lost is tried again: its ranks may still run.
    gone = [
        node
        for number, node in enumerate(job.plan.nodes)
        if isinstance(found[node], UnreachableError) and number not in progress.left
    ]
    if gone and not job.interrupts.count:
        # Where the launcher failed, it may have lost these nodes: then they have less time.
        at_most_s = float("inf") if progress.launcher_code == 0 else patience_s
        following.reconnector.wait(gone, job.interrupts, at_most_s=at_most_s)
        back = [node for node in gone if not following.reconnector.is_reconnecting(node)]
        found |= _terminate(job, back, linger_s=LINGER_S, grace_s=job.plan.grace_s)
    sizes: dict[str, Mapping[str, int]] = {}
    for number, node in enumerate(job.plan.nodes):
        result = found[node]
        if isinstance(result, Terminated):
            sizes[node] = result.sizes
            progress.unsure += _survivors(node, result.left, "could not be ended")
            progress.notes += _survivors(node, result.ended, "was left behind and ended")
            if result.full:
                progress.full_disks[node] = result.full
                progress.notes += (f"{node}: {_FULL.format(folder=result.full)}",)
        elif number in progress.left:  # an elastic job goes on without it
            progress.notes += (not_checked(result),)
        else:
            progress.unsure += (not_checked(result),)
    progress.notes += tuple(
        f"{node}: {name} is not whole here: {here} of {there} bytes"
        for node, files in followers.short_of(sizes, patience_s=patience_s).items()
        for name, (here, there) in files.items()
    )
    while not job.inbox.empty():
        _note_next(job)


def _terminate_all(job: Running) -> dict[str, Terminated | NodeError]:
    """End what is left on all nodes; a second Ctrl-C ends all waiting."""
    if job.interrupts.count > 1:
        return _terminate(job, job.plan.nodes, linger_s=0.0, grace_s=0.0)
    linger_s = LINGER_S if job.progress.launcher_over else 0.0
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(
            _terminate, job, job.plan.nodes, linger_s=linger_s, grace_s=job.plan.grace_s
        )
        going.add_done_callback(lambda _: job.inbox.put(None))
        while not going.done():
            _note_next(job)
            if job.interrupts.count > 1 and not going.done():
                job.progress.interrupted = True
                _terminate(job, job.plan.nodes, linger_s=0.0, grace_s=0.0)
                break
        return going.result()


def _terminate(
    job: Running, nodes: Sequence[str], *, linger_s: float, grace_s: float
) -> dict[str, Terminated | NodeError]:
    transports = {node: job.transports[node] for node in nodes}
    folder = job.plan.job_folder
    return terminate_processes(
        transports, folder, linger_s=linger_s, grace_s=grace_s, forks=job.forks
    )


def _note_next(job: Running) -> None:
    """Wait for the next message, and note it if it is an event."""
    message = job.inbox.get()
    if isinstance(message, NodeEvent) and message.event is not None:
        job.progress.note(message.event)


def _survivors(node: str, survivors: Sequence[Survivor], what: str) -> tuple[str, ...]:
    lines = [f"{node}: process {p.pid} {what}: {p.command}" for p in survivors[:_SHOWN_SURVIVORS]]
    if (more := len(survivors) - len(lines)) > 0:
        lines.append(f"{node}: and {more} more")
    return tuple(lines)
