"""The status of a job from the answers of its nodes; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from ascendboot.errors import NodeError
from ascendboot.jobs.job_report import report_on
from ascendboot.jobs.loss import LossWatch
from ascendboot.jobs.probe import JobProbe, RankLoad
from ascendboot.jobs.progress import OF_A_LOST_LAUNCHER, Progress
from ascendboot.launch.plan import JobRecord
from ascendboot.model.job import JobReport, JobState, NpuUse
from ascendboot.model.secrets import masked
from ascendboot.value import Value, as_json, field, replace


class NodeStatus(Value, kw_only=True):
    """One node's part of a job."""

    node: str
    ranks: tuple[int, ...]
    alive: tuple[int, ...] = ()
    processes: int = 0
    launcher_alive: bool | None = None
    """Whether the launcher or its agent runs on this node; None on nodes without one."""
    last_lines: Mapping[int, str] = field(default_factory=dict)
    silent_s: Mapping[int, float] = field(default_factory=dict)
    lines_per_s: Mapping[int, float] = field(default_factory=dict)
    loads: Mapping[int, RankLoad] = field(default_factory=dict)
    npus: Mapping[int, NpuUse] = field(default_factory=dict)
    """By device of the job, where npu-smi was queried and answered."""
    npu_problem: str = ""
    """Why the use of its NPUs is not known."""
    problem: str = ""
    """Why it could not be reached; then nothing else is known."""

    def to_json(self) -> dict[str, object]:
        """This node as documented in the reference of `status --json`."""
        document = as_json(self)
        alive = document.pop("alive")
        if self.problem:
            alive = document["processes"] = None
        return {**document, "ranks_alive": alive}


class JobStatus(Value, kw_only=True):
    """The status of a job: the report so far, and each node's part."""

    report: JobReport
    nodes: tuple[NodeStatus, ...]

    def with_npus(self, uses: Mapping[str, Mapping[int, NpuUse] | str]) -> JobStatus:
        """A copy with the use of the job's NPUs where ranks run, or why it is not known."""
        nodes = []
        for node in self.nodes:
            use = uses.get(node.node, {}) if node.alive else {}
            if isinstance(use, str):
                nodes.append(replace(node, npu_problem=use))
            else:
                ids = {self.report.ranks[rank].device for rank in node.ranks} & use.keys()
                nodes.append(replace(node, npus={id_: use[id_] for id_ in sorted(ids)}))
        return replace(self, nodes=tuple(nodes))

    @property
    def is_over(self) -> bool:
        """Whether its launcher has ended and no process of it is left."""
        return self.report.state is not JobState.RUNNING and not any(
            node.processes for node in self.nodes
        )

    def without(self, secrets: Sequence[str]) -> JobStatus:
        """A copy with these secrets masked."""
        nodes = tuple(
            replace(node, last_lines={n: masked(t, secrets) for n, t in node.last_lines.items()})
            for node in self.nodes
        )
        return JobStatus(report=self.report.without(secrets), nodes=nodes)

    def to_json(self) -> dict[str, object]:
        """As documented in the reference of `status --json`: a JobReport with `nodes`."""
        return {**self.report.to_json(), "nodes": [node.to_json() for node in self.nodes]}


def status_of(
    job: JobRecord,
    probes: Mapping[str, JobProbe | NodeError],
    *,
    folder: Path,
    final: JobReport | None,
    now: datetime,
) -> JobStatus:
    """The status of a job; `final` is the report that was written at its end, if any."""
    nodes = tuple(_node_status(job, node, probes[node]) for node in job.nodes)
    left = tuple(
        f"{node.node}: {node.processes} processes of the job are left; stop ends them"
        for node in nodes
        if node.processes
    )
    primary = probes[job.primary]
    launcher_alive = not isinstance(primary, NodeError) and primary.launcher_alive
    if final is not None and not launcher_alive:
        return JobStatus(report=replace(final, notes=(*final.notes, *left)), nodes=nodes)
    progress = _progress_of(probes)
    for node, probe in probes.items():
        for rank, line in () if isinstance(probe, NodeError) else sorted(probe.losses.items()):
            watch = LossWatch(rank, node, job.loss_form, is_first=False)
            progress.losses += tuple(watch.look(line.encode(errors="replace")))
    report = report_of(job, progress, folder, now)
    state, message = _state(progress, report, primary, nodes)
    report = replace(report, state=state, message=message)
    if state is JobState.RUNNING:
        report = replace(report, exit_code=None)
    else:
        report = replace(report, notes=(*report.notes, *left))
    return JobStatus(report=report, nodes=nodes)


def _progress_of(probes: Mapping[str, JobProbe | NodeError]) -> Progress:
    progress = Progress()
    for probe in probes.values():
        for event in () if isinstance(probe, NodeError) else probe.events:
            progress.note(event)
    return progress


def why_not_followed(job: JobRecord, probes: Mapping[str, JobProbe | NodeError]) -> str:
    """Return why a job that was started before cannot be followed to its end; empty if it can.

    All of it must run: its launcher, its agents, and each rank that has not ended with exit code
    0. Or its launcher has ended: with exit code 0, or with another one and all nodes answer.
    """
    progress = _progress_of(probes)
    if progress.launcher_over and progress.launcher_code == 0:
        return ""
    for node, probe in probes.items():
        if isinstance(probe, NodeError):
            return str(probe)
        if progress.launcher_code is not None:
            continue
        ends = {rank.rank: progress.ended.get(rank.rank) for rank in job.ranks_on(node)}
        for rank, end in ends.items():
            if end is not None and end.exit_code:
                return f"{node}: rank {rank} has ended with exit code {end.exit_code}"
            if end is None and rank not in probe.ranks_alive:
                how = "is gone" if rank in progress.started else "had not begun"
                return f"{node}: rank {rank} {how}"
        needs_launcher = node == job.primary or (node in job.started_on and None in ends.values())
        if needs_launcher and not probe.launcher_alive:
            return f"{node}: its launcher is gone"
    return ""


def report_of(job: JobRecord, progress: Progress, folder: Path, now: datetime) -> JobReport:
    """The report of a job that was started before; `now` counts if its end is not known."""
    at = progress.launcher_ended_at
    if at is None:
        at = max((end.at for end in progress.ended.values()), default=None)
    ended = now.timestamp()
    if at is not None and progress.launcher_over:
        ended = job.clocks.here(job.primary, at)
    return report_on(
        job,
        progress,
        folder=folder,
        started=job.started,
        duration_s=max(0.0, ended - datetime.fromisoformat(job.started).timestamp()),
        clocks=job.clocks,
    )


def _state(
    progress: Progress,
    report: JobReport,
    primary: JobProbe | NodeError,
    nodes: tuple[NodeStatus, ...],
) -> tuple[JobState, str]:
    if isinstance(primary, NodeError):
        alive = any(node.alive for node in nodes)
        what = "but ranks on other nodes run" if alive else "and no rank runs on other nodes"
        words = f"{primary.node}, from which it was started, cannot be reached, {what}"
        return JobState.RUNNING if alive else JobState.LOST, words
    if primary.launcher_alive:
        return JobState.RUNNING, ""
    if not primary.has_folder:
        return JobState.LOST, "its folder is not on the primary (any more)"
    if not primary.events:
        return JobState.NOT_STARTED, "it was prepared and not started"
    failure, cause = report.first_failure, report.cause
    has_ended = progress.launcher_code is not None or progress.stopped
    # Without the launcher's code it failed only if a rank did, and not by a signal after it.
    is_unsure = failure is None and cause is not None and bool(cause.unsure)
    failed_before = failure is not None and failure.signal not in OF_A_LOST_LAUNCHER
    if has_ended or is_unsure or failed_before:
        return report.state, report.message
    return JobState.LOST, "the launcher is gone and its exit code is unknown"


def _node_status(job: JobRecord, node: str, probe: JobProbe | NodeError) -> NodeStatus:
    ranks = tuple(rank.rank for rank in job.ranks_on(node))
    if isinstance(probe, NodeError):
        return NodeStatus(node=node, ranks=ranks, problem=probe.message)
    return NodeStatus(
        node=node,
        ranks=ranks,
        alive=tuple(rank for rank in ranks if rank in probe.ranks_alive),
        processes=len(probe.pids),
        launcher_alive=probe.launcher_alive if node in job.started_on else None,
        last_lines=dict(sorted(probe.last_lines.items())),
        silent_s=dict(sorted(probe.silent_s.items())),
        lines_per_s=dict(sorted(probe.lines_per_s.items())),
        loads=dict(sorted(probe.loads.items())),
    )
