"""`stop`: end a job on all nodes."""

from __future__ import annotations

from contextlib import suppress

from ascendboot.cli import known_jobs
from ascendboot.cli.common import seconds
from ascendboot.cli.known_jobs import FoundJob, find_job, last_generation
from ascendboot.cli.operate import Ask
from ascendboot.cli.session import Session
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import NodeError, UnreachableError, UsageError
from ascendboot.jobs.stop import Terminated, stop_job
from ascendboot.model.job import JobState
from ascendboot.supervise.history import Supervision
from ascendboot.supervise.store import Store
from ascendboot.value import as_json


@cluster_verb(
    stopped="Stopped: processes of the job may still run: status shows them, stop again ends them.",
    help={
        "job": known_jobs.JOB_HELP,
        "grace": "Seconds between SIGTERM and SIGKILL. Default: the value of train, which "
        "cannot be extended while the launcher runs",
    },
)
def stop(call: Call, *, job: str | None = None, grace: str | None = None) -> None:
    """End one job on all nodes, and check that none of its processes are left.

    Requests the end from the launcher. Remaining processes get SIGTERM, and
    SIGKILL after the grace period. Of a supervised job no further generation
    is started.

    Examples:
      invoke stop  the running job
      invoke stop --grace 30 --job 20260102-030405-train-ab12

    Exit codes: 0 no process is left, also if the job was over, 1 processes are
    left, or the train of a supervised job did not answer, 2 no such job, 4 a
    node is unreachable.
    """
    grace_s = None if grace is None else seconds("stop: --grace", grace)
    with call.session("stop", call.cluster(), reads=True) as session:
        found, whole = _meant(session, job)
        code, document = _stopped(found, grace_s) if found else (0, dict[str, object]())
        if whole is not None and whole.core.end is None:
            run = session.state.runs / whole.job_id
            words = Ask(Store(run / known_jobs.SUPERVISE_FOLDER), whole.job_id, call.screen).end()
            call.screen.say(f"job {whole.job_id}: {words}")
            if last_generation(run) not in (run, found and found.job.folder):
                # It was being started when `stop` was called.
                before, (code, document) = code, _stopped(find_job(session, run.name), grace_s)
                code = max(code, before)
            unstarted = {"state_before": JobState.NOT_STARTED.value, "exit_code": 0, "nodes": []}
            names = {"job_id": run.name, "cluster": session.cluster.name}
            document = {**names, **unstarted, "notes": [], **document}
    document["exit_code"] = code
    session.run.write_json("report.json", document)
    call.end(code, document)


def _meant(session: Session, job: str | None) -> tuple[FoundJob | None, Supervision | None]:
    """Return the job to end, and the supervised job of which it is a generation.

    Without an id, a supervised job between two generations comes before jobs that are over. Before
    its first generation there is only the supervised job.
    """
    whole = None
    with suppress(UsageError):  # none is supervised
        whole = known_jobs.supervision(known_jobs.supervised_run(session.state, job or "").folder)
    waits = whole if whole and (job or whole.is_followed) else None
    try:
        found = find_job(session, job)
    except UsageError:
        run = session.state.runs / waits.job_id if waits else None
        if run is None or last_generation(run) != run:
            raise
        return None, waits
    is_over = found.status.report.state is not JobState.RUNNING
    if waits and not job and is_over and found.job.folder.parent.name != waits.job_id:
        return _meant(session, waits.job_id)
    return found, found.supervised


def _stopped(found: FoundJob, grace_s: float | None) -> tuple[int, dict[str, object]]:
    """End a job; return the exit code and the JSON document."""
    session, screen, notes = found.session, found.session.screen, []
    record, state = found.job.record, found.status.report.state
    before = {node.node: node.processes for node in found.status.nodes}
    running = ", ".join(f"{count} processes on {node}" for node, count in before.items() if count)
    words = f"stopping {running}" if running else "no running processes found; checking again"
    screen.say(f"job {record.job_id}: {words}")
    if grace_s is not None and grace_s > record.grace_s and state is JobState.RUNNING:
        note = (
            f"job {record.job_id}: its ranks get {record.grace_s:g} s between SIGTERM and "
            f"SIGKILL, not {grace_s:g}: the grace period is fixed at start; for more, start "
            f"the job with train --grace {grace_s:g}"
        )
        notes.append(note)
        screen.say(note, "yellow")
    sides = {name: session.transports[name] for name in found.transports}
    answers = stop_job(sides, record, grace_s=grace_s, forks=session.forks)
    try:
        known_jobs.keep_report(found)
    except OSError as error:  # does not change the result of `stop`
        screen.error(f"could not keep the report: {error.strerror or error}")
    answers |= found.errors
    nodes = {node: _ended(screen, node, answers[node], before[node]) for node in record.nodes}
    code = max(code for code, _ in nodes.values())
    return code, {
        "job_id": record.job_id,
        "cluster": record.cluster,
        "state_before": state.value,
        "exit_code": code,
        "nodes": [
            {"node": n, "processes_before": None if n in found.errors else before[n], **row}
            for n, (_, row) in nodes.items()
        ],
        "notes": notes,
    }


def _ended(
    screen: Screen, node: str, answer: Terminated | NodeError, before: int
) -> tuple[int, dict[str, object]]:
    """Print what became of the processes of a node; return the exit code and a row of the JSON."""
    if isinstance(answer, NodeError):
        screen.error(f"{answer}; could not check for remaining processes")
        return UnreachableError.exit_code, {"ended": [], "left": [], "problem": str(answer)}
    for left in answer.left:
        screen.error(f"{node}: process {left.pid} could not be ended: {left.command}")
    if not answer.left:
        count = max(before, len(answer.ended))
        ended = f"{count} processes ended, {len(answer.ended)} of them by stop; "
        screen.say(f"  {node}  {ended if count else ''}nothing is left")
    row = {"ended": as_json(answer.ended), "left": as_json(answer.left), "problem": ""}
    return (1 if answer.left else 0), row
