"""Finds jobs that were started from this control folder, and their state on the nodes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ascendboot.cli.session import Session
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, NodeError, UnreachableError, UsageError
from ascendboot.facts.device_states import npu_uses
from ascendboot.facts.query import Answered
from ascendboot.jobs.logs import fetch_tails
from ascendboot.jobs.probe import JobProbe, probe_jobs
from ascendboot.jobs.status import JobStatus, status_of
from ascendboot.launch.plan import JobRecord, rank_log, read_record, record_folder, record_folders
from ascendboot.model.cluster import Cluster
from ascendboot.model.files import held
from ascendboot.model.job import JobReport, JobState, NpuUse, use_words
from ascendboot.model.names import counted, fold, pace_words, span
from ascendboot.model.secrets import masked_json
from ascendboot.state import Run, State
from ascendboot.supervise.core import Core, OnEvent
from ascendboot.supervise.history import Supervision
from ascendboot.supervise.store import Store
from ascendboot.transport.api import Transport
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import Value, replace

JOB_HELP = "The job's id, as printed by train. Default: the running job, otherwise the last one"
REPORT_FILE = "job.json"
SUPERVISE_FOLDER = "supervise"
"""Of a supervised job, in the folder of its run."""
REPEATED = {
    "look for jobs",
    "query the state of the devices",
    "read the clock",
    "list the checkpoints",
    "look at what the job needs",
    "look at the devices",
}
"""Purposes of the commands that watch a job."""
_SAMPLE_S = 30.0
_KEYS: tuple[Callable[[NpuUse], int], ...] = (
    lambda use: use.utilization_percent or 0,
    lambda use: use.temperature_c or 0,
    lambda use: use.memory_used_mb,
)
_MOST_FIGURES = 4
"""More nodes that differ are one row of figures."""
_LONGEST_WORDS = 1000
_MOST_QUERIED = 8
"""Number of newest unfinished jobs to query."""
_MOST_NAMED = 3


class KnownJob(Value):
    """A job that was started from this folder."""

    record: JobRecord
    folder: Path
    """The folder of its run, with plan, logs and, when it is over, its report."""

    @property
    def final(self) -> JobReport | None:
        """The final report; None while the job is not over."""
        return final_report(self.folder)


class FoundJob(Value):
    """The job of a verb, its state, and the connections to its nodes."""

    session: Session
    job: KnownJob
    status: JobStatus
    transports: Mapping[str, Transport]
    looks: Mapping[str, JobProbe | NodeError]
    """The answer of each node."""

    @property
    def errors(self) -> dict[str, NodeError]:
        """By node of the job that could not be queried."""
        return {name: look for name, look in self.looks.items() if isinstance(look, NodeError)}

    @property
    def supervised(self) -> Supervision | None:
        """The supervised job of which it is a generation, if it is one."""
        return supervision(self.job.folder.parent)

    @property
    def goes_on(self) -> bool:
        """Whether it or a later generation runs, as far as can be seen without a lost primary."""
        whole, state = self.supervised, self.status.report.state
        if whole is not None and (whole.core.end or whole.is_followed):
            return whole.core.end is None
        is_unseen = state is JobState.LOST and self.job.record.primary in self.errors
        return state is JobState.RUNNING or is_unseen


def final_report(folder: Path) -> JobReport | None:
    """Read the final report of a job, if there is one; AscendbootError if it is no such file."""
    path = folder / REPORT_FILE
    try:
        return JobReport.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        words = f"{path}: could not be read: {error.strerror}; make it readable, then repeat"
        raise AscendbootError(words) from error
    except (KeyError, TypeError, ValueError) as error:
        raise AscendbootError(
            f"{path}: could not be read ({error!r}); move it away; logs writes it again"
        ) from error


def find_job(session: Session, job_id: str | None, *, details: bool = False) -> FoundJob:
    """Find the job with this id, the running one or the last one; UsageError if there is none."""
    jobs = known_jobs(session.state, session.cluster, job_id)
    found = look_at_jobs(session, jobs, details=details)
    return next((f for f in found if f.status.report.state is JobState.RUNNING), found[0])


def look_at_jobs(
    session: Session, jobs: Sequence[KnownJob], *, details: bool = False
) -> list[FoundJob]:
    """Query the nodes of some jobs, with one execution per node."""
    wanted = {node for job in jobs for node in job.record.nodes}
    nodes = [node for node in session.cluster.nodes if node.name in wanted]
    transports, errors = session.connect_to_look(nodes)
    ids = [job.record.job_id for job in jobs]
    jobs_folder = jobs[0].record.job_folder.parent
    answers = probe_jobs(transports, jobs_folder, ids, details=details, forks=session.forks)
    return [found_by(job, session, transports, {**errors, **answers}) for job in jobs]


def npus_of(session: Session, nodes: Iterable[str]) -> dict[str, Mapping[int, NpuUse] | str]:
    """Query the NPUs of these nodes; by node their use, or why it is not known."""
    connected = dict(session.hosts)  # a node that returns changes it meanwhile
    hosts = {name: ReadOnly(connected[name]) for name in nodes if name in connected}
    answers = npu_uses(hosts, forks=session.forks)
    return {n: a.value if isinstance(a, Answered) else a.message for n, a in answers.items()}


def looked_again(found: FoundJob, *, details: bool = False) -> FoundJob:
    """Query the nodes of a job once more, over the same connections."""
    record, session, sides = found.job.record, found.session, found.transports
    folder, ids, forks = record.job_folder.parent, [record.job_id], session.forks
    answers = probe_jobs(sides, folder, ids, details=details, forks=forks)
    return found_by(found.job, session, sides, {**found.errors, **answers})


def next_generation(found: FoundJob) -> FoundJob | None:
    """Return the newest generation of a supervised job, once it has started; None: this is it."""
    session, whole = found.session, found.supervised
    if whole is None or whole.is_starting:
        return None
    folder = found.job.folder.with_name(f"g{whole.core.generation}")
    record = read_record(folder) if folder != found.job.folder else None
    if record is None:
        return None
    connected = dict(session.transports)  # a node that returns changes it meanwhile
    sides = {n: ReadOnly(t) for n, t in connected.items() if n in record.nodes}
    unknown = {n: UnreachableError(n, "is not connected yet") for n in record.nodes}
    newer = replace(found, job=KnownJob(record, folder), transports=sides, looks=unknown)
    return looked_again(newer, details=True)


def with_npus(found: FoundJob) -> FoundJob:
    """Return the job with the use of the NPUs of its running ranks."""
    alive = [node.node for node in found.status.nodes if node.alive]
    return replace(found, status=found.status.with_npus(npus_of(found.session, alive)))


class Figures:
    """What a followed job does: its lines are counted, and its NPUs are sampled seldom."""

    def __init__(self, session: Session, devices: Mapping[str, Collection[int]]) -> None:
        self._session, self._devices = session, devices
        self._lines, self._began = 0, time.monotonic()
        self._extremes: dict[str, list[NpuUse]] = {}

    def count(self, block: bytes) -> None:
        """Count the lines of a block."""
        self._lines += block.count(b"\n")

    @contextmanager
    def sampled(self, tell: Callable[[str], None], every_s: float = _SAMPLE_S) -> Iterator[None]:
        """Query the NPUs now and then; `tell` gets the figures after 30 s, 1, 2, 4, … minutes."""
        over = threading.Event()
        self._session.unkept |= REPEATED  # to the end: a supervised job may wait for nodes

        def sample() -> None:
            tell_at = every_s
            while not over.wait(every_s):
                uses = self._uses()
                for node, more in uses.items():
                    found = [*self._extremes.get(node, ()), *more]
                    ends = [f(found, key=key) for key in _KEYS for f in (min, max)]
                    self._extremes = {**self._extremes, node: ends}
                if (after_s := time.monotonic() - self._began) >= tell_at and not over.is_set():
                    tell(f"after {span(after_s)}: {self._words(uses)}")
                    tell_at *= 2

        threading.Thread(target=sample, name="figures", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def noted(self, report: JobReport) -> JobReport:
        """Note the least and the most of all samples in a report."""
        if not self._extremes:
            return report
        words = f"while it ran: {self._words(self._extremes)}"
        return replace(report, notes=(*report.notes, words))

    def _uses(self) -> dict[str, list[NpuUse]]:
        hosts = dict(self._session.hosts)
        nodes = [n for n in self._devices if n in hosts and not hosts[n].has_one_session]
        answers = npus_of(self._session, nodes).items()
        uses = {node: answer for node, answer in answers if not isinstance(answer, str)}
        found = {n: [use[i] for i in self._devices[n] if i in use] for n, use in uses.items()}
        return {node: use for node, use in found.items() if use}

    def _words(self, uses: Mapping[str, list[NpuUse]]) -> str:
        """The lines per second, and what the NPUs of each node do; of many nodes the extremes."""
        pace = pace_words(self._lines / max(1.0, time.monotonic() - self._began))
        alike: dict[str, list[str]] = {}
        for node, use in uses.items():
            alike.setdefault(", ".join(filter(None, use_words(use))), []).append(node)
        parts = [f"{fold(nodes)} {words}" for words, nodes in alike.items()]
        if len(parts) > _MOST_FIGURES:
            every = use_words([use for of_node in uses.values() for use in of_node])
            parts = [f"{counted(len(uses), 'node')} {', '.join(filter(None, every))}"]
            told = [(u.utilization_percent, node) for node, use in uses.items() for u in use]
            busy = [(percent, node) for percent, node in told if percent is not None]
            parts += [f"the least on {min(busy)[1]}"] if busy else []
        return "; ".join([*parts, pace])


def supervised_run(state: State, job_id: str = "") -> Run:
    """Return the run of a supervised job, by its id or that of a generation.

    Without an id it is the last one that `train` supervises now, or else the last one; UsageError
    if there is none.
    """
    paths = sorted(state.runs.glob(f"*/{SUPERVISE_FOLDER}/state.json"), reverse=True)
    found = [path.parts[-3] for path in paths]
    folder = record_folder(state.runs, job_id) if job_id else None
    run_id = folder.relative_to(state.runs).parts[0] if folder else job_id
    if not run_id and found:
        run_id = next((p.parts[-3] for p in paths if Store(p.parent).is_supervised), found[0])
    if run_id not in found:
        named = f'supervised job "{job_id}"' if job_id else "supervised job"
        words = f"the last one is {found[0]}" if found else "start one with train --supervise"
        raise UsageError(f"no {named} was started from here; {words}")
    return Run(run_id, state.runs / run_id)


def recorded(*takers: OnEvent, secrets: Sequence[str] = ()) -> OnEvent:
    """Pass events on with the time of day, and with words on one line and without secrets."""

    def record(event: Mapping[str, object]) -> None:
        shown = "".join(c if c.isprintable() else " " for c in str(event["words"]))
        time = now().isoformat(timespec="milliseconds")
        stamped = {"time": time, **event, "words": shown[:_LONGEST_WORDS]}
        for take in takers:
            take(masked_json(stamped, secrets))

    return record


def supervision(folder: Path) -> Supervision | None:
    """Return what the folder of a run has of a supervised job, if any; AscendbootError if bad."""
    store = Store(folder / SUPERVISE_FOLDER)
    state = store.read_state()
    if state is None:
        return None
    reports = {int(g.name[1:]): final_report(g) for g in folder.glob("g[0-9]*")}
    return Supervision(
        job_id=folder.name,
        core=Core.from_json(state),
        events=tuple(store.read_events()),
        exit_codes={number: report.exit_code for number, report in reports.items() if report},
        is_followed=store.is_supervised,
    )


def last_generation(run: Path) -> Path:
    """Return the folder of the last generation in that of a supervised job, or `run` if none."""
    started = [path for path in record_folders(run.parent) if path.parent == run]
    return max(started, key=lambda path: int(path.name[1:]), default=run)


@contextmanager
def folder_held(folder: Path) -> Iterator[bool]:
    """Lock the folder of a run for writing; False if another process holds the lock."""
    with held(folder / "lock", "") as other:
        yield other is None


def now() -> datetime:
    """Return the time of the control machine."""
    return datetime.now(timezone.utc)


def known_jobs(state: State, cluster: Cluster, job_id: str | None) -> list[KnownJob]:
    """Return the job with this id, or those that may be meant without one, newest first.

    These are unfinished jobs and the last finished one, also preflights that were not followed to
    their end, and generations of supervised jobs; UsageError if there is none.
    """
    if job_id is not None:
        return [_job_called(state, cluster, job_id, record_folders(state.runs))]
    last: list[KnownJob] = []
    unfinished: list[KnownJob] = []
    left_out = partial(Screen(json_mode=True).say, style="yellow")
    for job in all_jobs(state, cluster, lambda _, error: left_out(f"not looked at: {error}")):
        if len(unfinished) == _MOST_QUERIED:
            break
        final = job.final
        if final is None:
            unfinished.append(job)
        elif not last and final.state is not JobState.NOT_STARTED:
            last = [job]
    if not (unfinished or last):
        raise UsageError(f"{cluster.name}: no job was started from here; start one with train")
    return sorted([*unfinished, *last], key=lambda job: job.record.started, reverse=True)


def all_jobs(
    state: State, cluster: Cluster, damaged: Callable[[Path, AscendbootError], None]
) -> Iterator[KnownJob]:
    """Yield all jobs, preflights and generations of the cluster, the newest first.

    Those whose files cannot be read go to `damaged`, with their folder and the reason.
    """
    for folder in record_folders(state.runs):
        try:
            final_report(folder)
            record = read_record(folder)
        except AscendbootError as error:
            damaged(folder, error)
            continue
        if record is not None and record.cluster == cluster.name:
            yield KnownJob(record, folder)


def _job_called(state: State, cluster: Cluster, job_id: str, folders: Sequence[Path]) -> KnownJob:
    folder = record_folder(state.runs, job_id)
    if folder is not None and (folder / SUPERVISE_FOLDER).is_dir():
        folder = last_generation(folder)
    record = None if folder is None else read_record(folder)
    if folder is None or record is None:
        runs = dict.fromkeys(f if f.parent == state.runs else f.parent for f in folders)
        alone = {*folders}
        known = [r.name for r in runs if r in alone or (r / SUPERVISE_FOLDER).is_dir()]
        more = f" and {len(known) - _MOST_NAMED} before" if len(known) > _MOST_NAMED else ""
        others = f"; the last were {', '.join(known[:_MOST_NAMED])}{more}" if known else ""
        raise UsageError(f'{cluster.name}: no job "{job_id}" was started from here{others}')
    if record.cluster != cluster.name:
        raise UsageError(
            f"job {job_id} is of the cluster {record.cluster}, not of {cluster.name}; "
            "name its inventory with --inventory"
        )
    return KnownJob(record, folder)


def found_by(
    job: KnownJob,
    session: Session,
    transports: Mapping[str, Transport],
    answers: Mapping[str, NodeError | dict[str, JobProbe]],
) -> FoundJob:
    """Return the job with the state that these answers of its nodes mean."""
    record = job.record
    known = {node.name for node in session.cluster.nodes}
    looks: dict[str, JobProbe | NodeError] = {}
    for node in record.nodes:
        answer = answers.get(node)
        if answer is None or node not in known:
            looks[node] = UnreachableError(node, f"is not in {session.cluster.source} any more")
        else:
            looks[node] = answer if isinstance(answer, NodeError) else answer[record.job_id]
    status = status_of(record, looks, folder=job.folder, final=job.final, now=now())
    of_job = replace(status, report=replace(status.report, folder=str(job.folder)))
    of_nodes = {name: t for name, t in transports.items() if name in record.nodes}
    return FoundJob(session, job, of_job.without(session.run.secrets), of_nodes, looks)


def status_with_cause(found: FoundJob) -> JobStatus:
    """Return the state of the job, with the cause from the ends of its logs.

    Queries the nodes only if the cause is unknown; without an answer the status stays as it is.
    """
    state = found.status.report.state
    failed = state in (JobState.FAILED, JobState.NOT_STARTED) and found.status.is_over
    if found.job.final is not None or not failed:
        return found.status
    record, folder = found.job.record, found.job.folder
    with TemporaryDirectory(prefix="ascendboot-") as place:
        if fetch_tails(record, found.transports, Path(place), forks=found.session.forks):
            return found.status
        again = status_of(record, found.looks, folder=Path(place), final=None, now=now())
    failure = again.report.first_failure
    if failure is not None:
        failure = replace(failure, log=str(folder / rank_log(failure.rank)))
    report = replace(again.report, folder=str(folder), first_failure=failure)
    return replace(again, report=report).without(found.session.run.secrets)


def keep_success(found: FoundJob) -> None:
    """Write the report of a job that has succeeded, where the control folder can be written."""
    if found.status.is_over and found.status.report.state is JobState.SUCCEEDED:
        with suppress(OSError):
            keep_report(found)


def keep_report(found: FoundJob) -> None:
    """Write the job's report before `reset` or the loss of a node makes the job a lost one.

    Writes nothing if a node did not answer, if there is a report, or if another process follows
    the job and will write it.
    """
    with folder_held(found.job.folder) as may_write:
        if not may_write or found.job.final is not None:
            return
        again = looked_again(found)
        status = status_with_cause(again)
        is_known = status.report.state not in (JobState.NOT_STARTED, JobState.LOST)
        if status.is_over and is_known and not again.errors:
            Run(found.job.record.job_id, found.job.folder).write_json(
                REPORT_FILE, status.report.to_json()
            )
