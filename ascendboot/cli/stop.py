"""`stop`: end a job on all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.cli.common import end, seconds
from ascendboot.cli.known_jobs import JOB_HELP, FoundJob, connected, find_job, keep_report
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.errors import NodeError, UnreachableError
from ascendboot.jobs.stop import Survivor, Terminated, stop_job
from ascendboot.model.job import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.cli.session import Session
    from ascendboot.console.screen import Screen

LEFT = 1


@cluster_verb(
    help={
        "job": JOB_HELP,
        "grace": "Seconds between SIGTERM and SIGKILL. Default: the value of train, which "
        "cannot be extended while the launcher runs",
    },
)
def stop(
    call: Call,
    *,
    job: str | None = None,
    grace: str | None = None,
) -> None:
    """End one job on all nodes, and check that none of its processes are left.

    Requests the end from the launcher. Remaining processes get SIGTERM, and SIGKILL after the grace
    period.

    Examples:
      invoke stop                             the running job
      invoke stop --grace 30 --job 20260102-030405-train-ab12

    Exit codes: 0 no process is left, also if the job was over, 1 processes are left, 2 no such job,
    4 a node is unreachable.
    """
    grace_s = None if grace is None else seconds("stop: --grace", grace)
    screen = call.screen
    with call.session("stop", call.cluster()) as session:
        found = find_job(session, job)
        record = found.job.record
        before = {node.node: node.processes for node in found.status.nodes}
        screen.say(f"job {record.job_id}: {_words_before(before)}")
        notes = _less_than_asked(found, grace_s or 0.0)
        for note in notes:
            screen.say(note, "yellow")
        swept = stop_job(
            connected(session, found),
            record.job_folder,
            primary=record.primary,
            grace_s=record.grace_s if grace_s is None else grace_s,
            forks=call.forks,
        )
        _keep_report(session, found, screen)
    answers = {**swept, **found.errors}
    code = _exit_code(answers)
    document = {**_document(found, before, answers, code), "notes": notes}
    session.run.write_json("report.json", document)
    _show(screen, record.nodes, before, answers)
    end(screen, code, document if call.json else None)


def _keep_report(session: Session, found: FoundJob, screen: Screen) -> None:
    """Keep the job's report; a failure does not change the result of `stop`."""
    try:
        keep_report(session, found)
    except OSError as error:
        screen.error(f"could not keep the report: {error.strerror or error}")


def _less_than_asked(found: FoundJob, grace_s: float) -> list[str]:
    """Note that ranks get less grace than requested: a running launcher has it from its start."""
    job, told_s = found.job.record.job_id, found.job.record.grace_s
    if grace_s <= told_s or found.status.report.state is not JobState.RUNNING:
        return []
    words = (
        f"job {job}: its ranks get {told_s:g} s between SIGTERM and SIGKILL, not {grace_s:g}: the "
        f"grace period is fixed at start; for more, start the job with train --grace {grace_s:g}"
    )
    return [words]


def _words_before(before: Mapping[str, int]) -> str:
    if not any(before.values()):
        return "no running processes found; checking again"
    return "stopping " + ", ".join(f"{n} processes on {node}" for node, n in before.items() if n)


def _exit_code(answers: Mapping[str, Terminated | NodeError]) -> int:
    if any(isinstance(answer, NodeError) for answer in answers.values()):
        return UnreachableError.exit_code
    return LEFT if any(not isinstance(a, NodeError) and a.left for a in answers.values()) else 0


def _show(
    screen: Screen,
    nodes: tuple[str, ...],
    before: Mapping[str, int],
    answers: Mapping[str, Terminated | NodeError],
) -> None:
    for node in nodes:
        answer = answers[node]
        if isinstance(answer, NodeError):
            screen.error(f"{answer}; could not check for remaining processes")
            continue
        for left in answer.left:
            screen.error(f"{node}: process {left.pid} could not be ended: {left.command}")
        if not answer.left:
            count = max(before[node], len(answer.ended))
            ended = f"{count} processes ended, {len(answer.ended)} of them by stop; "
            screen.say(f"  {node}  {ended if count else ''}nothing is left")


def _document(
    found: FoundJob,
    before: Mapping[str, int],
    answers: Mapping[str, Terminated | NodeError],
    code: int,
) -> dict[str, object]:
    nodes = []
    for node in found.job.record.nodes:
        answer = answers[node]
        failed = isinstance(answer, NodeError)
        nodes.append(
            {
                "node": node,
                "processes_before": None if node in found.errors else before[node],
                "ended": [] if isinstance(answer, NodeError) else _listed(answer.ended),
                "left": [] if isinstance(answer, NodeError) else _listed(answer.left),
                "problem": str(answer) if failed else "",
            }
        )
    return {
        "job_id": found.job.record.job_id,
        "cluster": found.job.record.cluster,
        "state_before": found.status.report.state.value,
        "exit_code": code,
        "nodes": nodes,
    }


def _listed(processes: tuple[Survivor, ...]) -> list[dict[str, object]]:
    return [{"pid": process.pid, "command": process.command} for process in processes]
