"""`stop`: end a job on all nodes."""

from __future__ import annotations

from ascendboot.cli.common import seconds
from ascendboot.cli.known_jobs import JOB_HELP, find_job, keep_report
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import NodeError, UnreachableError
from ascendboot.jobs.stop import Terminated, stop_job
from ascendboot.model.job import JobState
from ascendboot.value import as_json


@cluster_verb(
    stopped="Stopped: processes of the job may still run: status shows them, stop again ends them.",
    help={
        "job": JOB_HELP,
        "grace": "Seconds between SIGTERM and SIGKILL. Default: the value of train, which "
        "cannot be extended while the launcher runs",
    },
)
def stop(call: Call, *, job: str | None = None, grace: str | None = None) -> None:
    """End one job on all nodes, and check that none of its processes are left.

    Requests the end from the launcher. Remaining processes get SIGTERM, and
    SIGKILL after the grace period.

    Examples:
      invoke stop  the running job
      invoke stop --grace 30 --job 20260102-030405-train-ab12

    Exit codes: 0 no process is left, also if the job was over, 1 processes are
    left, 2 no such job, 4 a node is unreachable.
    """
    grace_s = None if grace is None else seconds("stop: --grace", grace)
    screen, notes = call.screen, []
    with call.session("stop", call.cluster(), reads=True) as session:
        found = find_job(session, job)
        record, state = found.job.record, found.status.report.state
        before = {node.node: node.processes for node in found.status.nodes}
        running = ", ".join(
            f"{count} processes on {node}" for node, count in before.items() if count
        )
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
        answers = stop_job(sides, record, grace_s=grace_s, forks=call.forks)
        try:
            keep_report(found)
        except OSError as error:  # does not change the result of `stop`
            screen.error(f"could not keep the report: {error.strerror or error}")
    answers |= found.errors
    nodes = {node: _ended(screen, node, answers[node], before[node]) for node in record.nodes}
    code = max(code for code, _ in nodes.values())
    document = {
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
    session.run.write_json("report.json", document)
    call.end(code, document)


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
