"""`reset`: remove what setup wrote."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from invoke.exceptions import Exit

from ascendboot.cli.common import UNCHANGED, ctrl_c_keeps, on_interrupt
from ascendboot.cli.session import Session, read_only_run
from ascendboot.cli.setup import BREAK_LOCK_HELP, forget, keys_of, left_nodes, locks_of, walk_setup
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import InterruptedRunError, UsageError
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
    stopped=UNCHANGED,
    help={
        "node": "Reset only these nodes, as atlas-[1-4] or @group, also removed ones. Default: all",
        "forget": "With --node: do not connect to them, only replace the keys of the others",
        "npu-network": "Also set the network of the NPUs as it was before setup",
        **_HELP,
    },
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
    only some nodes. If they were removed from the inventory, the others then
    get new keys, so that neither side can log in to the other. If they are
    still in the inventory, the next setup sets them up again.

    Examples:
      invoke reset --plan          preview; changes nothing
      invoke reset --inventory two-node.yaml --yes
      invoke reset --node atlas-3  a node removed from the inventory

    Exit codes: 0 done, 1 a job runs or something could not be removed, 2 wrong
    usage, 4 a node is unreachable, 130 interrupted.
    """
    _take_back(call, "reset", node, _Flags(forget, npu_network, plan, yes, break_lock))


@cluster_verb(
    positional=["node"],
    stopped=UNCHANGED,
    help={
        "node": "The nodes, as atlas-[3-4] or @group, in the inventory or removed from it",
        "forget": "Do not connect to the nodes, only replace the keys of the others",
        "npu-network": "Also set the network of their NPUs as it was before setup",
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
    """Remove nodes from the cluster: give the others new keys, and reset them.

    Then neither side can log in to the other. If the others cannot get new
    keys, nothing is removed. Nodes to remove that are unreachable do not stop
    this; setup and check name them until remove reaches them, or until
    --forget. The inventory stays as it is: remove the nodes from it, before or
    after.

    Examples:
      invoke remove atlas-3 --plan        preview; changes nothing
      invoke remove atlas-[3-4],atlas-7
      invoke remove atlas-3 --forget      the server is gone for good

    Exit codes: 0 done, 1 a job runs or something could not be removed, 2 wrong
    usage, 4 a node is unreachable, 130 interrupted.
    """
    _take_back(call, "remove", node, _Flags(forget, npu_network, plan, yes, break_lock))


class _Flags(Value):
    """Those of both verbs."""

    forgets: bool
    npu_network: bool
    plan: bool
    yes: bool
    break_lock: bool


def _take_back(call: Call, verb: str, node: str | None, flags: _Flags) -> None:
    path, cluster, state, screen = call.path, call.cluster(), call.state, call.screen
    left, removes = left_nodes(state, cluster), verb == "remove"
    gone = {each.name for each in left}
    target = _target(verb, cluster, left, node, forgets=flags.forgets)
    chosen = fold(each.name for each in target.nodes)
    away = {each.name for each in target.nodes if node and (removes or each.name in gone)}
    known = state.recall(cluster.name, "nodes") or {}
    rest = _without(call.cluster(with_own_table=True), away, known) if away else None
    others = fold(each.name for each in rest.nodes) if rest else ""
    what = f"{verb.capitalize()} {f'{chosen} of ' if node else ''}{cluster.name}"
    if flags.forgets:
        what = f"Forget {chosen} without removing anything there"
    question = f"{what}{f', and give {others} new keys' if rest else ''}?"
    agreed = partial(_agreed, verb, screen, question, yes=flags.yes, can_ask=not call.json)
    if flags.forgets and not flags.plan:
        agreed(())
    create = partial(read_only_run, state) if flags.plan else state.new_run
    run = create(verb, hidden=cluster.secrets)
    opened = partial(
        Session.opened, state=state, run=run, accept_new=False, forks=call.forks, screen=screen
    )
    rekey = partial(_rekeyed, opened, rest, path, flags) if rest else None
    report, rekeyed = Report(run_id=run.run_id, cluster=cluster.name, results=()), None
    locked = state.locked(cluster.name, run.run_id)
    with nullcontext() if flags.plan else locked, ctrl_c_keeps(planning=flags.plan):
        if flags.forgets and rekey:
            rekeyed = rekey()
        else:
            here = () if node else state.setup_left_here(cluster.name, path)
            # A jump host may be another removed node.
            with opened(replace(target, nodes=(*cluster.nodes, *left))) as session:
                walk = _walk(session, target, here, flags, skips_lost=removes)
                report, rekeyed = _reset(session, walk, agreed, flags, rekey)
        bad = _nodes(report, Outcome.FAILED, Outcome.UNREACHABLE)
        done = {each.node for each in report.results if each.phase == "reset"} - bad
        stays = set() if flags.forgets else away - done
        revokes = rekeyed is not None and not rekeyed.exit_code
        is_revoked = revokes and not flags.plan
        if not flags.plan:
            forget(state, cluster.name, reset=done, gone=away - stays if is_revoked else ())
        whole = report.joined(rekeyed) if rekeyed else report
        if is_revoked and (listed := away - gone):
            words = f"remove {fold(listed)} from {cluster.source}, or setup includes"
            screen.say(f"Next: {words} {'it' if len(listed) == 1 else 'them'} again")
        if node and whole.exit_code and not whole.interrupted:
            command = "remove" if removes else "reset --node"
            to_do = stays if revokes else {each.name for each in target.nodes}
            screen.error(_unfinished(whole, command, to_do, others if revokes else "", flags))
        run.write_json("report.json", whole.to_json())
        screen.summary(whole, run.shown, planned=flags.plan)
        call.end(whole.exit_code, whole.to_json())


def _nodes(report: Report, *outcomes: Outcome) -> set[str]:
    return {each.node for each in report.results if each.outcome in outcomes}


def _unfinished(
    report: Report, command: str, nodes: Collection[str], revoked_on: str, flags: _Flags
) -> str:
    """What to do about the nodes that a command was called for, and did not or would not reset."""
    done = f"nothing {'would be' if flags.plan else 'was'} removed"
    if revoked_on:
        seem = "would no longer be" if flags.plan else "are no longer"
        done = f"keys from there {seem} valid on {revoked_on}"
    lost = _nodes(report, Outcome.UNREACHABLE)
    is_only_lost = lost and not _nodes(report, Outcome.FAILED, Outcome.BLOCKED)
    first = f"when {fold(lost)} is back" if is_only_lost else "put the above right, then"
    then = f"{first}: {command} {fold(nodes)}"
    if gone := fold(lost & {*nodes}):
        then += f"; if {gone} is gone for good: remove {gone} --forget"
    return f"{fold(nodes)}: {'would not be' if flags.plan else 'not'} reset; {done}; {then}"


def _without(cluster: Cluster, away: Collection[str], known: Collection[str]) -> Cluster:
    """The cluster of the other nodes that are set up, as far as that is known."""
    names = [node.name for node in cluster.nodes if node.name in away]
    if cluster.primary_name in names or (names and cluster.own_table):
        if cluster.primary_name in names:
            shown = cluster.primary_name
            why = "it is the primary, which logs in to the others: state another `primary`"
        else:
            shown = fold(names)
            why = "resources.file has devices of it: remove them from the table and the inventory"
        raise UsageError(
            f"remove: could not remove {shown}: {why} and run setup; reset --node {shown} only "
            "takes back what is on it"
        )
    if not known:
        shown = fold(away)
        raise UsageError(
            f"remove: {cluster.name} is not set up from here: remove {shown} from {cluster.source} "
            f"instead; reset --node {shown} removes what a stopped setup left, and adopt takes "
            "over what another control folder set up"
        )
    if cluster.primary_name in known and not cluster.own_table:
        names += [node.name for node in cluster.nodes if node.name not in known]
    nodes = tuple(node for node in cluster.nodes if node.name not in names)
    standby = tuple(name for name in cluster.standby if name not in names)
    return replace(cluster, nodes=nodes, standby=standby)


def _target(
    verb: str, cluster: Cluster, left: Sequence[Node], text: str | None, *, forgets: bool
) -> Cluster:
    """Select the nodes to reset: all of the inventory and removed ones, or these."""
    cluster = replace(cluster, own_table=None, nodes=(*cluster.nodes, *left))
    flag = "remove" if verb == "remove" else "reset: --node"
    names = {node.name for node in cluster.chosen(text, flag)}
    gone = {node.name for node in left}
    if verb == "reset" and text and names & gone and names - gone:
        raise UsageError(
            f"{flag}: {fold(names & gone)} left the inventory, {fold(names - gone)} did not: "
            "reset one after the other, because the former is followed by new keys of the others"
        )
    if forgets and verb == "reset" and not (text and names <= gone):
        raise UsageError(
            f"reset: could not forget {text or 'a node'}: --forget is for a node that left the "
            f"inventory; these did: {fold(gone) or 'none'}; name them with --node"
        )
    if text is None:
        return cluster
    nodes = tuple(node for node in cluster.nodes if node.name in names)
    return replace(cluster, nodes=nodes, primary_name=nodes[0].name)


def _walk(
    session: Session, target: Cluster, here: Sequence[Path], flags: _Flags, *, skips_lost: bool
) -> Reset:
    """The reset of these nodes, and of the files `here` on the control machine."""
    return Reset(
        Progress(target, session.screen, threading.Event(), session.forks),
        here=here,
        locks=locks_of(session, breaks=flags.break_lock),
        control_keys=keys_of(session.state, target.name),
        former=session.former,
        restores=flags.npu_network,
        skips_lost=skips_lost,
    )


def _reset(
    session: Session,
    walk: Reset,
    agreed: Callable[[Sequence[str]], None],
    flags: _Flags,
    rekey: Callable[[], Report] | None,
) -> tuple[Report, Report | None]:
    """Find what setup left, give the others new keys, and then show or remove what was found.

    In this order, nothing is removed if the others cannot get new keys. Returns both reports.
    """
    interrupted = walk.progress.interrupted
    promise = "waiting for running commands; press Ctrl-C again to abort"
    guarded = partial(on_interrupt, interrupted.set, session.screen, promise)
    with guarded():
        is_found = walk.look(session.connect_hosts_to_look)
    report = partial(walk.progress.report, session.run.run_id)
    refused = _nodes(report(), Outcome.FAILED, Outcome.BLOCKED)
    if interrupted.is_set() or refused or not (is_found or (rekey and walk.skips_lost)):
        return report(), None
    if not flags.plan and (rekey or (is_found and walk.has_work)):
        changes = walk.results(Outcome.WOULD_CHANGE) if walk.has_work else []
        lost = (
            f"  {name}  does not answer" for name in sorted(_nodes(report(), Outcome.UNREACHABLE))
        )
        agreed([*(f"  {each.node}  {each.detail}" for each in changes), *lost])
    rekeyed = rekey() if rekey else None
    if (rekeyed and rekeyed.exit_code) or not is_found:
        return report(), rekeyed
    if flags.plan:
        walk.progress.end(PLAN, walk.results(Outcome.WOULD_CHANGE))
    elif walk.has_work:
        with guarded():  # not while it asks: there Ctrl-C ends the verb at once
            walk.apply(session.fenced(session.hosts))
    else:
        walk.progress.end(REMOVE, walk.results(Outcome.OK))
    return report(), rekeyed


def _rekeyed(
    opened: Callable[[Cluster], AbstractContextManager[Session]],
    rest: Cluster,
    path: Path,
    flags: _Flags,
) -> Report:
    """Replace the keys of the remaining nodes, or show whether that is possible."""
    with opened(rest) as session:
        breaks = flags.break_lock
        return walk_setup(
            session, planning=flags.plan, inventory=path, break_lock=breaks, rekeys=True
        )


def _agreed(
    verb: str, screen: Screen, question: str, lines: Sequence[str], *, yes: bool, can_ask: bool
) -> None:
    """Show the lines and ask, unless --yes is set."""
    if yes:
        return
    if not (can_ask and sys.stdin.isatty()):
        seen = "there is no terminal" if can_ask else "--json is set"
        raise UsageError(
            f"{verb}: could not ask for confirmation: {seen}; see --plan, or use --yes"
        )
    for line in lines:
        screen.say(line)
    try:
        is_agreed = screen.agrees(question)
    except KeyboardInterrupt as error:
        raise InterruptedRunError("Stopped: nothing was changed.") from error
    if not is_agreed:
        raise Exit("nothing was changed", code=1)
