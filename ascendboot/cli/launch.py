"""Checks and starts one job for `train` and the collective check."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ascendboot.cli.collective import pass_preflight
from ascendboot.cli.common import duration, end, exit_with, on_interrupt
from ascendboot.cli.jobs import REPORT_FILE, folder_held, now
from ascendboot.cli.session import Session, code_sender
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError, NodeError, UnreachableError, UsageError
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.hang import HangRules
from ascendboot.jobs.job_report import running_report
from ascendboot.jobs.output import by_node, plain
from ascendboot.jobs.run import run as run_launch
from ascendboot.jobs.start import start_detached
from ascendboot.jobs.stop import Terminated, terminate_processes
from ascendboot.launch.plan import PLAN_FILE, LaunchPlan, record_of
from ascendboot.launch.planner import plan as plan_launch
from ascendboot.launch.planner import refuse_clocks_apart
from ascendboot.model.names import counted
from ascendboot.readiness.checks import SKIPPABLE, skipped_checks
from ascendboot.readiness.launch_request import job_request
from ascendboot.readiness.queries import file_system
from ascendboot.readiness.ready import Readiness, check_readiness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.model.cluster import NodeClocks
    from ascendboot.model.job import JobReport
    from ascendboot.readiness.requirements import Leftover
    from ascendboot.setup.record import SetupRecord
    from ascendboot.transport.api import Transport


@dataclass(frozen=True, kw_only=True)
class Order:
    """A job to start, with the flags of `train`."""

    script: str
    grace_s: float
    min_nodes: int | None
    """An elastic job ends with fewer nodes; None: the job needs all nodes."""
    hangs: HangOptions
    rules: StartRules
    plan: bool
    preflight: bool
    detach: bool
    json: bool


HANG_TIMEOUT_HELP: Final = (
    "A job hangs if no rank prints anything or uses its processor for this time (10m, 2h; 0:"
    " never). Default: 30m"
)
ON_HANG_HELP: Final = (
    "What to do if the job hangs: tell (print a message, the default) or stop (exit code 124)"
)
_USUAL: Final = "30m"
_LEAST_S: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class HangOptions:
    """When a job counts as hanging, and what to do then."""

    timeout_s: float
    """0: no check."""
    stops: bool
    """Whether to stop the job; otherwise only a message is printed."""


def hang_options(timeout: str | None, on_hang: str, *, detach: bool) -> HangOptions:
    """Combine --hang-timeout and --on-hang; `timeout` is None without the flag.

    Raises:
        UsageError: a value is invalid, or does not work with --detach.
    """
    timeout_s = duration("--hang-timeout", _USUAL if timeout is None else timeout)
    if 0 < timeout_s < _LEAST_S:
        raise UsageError(
            f'--hang-timeout: "{timeout}" is less than {_LEAST_S:g} s, a usual wait of a rank'
        )
    if on_hang not in ("tell", "stop"):
        raise UsageError(f'--on-hang: "{on_hang}" is neither tell nor stop')
    if detach and (on_hang == "stop" or (timeout is not None and timeout_s)):
        stated = "--on-hang stop" if on_hang == "stop" else f"--hang-timeout {timeout}"
        raise UsageError(
            f"{stated}: a job that is started with --detach is not checked for hangs; leave out one"
            " of the two flags. status shows when such a job seems to hang"
        )
    return HangOptions(timeout_s=timeout_s, stops=on_hang == "stop")


SKIP_CHECKS_HELP: Final = (
    f"Checks to skip before the start: {','.join(SKIPPABLE)}; without a value all of these. Put it"
    " after the script"
)
STOP_LEFTOVERS_HELP: Final = "End processes of earlier jobs whose launcher is gone. Default: ask"


@dataclass(frozen=True, kw_only=True)
class StartRules:
    """The checks to skip, and what to do with leftovers of earlier jobs."""

    skipped: tuple[str, ...]
    """Ids of checks to skip."""
    ends_leftovers: bool
    """Whether to end them without asking."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about skipped checks."""
        if not self.skipped:
            return ()
        return (f"not checked before the start: {', '.join(self.skipped)}",)


def start_rules(skip_checks: str | Literal[True] | None, *, stop_leftovers: bool) -> StartRules:
    """Build the rules from the values of the flags.

    Raises:
        UsageError: a check to skip does not exist or is mandatory.
    """
    return StartRules(skipped=skipped_checks(skip_checks), ends_leftovers=stop_leftovers)


def free_nodes(
    ready: Readiness,
    transports: Mapping[str, Transport],
    rules: StartRules,
    screen: Screen,
    *,
    planning: bool,
    grace_s: float,
    forks: int,
) -> None:
    """Print warnings, and end leftover processes of earlier jobs.

    Raises:
        LaunchError: the job cannot start.
    """
    for note in (*rules.notes, *(f"warning: {warning}" for warning in ready.warnings)):
        screen.say(note, "yellow")
    if ready.problems:
        raise refused(*ready.problems, *ready.left)
    if not ready.leftovers:
        return
    if planning or not (rules.ends_leftovers or _wants_an_end(ready.left, screen)):
        raise refused(*ready.left)
    problems: list[str] = []
    for leftover in ready.leftovers:
        there = {node: transports[node] for node in leftover.pids}
        swept = terminate_processes(
            there, leftover.folder, linger_s=0.0, grace_s=grace_s, forks=forks
        )
        problems += _ended(leftover, swept, screen)
    if problems:
        raise refused(*problems)


def refused(*problems: str) -> LaunchError:
    """Build the error that lists why the job is not started."""
    return LaunchError(*problems, "The job was not started.")


def _wants_an_end(left: Sequence[str], screen: Screen) -> bool:
    """Ask the operator, if there is a terminal."""
    if not sys.stdin.isatty():
        return False
    for line in left:
        screen.say(line, "yellow")
    return screen.agrees("End them and start the job?")


def _ended(
    leftover: Leftover, answers: Mapping[str, Terminated | NodeError], screen: Screen
) -> list[str]:
    """Print the processes of one job that were ended; return those that were not."""
    problems = []
    for node, swept in answers.items():
        if isinstance(swept, NodeError):
            problems.append(str(swept))
            continue
        problems += [
            f"{node}: could not end process {process.pid} of job {leftover.job_id}: it survived "
            f"SIGKILL ({process.command}); it may wait for the NPU driver: see dmesg"
            for process in swept.left
        ]
        count = len(swept.ended)
        what = "1 process" if count == 1 else f"{count} processes"
        screen.say(f"{node}: {what} of job {leftover.job_id} ended")
    return problems


def check_ready(
    session: Session,
    record: SetupRecord,
    transports: Mapping[str, Transport],
    order: Order,
) -> Readiness:
    """Check all nodes just before the start."""
    cluster = session.cluster
    return check_readiness(
        cluster,
        record,
        transports,
        order.script,
        hosts=session.hosts,
        forks=session.forks,
        sending=code_sender(cluster, threading.Event()),
        skipped=order.rules.skipped,
        control_disk=file_system(session.run.folder),
    )


def launch(session: Session, applied: SetupRecord, ready: Readiness, order: Order) -> None:
    """Plan the job, then show the plan, or start the job and detach or follow it.

    Raises:
        LaunchError: the job was not started.
        Exit: the exit code is not 0.
    """
    screen, run = Screen(json_mode=True), session.run
    free_nodes(
        ready,
        session.transports,
        order.rules,
        screen,
        planning=order.plan,
        grace_s=order.grace_s,
        forks=session.forks,
    )
    request = job_request(
        session.cluster,
        applied,
        ready,
        script=order.script,
        job_id=run.run_id,
        grace_s=order.grace_s,
        min_nodes=order.min_nodes,
        notes=order.rules.notes,
    )
    if order.min_nodes is not None:
        refuse_clocks_apart(ready.clocks)
    plan = plan_launch(request)
    if order.plan:
        _show(screen, plan, as_json=order.json)
        if order.preflight:
            screen.say("before the job, started in the same way: the collective preflight")
        return
    if order.preflight:
        pass_preflight(session, request, screen)
    started = now().isoformat(timespec="milliseconds")
    run.write_json(PLAN_FILE, record_of(plan, started=started, clocks=ready.clocks))
    if order.detach:
        _detach(session, plan, screen, started=started, as_json=order.json)
        return
    with folder_held(run.folder):
        report = _run(session, plan, ready.clocks, screen, order).without(run.secrets)
        _keep_report(session, report, screen)
    screen.job(report, run.shown)
    end(screen, report.exit_code or 0, report.to_json() if order.json else None)


def _show(screen: Screen, launch: LaunchPlan, *, as_json: bool) -> None:
    if as_json:
        screen.json(launch.to_json())
    else:
        screen.text(launch.describe())


def _detach(
    session: Session, launch: LaunchPlan, screen: Screen, *, started: str, as_json: bool
) -> None:
    """Start the job completely or not at all, and print the next commands."""
    try:
        start_detached(launch, session.transports, forks=session.forks)
    except LaunchError:
        (session.run.folder / PLAN_FILE).unlink()
        raise
    job = launch.job_id
    screen.say(f"job {job}: started. It runs independently of this machine:")
    screen.say(f"  {launch.script_words}")
    for verb in (f"status --job {job}", f"logs --follow --job {job}", f"stop --job {job}"):
        screen.say(f"  invoke {verb}")
    if as_json:
        screen.json(running_report(launch, started, str(session.run.folder)).to_json())
    else:
        screen.text(job)


def _run(
    session: Session,
    launch: LaunchPlan,
    clocks: NodeClocks,
    screen: Screen,
    order: Order,
) -> JobReport:
    """Start the job and follow it until it ends."""
    ranks, nodes = counted(len(launch.ranks), "rank"), counted(len(launch.nodes), "node")
    screen.say(f"job {launch.job_id}: starting {ranks} on {nodes}")
    screen.say(launch.script_words)
    in_colours = Screen.shows_colours(to_stderr=order.json)
    interrupts = Interrupts()
    promises = (
        "stopping the job on all nodes; press Ctrl-C again to kill it",
        "killing the job on all nodes; press Ctrl-C again to leave it as it is",
    )
    with on_interrupt(interrupts.press, screen, *promises):
        try:
            return run_launch(
                launch,
                session.transports,
                folder=session.run.folder,
                sink=Screen.raw(to_stderr=order.json),
                prefix=by_node(launch.nodes) if in_colours else plain,
                interrupts=interrupts,
                clocks=clocks,
                connect=session.connect_again,
                forks=session.forks,
                hangs=HangRules(
                    timeout_s=order.hangs.timeout_s, stops=order.hangs.stops, tell=screen.errors
                ),
            )
        except UnreachableError as error:  # the job was started and continues
            job = {"job_id": launch.job_id, "folder": str(session.run.folder)}
            raise exit_with(str(error), error.exit_code, {"json": order.json}, job) from error


def _keep_report(session: Session, report: JobReport, screen: Screen) -> None:
    """Keep the report; a failure does not change the exit code of the job."""
    try:
        session.run.write_json(REPORT_FILE, report.to_json())
    except OSError as error:
        screen.error(f"could not keep the report: {error}")
    if session.problem:
        screen.error(session.problem)
