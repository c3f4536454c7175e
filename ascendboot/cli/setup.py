"""`setup`: turn servers into a training cluster; `check`: report all problems, read-only."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from ascendboot.checks.collective.hccl_test import HcclPlan
from ascendboot.cli.advice import advice_on
from ascendboot.cli.collective import check_collective, check_hccl_test, check_nodes, run_check
from ascendboot.cli.common import UNCHANGED, ctrl_c_keeps, on_interrupt
from ascendboot.cli.session import Session, code_sender
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import Authority, Control, fingerprint
from ascendboot.model.names import fold
from ascendboot.model.report import Outcome, Report
from ascendboot.setup.apply import apply_setup, check_cluster, plan_setup
from ascendboot.setup.ca import CaKeys
from ascendboot.setup.cluster_plan import NO_FACTS, ClusterFacts, FactsRecord, setup_record
from ascendboot.setup.lock import LEASE_S, Locks, locks
from ascendboot.setup.phases import step_names
from ascendboot.setup.record import node_of, reach_of
from ascendboot.setup.results import Progress, Stopped
from ascendboot.setup.survey import Survey
from ascendboot.state import State, whoami
from ascendboot.transport.guard import Fence
from ascendboot.value import as_json, from_json, replace

BREAK_LOCK_HELP = (
    "Take the cluster's lock from the setup or reset that holds it, and show its holder"
)
CHANGES_WAIT = 3
LEVELS = ("quick", "full")
_REPORTING = "reporting the results so far; press Ctrl-C again to abort"


@cluster_verb(
    bare="inventory",
    stopped=UNCHANGED,
    help={
        "plan": "Show what would change, one line per change; write nothing on the nodes",
        "diff": "Also show the lines of files that change",
        "exit-code": "With --plan: exit with 3 if there are changes",
        "delete-code": "Also delete files from code.path that code.source lacks; see --plan --diff",
        "nodes": "Change only these nodes, as atlas-[1-4] or @group, and the primary. Default: all",
        "take-over": "Take over a cluster that another control folder set up, and replace its keys",
        "break-lock": BREAK_LOCK_HELP,
        "accept-new": "Accept and remember unknown host keys, and print them",
    },
)
def setup(
    call: Call,
    *,
    plan: bool = False,
    diff: bool = False,
    exit_code: bool = False,
    nodes: str | None = None,
    delete_code: bool = False,
    take_over: bool = False,
    break_lock: bool = False,
    accept_new: bool = False,
) -> None:
    """Turn the servers of an inventory into a training cluster.

    A second run changes nothing. Connects to every node, queries and checks it,
    creates the containers for which the inventory states an image, starts the
    cluster's own sshd, lets the primary log in everywhere, writes environment,
    rank table and hostfile, sends the code if the inventory states a source, and
    verifies the result with real logins.

    Examples:
      invoke setup --inventory two-node.yaml --plan  preview; writes nothing
      invoke setup --plan --diff                     with the lines of files
      invoke setup --inventory two-node.yaml         set it up
      invoke setup --json | jq .exit_code            again, for the last cluster

    Exit codes: 0 done, 1 a step failed or is blocked, 2 invalid inventory, 3
    there are changes (with --plan --exit-code), 4 a node is unreachable, 130
    interrupted.
    """
    if take_over and nodes is not None:
        raise UsageError("setup: --take-over replaces the keys of all nodes; leave --nodes out")
    if exit_code and not plan:
        raise UsageError("setup: --exit-code is for --plan; add --plan, or leave it out")
    options = {"deletes": delete_code, "take_over": take_over, "break_lock": break_lock}
    call.screen.shows_diffs = diff
    _set_up(call, nodes, planning=plan, exit_code=exit_code, accept_new=accept_new, **options)


@cluster_verb(
    bare="inventory",
    stopped=UNCHANGED,
    help={
        "plan": "Show what would change, and who set up the nodes; write nothing on them",
        "break-lock": BREAK_LOCK_HELP,
        "accept-new": "Accept and remember unknown host keys, and print them",
    },
)
def adopt(
    call: Call, *, plan: bool = False, break_lock: bool = False, accept_new: bool = False
) -> None:
    """Take over a cluster that another control folder set up.

    Shows which folder it is, by whom and since when, then works as setup and
    replaces the keys on all nodes. After that the nodes refuse the other folder.
    It is refused while a job runs, because the job uses the keys.

    Examples:
      invoke adopt two-node.yaml --plan        who has it, and what would change
      invoke adopt two-node.yaml --accept-new  from a new control machine

    Exit codes: 0 done, 1 a step failed or is blocked, 2 invalid inventory, 4 a
    node is unreachable, 130 interrupted.
    """
    _set_up(call, planning=plan, accept_new=accept_new, take_over=True, break_lock=break_lock)


def _set_up(
    call: Call,
    nodes: str | None = None,
    *,
    planning: bool,
    accept_new: bool,
    exit_code: bool = False,
    **options: bool,
) -> None:
    screen, cluster = call.screen, call.cluster(with_own_table=True)
    verb = "plan" if planning else "setup"
    only = _only(cluster, nodes)
    session = call.session(verb, cluster, reads=planning, accept_new=accept_new)
    with session as opened, ctrl_c_keeps(planning=planning):
        report = walk_setup(opened, planning=planning, inventory=call.path, only=only, **options)
        document = report.to_json() | {"accepted_host_keys": opened.accepted}
        opened.run.write_json("report.json", document)
        screen.summary(report, opened.run.shown, planned=planning)
        changes = report.count(Outcome.WOULD_CHANGE)
        code = CHANGES_WAIT if exit_code and changes and report.exit_code == 0 else report.exit_code
        call.end(code, document | {"folder": str(opened.run.folder)})


@cluster_verb(
    bare="inventory",
    stopped=UNCHANGED,
    groups={"HCCL Test": ("hccl-test", "operation", "sizes", "floor", "devices")},
    help={
        "collective": "Also start one rank per device, and check that all ranks can communicate",
        "all-pairs": "Test every pair of NPUs and every pair of nodes",
        "level": "quick, or full: also measure every device, and pairs of nodes. Default: quick",
        "hccl-test": "Also run Huawei's HCCL Test, on pairs of devices and on all together",
        "operation": "Of HCCL Test: all_reduce, all_gather, … Default: all_reduce",
        "sizes": "Of HCCL Test: from the smallest to the largest message. Default: 8K-256M",
        "floor": "GB/s that HCCL Test must reach. Default: compare with earlier runs",
        "nodes": "Only these nodes, as atlas-[1-4] or @group, and the primary. Default: all",
        "devices": "HCCL Test on these devices of each node, as 0-3,6. Default: all",
        "advise": "Also give hints: on script and log of the last job, and on `env`",
    },
)
def check(
    call: Call,
    *,
    level: str = "quick",
    all_pairs: bool = False,
    collective: bool = False,
    hccl_test: bool = False,
    operation: str | None = None,
    sizes: str | None = None,
    floor: str = "",
    nodes: str | None = None,
    devices: str = "",
    advise: bool = False,
) -> None:
    """Check nodes, NPUs, network and cluster files. Read-only.

    One report contains all problems: differences from the inventory, changes
    that setup would make, logins, pings between NPUs, and TCP connections.

    Only --level full, --collective and --hccl-test write on the nodes, into a
    folder that they remove. The first measures free devices and pairs of nodes.
    With the second, all ranks connect and compute a known sum. The third
    measures collectives, and names slow devices.

    Examples:
      invoke check --inventory two-node.yaml  check a cluster
      invoke check --level full               also measure devices and pairs
      invoke check --hccl-test --sizes 1M-1G --floor 20
      invoke check --json | jq '.results[] | select(.level == "error")'

    Exit codes: 0 no errors (warnings allowed), 1 errors found, 2 invalid
    inventory, 4 a node is unreachable, 130 interrupted.
    """
    if level not in LEVELS:
        raise UsageError(f'check: no level "{level}"; there are {", ".join(LEVELS)}')
    screen, cluster = call.screen, call.cluster(with_own_table=True)
    only = _only(cluster, nodes)
    if only and collective:
        words = "leave --nodes out, or use train --nodes --preflight"
        raise UsageError(f"check: --collective is a check of all ranks; {words}")
    wanted = HcclPlan.of(operation, sizes, floor, devices, is_wanted=hccl_test)
    parts = (
        ("node-check", level == "full", partial(check_nodes, only=only)),
        ("collective", collective, check_collective),
        ("hccl-test", hccl_test, partial(check_hccl_test, only=only, wanted=wanted)),
    )
    with call.session("check", cluster, reads=True) as session:
        with _survey(session, _REPORTING, only, shows_others=False) as survey:
            look = session.connect_hosts_to_look
            check_cluster(survey, look, "all-pairs" if all_pairs else "ring")
        report = survey.progress.report(session.run.run_id)
        for phase, is_wanted, part in parts:
            if is_wanted and not report.interrupted:
                results, interrupted = run_check(session, phase, part)
                whole = (*report.results, *results)
                report = replace(report, results=whole, interrupted=interrupted)
        document = report.to_json() | ({"advice": _advice(session)} if advise else {})
    session.run.write_json("report.json", document)
    screen.verdict(report, session.run.shown)
    call.end(report.exit_code, document | {"folder": str(session.run.folder)})


def _advice(session: Session) -> list[dict[str, str]]:
    """Show the hints; a source of hints that cannot be read leaves the exit code as it is."""
    try:
        hints = advice_on(session)
    except (AscendbootError, OSError) as error:
        session.screen.say(f"advice: could not look: {error}", "yellow")
        return []
    for hint in hints:
        session.screen.say(
            "advice: {where}: {text}. {remedy}. [{id}; source: {source}]".format_map(hint)
        )
    if not hints:
        session.screen.say("advice: none of the hints applies")
    return hints


def walk_setup(
    session: Session,
    *,
    planning: bool,
    inventory: Path,
    deletes: bool = False,
    take_over: bool = False,
    break_lock: bool = False,
    rekeys: bool = False,
    only: Collection[str] = (),
) -> Report:
    """Set up the cluster of a session, or `only` these nodes of it.

    `rekeys` replaces its keys, so that a removed node cannot log in to the others; the caller has
    locked the control folder.
    """
    state, name = session.state, session.cluster.name
    promise = "waiting for running commands; press Ctrl-C again to abort"
    locks = None if planning else locks_of(session, breaks=break_lock)
    guard = nullcontext() if planning or rekeys else state.locked(name, session.run.run_id)
    options = {"deletes": deletes, "take_over": take_over, "rekeys": rekeys}
    with guard, _survey(session, promise, only, locks=locks, **options) as survey:
        if planning:
            plan_setup(survey, session.connect_hosts_to_look)
        else:
            context = apply_setup(survey, session.connect_hosts)
            paths = {node.name: step_names(context, node) for node in context.cluster.nodes}
            applied = setup_record(session.cluster, context.plan, context.facts, paths)
            state.remember(name, "applied", as_json(applied))
            state.remember_current(inventory)
    report = survey.progress.report(session.run.run_id)
    if only and any(result.outcome is Outcome.CHANGED for result in report.results):
        state.remember_current(inventory)  # what follows is to continue with this inventory
    return report


def locks_of(session: Session, *, breaks: bool) -> Locks:
    """Create the cluster's lock for this run; the session then writes only while it holds it."""
    found = locks(session.cluster.name, f"run {session.run.run_id} of {whoami()}", breaks=breaks)
    session.fence = Fence(found.on_host.command, found.still_held, LEASE_S)
    return found


@contextmanager
def _survey(
    session: Session,
    promise: str,
    only: Collection[str] = (),
    *,
    shows_others: bool = True,
    deletes: bool = False,
    locks: Locks | None = None,
    take_over: bool = False,
    rekeys: bool = False,
) -> Iterator[Survey]:
    """Provide the survey of a session's cluster until it stops; without locks it is read-only."""
    state, cluster, screen = session.state, session.cluster, session.screen
    ca = CaKeys(state.authority(cluster.name), cluster.name)
    needs_ca = cluster.trust == "ca"
    interrupted = threading.Event()

    def before_writing(facts: ClusterFacts) -> tuple[Authority | None, Control]:
        nodes = (*left_nodes(state, cluster), *cluster.nodes)
        state.remember(cluster.name, "nodes", {n.name: reach_of(n) for n in nodes})
        if rekeys:
            # Old certificates and the old key become invalid. The old ones are recorded first, in
            # case the run is aborted.
            if (key := facts.installed[cluster.primary_name].cluster_key) is not None:
                state.add_control_key(cluster.name, f"key:{fingerprint(key)}")
            if needs_ca and (former := ca.look()):
                state.add_control_key(cluster.name, fingerprint(former.host))
                ca.renew()
        return ca.ensure() if needs_ca else None, _control_of(session, ca, creates=True)

    with on_interrupt(interrupted.set, screen, promise):
        survey = Survey(
            progress=Progress(
                *(cluster, screen, interrupted, session.forks, screen.shows_diffs),
                *(only, shows_others),
            ),
            former=session.former,
            recorded=_recorded(state, cluster) if only else NO_FACTS,
            keep=partial(_keep_facts, session),
            authority=ca.look() if needs_ca else None,
            sender=code_sender(cluster, interrupted, deletes=deletes),
            locks=locks,
            before_writing=before_writing if locks else None,
            control=_control_of(session, ca, creates=locks is not None),
            take_over=take_over,
            rekeys=rekeys,
            left=() if rekeys else left_nodes(state, cluster),
        )
        try:
            yield survey
        except Stopped:
            pass
        finally:
            screen.rest()


def _keep_facts(session: Session, facts: ClusterFacts) -> None:
    """Record what setup knows of the nodes; only a later `setup --nodes` needs it."""
    cluster = session.cluster
    document = as_json(FactsRecord.of(cluster, facts))
    try:
        session.state.remember(cluster.name, "facts", document)
    except OSError as error:
        words = f"could not record what was seen of the nodes, for setup --nodes: {error}"
        session.screen.say(words, "yellow")


def _recorded(state: State, cluster: Cluster) -> ClusterFacts:
    """What earlier setups recorded of the nodes, where it fits the inventory."""
    try:
        record = from_json(state.recall(cluster.name, "facts"), FactsRecord)
    except ValueError:  # there is none, or it is of another version
        return NO_FACTS
    return record.fitting(cluster)


def _only(cluster: Cluster, nodes: str | None) -> Collection[str]:
    """The nodes of --nodes and the primary, which logs in to them; none without the flag."""
    chosen = () if nodes is None else (cluster.primary, *cluster.chosen(nodes))
    return tuple(dict.fromkeys(node.name for node in chosen))


def left_nodes(state: State, cluster: Cluster) -> tuple[Node, ...]:
    """Return nodes that were set up from here and removed from the inventory, not only renamed.

    UsageError if it has the name of another cluster, and so would get its keys and records.
    """
    names = {node.name for node in cluster.nodes}
    places = {(node.address, node.ssh.port) for node in cluster.nodes}
    known = nodes_set_up(state, cluster.name)
    if known and addresses_of(known).isdisjoint(addresses_of(cluster.nodes)):
        raise UsageError(
            f"{cluster.name}: another cluster of this name was set up from here, at "
            f"{fold(node.address for node in known)}; give this one another name (`cluster`); if "
            f"all its addresses have changed, remove {state.cluster(cluster.name)}/nodes.json"
        )
    return tuple(
        node
        for node in known
        if node.name not in names and (node.address, node.ssh.port) not in places
    )


def nodes_set_up(state: State, cluster: str) -> list[Node]:
    """Return the nodes of a cluster as they were reached when it was set up from here."""
    reached = state.recall(cluster, "nodes") or {}
    return [node_of(name, reach) for name, reach in reached.items()]


def forget(state: State, cluster: str, *, reset: Collection[str], gone: Collection[str]) -> None:
    """Forget the facts of nodes that were reset, and how to reach those that are gone."""
    if facts := state.recall(cluster, "facts"):
        known = facts.get("inventories") or {}
        left = {name: digest for name, digest in known.items() if name not in reset}
        state.remember(cluster, "facts", {**facts, "inventories": left})
    if gone:
        known = state.recall(cluster, "nodes") or {}
        state.remember(cluster, "nodes", {n: r for n, r in known.items() if n not in gone})


def addresses_of(nodes: Iterable[Node]) -> set[str]:
    """Return the addresses of the nodes; two clusters have none in common."""
    return {each for n in nodes for each in (n.address, n.cluster_address)}


def keys_of(state: State, cluster: str) -> frozenset[str]:
    """The keys under which this control folder has set up a cluster."""
    ca = CaKeys(state.authority(cluster), cluster)
    return frozenset((*state.control_keys(cluster), *ca.known_as()))


def _control_of(session: Session, ca: CaKeys, *, creates: bool) -> Control:
    """Return this control folder as nodes record it; `creates` makes an id if it has none."""
    state, cluster = session.state, session.cluster
    known = state.control_keys(cluster.name)
    own = next((key for key in known if key.startswith("id:")), "")
    if not own and creates and cluster.trust == "pinned":
        own = f"id:{secrets.token_hex(16)}"
        state.add_control_key(cluster.name, own)
    return Control(
        by=whoami(),
        folder=str(state.root),
        now=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%MZ}",
        known=frozenset((own, *keys_of(state, cluster.name))),
        id=own,
    )
