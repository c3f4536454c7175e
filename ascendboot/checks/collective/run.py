"""Runs a preflight: the launch request of a job with another program, and findings at its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from ascendboot.checks.collective import findings
from ascendboot.checks.finding import Finding, error, in_order
from ascendboot.errors import NodeError
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.hang import HangRules
from ascendboot.jobs.job_report import not_started_report
from ascendboot.jobs.run import Following
from ascendboot.jobs.start import discard
from ascendboot.launch.launchers import traits_of
from ascendboot.launch.plan import LaunchPlan, LaunchRequest, preflight_id
from ascendboot.launch.planner import plan
from ascendboot.model.job import JobReport, JobState
from ascendboot.templates import script
from ascendboot.transport.api import Transport, read_script
from ascendboot.transport.pool import on_each
from ascendboot.value import Value, replace

MODULES = {"mpi": "mpi4py", "gloo": "torch"}
_GRACE_S = {"mpi": 1.0, "gloo": 3.0}
"""Ranks have nothing to save; torchrun itself takes seconds to end on a busy node."""


class Preflight(Value, kw_only=True):
    """The result of a preflight."""

    findings: tuple[Finding, ...]
    report: JobReport
    ranks: int
    library: str
    """Through which the ranks met; empty if they did not."""

    @property
    def passed(self) -> bool:
        """Whether a job may start."""
        return not any(finding.level == "error" for finding in self.findings)

    @property
    def is_interrupted(self) -> bool:
        """Whether it was interrupted or stopped."""
        return self.report.state in (JobState.INTERRUPTED, JobState.STOPPED)

    @property
    def words(self) -> str:
        """One line for a preflight that passed."""
        return (
            f"{self.ranks} ranks met by {self.library}, agree, and have the right sum, "
            f"after {self.report.duration_s:.1f} s"
        )


def lacks(
    request: LaunchRequest, transports: Mapping[str, Transport], *, forks: int
) -> dict[str, frozenset[str]]:
    """By node: the ways in which its ranks cannot meet any other, because a library is missing.

    A node that did not answer is left out: starting the preflight there reports the reason.
    """
    wanted = {MODULES[way]: way for way in traits_of(request.launcher).collective_ways}
    words = (str(request.base), request.python, "-c", script("lacking-modules.py"), *wanted)
    purpose = "see by what ranks can meet"
    command = read_script(script("collective-python.sh"), *words, purpose=purpose)
    nodes = [node.name for node in request.placement.nodes]
    answers = on_each(nodes, lambda node: transports[node].run(command), forks=forks)
    return {
        node: frozenset(way for name, way in wanted.items() if f"lacks {name}" in answer.lines)
        for node, answer in answers.items()
        if not isinstance(answer, NodeError) and answer.as_expected
    }


def chosen_way(request: LaunchRequest, lacking: Mapping[str, Collection[str]]) -> str:
    """The first way that any node has, otherwise the first: a finding names who lacks it."""
    possible = traits_of(request.launcher).collective_ways
    return next(
        (way for way in possible if any(way not in of_node for of_node in lacking.values())),
        possible[0],
    )


def no_library(way: str, python: str, lacking: Mapping[str, Collection[str]]) -> Finding | None:
    """The finding that some nodes lack what the ranks would meet by; None if all have it."""
    nodes = tuple(node for node, of_node in lacking.items() if way in of_node)
    if not nodes:
        return None
    # If only some nodes lack it, the others have it, so no other way is named.
    other = " (or torch, for gloo)" if way == "mpi" and len(nodes) == len(lacking) else ""
    text = f"the preflight could not be run: no module {MODULES[way]} for {python}"
    remedy = (
        f"It needs {findings.NEEDED[way]}{other}; install it there, or state another code.python"
    )
    return error("preflight-not-run", nodes, text, remedy)


def preflight_plan(request: LaunchRequest, by: str) -> LaunchPlan:
    """The plan of the preflight: as that of the job, with another program."""
    firsts = [rank for rank, slot in enumerate(request.placement.slots) if slot.local_rank == 0]
    chief, meeting = request.chief, request.meeting
    at_chief = f"{chief['CM_CHIEF_IP']}/{chief['CM_CHIEF_PORT']}" if chief else ""
    if by == "gloo" and chief:
        meeting = {"MASTER_ADDR": chief["CM_CHIEF_IP"], "MASTER_PORT": chief["CM_CHIEF_PORT"]}
    # With a rank table, only torchrun makes ranks meet at a known port.
    has_port = not request.rank_table or traits_of(request.launcher).sets_meeting
    at_port = f"{meeting['MASTER_ADDR']}/{meeting['MASTER_PORT']}" if has_port and meeting else ""
    request = replace(request, meeting=meeting, meeting_point=at_chief or at_port)
    stated = dict.fromkeys(name for node in request.placement.nodes for name in node.env)
    words = (by, ",".join(map(str, firsts)), ",".join(findings.PACKAGES), ",".join(stated))
    return program_plan(request, script("meet.py").encode(), words, grace_s=_GRACE_S[by])


def program_plan(
    request: LaunchRequest, program: bytes, words: tuple[str, ...], *, grace_s: float
) -> LaunchPlan:
    """The plan of a job whose ranks run a program with these words."""
    own = replace(
        request,
        job_id=preflight_id(request.job_id),
        script=PurePosixPath("preflight.py"),
        script_content=program,
        script_args=words,
        workdir=None,
        notes=(),
        grace_s=grace_s,
    )
    for table in request.files:  # of a part of the cluster: it goes along
        path = own.folder / table.path.name
        own = replace(own, rank_table=path, files=(replace(table, path=path),))
    return plan(own)


class Runner(Value, kw_only=True):
    """Runs preflights; nothing of them stays on the nodes."""

    transports: Mapping[str, Transport]
    folder: Path
    interrupts: Interrupts
    known: Callable[[LaunchPlan], AbstractContextManager[None]]
    """Held while there may be something of the plan on the nodes."""
    connect: Callable[[str], Transport]
    """Opens a lost connection to a node again, which `tell` reports."""
    tell: Callable[[str], None]
    forks: int

    def run(self, planned: LaunchPlan) -> JobReport:
        """Run a preflight to its end; an UnreachableError if the primary was lost meanwhile."""
        sides = {node: self.transports[node] for node in planned.nodes}

        def reconnect(node: str) -> Transport:
            sides[node] = self.connect(node)
            return sides[node]

        with self.known(planned):
            report = Following(
                plan=planned,
                transports=sides,
                folder=self.folder,
                sink=lambda _: None,
                interrupts=self.interrupts,
                hangs=HangRules(tell=self.tell),
                connect=reconnect,
                forks=self.forks,
            ).run()
            discard(planned, sides, forks=self.forks)
        return report


def meet(request: LaunchRequest, runner: Runner) -> Preflight:
    """Run the preflight of a job; raises as `Runner.run` and `read_notes`."""
    lacking = lacks(request, runner.transports, forks=runner.forks)
    by = chosen_way(request, lacking)
    planned = preflight_plan(request, by)
    all_answered = len(lacking) == len(planned.nodes)
    if all_answered and (why := no_library(by, request.python, lacking)):
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        report = not_started_report(planned, now, str(runner.folder), why.message)
        return Preflight(findings=(why,), report=report, ranks=len(planned.ranks), library="")
    return preflight_result(request, runner.run(planned), runner.folder, by=by)


def preflight_result(
    request: LaunchRequest, report: JobReport, folder: Path, *, by: str
) -> Preflight:
    """The result of a preflight that has ended, with the logs of its ranks in `folder`."""
    slots = request.placement.slots
    notes = findings.read_notes(folder, range(len(slots)))
    found = [
        *findings.collective_findings(slots, notes, report, by=by),
        *findings.compare(slots, notes, request.rank_table_sha256),
    ]
    library = next((own.library for own in notes.values() if own.library), "")
    return Preflight(findings=in_order(found), report=report, ranks=len(slots), library=library)
