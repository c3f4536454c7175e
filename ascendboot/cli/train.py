"""`train`: run a job on a cluster that is set up."""

from __future__ import annotations

import re
import resource
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ascendboot.checks.finding import grouped
from ascendboot.cli import common, known_jobs
from ascendboot.cli.session import Session, code_sender, setup_record_of
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import InventoryError, LaunchError, NodeError, UnreachableError, UsageError
from ascendboot.inventory.load import load
from ascendboot.jobs.error_codes import OWN_ENTRIES, own_entries
from ascendboot.jobs.follow import Interrupts, Timeouts
from ascendboot.jobs.hang import HangRules
from ascendboot.jobs.job_report import running_report, with_device_changes
from ascendboot.jobs.output import Folded, by_node, plain
from ascendboot.jobs.progress import Progress
from ascendboot.jobs.run import Following
from ascendboot.jobs.start import start_detached
from ascendboot.jobs.stop import terminate_processes
from ascendboot.jobs.supervisor import CORRELATE_S, TIMEOUTS, NotReadyError
from ascendboot.launch.launchers import LAUNCHERS
from ascendboot.launch.plan import PLAN_FILE, Job, LaunchPlan, LaunchRequest, record_of
from ascendboot.launch.planner import plan as plan_launch
from ascendboot.model.cluster import Cluster, LauncherChoice, NodeClocks
from ascendboot.model.job import CauseKind, JobReport, JobState
from ascendboot.model.names import counted, fold, id_list, names_file_here, runs
from ascendboot.model.secrets import masked
from ascendboot.readiness.checks import SKIPPABLE, skipped_checks
from ascendboot.readiness.device_changes import device_changes
from ascendboot.readiness.ready import Readiness, check_readiness, job_request, script_arguments
from ascendboot.setup.record import SetupRecord
from ascendboot.supervise.core import Choice, Core
from ascendboot.supervise.history import timeline
from ascendboot.supervise.policy import Limits
from ascendboot.supervise.store import Store
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import Value, field, replace

_USUAL_HANG: Final = "30m"
_LEAST_HANG_S: Final = 2.0
_NO_TORCH: Final = (
    "warning: setup has written no network variables of PyTorch, such as GLOO_SOCKET_IFNAME; if "
    "the ranks do not find each other, state launcher.kind: torchrun and run setup"
)


def _choice(
    nodes: str | None, devices: str | None, launcher: str | None, env: Sequence[str]
) -> Choice:
    """Read the values of --nodes, --devices, --launcher and --env, and the words after `--`."""
    ids = id_list("--devices", devices) if devices is not None else ()
    if bad := [each for each in env if each.find("=") < 1]:
        raise UsageError(f'--env: "{bad[0]}" is not NAME=VALUE')
    kind = common.among("--launcher", launcher, tuple(LAUNCHERS))
    words = script_arguments(sys.argv) if "--" in sys.argv else None
    return Choice(nodes, ids, kind, dict(each.split("=", 1) for each in env), words)


class Order(Value, kw_only=True):
    """A job to start, with the flags of `train`."""

    script: str
    grace_s: float = 3.0
    supervised: Limits | None = None
    """Budgets of a supervised job; None: it is not supervised."""
    least_flag: str = "--min-nodes"
    resumed: str = ""
    """The id of the supervised job to continue; empty: a new one."""
    outputs: common.Outputs = field(default_factory=common.Outputs)
    """Where events and figures of a supervised job go."""
    hangs: HangRules = field(default_factory=HangRules)
    skipped: tuple[str, ...] = ()
    """Ids of checks to skip."""
    choice: Choice = field(default_factory=Choice)
    ends_leftovers: bool = False
    """Whether to end processes of earlier jobs without asking."""
    plan: bool = False
    preflight: bool = False
    detach: bool = False
    fold: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the report of the job."""
        skipped = ", ".join(self.skipped)
        return (f"not checked before the start: {skipped}",) if skipped else ()


def no_job(flags: Mapping[str, object]) -> Mapping[str, object]:
    """The fields of a job's report for a job that was not started; a plan has no such report."""
    if flags.get("plan"):
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
    iterable=["env"],
    positional=["script"],
    groups={
        "Choose": ("nodes", "devices", "launcher", "env", "preflight", "skip-checks"),
        "Supervise": (
            *("supervise", "elastic", "min-nodes", "max-restarts", "stable-for", "resume"),
            *("on-event", "metrics"),
        ),
        "Hang and stop": ("hang-timeout", "on-hang", "grace"),
    },
    help={
        "script": "The training script: searched under code.path on the nodes, then on the control"
        " machine; with ./, ../ or / a file of the control machine, which is copied",
        "plan": "Show command, environment and files; start nothing",
        "preflight": "First check that all ranks can communicate; start the job only if they can",
        "nodes": "Run only on these nodes, as atlas-[1-4] or @group; one must be the primary or a"
        " standby. Default: all",
        "devices": "Run only on these devices of each node, as 0-3,6. Default: all",
        "launcher": f"Start the job with {', '.join(LAUNCHERS)}. Default: as the inventory states",
        "env": "NAME=VALUE: a variable of this job, instead of the inventory's; repeatable",
        "fold": "Show equal lines of several ranks once, as atlas-[1-2]:[0-15] | text; logs stay"
        " whole",
        "detach": "Start the job and return; use status, logs and stop afterwards",
        "grace": "Seconds between SIGTERM and SIGKILL when ranks are stopped. Default: 3",
        "elastic": "Continue without lost nodes while this many are left: short for --supervise"
        " --min-nodes N",
        "supervise": "After a fault start the job again from its last checkpoint, on the nodes that"
        " are left",
        "min-nodes": "With --supervise: the job needs this many nodes. Default: 1",
        "max-restarts": "How often a supervised job is started again. Default: 10",
        "stable-for": "How long a lost node must be ready before a supervised job uses it again"
        " (90s, 10m); it doubles with each loss. Default: 5m",
        "on-event": "Pass each event of a supervised job as JSON to this command (standard input)"
        " or http(s) URL",
        "metrics": "Keep the figures of a supervised job for Prometheus in this file *.prom",
        "resume": "Continue a supervised job whose `train` has ended or was killed: its id. It"
        " keeps limits, nodes, devices, launcher, variables, and arguments if you state none",
        "hang-timeout": "A job hangs if no rank prints anything or uses its processor for this time"
        f" (10m, 2h; 0: never). Default: {_USUAL_HANG}",
        "on-hang": "What to do if the job hangs: tell (print a message, the default) or stop (exit"
        " code 124)",
        "skip-checks": f"Checks to skip before the start: {', '.join(SKIPPABLE)}; without a value"
        " all of these. Default: none. Put it after the script",
        "stop-leftovers": "End processes of earlier jobs whose launcher is gone. Default: ask",
    },
)
def train(
    call: Call,
    *,
    script: str,
    plan: bool = False,
    preflight: bool = False,
    nodes: str | None = None,
    devices: str | None = None,
    launcher: str | None = None,
    env: list[str],
    detach: bool = False,
    fold: bool = False,
    grace: str = "3",
    elastic: str | None = None,
    supervise: bool = False,
    min_nodes: str | None = None,
    max_restarts: str | None = None,
    stable_for: str | None = None,
    on_event: str = "",
    metrics: str = "",
    resume: str | None = None,
    hang_timeout: str | None = None,
    on_hang: str = "tell",
    skip_checks: str | None = None,
    stop_leftovers: bool = False,
) -> None:
    """Run a script on all NPUs, with mpirun, horovodrun, torchrun or srun.

    Prints every line as `NODE:RANK | text`, and copies the log of each rank to
    the run's folder. A failed rank, which is named, or Ctrl-C stops the job.

    Examples:
      invoke train main.py -- --steps 100  with arguments of the script
      invoke train main.py --plan          show command and environment
      invoke train main.py --nodes atlas-[1-2] --devices 0-3 --env LR=0.1
      invoke train main.py --supervise     start it again after a fault

    Exit codes: the job's own, 128+n for signal n, 124 it hung and was stopped,
    2 wrong usage, 125 not started, 4 the primary was lost and the job continues,
    130 after Ctrl-C, 0 with --detach; supervised 75 too few nodes, 93 it would fail again.
    """
    budgets = (min_nodes, max_restarts, stable_for)
    others = "--detach" if detach else "--preflight" if preflight else ""
    order = Order(
        grace_s=common.seconds("--grace", grace),
        script=_script(script),
        hangs=hang_rules(hang_timeout, on_hang, detach=detach),
        skipped=skipped_checks(skip_checks),
        choice=_choice(nodes, devices, launcher, env),
        ends_leftovers=stop_leftovers,
        supervised=supervision_limits(budgets, elastic, resume, supervise=supervise, others=others),
        least_flag="--min-nodes" if elastic is None else "--elastic",
        outputs=common.Outputs(on_event, metrics),
        resumed=resume or "",
        plan=plan,
        preflight=preflight,
        detach=detach,
        fold=fold,
    )
    _run_order(call, order)


def _run_order(call: Call, order: Order) -> None:
    if order.fold and order.detach:
        raise UsageError("--fold: is for a job that is followed; leave out --detach")
    allow_open_files()
    order.outputs.check()
    if order.supervised is None and order.outputs != common.Outputs():
        raise UsageError("--on-event, --metrics: are only for supervised jobs; add --supervise")
    own_entries(Path(OWN_ENTRIES))  # an invalid file must not spoil the diagnosis at the end
    cluster = call.cluster(with_own_table=True)
    screen = Screen(json_mode=True)  # standard output is for the lines of the ranks
    if order.resumed:
        job = known_jobs.supervised_run(call.state, order.resumed)
        core = Core.from_json(Store(job.folder / known_jobs.SUPERVISE_FOLDER).read_state() or {})
        choice, note = continued(order.choice, core, cluster)
        order = replace(order, resumed=job.run_id, choice=choice)
        if note:
            screen.say(f"{job.run_id}: {note}")
    chosen = _chosen(cluster, order.choice.nodes)
    record = setup_record_of(call.state, cluster)
    if record is None:
        raise LaunchError(
            f"{cluster.name}: could not start a job: the cluster was not set up from here; "
            f"run setup --inventory {cluster.source}"
        )
    if outdated := record.why_outdated(cluster):
        raise LaunchError(f"{cluster.source}: could not start a job: {outdated}")
    stated = cluster.with_leaves(record.leaves)
    cluster, part = _of_choice(stated, record, order.choice, chosen, call.path)
    if cluster.is_for_torch and not stated.is_for_torch:
        screen.say(_NO_TORCH, "yellow")
    with call.session("train", cluster, reads=order.plan, screen=screen) as session:
        start = _Start(call, order, session, part, record)
        if order.supervised is not None:
            start.supervise(order.supervised)
            if not order.plan:
                return
        start.connect()
        start.launch()


def continued(stated: Choice, core: Core, cluster: Cluster) -> tuple[Choice, str]:
    """The choice with which a supervised job goes on, and a note; UsageError if flags differ."""
    had = core.choice
    if had is None:
        flags = "--nodes, --devices, --launcher, --env and arguments"
        return stated, f"warning: an earlier version did not keep {flags}: those stated now count"
    ids, kind = runs(had.devices) or "all", had.launcher or "that of the inventory"
    names = {node.name for node in cluster.chosen(stated.nodes)}
    for flag, words, fits in (
        ("--nodes", fold(core.order), stated.nodes is None or names == {*core.order}),
        ("--devices", ids, {*stated.devices} in (set(), {*had.devices})),
        ("--launcher", kind, stated.launcher in (None, had.launcher)),
    ):
        if not fits:
            remedy = "leave out the flag, or start a new job with --supervise"
            raise UsageError(f"{flag}: the job that --resume names goes on with {words}; {remedy}")
    if (arguments := had.arguments if stated.arguments is None else stated.arguments) is None:
        raise UsageError("--resume: arguments with a secret are not kept; state them after `--`")
    nodes, variables = stated.nodes or had.nodes, {**had.variables, **stated.variables}
    shown = ["--nodes", nodes] if nodes else []
    shown += ["--devices", ids] if had.devices else []
    shown += ["--launcher", kind] if had.launcher else []
    shown += [word for item in variables.items() for word in ("--env", "=".join(item))]
    shown += ["--", *arguments] if arguments and stated.arguments is None else []
    note = f"goes on with {shlex.join(shown)}" if shown else ""
    return Choice(nodes, had.devices, had.launcher, variables, arguments), note


def _chosen(cluster: Cluster, nodes: str | None) -> list[str]:
    """The names that --nodes selects, first the node that starts the job; none: all nodes."""
    names = [] if nodes is None else [node.name for node in cluster.chosen(nodes)]
    heads = [node.name for node in cluster.heads]
    first = [name for name in heads if name in names][:1]
    if names and not first:
        words = f"none of them can start a job; name one of {', '.join(heads)}, too"
        raise UsageError(f"--nodes: {words}")
    return list(dict.fromkeys((*first, *names)))


def _of_choice(
    cluster: Cluster, record: SetupRecord, choice: Choice, chosen: Sequence[str], inventory: Path
) -> tuple[Cluster, SetupRecord]:
    """The nodes, devices and launcher of the flags as a cluster, with the variables of --env."""
    for name, value in choice.variables.items():
        if cluster.is_secret(name, value) or masked(value, cluster.secrets) != value:
            raise UsageError(f"--env: {name} is a secret, which everybody can read in a command")
        _check_with(inventory, f"--env: {name}", {"env": {name: value}})
    if chosen:
        cluster, record = record.part_of(cluster, chosen)
    if choice.devices:
        record = _on_devices(cluster, record, choice.devices)
    kind = choice.launcher
    if kind is not None and kind != record.launcher.kind:
        keys = {"launcher": {"kind": kind}, "resources": {"mode": str(cluster.resource_mode)}}
        _check_with(inventory, f"--launcher {kind}", keys)
        if LAUNCHERS[kind].traits.ssh_shim:
            raise LaunchError(
                f"--launcher {kind}: setup has prepared the nodes for {record.launcher.name} only; "
                f"state launcher.kind: {kind} in {cluster.source} and run setup"
            )
        cluster = replace(cluster, launcher=kind)
        launcher = LauncherChoice(kind, "--launcher states it")
        record = replace(record, launcher=launcher, launcher_env={})
    return replace(cluster, env={**cluster.env, **choice.variables}), record


def _on_devices(cluster: Cluster, record: SetupRecord, ids: Sequence[int]) -> SetupRecord:
    for name, there in grouped((name, i) for name, i, _ in record.slots).items():
        if lacking := {*ids} - {*there}:
            words = f"{name} has no {runs(lacking)}; setup found {runs(there)} there"
            raise UsageError(f"--devices: {words}")
    if cluster.resource_mode == "no-rank-table" and cluster.chief_device not in ids:
        words = f"{cluster.chief_device} is missing, which resources.chief_device states"
        raise UsageError(f"--devices: {words}")
    return replace(record, slots=tuple(slot for slot in record.slots if slot[1] in ids))


def _check_with(inventory: Path, flag: str, more: Mapping[str, Mapping[str, str]]) -> None:
    """Check the values of a flag as those of the inventory."""
    try:
        load(inventory, more=more)
    except InventoryError as error:
        why = re.sub(r"(?m)^.*?:\d+: (env[^ ]*: )?|; write for example `env: .*", "", str(error))
        raise UsageError(f"{flag}: {why}") from error


def supervision_limits(
    budgets: tuple[str | None, str | None, str | None],
    elastic: str | None,
    resume: str | None,
    *,
    supervise: bool,
    others: str,
) -> Limits | None:
    """Return the budgets of a supervised job; None without --supervise, --resume and --elastic.

    `budgets` are the values of --min-nodes, --max-restarts and --stable-for.
    """
    min_nodes, restarts, stable_for = budgets
    named = zip(("--min-nodes", "--max-restarts", "--stable-for"), budgets, strict=True)
    also = "--supervise" if supervise else "--resume" if resume is not None else ""
    if elastic is not None and (doubled := also or ("--min-nodes" if min_nodes else "")):
        raise UsageError(
            f"--elastic: does not work with {doubled}: --elastic {elastic} is short for "
            f"--supervise --min-nodes {elastic}; leave out one of the two"
        )
    stated = [flag for flag, value in named if value is not None]
    if elastic is None and not also:
        if stated:
            raise UsageError(f"{stated[0]}: is only for supervised jobs; add --supervise")
        return None
    if resume is not None and stated:
        raise UsageError(f"--resume: keeps {' and '.join(stated)} as before; leave it out")
    if others:
        raise UsageError(
            f"{also or '--elastic'}: does not work with {others}: train itself starts the job "
            "again, each time on nodes that it chooses then; leave out one of the two"
        )
    flag, least = ("--min-nodes", min_nodes or "1") if elastic is None else ("--elastic", elastic)
    return Limits(
        min_nodes=common.whole_number(flag, least, at_least=1),
        max_restarts=common.whole_number("--max-restarts", restarts or "10", at_least=0),
        stable_for_s=common.duration("--stable-for", stable_for or "5m"),
        correlate_s=CORRELATE_S,
    )


def _script(word: str) -> str:
    if word.startswith("-"):
        raise UsageError(f'train: "{word}" is not a script; flags of ascendboot come before `--`')
    if names_file_here(word) and not Path(word).is_file():
        raise UsageError(
            f"train: {word}: is no file on the control machine, which a name that begins with ./, "
            "../ or / means; check it, or name a file of the nodes as seen from code.path"
        )
    return word


def hang_rules(timeout: str | None, on_hang: str, *, detach: bool) -> HangRules:
    """Combine --hang-timeout and --on-hang, or UsageError; `timeout` is None without the flag."""
    timeout_s = common.duration("--hang-timeout", _USUAL_HANG if timeout is None else timeout)
    if 0 < timeout_s < _LEAST_HANG_S:
        raise UsageError(
            f'--hang-timeout: "{timeout}" is less than {_LEAST_HANG_S:g} s, a usual wait of a rank'
        )
    if on_hang not in ("tell", "stop"):
        raise UsageError(f'--on-hang: "{on_hang}" is neither tell nor stop')
    if detach and (on_hang == "stop" or (timeout is not None and timeout_s)):
        stated = "--on-hang stop" if on_hang == "stop" else f"--hang-timeout {timeout}"
        raise UsageError(
            f"{stated}: a job that is started with --detach is not checked for hangs; leave out one"
            " of the two flags. status shows how long each rank has written no output"
        )
    return HangRules(timeout_s=timeout_s, stops=on_hang == "stop")


def allow_open_files() -> None:
    """Raise the limit of open files to its maximum: a job has one open log per rank."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Without a hard limit, the kernel may still enforce its own.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refused(*problems: str) -> LaunchError:
    """Build the error that lists why the job is not started."""
    return LaunchError(*problems, "Stopped: the job was not started; nothing was written.")


def _ends_leftovers(ready: Readiness, order: Order, screen: Screen, run_id: str) -> bool:
    """Whether leftovers may be ended: those of earlier generations of this job always."""
    if all(leftover.job_id.startswith(f"{run_id}.") for leftover in ready.leftovers):
        return True
    if order.ends_leftovers or order.plan or not sys.stdin.isatty():
        return order.ends_leftovers and not order.plan
    for line in ready.left:
        screen.say(line, "yellow")
    return screen.agrees("End them and start the job?")


def free_nodes(ready: Readiness, order: Order, session: Session, run_id: str) -> None:
    """Print warnings, and end leftovers of earlier jobs; LaunchError if the job cannot start."""
    screen = session.screen
    for note in (*order.notes, *(f"warning: {warning}" for warning in ready.warnings)):
        screen.say_once(note, "yellow")
    if ready.problems:
        raise refused(*ready.problems, *ready.left)
    ends = _ends_leftovers(ready, order, screen, run_id)
    if ready.leftovers and not ends:
        raise refused(*ready.left)
    problems: list[str] = []
    for leftover in ready.leftovers:
        answers = terminate_processes(
            {node: session.transports[node] for node in leftover.pids},
            leftover.folder,
            linger_s=0.0,
            grace_s=order.grace_s,
            forks=session.forks,
        )
        for node, answer in answers.items():
            if isinstance(answer, NodeError):
                problems.append(str(answer))
                continue
            problems += [
                f"{node}: could not end process {process.pid} of job {leftover.job_id}: it survived"
                f" SIGKILL ({process.command}); it may wait for the NPU driver: see dmesg"
                for process in answer.left
            ]
            what = f"{len(answer.ended)} process{'' if len(answer.ended) == 1 else 'es'}"
            screen.say(f"{node}: {what} of job {leftover.job_id} ended")
    if problems:
        raise refused(*problems)


class _Start(Value):
    """Starts and follows the jobs of one call of `train`."""

    call: Call
    order: Order
    session: Session
    record: SetupRecord
    """Of the nodes, devices and launcher of the job."""
    whole: SetupRecord
    interrupts: Interrupts = field(default_factory=Interrupts)

    @common.before_start()
    def connect(self) -> None:
        """Connect to the nodes; LaunchError if one cannot be used."""
        session = self.session
        connect = session.connect_to_look if self.order.plan else session.connect
        session.screen.working("Reach the nodes")
        try:
            _, errors = connect(session.cluster.nodes)
        finally:
            session.screen.rest()
        if errors:
            raise refused(*map(str, errors.values()))

    @common.before_start()
    def ready(
        self, cluster: Cluster, record: SetupRecord, job_id: str
    ) -> tuple[LaunchRequest, Readiness]:
        """Check that a job can start on the nodes of `cluster`, end leftovers, and describe it.

        LaunchError if it cannot; a NotReadyError if it is supervised and other nodes could take it.
        """
        order, session = self.order, self.session
        transports = {node.name: session.transports[node.name] for node in cluster.nodes}
        run_id = order.resumed or session.run.run_id
        found = check_readiness(
            cluster,
            record,
            {n: ReadOnly(t) for n, t in transports.items()} if order.plan else transports,
            order.script,
            hosts=session.hosts,
            forks=session.forks,
            sending=code_sender(cluster, threading.Event()),
            skipped=order.skipped,
            own_job=run_id,
        )
        if order.supervised is not None and not order.plan and found.unready:
            raise NotReadyError(found.unready, found.lost)
        free_nodes(found, order, session, run_id)
        request = job_request(
            cluster,
            record,
            found,
            script=order.script,
            job_id=job_id,
            grace_s=order.grace_s,
            notes=order.notes,
        )
        lists = cluster.is_for_torch and bool(order.choice.devices or order.choice.launcher)
        choice, words = order.choice, order.choice.arguments or ()
        request = replace(request, variables=choice.variables, script_args=words)
        return replace(request, lists_devices=lists), found

    def launch(self) -> None:
        """Plan the job, then show the plan, or start the job and detach or follow it."""
        session, screen, run = self.session, self.session.screen, self.session.run
        request, ready = self.ready(session.cluster, self.record, run.run_id)
        if self.record.slots != self.whole.slots:
            from ascendboot.cli.supervise import table_of_setup, with_own_table  # noqa: PLC0415 - as below

            table = partial(table_of_setup, self.whole, session.transports)
            request = with_own_table(request, self.whole, table)
        plan = plan_launch(request)
        if self.order.plan:
            if self.call.json:
                screen.json(plan.to_json())
            else:
                screen.text(plan.describe())
            if self.order.preflight:
                screen.say("before the job, started in the same way: the collective preflight")
            return
        if self.order.preflight:
            # Importing it takes as long as starting the job; see the figure of `train`.
            from ascendboot.cli.collective import pass_preflight  # noqa: PLC0415

            pass_preflight(session, request)
        started = known_jobs.now().isoformat(timespec="milliseconds")
        run.write_json(PLAN_FILE, record_of(plan, started=started, clocks=ready.clocks))
        if self.order.detach:
            self._detach(plan, started)
            return
        with known_jobs.folder_held(run.folder):
            report = self._run(plan, ready).without(run.secrets)
            try:
                run.write_json(known_jobs.REPORT_FILE, report.to_json())
            except OSError as error:  # does not change the exit code of the job
                screen.error(f"could not keep the report: {error}")
            if session.problem:
                screen.error(session.problem)
        screen.job(report, run.shown)
        self.call.end(report.exit_code or 0, report.to_json())

    def _detach(self, plan: LaunchPlan, started: str) -> None:
        """Start the job completely or not at all, and print the next commands."""
        session, screen, job = self.session, self.session.screen, plan.job_id
        try:
            start_detached(plan, session.transports, forks=session.forks)
        except LaunchError:
            (session.run.folder / PLAN_FILE).unlink()
            raise
        screen.say(f"job {job}: started. It runs independently of this machine:")
        screen.say(f"  {plan.script_words}")
        for verb in (f"status --job {job}", f"logs --follow --job {job}", f"stop --job {job}"):
            screen.say(f"  ascendboot {verb}")
        if self.call.json:
            screen.json(running_report(plan, started, str(session.run.folder)).to_json())
        else:
            screen.text(job)

    def _run(self, plan: LaunchPlan, ready: Readiness) -> JobReport:
        """Start the job and follow it until it ends; if it fails, query its devices once."""
        screen, folder = self.session.screen, self.session.run.folder
        ranks, nodes = counted(len(plan.ranks), "rank"), counted(len(plan.nodes), "node")
        screen.say(f"job {plan.job_id}: starting {ranks} on {nodes}")
        screen.say(plan.script_words)
        with common.stopped_in_steps(self.interrupts.press, screen, "job"):
            try:
                report = self.follow(plan, ready.clocks, folder, Progress())
                has_failed = report.state in (JobState.FAILED, JobState.HUNG)
                if self.interrupts.count or not has_failed:
                    return report
                screen.say("the job failed: its devices are queried, for 20 s at most")
                cause = report.cause
                lost = cause.nodes if cause is not None and cause.kind is CauseKind.NODE else ()
                there = dict.fromkeys(end.node for end in report.ranks if end.node not in lost)
                changes, notes = device_changes(
                    {node: ready.devices.get(node, {}) for node in there},
                    self.session.hosts,
                    during_s=report.duration_s,
                    forks=self.session.forks,
                )
                return with_device_changes(report, changes, notes)
            except UnreachableError as error:  # the job was started and continues
                job = {"job_id": plan.job_id, "folder": str(folder)}
                json = self.call.json
                raise common.exit_with(str(error), error.exit_code, job, json=json) from error

    def follow(self, plan: Job, clocks: NodeClocks, folder: Path, progress: Progress) -> JobReport:
        """Start a job, or follow a started one, until it ends; its logs go into `folder`."""
        to_stderr, screen = self.call.json, self.session.screen
        shown, coloured = Screen.raw(to_stderr=to_stderr), Screen.shows_colours(to_stderr=to_stderr)
        folded = Folded(shown, len(plan.ranks)) if self.order.fold else None
        devices = {n: [rank.device_id for rank in plan.ranks_on(n)] for n in plan.nodes}
        figures, at_terminal = known_jobs.Figures(self.session, devices), sys.stderr.isatty()
        tell = partial(screen.error, style="dim") if at_terminal else lambda _words: None

        def sink(block: bytes) -> None:
            screen.rest()  # the line about the start would be in the way
            figures.count(block)
            (folded or shown)(block)

        def on_start(up: int) -> None:
            of = len(plan.ranks)
            screen.progress(f"ranks {up}/{of} up") if up < of else screen.rest()

        progress.on_start = on_start
        if isinstance(plan, LaunchPlan):
            screen.working(f"job {plan.job_id} starts")
        following = Following(
            plan=plan,
            transports=self.session.transports,
            folder=folder,
            sink=sink,
            prefix=by_node(plan.nodes) if coloured and not folded else plain,
            interrupts=self.interrupts,
            clocks=clocks,
            limits=TIMEOUTS if self.order.supervised else Timeouts(),
            connect=self.session.connect_again,
            progress=progress,
            forks=self.session.forks,
            hangs=replace(self.order.hangs, tell=screen.errors),
            warn=partial(screen.error, style="yellow"),
        )
        try:
            with figures.sampled(tell):
                return figures.noted(following.run())
        finally:
            screen.rest()
            if folded:
                folded.close()

    def supervise(self, limits: Limits) -> None:
        """Run a supervised job to its end, or for a plan only check that it could start."""
        from ascendboot.cli.supervise import OnNodes, check_supervised, run_generations  # noqa: PLC0415 - as above

        session, screen, job = self.session, self.session.screen, self.session.run
        if self.order.resumed:
            resumed = known_jobs.supervised_run(session.state, self.order.resumed)
            job = replace(resumed, secrets=job.secrets)
        generations = OnNodes(
            session=session,
            job=job,
            record=self.record,
            whole=self.whole,
            choice=self.order.choice,
            ready=self.ready,
            follow=self.follow,
            least_flag=self.order.least_flag,
        )
        if self.order.plan:
            check_supervised(generations, limits)
            return
        with common.stopped_in_steps(self.interrupts.press, screen, "job"):
            done = run_generations(generations, limits, self.interrupts, self.order.outputs)
        screen.say(done.end.words, "green" if done.end.exit_code == 0 else "red")
        document = {} if done.report is None else done.report.to_json()
        if (known := known_jobs.supervision(job.folder)) is not None:
            for line in timeline(known.generations, known_jobs.now()):
                screen.say(f"  {line}")
            document["supervision"] = known.to_json()
            job.write_json("report.json", known.to_json())
        self.call.end(done.end.exit_code, document)
