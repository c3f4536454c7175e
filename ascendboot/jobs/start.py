"""Starts a job on its nodes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain

from ascendboot.errors import LaunchError, NodeError
from ascendboot.jobs.stop import terminate_processes
from ascendboot.launch.plan import LaunchPlan
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Transport, write_files, write_script
from ascendboot.transport.pool import on_each

_START = 'setsid bash "$1/launch.sh" </dev/null >/dev/null 2>&1 &'
"""Starts `launch.sh` so that it outlives the connection; `$1` is the job's folder."""


def not_started_anywhere(job_id: str) -> str:
    """The last line of the message about a job that was not started."""
    return f"job {job_id}: not started on any node"


def prepare(plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int) -> None:
    """Make the job's folder on every node; one execution per node.

    Raises:
        LaunchError: a node cannot take part; no node has a folder of the job.
    """
    purpose = f"prepare job {plan.job_id}"

    def reasons_of(node: str) -> list[str]:
        """Return why the node cannot take part; empty when it can."""
        write = write_files(plan.files_on(node), purpose=purpose)
        words = (
            plan.request.base,
            plan.job_folder,
            plan.mpirun or "",
            plan.request.python,
            "" if plan.request.script_content is not None else plan.script["path"] or "",
            plan.workdir,
            plan.request.rank_table or "",
            plan.request.rank_table_sha256,
            plan.request.meeting_point if node == plan.primary else "",
            "alone" if plan.request.alone else "",
            shlex.join(write.argv),
            *plan.logs_on(node),
        )
        command = write_script(
            script("jobs-prepare.sh"),
            *map(str, words),
            purpose=purpose,
            timeout_s=write.timeout_s,
            stdin=write.stdin,
        )
        made = transports[node].run(command)
        if made.as_expected:
            return []
        lines = made.lines or made.error_text.splitlines()[-1:] or [made.outcome()]
        return [f"{node}: could not {purpose}: {reason}" for reason in lines]

    found = on_each(plan.nodes, reasons_of, forks=forks)
    reasons = [[str(made)] if isinstance(made, NodeError) else made for made in found.values()]
    if any(reasons):
        ready = [node for node, made in found.items() if made == []]
        discard(plan, {node: transports[node] for node in ready}, forks=forks)
        raise LaunchError(*chain(*reasons), not_started_anywhere(plan.job_id))


def discard(plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int) -> None:
    """Remove the folder of a job that was not started from these nodes."""
    command = Command(
        argv=("rm", "-rf", "--", str(plan.job_folder)),
        purpose=f"remove the folder of job {plan.job_id}",
        effect=Effect.WRITE,
    )
    on_each(transports, lambda node: transports[node].run(command), forks=forks)


def start(plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int) -> None:
    """Start the launcher or agents, detached; after a NodeError others may have started."""
    command = write_script(_START, str(plan.job_folder), purpose=f"start job {plan.job_id}")
    nodes = [start.node for start in plan.starts]
    began = on_each(nodes, lambda node: transports[node].run(command).checked(), forks=forks)
    for started in began.values():
        if isinstance(started, NodeError):
            raise started


def start_detached(plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int) -> None:
    """Start the job in the background."""
    prepare(plan, transports, forks=forks)
    try:
        start(plan, transports, forks=forks)
    except NodeError as error:
        unsure = undo_start(plan, transports, forks=forks)
        raise LaunchError(str(error), *unsure, not_started_anywhere(plan.job_id)) from error


def undo_start(
    plan: LaunchPlan, transports: Mapping[str, Transport], *, forks: int
) -> tuple[str, ...]:
    """Undo the preparation, and a start whose answer was lost; say which nodes were not checked."""
    terminate_processes(transports, plan.job_folder, linger_s=0.0, grace_s=0.0, forks=forks)
    # Without the folder a start in progress fails; an earlier one is found now.
    discard(plan, transports, forks=forks)
    found = terminate_processes(transports, plan.job_folder, linger_s=0.0, grace_s=0.0, forks=forks)
    return tuple(not_checked(f) for f in found.values() if isinstance(f, NodeError))


def not_checked(error: NodeError) -> str:
    """The message about a node that could not be checked."""
    return f"{error}; could not check for remaining processes"
