"""Runs a job in the foreground from its start to its report."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING

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
from ascendboot.model.cluster import NodeClocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ascendboot.jobs.gather import NodeLogs
    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.model.job import JobReport
    from ascendboot.transport.api import Transport

_SHOWN_SURVIVORS = 5
_FULL = "the disk of {folder} is full: what its ranks wrote last may be missing; make room there"


class Cleanup:
    """Cleans up after a job whose launcher has ended, or is no longer waited for."""

    def __init__(self, job: Running, reconnector: Reconnector) -> None:
        self._job = job
        self._reconnector = reconnector

    def run(self, followers: Followers, *, patience_s: float) -> None:
        """End what is left on any node, and wait for output while it arrives."""
        found = self._terminate_all()
        found.update(self._terminate_after_reconnect(found, patience_s=patience_s))
        sizes: dict[str, Mapping[str, int]] = {}
        for node, result in found.items():
            if isinstance(result, NodeError):
                self._note_unchecked(node, not_checked(result))
            else:
                self._on_message(node, result)
                sizes[node] = result.sizes
        self._job.progress.notes += tuple(
            f"{node}: {name} is not whole here: {here} of {there} bytes"
            for node, files in followers.short_of(sizes, patience_s=patience_s).items()
            for name, (here, there) in files.items()
        )
        while not self._job.inbox.empty():
            self._note_next()

    def _on_message(self, node: str, result: Terminated) -> None:
        progress = self._job.progress
        progress.unsure += tuple(_survivors(node, result.left, "could not be ended"))
        progress.notes += tuple(_survivors(node, result.ended, "was left behind and ended"))
        if result.full:
            progress.full_disks[node] = result.full
            progress.notes += (f"{node}: {_FULL.format(folder=result.full)}",)

    def _note_unchecked(self, node: str, words: str) -> None:
        """Note a node that could not be checked; a lost one is no failure of an elastic job."""
        if self._job.plan.nodes.index(node) in self._job.progress.left:
            self._job.progress.notes += (words,)
        else:
            self._job.progress.unsure += (words,)

    def _terminate_all(self) -> dict[str, Terminated | NodeError]:
        """End what is left on all nodes; a second Ctrl-C ends all waiting."""
        kill_now = partial(self._terminate, linger_s=0.0, grace_s=0.0)
        if self._job.interrupts.count > 1:
            return kill_now()
        linger_s = LINGER_S if self._job.progress.launcher_over else 0.0
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(self._terminate, linger_s=linger_s, grace_s=self._job.plan.grace_s)
            going.add_done_callback(lambda _: self._job.inbox.put(None))
            while not going.done():
                self._note_next()
                if self._job.interrupts.count > 1 and not going.done():
                    self._job.progress.interrupted = True
                    kill_now()
                    break
            return going.result()

    def _terminate_after_reconnect(
        self, found: Mapping[str, Terminated | NodeError], *, patience_s: float
    ) -> dict[str, Terminated | NodeError]:
        """Try nodes again of which only the connection was lost: their ranks may still run.

        Where the launcher failed, it may have lost these nodes: then they have only `patience_s`.
        """
        progress, nodes = self._job.progress, self._job.plan.nodes
        gone = [
            node
            for node, result in found.items()
            if isinstance(result, UnreachableError) and nodes.index(node) not in progress.left
        ]
        if not gone or self._job.interrupts.count:
            return {}
        went_well = progress.launcher_code == 0
        self._reconnector.wait(gone, at_most_s=float("inf") if went_well else patience_s)
        back = [node for node in gone if not self._reconnector.is_reconnecting(node)]
        if not back:
            return {}
        return self._terminate(linger_s=LINGER_S, grace_s=self._job.plan.grace_s, on=back)

    def _terminate(
        self, *, linger_s: float, grace_s: float, on: Sequence[str] = ()
    ) -> dict[str, Terminated | NodeError]:
        transports = self._job.transports
        return terminate_processes(
            {node: transports[node] for node in on or transports},
            self._job.plan.job_folder,
            linger_s=linger_s,
            grace_s=grace_s,
            forks=self._job.forks,
        )

    def _note_next(self) -> None:
        """Wait for the next message, and note it if it is an event."""
        seen = self._job.inbox.get()
        if isinstance(seen, NodeEvent) and seen.event is not None:
            self._job.progress.note(seen.event)


def _survivors(node: str, survivors: Sequence[Survivor], what: str) -> list[str]:
    shown = survivors[:_SHOWN_SURVIVORS]
    lines = [f"{node}: process {p.pid} {what}: {p.command}" for p in shown]
    more = len(survivors) - len(shown)
    return [*lines, f"{node}: and {more} more"] if more > 0 else lines


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
        self._job = job
        self._reconnector = reconnector
        self._limits = limits
        self._hangs = hangs
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
        self._start_by = time.monotonic() + self._limits.start_s
        while not self._over:
            patience_s = self._timeout_s(primary.silent_s)
            try:
                seen = self._job.inbox.get(timeout=patience_s)
            except queue.Empty:
                self._on_timeout(primary.silent_s)
            else:
                self._on_message(seen)

    def _timeout_s(self, silent_s: float) -> float | None:
        """How long to wait for the next message; no limit while the primary reconnects."""
        if self._reconnector.is_reconnecting(self._job.plan.primary):
            return None
        now = time.monotonic()
        waits = [by - now for by in (self._start_by, self._end_by) if by is not None]
        return max(0.0, min([self._limits.silence_s - silent_s, *waits]))

    def _on_message(self, seen: NodeEvent | Reconnected | HungJob | None) -> None:
        if seen is None:
            self._on_interrupt()
        elif isinstance(seen, HungJob):
            self._on_hang(seen)
        elif isinstance(seen, Reconnected):
            self._on_reconnected(seen)
        elif seen.event is not None:
            self._note(seen.event)
        else:
            self._reconnector.reconnect(seen.node)

    def _note(self, event: Event) -> None:
        progress = self._job.progress
        progress.note(event)
        if has_started(self._job.plan, progress):
            self._start_by = None
        if will_end(self._job.plan, event, progress):
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

    def _on_hang(self, seen: HungJob) -> None:
        if self._end_by is not None:
            return  # it is ending already
        self._hangs.tell(seen.words)
        if seen.is_hang and self._hangs.stops:
            self._job.progress.hung = seen.words
            self._stop()
        else:
            self._job.progress.notes += (seen.words,)

    def _on_interrupt(self) -> None:
        self._job.progress.interrupted = True
        if self._job.interrupts.count > 1:
            self._over = True
        else:
            self._stop()

    def _on_timeout(self, silent_s: float) -> None:
        now = time.monotonic()
        if silent_s >= self._limits.silence_s:
            raise self._lost_primary(f"nothing came for {silent_s:.0f} s")
        if self._start_by is not None and now >= self._start_by:
            self._start_by = None
            self._job.progress.not_started = self._missing_ranks()
            self._stop()
        elif self._end_by is not None and now >= self._end_by:
            if self._stopping:
                self._over = True
            else:
                self._job.progress.is_overdue = True
                self._stop()

    def _on_reconnected(self, back: Reconnected) -> None:
        """Go on with a node that is followed again; without the primary no job can be followed."""
        if back.node != self._job.plan.primary:
            return  # the cleanup at the end of the job sees that node
        if isinstance(back.error, UnreachableError):
            raise self._lost_primary("its connection has ended")
        if back.error is not None:  # its container may have ended, and the node not
            and_so = "the state of the job is unknown"
            raise self._lost_primary(back.error.message, and_so=and_so)
        # Events of the meantime arrive now.
        soon = time.monotonic() + self._limits.drain_s
        self._start_by = None if self._start_by is None else max(self._start_by, soon)
        self._end_by = None if self._end_by is None else max(self._end_by, soon)

    def _lost_primary(self, seen: str, *, and_so: str = "the job goes on") -> UnreachableError:
        job = f"job {self._job.plan.job_id}"
        reason = f"could not follow {job} any longer: {seen}; {and_so}; invoke status"
        return UnreachableError(self._job.plan.primary, reason)

    def _stop(self) -> None:
        """End the launcher; where that fails, the cleanup ends the job."""
        self._stopping, self._start_by, self._end_by = True, None, None
        try:
            terminate_launcher(
                self._job.transports[self._job.plan.primary], self._job.plan.job_folder
            )
        except NodeError as error:
            self._job.progress.notes += (str(error),)
            self._over = True
        self._expect_end()

    def _end_ranks(self) -> None:
        """End the ranks on all nodes at once; those of torchrun have a supervisor on each node."""
        if self._ranks_ended or traits_of(self._job.plan.request.launcher).spreads_failure:
            return
        self._ranks_ended = True
        order = partial(
            end_ranks, self._job.transports, self._job.plan.job_folder, forks=self._job.forks
        )
        threading.Thread(target=order, name="hasten", daemon=True).start()

    def _expect_end(self, *, failed: bool = False) -> None:
        """From now on the launcher ends the job within a known time."""
        self._start_by = None
        if failed:
            self._end_ranks()
        if self._end_by is None:
            self._end_by = time.monotonic() + ends_within_s(self._job.plan.grace_s)

    def _missing_ranks(self) -> str:
        missing = {rank.rank for rank in self._job.plan.ranks} - self._job.progress.started
        return not_started_message(self._job.plan, missing, self._limits.start_s)


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
    foreground = _Foreground(
        job, folder, limits=limits or Timeouts(), hangs=hangs or HangRules(), connect=connect
    )
    began, started = time.monotonic(), datetime.now(timezone.utc)
    progress = foreground.run_job(sink, prefix)
    return report_on(
        plan,
        progress,
        folder=folder,
        started=started.isoformat(timespec="milliseconds"),
        duration_s=time.monotonic() - began,
        clocks=clocks or NodeClocks(),
    )


class _Foreground:
    """One job in the foreground, from the preparation of its nodes to the cleanup."""

    def __init__(
        self,
        job: Running,
        folder: Path,
        *,
        limits: Timeouts,
        hangs: HangRules,
        connect: Callable[[str], Transport] | None,
    ) -> None:
        self._job = job
        self._connect = connect
        self._folder = folder
        self._limits = limits
        self._hangs = hangs
        found = job.inbox.put
        self._watch = HangWatch(hangs, job.plan, job.transports, folder, found, forks=job.forks)
        job.interrupts.wake(job.inbox)

    def run_job(
        self, sink: Callable[[bytes], None], prefix: Callable[[str, int], bytes]
    ) -> Progress:
        job = self._job
        try:
            prepare(job.plan, job.transports, forks=job.forks)
        except LaunchError as error:
            job.progress.not_started = str(error)
            return job.progress
        writer = OutputWriter(sink, is_hurried=lambda: job.interrupts.count > 0)
        followers = Followers(
            job.plan,
            folder=self._folder,
            sink=writer,
            on_event=job.inbox.put,
            on_sample=self._watch.take,
            sample_s=self._hangs.sample_s,
            prefix=prefix,
            forks=job.forks,
        )
        job.progress.arrivals = followers.arrivals
        try:
            started = self._start(followers)
            if started:
                self._follow(followers)
        except (UnreachableError, KeyboardInterrupt):
            raise  # the job goes on, and the message says so
        except BaseException:
            self._stop_after_error()
            raise
        finally:
            followers.close()
            if lost := writer.close():
                followers.output.lose(lost)
        if not started:
            job.progress.unsure += undo_start(job.plan, job.transports, forks=job.forks)
        problems = [followers.output.problem] if followers.output.problem else []
        for logs in followers.nodes.values():
            problems += [*logs.problems, *([logs.problem] if logs.problem else [])]
        job.progress.notes += tuple(problems)
        return job.progress

    def _follow(self, followers: Followers) -> None:
        """Follow the started job to its end, and clean up."""
        job, limits, hangs = self._job, self._limits, self._hangs
        reconnector = Reconnector(
            job, followers, connect=self._connect, tell=hangs.tell, within_s=limits.reconnect_s
        )
        following = Following(job, reconnector, limits=limits, hangs=hangs, watch=self._watch)
        try:
            following.to_the_end(followers.nodes[job.plan.primary])
            Cleanup(job, reconnector).run(followers, patience_s=limits.drain_s)
        finally:
            reconnector.close()

    def _stop_after_error(self) -> None:
        """End the job after an unexpected error, which is raised next."""
        job, plan = self._job, self._job.plan
        stop_job(
            job.transports,
            plan.job_folder,
            primary=plan.primary,
            grace_s=plan.grace_s,
            forks=job.forks,
        )

    def _start(self, followers: Followers) -> bool:
        job = self._job
        try:
            beat_s = self._hangs.beat_s(self._limits.beat_s)
            followers.open(job.transports, beat_s=beat_s)
            if not job.interrupts.count:
                start(job.plan, job.transports, forks=job.forks)
                return True
            job.progress.interrupted = True
        except (NodeError, OSError) as error:
            what = (
                f"could not keep the output here: {error}" if isinstance(error, OSError) else error
            )
            job.progress.not_started = f"{what}\n{not_started_anywhere(job.plan.job_id)}"
        return False
