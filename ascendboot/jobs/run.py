"""Runs a job in the foreground from its start to its report."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from ascendboot.errors import LaunchError, NodeError, UnreachableError
from ascendboot.jobs import follow, stop
from ascendboot.jobs.hang import HangRules, HangWatch, HungJob
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.logs import fetch_tails
from ascendboot.jobs.loss import BadLoss, loss_words, record_loss
from ascendboot.jobs.output import RankOutput, plain
from ascendboot.jobs.progress import Progress, has_started, will_end
from ascendboot.jobs.start import not_checked, not_started_anywhere, prepare, start, undo_start
from ascendboot.jobs.status import report_of
from ascendboot.launch import events
from ascendboot.launch.launchers import LAUNCHERS, ends_within_s
from ascendboot.launch.plan import Job, JobRecord, LaunchPlan
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import JobReport
from ascendboot.model.names import fold, ranks_named
from ascendboot.transport.api import Transport

_SHOWN_SURVIVORS = 5
_NEVER = float("inf")
_LOOK_S = 1.0
"""How often nodes are looked at for signs of life."""
_FULL = "the disk of {folder} is full: what its ranks wrote last may be missing; make room there"


@dataclass(kw_only=True, eq=False)
class Following:
    """Runs one job: starts it, follows it with its deadlines, and ends remaining processes.

    The job of a record was started before: it is only followed, from where the copies of its logs
    end.
    """

    plan: Job
    transports: Mapping[str, Transport]
    folder: Path
    """On the control machine; gets one log per rank and the launcher's."""
    sink: Callable[[bytes], None]
    """Gets blocks of whole lines `NODE:RANK | text`, one at a time, from another thread."""
    forks: int
    prefix: Callable[[str, int], bytes] = plain
    interrupts: follow.Interrupts = field(default_factory=follow.Interrupts)
    clocks: NodeClocks = field(default_factory=NodeClocks)
    limits: follow.Timeouts = field(default_factory=follow.Timeouts)
    hangs: HangRules = field(default_factory=HangRules)
    """What to do about a job that makes no progress; by default nothing."""
    connect: Callable[[str], Transport] | None = None
    """Reopens a lost connection to a node; None: the node stays lost."""
    progress: Progress = field(default_factory=Progress)
    """For a caller that wants to read it."""
    warn: Callable[[str], None] = lambda _words: None
    _inbox: follow.Inbox = field(default_factory=queue.SimpleQueue)
    _followers: follow.Followers = field(init=False)
    _reconnector: follow.Reconnector = field(init=False)
    _start_by: float = _NEVER
    _tell_by: float = _NEVER
    _end_by: float = _NEVER
    _stopping: bool = False
    _ranks_ended: bool = False
    _over: bool = False

    def __post_init__(self) -> None:
        self._sides = {node: self.transports[node] for node in self.plan.nodes}
        """By node; one is replaced when its connection was reopened."""
        self.interrupts.inbox = self._inbox

    def run(self) -> JobReport:
        """Run the job to its end, and report.

        Raises:
            UnreachableError: the primary was lost for good while the job ran, which continues.
            LaunchError: a job that was started before cannot be followed.
        """
        plan, progress = self.plan, self.progress
        began, started = time.monotonic(), datetime.now(timezone.utc)
        try:
            if isinstance(plan, LaunchPlan):
                prepare(plan, self._sides, forks=self.forks)
        except LaunchError as error:
            progress.not_started = str(error)
        else:
            self._start_to_end()
        if isinstance(plan, JobRecord):
            return report_of(plan, progress, self.folder, datetime.now(timezone.utc))
        return report_on(
            plan,
            progress,
            folder=self.folder,
            started=started.isoformat(timespec="milliseconds"),
            duration_s=time.monotonic() - began,
            clocks=self.clocks,
        )

    def _start_to_end(self) -> None:
        """Start the prepared job, and follow it until its output is written."""
        plan, sides = self.plan, self._sides
        output = RankOutput(self.sink, is_hurried=lambda: self.interrupts.count > 0)
        watch = HangWatch(self.hangs, plan, sides, self.folder, self._inbox.put, self.forks)
        self._followers = follow.Followers(
            plan,
            self.folder,
            output,
            on_event=self._inbox.put,
            on_sample=watch.take,
            on_loss=self._inbox.put,
            sample_s=self.hangs.sample_s,
            beat_s=self.hangs.beat_s(self.limits.beat_s),
            prefix=self.prefix,
            forks=self.forks,
        )
        self.progress.arrivals = self._followers.arrivals
        self._reconnector = follow.Reconnector(
            plan,
            sides,
            self.progress,
            follow=self._followers.follow,
            on_end=self._inbox.put,
            connect=self.connect,
            tell=self.hangs.tell,
            within_s=self.limits.reconnect_s,
        )
        try:
            if started := self._started():
                self._follow()
                self._clean_up()
        except (UnreachableError, KeyboardInterrupt):
            raise  # the job continues, as the message states
        except BaseException:  # whatever fails here: without us the job would run on unnoticed
            stop.stop_job(sides, plan, forks=self.forks)
            raise
        finally:
            self._reconnector.close()
            self._followers.close()
            output.close()
        if not started and isinstance(plan, LaunchPlan):
            self.progress.unsure += undo_start(plan, sides, forks=self.forks)
        problems = [output.problem]
        for logs in self._followers.nodes.values():
            problems += [*logs.problems, logs.problem]
        self.progress.notes += tuple(filter(None, problems))

    def _started(self) -> bool:
        """Open the streams and start the job; on failure the progress has the reason."""
        try:
            self._followers.open(self._sides)
            if not isinstance(self.plan, LaunchPlan):
                if self.interrupts.count:  # before this could be woken
                    self._inbox.put(None)
                return True
            if not self.interrupts.count:
                start(self.plan, self._sides, forks=self.forks)
                self._tell_by = time.monotonic() + self.limits.told_s
                return True
            self.progress.interrupted = True
        except (NodeError, OSError) as error:
            if isinstance(self.plan, JobRecord):
                raise LaunchError(f"could not follow job {self.plan.job_id}: {error}") from error
            kept = f"could not store the output: {error}"
            what = kept if isinstance(error, OSError) else error
            self.progress.not_started = f"{what}\n{not_started_anywhere(self.plan.job_id)}"
        return False

    def _follow(self) -> None:
        """Wait for the end of a job that was just started; end it if necessary."""
        primary = self._followers.nodes[self.plan.primary]
        self._start_by = time.monotonic() + self.limits.start_s
        while not self._over:
            timeout_s = self._look_at_nodes()
            if not self._reconnector.is_reconnecting(self.plan.primary):
                left_s = min(self._tell_by, self._start_by, self._end_by) - time.monotonic()
                left_s = max(0.0, min(self.limits.silence_s - primary.silent_s, left_s))
                timeout_s = left_s if timeout_s is None else min(left_s, timeout_s)
            try:
                message = self._inbox.get(timeout=timeout_s)
            except queue.Empty:
                self._on_timeout(primary.silent_s)
                continue
            match message:
                case None:
                    self._on_interrupt()
                case HungJob():
                    self._on_hung(message)
                case BadLoss():
                    self._on_loss(message)
                case follow.Reconnected():
                    self._on_reconnected(message)
                case follow.NodeEvent(node=node, event=event):
                    if event is None:
                        self._reconnector.reconnect(node)
                    else:
                        self._note(event)

    def _look_at_nodes(self) -> float | None:
        """Connect anew to silent nodes; return when to look again, None: never."""
        for name, node in self._followers.nodes.items():
            if node.silent_s >= self.limits.node_s and name not in self.progress.lost:
                self._reconnector.reconnect(name, silent_s=node.silent_s)
        return None if self.limits.node_s == _NEVER else _LOOK_S

    def _on_timeout(self, silent_s: float) -> None:
        now = time.monotonic()
        if silent_s >= self.limits.silence_s and self.limits.node_s == _NEVER:
            raise self._lost_primary(f"no data for {silent_s:.0f} s")
        missing = {rank.rank for rank in self.plan.ranks} - self.progress.started
        if now >= self._tell_by:
            self._tell_by = _NEVER
            nodes = fold({rank.node for rank in self.plan.ranks if rank.rank in missing})
            counts = f"ranks {len(self.progress.started)}/{len(self.plan.ranks)} up"
            late = f"{ranks_named(missing)} on {nodes}"
            self.warn(f"{counts} after {self.limits.told_s:g} s; still waiting for {late}")
        elif now >= self._start_by:
            words = events.not_started_message(self.plan, missing, self.limits.start_s)
            self.progress.not_started = words
            self._stop()
        elif now >= self._end_by:
            if self._stopping:
                self._over = True
            else:
                self.progress.is_overdue = True
                self._stop()

    def _on_interrupt(self) -> None:
        self.progress.replaced = self.interrupts.why
        self.progress.interrupted = self.interrupts.count > 0
        if self.interrupts.count > 1:
            self._over = True
        else:
            self._stop()

    def _note(self, event: events.Event) -> None:
        self.progress.note(event)
        if isinstance(event, events.RankStarted) and isinstance(self.plan, LaunchPlan):
            self.progress.began.setdefault(event.rank, time.time())
        if has_started(self.plan, self.progress):
            self._start_by = self._tell_by = _NEVER
        if will_end(self.plan, event, self.progress):
            self._expect_end(failed=isinstance(event, events.RankEnded) and event.exit_code != 0)
        if isinstance(event, events.LauncherStarted) and self._stopping:
            self._stop()
        elif isinstance(event, events.LauncherEnded):
            self._over = True

    def _on_hung(self, seen: HungJob) -> None:
        if self._end_by < _NEVER:
            return  # it is ending already
        self.hangs.tell(seen.words)
        if seen.is_hang and self.hangs.stops:
            self.progress.hung = seen.words
            self._stop()
        else:
            self.progress.notes += (seen.words,)

    def _on_loss(self, bad: BadLoss) -> None:
        """Note a loss that went wrong; only the first of each kind is shown."""
        known = loss_words(self.progress.losses)
        self.progress.losses += (bad,)
        if len(loss_words(self.progress.losses)) > len(known):
            self.warn(f"job {self.plan.job_id}: {loss_words((bad,))[0]}")
        try:
            record_loss(self.folder, bad)
        except OSError as error:
            self.progress.notes += (f"could not keep a loss that went wrong: {error}",)

    def _on_reconnected(self, back: follow.Reconnected) -> None:
        """Continue with a reconnected node; without the primary no job can be followed."""
        if isinstance(back.error, UnreachableError) and self.limits.node_s < _NEVER:
            silent_s = [node.silent_s for node in self._followers.nodes.values()]
            at_least_s = min(silent_s) if len(silent_s) > 1 else 0.0
            # If all of several nodes are silent, rather this machine has lost its network, which
            # the job does not need. After `silence_s` they count as lost all the same.
            if not self.limits.node_s <= at_least_s < self.limits.silence_s:
                self.progress.lost[back.node] = back.error.message
                self._over = True  # the cleanup ends what is left of the job on the others
            return
        if back.node != self.plan.primary:
            return  # the cleanup at the end of the job queries that node
        if isinstance(back.error, UnreachableError):
            raise self._lost_primary("its connection has ended")
        if back.error is not None:  # maybe only its container has ended
            and_so = "the state of the job is unknown"
            raise self._lost_primary(back.error.message, and_so=and_so)
        # Events of the interruption arrive now.
        soon = time.monotonic() + self.limits.drain_s
        self._start_by, self._end_by = max(self._start_by, soon), max(self._end_by, soon)

    def _lost_primary(self, seen: str, *, and_so: str = "the job continues") -> UnreachableError:
        job = f"job {self.plan.job_id}"
        reason = f"could not follow {job} any longer: {seen}; {and_so}; ascendboot status"
        return UnreachableError(self.plan.primary, reason)

    def _stop(self) -> None:
        """End the launcher; where that fails, the cleanup ends the job."""
        self._stopping, self._end_by, self._tell_by = True, _NEVER, _NEVER
        try:
            stop.terminate_launcher(self._sides[self.plan.primary], self.plan.job_folder)
        except NodeError as error:
            self.progress.notes += (str(error),)
            self._over = True
        self._expect_end()

    def _expect_end(self, *, failed: bool = False) -> None:
        """Expect the launcher to end soon; once a rank failed, end all ranks unless it does."""
        plan = self.plan
        self._start_by = self._tell_by = _NEVER
        spreads_failure = LAUNCHERS[plan.launcher_kind].traits.spreads_failure
        if failed and not (self._ranks_ended or spreads_failure):
            self._ranks_ended = True
            order = partial(stop.end_ranks, self._sides, plan.job_folder, forks=self.forks)
            threading.Thread(target=order, name="hasten", daemon=True).start()
        if self._end_by == _NEVER:
            self._end_by = time.monotonic() + ends_within_s(plan.grace_s)

    def _clean_up(self) -> None:
        """Once the launcher is over, or late: end what is left on all nodes, wait for output."""
        progress, nodes, lost = self.progress, self.plan.nodes, self.progress.lost
        found: dict[str, stop.Terminated | NodeError] = {
            node: UnreachableError(node, why) for node, why in lost.items()
        }
        found |= self._terminate_on([node for node in nodes if node not in lost])
        # If only the connection to a node was lost, its ranks may still run: connect again.
        gone = [n for n in nodes if isinstance(found[n], UnreachableError) and n not in lost]
        if gone and not self.interrupts.count:
            # If the launcher failed, it may have lost these nodes: then wait less.
            at_most_s = _NEVER if progress.launcher_code == 0 else self.limits.drain_s
            self._reconnector.wait(gone, self.interrupts, at_most_s=at_most_s)
            back = [node for node in gone if not self._reconnector.is_reconnecting(node)]
            found |= self._terminate(back, linger_s=stop.LINGER_S, grace_s=self.plan.grace_s)
        sizes: dict[str, Mapping[str, int]] = {}
        for node in nodes:
            result = found[node]
            if isinstance(result, stop.Terminated):
                sizes[node] = result.sizes
                progress.unsure += _survivors(node, result.left, "could not be ended")
                progress.unverified |= {node} if result.left else set()
                progress.notes += _survivors(node, result.ended, "was still running and was ended")
                if result.full:
                    progress.full_disks[node] = result.full
                    progress.notes += (f"{node}: {_FULL.format(folder=result.full)}",)
                continue
            progress.unverified.add(node)
            if node in lost:
                progress.notes += (not_checked(result),)
            else:
                progress.unsure += (not_checked(result),)
        if progress.has_failed or progress.hung:
            there = {node: self._sides[node] for node in sizes}
            errors = fetch_tails(self.plan, there, self.folder, has_logs=True, forks=self.forks)
            progress.notes += tuple(map(str, errors.values()))
        short = self._followers.short_of(sizes, patience_s=self.limits.drain_s)
        progress.notes += tuple(
            f"{node}: {name} is incomplete on the control machine: {here} of {there} bytes"
            for node, files in short.items()
            for name, (here, there) in files.items()
        )
        while not self._inbox.empty():
            self._note_next()

    def _terminate_on(self, nodes: Sequence[str]) -> dict[str, stop.Terminated | NodeError]:
        """End remaining processes on these nodes; a second Ctrl-C ends all waiting."""
        if self.interrupts.count > 1:
            return self._terminate(nodes, linger_s=0.0, grace_s=0.0)
        linger_s = stop.LINGER_S if self.progress.launcher_over else 0.0
        grace_s = self.plan.grace_s
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(self._terminate, nodes, linger_s=linger_s, grace_s=grace_s)
            going.add_done_callback(lambda _: self._inbox.put(None))
            while not going.done():
                self._note_next()
                if self.interrupts.count > 1 and not going.done():
                    self.progress.interrupted = True
                    self._terminate(nodes, linger_s=0.0, grace_s=0.0)
                    break
            return going.result()

    def _terminate(
        self, nodes: Sequence[str], *, linger_s: float, grace_s: float
    ) -> dict[str, stop.Terminated | NodeError]:
        sides, folder = {node: self._sides[node] for node in nodes}, self.plan.job_folder
        return stop.terminate_processes(
            sides, folder, linger_s=linger_s, grace_s=grace_s, forks=self.forks
        )

    def _note_next(self) -> None:
        """Wait for the next message, and note it if it is an event."""
        message = self._inbox.get()
        if isinstance(message, follow.NodeEvent) and message.event is not None:
            self.progress.note(message.event)
        elif isinstance(message, BadLoss):
            self._on_loss(message)


def _survivors(node: str, survivors: Sequence[stop.Survivor], what: str) -> tuple[str, ...]:
    lines = [f"{node}: process {p.pid} {what}: {p.command}" for p in survivors[:_SHOWN_SURVIVORS]]
    if (more := len(survivors) - len(lines)) > 0:
        lines.append(f"{node}: and {more} more")
    return tuple(lines)
