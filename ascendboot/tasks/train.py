"""`train`: start a job on the cluster that was set up."""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, NoReturn, ParamSpec

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit
from invoke.tasks import task

from ascendboot.applied import Applied
from ascendboot.console import Screen
from ascendboot.errors import AscendbootError, LaunchError, UnreachableError, UsageError
from ascendboot.launch.planning import plan as plan_launch
from ascendboot.launch.record import PLAN_FILE, record_of
from ascendboot.launch.run import Interrupts, start_detached
from ascendboot.launch.run import run as run_launch
from ascendboot.launch.verdict import running_report
from ascendboot.model.job import JobReport, JobState
from ascendboot.ready import look
from ascendboot.state import State
from ascendboot.tasks.common import (
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    on_interrupt,
    on_this_side,
    seconds,
    wanted_cluster,
    wanted_sending,
    whole_number,
)
from ascendboot.tasks.hangs import HANG_TIMEOUT_HELP, ON_HANG_HELP, hang_rules
from ascendboot.tasks.job_request import job_request
from ascendboot.tasks.jobs import REPORT_FILE, folder_held, now
from ascendboot.tasks.limits import allow_open_files
from ascendboot.tasks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.watch import HangRules
    from ascendboot.model.cluster import Cluster

P = ParamSpec("P")
NOT_STARTED = LaunchError.exit_code


def not_started(verb: Callable[P, None]) -> Callable[P, None]:
    """Every error of ours means that the job was not started: exit 125, as `docker run` does."""

    @functools.wraps(verb)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except (AscendbootError, OSError) as error:
            words = on_this_side(error) if isinstance(error, OSError) else str(error)
            if kwargs.get("json") and not kwargs.get("plan"):
                Screen(json_mode=True).json(_no_job(words).to_json())
            raise Exit(words, code=NOT_STARTED) from error
        except KeyboardInterrupt as error:
            raise Exit("interrupted", code=130) from error

    return wrapped


@task(
    help={
        "script": "The training script: under code.path on the nodes, else a file on this side",
        "inventory": INVENTORY_HELP,
        "plan": "Show command, environment and files, and start nothing",
        "detach": "Start the job and return at once; status, logs and stop go on with it",
        "grace": "Seconds that ranks get between SIGTERM and SIGKILL when the job is stopped",
        "hang-timeout": HANG_TIMEOUT_HELP,
        "on-hang": ON_HANG_HELP,
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    }
)
@not_started
def train(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    script: str,
    inventory: str | None = None,
    plan: bool = False,
    detach: bool = False,
    grace: str = "3",
    hang_timeout: str = "30m",
    on_hang: str = "tell",
    forks: str = "32",
    json: bool = False,
) -> None:
    """Run a script on all devices of the cluster, started by mpirun on the primary node.

    Every line comes as `NODE:RANK | text`; each rank's log is gathered in the run's folder. When
    a rank fails, the first one is named and all others are stopped. Ctrl-C stops the job; a reader
    that goes away (`| head -1`) does not: the logs have it all.

    Examples:
      invoke train main.py                    the cluster that was set up last
      invoke train main.py -- --steps 100     arguments of the script come after --
      invoke train main.py --plan             the exact mpirun command, and what it would run with
      invoke train main.py --detach           start it and come back later: status, logs, stop

    Exit codes: the job's own, 128+n when signal n ended it, 124 when it hung and was stopped, 125
    when it was not started, 4 when the primary was lost and the job goes on without us, 130 after
    Ctrl-C; with --detach 0.
    """
    at_once, grace_s = whole_number("--forks", forks, at_least=1), seconds("--grace", grace)
    hangs = hang_rules(hang_timeout, on_hang, screen := Screen(json_mode=True))
    if script.startswith("-"):
        raise UsageError(f'train: "{script}" is not a script; flags of ascendboot come before `--`')
    allow_open_files()
    _, cluster = wanted_cluster(inventory)
    state = State.here()
    applied = _applied(cluster, state)
    run = state.new_run("train")
    with Session.opened(cluster, state, run, accept_new=False, forks=at_once) as session:
        launch, offsets = _planned(session, applied, script, planning=plan, grace_s=grace_s)
        if plan:
            _show(screen, launch, as_json=json)
            return
        started = now().isoformat(timespec="milliseconds")
        run.write_json(PLAN_FILE, record_of(launch, started=started, clock_offsets=offsets))
        if detach:
            _detach(session, launch, screen, started=started, as_json=json)
            return
        with folder_held(run.folder):
            report = _run(session, launch, offsets, screen, hangs=hangs, as_json=json)
            _keep_report(session, report, screen)
    screen.job(report, run.shown)
    if json:
        screen.json(report.to_json())
    if report.exit_code:
        raise Exit(code=report.exit_code)


def _planned(
    session: Session, applied: Applied, script: str, *, planning: bool, grace_s: float
) -> tuple[LaunchPlan, Mapping[str, float]]:
    """The launch, once every node is found ready for it, and how far each node's clock is off."""
    cluster = session.cluster
    connect = session.connect_to_look if planning else session.connect
    transports, errors = connect(cluster.nodes)
    if errors:
        _refuse([str(error) for error in errors.values()])
    sending = wanted_sending(cluster, threading.Event())
    ready = look(
        cluster,
        applied,
        transports,
        script,
        hosts=session.hosts,
        forks=session.forks,
        sending=sending,
    )
    if ready.problems:
        _refuse(ready.problems)
    job_id = session.run.run_id
    request = job_request(cluster, applied, ready, script=script, job_id=job_id, grace_s=grace_s)
    return plan_launch(request), ready.clock_offsets


def _detach(
    session: Session, launch: LaunchPlan, screen: Screen, *, started: str, as_json: bool
) -> None:
    """Start the job, or nothing of it, and say how to go on."""
    try:
        start_detached(launch, session.transports)
    except LaunchError:
        (session.run.folder / PLAN_FILE).unlink()
        raise
    job = launch.job_id
    screen.say(f"job {job}: started. It goes on without you:")
    for verb in (f"status --job {job}", f"logs --follow --job {job}", f"stop --job {job}"):
        screen.say(f"  invoke {verb}")
    if as_json:
        screen.json(running_report(launch, started, str(session.run.folder)).to_json())
    else:
        sys.stdout.write(f"{job}\n")


def _run(
    session: Session,
    launch: LaunchPlan,
    offsets: Mapping[str, float],
    screen: Screen,
    *,
    hangs: HangRules,
    as_json: bool,
) -> JobReport:
    """Start the job and follow it to its end."""
    ranks, nodes = len(launch.ranks), len(launch.nodes)
    screen.say(f"job {launch.job_id}: starting {ranks} ranks on {nodes} nodes")
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
                sink=Screen.raw(to_stderr=as_json),
                interrupts=interrupts,
                clock_offsets=offsets,
                hangs=hangs,
            )
        except UnreachableError as error:  # the job was started and goes on without us
            raise Exit(str(error), code=error.exit_code) from error


def _no_job(message: str) -> JobReport:
    return JobReport(
        job_id="",
        state=JobState.NOT_STARTED,
        exit_code=NOT_STARTED,
        started="",
        command="",
        first_failure=None,
        ranks=(),
        duration_s=0.0,
        folder="",
        message=message,
    )


def _keep_report(session: Session, report: JobReport, screen: Screen) -> None:
    """The job is over: what cannot be kept of it here changes nothing of its exit code."""
    try:
        session.run.write_json(REPORT_FILE, report.to_json())
    except OSError as error:
        screen.error(f"could not keep the report: {error}")
    if session.problem:
        screen.error(session.problem)


def _applied(cluster: Cluster, state: State) -> Applied:
    document = state.applied(cluster.name)
    if document is None:
        raise LaunchError(
            f"{cluster.name}: could not start a job: the cluster was not set up from here; "
            f"run setup --inventory {cluster.source}"
        )
    applied = Applied.from_json(document)
    outdated = applied.why_outdated(cluster)
    if outdated is not None:
        raise LaunchError(f"{cluster.source}: could not start a job: {outdated}; run setup again")
    return applied


def _show(screen: Screen, launch: LaunchPlan, *, as_json: bool) -> None:
    if as_json:
        screen.json(launch.to_json())
    else:
        sys.stdout.write(launch.describe() + "\n")


def _refuse(problems: list[str] | tuple[str, ...]) -> NoReturn:
    raise LaunchError("\n".join((*problems, "The job was not started.")))
