"""`reset`: remove what setup wrote."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from invoke.exceptions import Exit

from ascendboot.cli.common import on_interrupt
from ascendboot.cli.session import Session
from ascendboot.cli.setup import BREAK_LOCK_HELP, left_nodes, locks_of, walk_setup
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import UsageError
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import fold
from ascendboot.model.report import Outcome, Report
from ascendboot.setup.reset import PLAN, REMOVE, Reset
from ascendboot.setup.results import Progress
from ascendboot.value import Value, replace

_HELP = {
    "plan": "Show what would be removed; change nothing",
    "yes": "Do not ask; required with --json and without a terminal",
    "break-lock": BREAK_LOCK_HELP,
}


@cluster_verb(
    help={
        "node": "Reset only this node, also one that was removed from the inventory",
        "forget": "With --node: do not connect to the node, only replace the keys of the others",
        "npu-network": "Also set the network of the NPUs as it was before setup",
        **_HELP,
    }
)
def reset(
    call: Call,
    *,
    node: str | None = None,
    forget: bool = False,
    npu_network: bool = False,
    plan: bool = False,
    yes: bool = False,
    break_lock: bool = False,
) -> None:
    """Remove everything that setup wrote on the nodes and on the control machine.

    Ends the cluster's own sshd and removes the cluster's folder on every node,
    with logs of jobs, and the containers that setup created. Keeps and names
    other files, such as checkpoints; keeps runs and accepted host keys here.
    --npu-network restores the NPUs' network. Refused while a job runs.

    Nodes that were removed from the inventory are reset, too. --node resets
    only one node. If it was removed from the inventory, the other nodes then
    get new keys, so that neither side can log in to the other. If it is still
    in the inventory, the next setup sets it up again.

    Examples:
      invoke reset --plan          preview; changes nothing
      invoke reset --inventory two-node.yaml --yes
      invoke reset --node atlas-3  a node removed from the inventory

    Exit codes: 0 done, 1 a job runs or something could not be removed, 2 wrong
    usage, 4 a node is unreachable, 130 interrupted.
    """
    flags = _Flags(npu_network, plan, yes, break_lock)
    _take_back(call, "reset", node, flags, forget=forget)


@cluster_verb(
    positional=["node"],
    help={
        "node": "The node, in the inventory or removed from it",
        "forget": "Do not connect to the node, only replace the keys of the others",
        "npu-network": "Also set the network of its NPUs as it was before setup",
        **_HELP,
    },
)
def remove(
    call: Call,
    *,
    node: str,
    forget: bool = False,
    npu_network: bool = False,
    plan: bool = False,
    yes: bool = False,
    break_lock: bool = False,
) -> None:
    """Remove a node from the cluster: reset it, and give the others new keys.

    Then neither side can log in to the other. If the node is unreachable, the
    others get new keys all the same; setup and check name the node until
    remove reaches it, or until --forget. The inventory stays as it is: remove
    the node from it, before or after.

    Examples:
      invoke remove atlas-3 --plan    preview; changes nothing
      invoke remove atlas-3 --forget  the server is gone for good

    Exit codes: 0 done, 1 a job runs or something could not be removed, 2 wrong
    usage, 4 a node is unreachable, 130 interrupted.
    """
    flags = _Flags(npu_network, plan, yes, break_lock)
    _take_back(call, "remove", node, flags, forget=forget)


class _Flags(Value):
    """Those of both verbs."""

    npu_network: bool
    plan: bool
    yes: bool
    break_lock: bool


def _take_back(call: Call, verb: str, node: str | None, flags: _Flags, *, forget: bool) -> None:
    path, cluster, state, screen = call.path, call.cluster(), call.state, call.screen
    left, removes = left_nodes(state, cluster), verb == "remove"
    gone = {each.name for each in left}
    target = _target(verb, cluster, left, node, forget=forget)
    rest = _without(call.cluster(with_own_table=True), node) if removes or node in gone else None
    run = state.new_run(verb, hidden=cluster.secrets)
    agreed = partial(_agreed, verb, screen, yes=flags.yes, can_ask=not call.json)
    report = Report(run_id=run.run_id, cluster=cluster.name, results=())
    opened = partial(
        Session.opened, state=state, run=run, accept_new=False, forks=call.forks, screen=screen
    )
    if not forget:
        here = () if node else state.setup_left_here(cluster.name, path)
        guard = nullcontext() if flags.plan else state.locked(cluster.name, run.run_id)
        # A jump host may be another removed node.
        everyone = replace(target, nodes=(*cluster.nodes, *left))
        with guard, opened(everyone) as session:
            report = _reset(session, target, here, agreed, flags)
    elif not flags.plan:
        agreed(f"Forget {node} without removing its files, and replace the keys?", ())
    is_lost, done = report.count(Outcome.UNREACHABLE) > 0, "nothing was changed"
    if rest and not report.interrupted and (report.exit_code == 0 or (removes and is_lost)):
        others = fold(each.name for each in rest.nodes)
        if flags.plan:
            screen.say(f"Then {others} would get new keys, and no longer accept those of {node}")
        else:
            if is_lost:
                agreed(f"{node} is unreachable. Replace the keys of {others} all the same?", ())
            with opened(rest) as session:
                report = _distrust(session, path, node, report, flags)
            if not report.count(Outcome.FAILED, Outcome.BLOCKED):
                done = f"all is still on it, but {others} no longer accept its keys"
            if node not in gone:
                screen.say(f"Next: remove {node} from {cluster.source}, or setup includes it again")
    if is_lost and node:
        again = f"{verb} {'' if removes else '--node '}{node}"
        screen.error(
            f"{node}: unreachable: {done}; when it is back: {again}; if the server is gone for "
            f"good: remove {node} --forget"
        )
    run.write_json("report.json", report.to_json())
    screen.summary(report, run.shown, planned=flags.plan)
    call.end(report.exit_code, report.to_json())


def _without(cluster: Cluster, name: str | None) -> Cluster:
    """The cluster of the other nodes.

    Raises:
        UsageError: there can be none.
    """
    if name not in {node.name for node in cluster.nodes}:
        return cluster
    if name == cluster.primary_name or cluster.own_table:
        why = "it is the primary, which logs in to the others: state another `primary`"
        if name != cluster.primary_name:
            why = "resources.file has its devices: remove it from the table and the inventory"
        raise UsageError(
            f"remove: could not remove {name}: {why} and run setup; reset --node {name} only "
            "takes back what is on it"
        )
    nodes = tuple(node for node in cluster.nodes if node.name != name)
    return replace(cluster, nodes=nodes, standby=tuple(n for n in cluster.standby if n != name))


def _target(
    verb: str, cluster: Cluster, left: Sequence[Node], name: str | None, *, forget: bool
) -> Cluster:
    """Select the nodes to reset: all of the inventory and removed ones, or one.

    Raises:
        UsageError: there is no such node, or it cannot be forgotten.
    """
    cluster = replace(cluster, own_table=None, nodes=(*cluster.nodes, *left))
    if forget and verb == "reset" and name not in {node.name for node in left}:
        raise UsageError(
            f"reset: could not forget {name or 'a node'}: --forget is for a node that left the "
            f"inventory; these did: {', '.join(node.name for node in left) or 'none'}; name one "
            "of them with --node"
        )
    if name is None:
        return cluster
    nodes = tuple(node for node in cluster.nodes if node.name == name)
    if not nodes:
        raise UsageError(
            f"{verb}: could not {verb} {name}: {cluster.source} has no such node, and none of "
            f"this name was set up from here; known are {fold([n.name for n in cluster.nodes])}"
        )
    return replace(cluster, nodes=nodes, primary_name=name)


def _reset(
    session: Session,
    target: Cluster,
    here: Sequence[Path],
    agreed: Callable[[str, Sequence[str]], None],
    flags: _Flags,
) -> Report:
    """Find what setup left, and show it or remove it."""
    interrupted = threading.Event()
    promise = "waiting for running commands; press Ctrl-C again to abort"
    guarded = partial(on_interrupt, interrupted.set, session.screen, promise)
    walk = Reset(
        Progress(target, session.screen, interrupted, session.forks),
        here=here,
        locks=locks_of(session, breaks=flags.break_lock),
        former=session.former,
        restores=flags.npu_network,
    )
    with guarded():
        found = walk.look(session.connect_hosts_to_look) and not interrupted.is_set()
    if found and flags.plan:
        walk.progress.end(PLAN, walk.results(Outcome.WOULD_CHANGE))
    elif found and not walk.has_work:
        walk.progress.end(REMOVE, walk.results(Outcome.OK))
    elif found:
        changes = walk.results(Outcome.WOULD_CHANGE)
        agreed(f"Reset {target.name}?", [f"  {each.node}  {each.detail}" for each in changes])
        with guarded():  # not while it asks: there Ctrl-C ends the verb at once
            walk.apply(session.fenced(session.hosts))
    return walk.progress.report(session.run.run_id)


def _distrust(
    session: Session, path: Path, left: str | None, report: Report, flags: _Flags
) -> Report:
    """Replace the keys of the remaining nodes, then forget the removed node."""
    rekeyed = walk_setup(
        session, planning=False, inventory=path, break_lock=flags.break_lock, rekeys=True
    )
    report = replace(rekeyed, results=(*report.results, *rekeyed.results))
    if report.exit_code == 0:
        state, cluster = session.state, session.cluster.name
        known = state.recall(cluster, "nodes") or {}
        state.remember(cluster, "nodes", {n: r for n, r in known.items() if n != left})
    return report


def _agreed(
    verb: str, screen: Screen, question: str, lines: Sequence[str], *, yes: bool, can_ask: bool
) -> None:
    """Show the lines and ask, unless --yes is set.

    Raises:
        UsageError: there is no terminal to ask on.
        Exit: the answer is no.
    """
    if yes:
        return
    if not (can_ask and sys.stdin.isatty()):
        seen = "there is no terminal" if can_ask else "--json is set"
        raise UsageError(
            f"{verb}: could not ask for confirmation: {seen}; see --plan, or use --yes"
        )
    for line in lines:
        screen.say(line)
    if not screen.agrees(question):
        raise Exit("nothing was changed", code=1)
