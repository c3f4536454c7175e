"""`train`: run a job on a cluster that is set up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.cli.common import allow_open_files, seconds, whole_number
from ascendboot.cli.launch import (
    HANG_TIMEOUT_HELP,
    ON_HANG_HELP,
    SKIP_CHECKS_HELP,
    STOP_LEFTOVERS_HELP,
    Order,
    check_ready,
    hang_options,
    launch,
    refused,
    start_rules,
)
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError, UsageError
from ascendboot.launch.planner import why_not_elastic
from ascendboot.model.job import JobReport, JobState
from ascendboot.model.names import names_file_here
from ascendboot.setup.record import SetupRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.model.cluster import Cluster
    from ascendboot.state import State


def no_job(flags: Mapping[str, object]) -> Mapping[str, object]:
    """The fields of a job's report for a job that was not started; a plan has no such report."""
    if flags.get("plan") or not flags.get("json"):
        return {}
    return JobReport(
        job_id="",
        state=JobState.NOT_STARTED,
        exit_code=LaunchError.exit_code,
        started="",
        command="",
        first_failure=None,
        ranks=(),
        duration_s=0.0,
        folder="",
    ).to_json()


@cluster_verb(
    unstarted=no_job,
    optional=["skip_checks"],
    help={
        "script": "The training script: searched under code.path on the nodes, then on the control"
        " machine; with ./, ../ or / a file of the control machine, which is copied",
        "plan": "Show command, environment and files; start nothing",
        "preflight": "First check that all ranks can communicate; start the job only if they can",
        "detach": "Start the job and return; use status, logs and stop afterwards",
        "grace": "Seconds between SIGTERM and SIGKILL when ranks are stopped. Default: 3",
        "elastic": "Continue without lost nodes while this many are left (torchrun only)",
        "hang-timeout": HANG_TIMEOUT_HELP,
        "on-hang": ON_HANG_HELP,
        "skip-checks": SKIP_CHECKS_HELP,
        "stop-leftovers": STOP_LEFTOVERS_HELP,
    },
)
def train(
    call: Call,
    *,
    script: str,
    plan: bool = False,
    preflight: bool = False,
    detach: bool = False,
    grace: str = "3",
    elastic: str | None = None,
    hang_timeout: str | None = None,
    on_hang: str = "tell",
    skip_checks: str | None = None,
    stop_leftovers: bool = False,
) -> None:
    """Run a script on all devices of the cluster, with mpirun, horovodrun or torchrun.

    Prints every line as `NODE:RANK | text`, and copies the log of each rank to the run's folder. If
    a rank fails, names the first one and stops all others. Ctrl-C stops the job. A reader that
    exits (`| head -1`) does not stop it: the logs are complete.

    Examples:
      invoke train main.py                    run it on the cluster that you set up last
      invoke train main.py -- --steps 100     arguments of the script come after --
      invoke train ./main.py                  use the file of the control machine
      invoke train main.py --plan             show the exact command and environment
      invoke train main.py --preflight        first check that ranks can communicate
      invoke train main.py --elastic 3        torchrun: continue while three nodes are left
      invoke train main.py --detach           start it and return: status, logs, stop

    Exit codes: the job's own, 128+n if signal n ended it, 124 if it hung and was stopped, 125 if it
    was not started, 4 if the primary was lost and the job continues, 130 after Ctrl-C; with
    --detach 0.
    """
    order = Order(
        grace_s=seconds("--grace", grace),
        script=_script(script),
        min_nodes=None if elastic is None else whole_number("--elastic", elastic, at_least=1),
        hangs=hang_options(hang_timeout, on_hang, detach=detach),
        rules=start_rules(skip_checks, stop_leftovers=stop_leftovers),
        plan=plan,
        preflight=preflight,
        detach=detach,
        json=call.json,
    )
    _train(call, order)


def _script(word: str) -> str:
    if not word or word.startswith("-"):
        raise UsageError(f'train: "{word}" is not a script; flags of ascendboot come before `--`')
    if names_file_here(word) and not Path(word).is_file():
        raise UsageError(
            f"train: {word}: is no file on the control machine, which a name that begins with ./, "
            "../ or / means; check it, or name a file of the nodes as seen from code.path"
        )
    return word


def _train(call: Call, order: Order) -> None:
    allow_open_files()
    cluster = call.cluster(with_own_table=True)
    record = _record(cluster, call.state)
    if order.min_nodes is not None:
        _refuse_elastic(order.min_nodes, cluster, record)
    screen = Screen(json_mode=True)  # standard output is for the lines of the ranks
    with call.session("train", cluster, reads=order.plan, screen=screen) as session:
        connect = session.connect_to_look if order.plan else session.connect
        transports, errors = connect(cluster.nodes)
        if errors:
            raise refused(*map(str, errors.values()))
        ready = check_ready(session, record, transports, order)
        launch(session, record, ready, order)


def _record(cluster: Cluster, state: State) -> SetupRecord:
    document = state.applied(cluster.name)
    if document is None:
        raise LaunchError(
            f"{cluster.name}: could not start a job: the cluster was not set up from here; "
            f"run setup --inventory {cluster.source}"
        )
    record = SetupRecord.from_json(document)
    outdated = record.why_outdated(cluster)
    if outdated is not None:
        raise LaunchError(f"{cluster.source}: could not start a job: {outdated}; run setup again")
    return record


def _refuse_elastic(min_nodes: int, cluster: Cluster, record: SetupRecord) -> None:
    with_table = cluster.resource_mode == "rank-table"
    nodes, launcher = len(cluster.nodes), record.launcher
    why_not = why_not_elastic(min_nodes, nodes, launcher, with_table=with_table)
    if why_not:
        raise LaunchError(f"{cluster.source}: could not start an elastic job: {why_not}")
