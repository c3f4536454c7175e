"""`train`: start a job on the cluster that was set up.

What comes after a node was asked is imported while it answers: no job waits for that.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeAlias

from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit

from ascendboot.cli.common import (
    FORKS_HELP,
    INVENTORY_HELP,
    JSON_HELP,
    allow_open_files,
    chosen_cluster,
    ctrl_c_raised,
    exit_with,
    on_this_side,
    seconds,
    task,
    whole_number,
)
from ascendboot.cli.launch import (
    HANG_TIMEOUT_HELP,
    ON_HANG_HELP,
    SKIP_CHECKS_HELP,
    STOP_LEFTOVERS_HELP,
    Order,
    hang_options,
    start_rules,
)
from ascendboot.cli.session import Session, run_to_look
from ascendboot.errors import (
    AscendbootError,
    InterruptedRunError,
    LaunchError,
    OutputError,
    UsageError,
)
from ascendboot.model.names import names_file_here
from ascendboot.setup.record import SetupRecord
from ascendboot.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.model.cluster import Cluster
    from ascendboot.readiness.ready import Readiness
    from ascendboot.transport.api import Transport

if TYPE_CHECKING:
    Meanwhile: TypeAlias = Callable[[], object]
    Look: TypeAlias = Callable[
        [Session, SetupRecord, Mapping[str, Transport], Order, Meanwhile], Readiness
    ]
    Launch: TypeAlias = Callable[[Session, SetupRecord, Readiness, Order], None]

P = ParamSpec("P")
NOT_STARTED = LaunchError.exit_code


def not_started(verb: Callable[P, None]) -> Callable[P, None]:
    """Every error of ours means that the job was not started: exit 125, as `docker run` does."""

    @functools.wraps(verb)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with ctrl_c_raised():
                verb(*args, **kwargs)
        except OutputError as error:
            raise Exit(str(error), code=error.exit_code) from error
        except InterruptedRunError as error:
            raise exit_with(str(error), error.exit_code, kwargs, _no_job(kwargs)) from error
        except (AscendbootError, OSError) as error:
            words = on_this_side(error) if isinstance(error, OSError) else str(error)
            raise exit_with(words, NOT_STARTED, kwargs, _no_job(kwargs)) from error
        except KeyboardInterrupt as error:  # the job, if there is one, goes on
            raise exit_with("interrupted", InterruptedRunError.exit_code, kwargs) from error

    return wrapped


@task(
    optional=["skip_checks"],
    help={
        "script": "The training script: looked up under code.path on the nodes, then here; with"
        " ./, ../ or / before it a file of this machine, which is copied to the nodes",
        "inventory": INVENTORY_HELP,
        "plan": "Show command, environment and files, and start nothing",
        "preflight": "Let all ranks meet before the job: it starts only if they agree",
        "detach": "Start the job and return at once; status, logs and stop go on with it",
        "grace": "Seconds that ranks get between SIGTERM and SIGKILL when the job is stopped."
        " Default: 3",
        "elastic": "Go on without nodes that are lost while this many are left (torchrun alone)",
        "hang-timeout": HANG_TIMEOUT_HELP,
        "on-hang": ON_HANG_HELP,
        "skip-checks": SKIP_CHECKS_HELP,
        "stop-leftovers": STOP_LEFTOVERS_HELP,
        "forks": FORKS_HELP,
        "json": JSON_HELP,
    },
)
@not_started
def train(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    script: str,
    inventory: str | None = None,
    plan: bool = False,
    preflight: bool = False,
    detach: bool = False,
    grace: str = "3",
    elastic: str | None = None,
    hang_timeout: str | None = None,
    on_hang: str = "tell",
    skip_checks: str | None = None,
    stop_leftovers: bool = False,
    forks: str = "32",
    json: bool = False,
) -> None:
    """Run a script on all devices of the cluster, by mpirun, horovodrun or torchrun.

    Every line comes as `NODE:RANK | text`; each rank's log is gathered in the run's folder. When
    a rank fails, the first one is named and all others are stopped. Ctrl-C stops the job; a reader
    that goes away (`| head -1`) does not: the logs have it all.

    Examples:
      invoke train main.py                    the cluster that was set up last
      invoke train main.py -- --steps 100     arguments of the script come after --
      invoke train ./main.py                  this file, not that of the same name on the nodes
      invoke train main.py --plan             the exact mpirun command, and what it would run with
      invoke train main.py --preflight        start it only if all ranks meet and agree
      invoke train main.py --elastic 3        torchrun: go on while three nodes are left
      invoke train main.py --detach           start it and come back later: status, logs, stop

    Exit codes: the job's own, 128+n when signal n ended it, 124 when it hung and was stopped, 125
    when it was not started, 4 when the primary was lost and the job goes on without us, 130 after
    Ctrl-C; with --detach 0.
    """
    at_once = whole_number("--forks", forks, at_least=1)
    order = Order(
        grace_s=seconds("--grace", grace),
        script=_script(script),
        min_nodes=None if elastic is None else whole_number("--elastic", elastic, at_least=1),
        hangs=hang_options(hang_timeout, on_hang, detach=detach),
        rules=start_rules(skip_checks, stop_leftovers=stop_leftovers),
        plan=plan,
        preflight=preflight,
        detach=detach,
        json=json,
    )
    _train(order, inventory, at_once)


def _script(word: str) -> str:
    if not word or word.startswith("-"):
        raise UsageError(f'train: "{word}" is not a script; flags of ascendboot come before `--`')
    if names_file_here(word) and not Path(word).is_file():
        raise UsageError(
            f"train: {word}: is no file on the control machine, which a name that begins with ./, "
            "../ or / means; check it, or name a file of the nodes as seen from code.path"
        )
    return word


def _train(order: Order, inventory: str | None, at_once: int) -> None:
    allow_open_files()
    _, cluster = chosen_cluster(inventory)
    state = State.here()
    applied = _applied(cluster, state)
    if order.min_nodes is not None:
        _refuse_elastic(order.min_nodes, cluster, applied)
    begin = run_to_look if order.plan else State.new_run
    run = begin(state, "train", hidden=cluster.secrets)
    with Session.opened(cluster, state, run, accept_new=False, forks=at_once) as session:
        connect = session.connect_to_look if order.plan else session.connect
        transports, errors = connect(cluster.nodes, meanwhile=_looking)
        if errors:
            from ascendboot.cli.launch import refused  # noqa: PLC0415 - only in that case

            raise refused(*map(str, errors.values()))
        ready = _looking()(session, applied, transports, order, _launching)
        _launching()(session, applied, ready, order)


def _looking() -> Look:
    from ascendboot.cli.launch import found_ready  # noqa: PLC0415 - once the nodes connect

    return found_ready


def _launching() -> Launch:
    from ascendboot.cli.launch import launch  # noqa: PLC0415 - once the nodes look

    return launch


def _applied(cluster: Cluster, state: State) -> SetupRecord:
    document = state.applied(cluster.name)
    if document is None:
        raise LaunchError(
            f"{cluster.name}: could not start a job: the cluster was not set up from here; "
            f"run setup --inventory {cluster.source}"
        )
    applied = SetupRecord.from_json(document)
    outdated = applied.why_outdated(cluster)
    if outdated is not None:
        raise LaunchError(f"{cluster.source}: could not start a job: {outdated}; run setup again")
    return applied


def _refuse_elastic(min_nodes: int, cluster: Cluster, applied: SetupRecord) -> None:
    from ascendboot.launch.launchers.torchrun import why_not_elastic  # noqa: PLC0415 - only if asked for

    with_table = cluster.resource_mode == "rank-table"
    nodes, launcher = len(cluster.nodes), applied.launcher
    why_not = why_not_elastic(min_nodes, nodes, launcher, with_table=with_table)
    if why_not:
        raise LaunchError(f"{cluster.source}: could not start an elastic job: {why_not}")


def _no_job(flags: Mapping[str, object]) -> Mapping[str, object]:
    """What the report of a job has besides its message and exit code; a plan has no such report."""
    if flags.get("plan") or not flags.get("json"):
        return {}
    from ascendboot.model.job import JobReport, JobState  # noqa: PLC0415 - only in that case

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
    ).to_json()
