"""Asks one node everything that setup wants to know, its host side before its workload side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ascendboot.errors import NodeError
from ascendboot.facts.api import Answer, Fact, Unanswered, answer_to, value_of
from ascendboot.facts.container import container_question, way_into
from ascendboot.facts.node import NodeFacts, host_questions, questions, work_questions
from ascendboot.facts.own import Own, own_question, parse_own
from ascendboot.steps.lock import Lock, ours
from ascendboot.transport.api import Sides

if TYPE_CHECKING:
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.code import CodeTree
    from ascendboot.steps.lock import Locks
    from ascendboot.transport.api import HostSide, Transport

Asker = Callable[["Transport", Mapping[str, Fact[Any]]], Mapping[str, Answer[Any]]]


@dataclass(frozen=True)
class Asked:
    """What one node said: its facts, and what of ours is on it."""

    facts: NodeFacts
    sides: Sides
    own: Own
    served: Own | None = None
    """What of ours is where our sshd runs, when that is not the workload side."""
    idle: Own | None = None
    """What of ours is on a host side where nothing is wished for."""
    left_in: str = ""
    """The container of an earlier setup, not of this one, in which our sshd still runs."""
    was_locked: bool = False
    """Somebody else held the lock: what other nodes said meanwhile may be out of date."""
    broke: str = ""
    """Whose lock was taken from a run that went on or hung."""

    def after(self, lock: Lock) -> Asked:
        """The same, said while this lock was ours."""
        return replace(self, was_locked=lock.was_waited_for, broke=lock.broke)


def own_fact(cluster: Cluster) -> Fact[Own]:
    """The question what of ours is on a node."""
    return Fact("own", own_question(cluster.name), parse_own)


def ask_node(
    cluster: Cluster,
    node: Node,
    host: HostSide,
    *,
    locks: Locks | None,
    asker: Asker,
    of_code: Mapping[str, Fact[CodeTree]],
) -> Asked:
    """All answers of a node, in one execution per side; `locks` are taken before all else there.

    `of_code` asks the workload side for the code that it should have from the operator's side.

    Where nothing can be run in the node's container, the questions to the workload side are not
    put, and the facts say why.

    Raises:
        NodeError: a side could not be asked, or somebody else has the lock.
    """
    own = {"own": own_fact(cluster)}
    work_too: dict[str, Fact[Any]] = {**of_code, **own}
    first = {"lock": locks.on_server} if locks is not None else {}
    if node.container is None:
        answers = asker(host, {**first, **questions(cluster, node), **work_too})
        _refuse_one_session(host)
        lock = _lock(node, answers.get("lock"))
        facts = NodeFacts.from_answers(node.name, answers)
        own_there = _own(node, answers)
        return Asked(facts, Sides(host, host), own_there).after(lock)
    answers = asker(host, {**first, **host_questions(cluster, node), **own})
    _refuse_one_session(host)
    lock = _lock(node, answers.get("lock"))
    there = _own(node, answers)
    way = way_into(node, answers["container"])
    if way is None:
        facts = NodeFacts.from_answers(node.name, answers)
        return Asked(facts, Sides(host, host), Own(there.base)).after(lock)
    work = host.inside(way)
    if locks is not None:
        answer = answer_to(locks.inside, work.hold(locks.inside.command))
        lock = lock.and_then(_lock(node, answer))
    inside = asker(work, {**work_questions(cluster, node), **work_too})
    return Asked(
        NodeFacts.from_answers(node.name, {**inside, **answers}),
        Sides(host, work),
        _own(node, inside),
        served=there if cluster.serves_from_host(node) else None,
        idle=None if cluster.serves_from_host(node) else there,
    ).after(lock)


def _refuse_one_session(host: HostSide) -> None:
    """A job is followed in one session, and looked after in others beside it."""
    if host.has_one_session:
        raise NodeError(
            host.node,
            "could not open a second session on the connection: the system's sshd allows one "
            "(MaxSessions 1), and every job needs more; set MaxSessions 10 in its sshd_config and "
            "reload it",
        )


def left_behind(cluster: Cluster, former: Node, host: HostSide) -> str:
    """The container that the node had before, where our sshd still runs in it; else nothing.

    Raises:
        NodeError: the node could not be asked.
    """
    engines = container_question(former)["container"]
    way = way_into(former, answer_to(engines, host.run(engines.command)))
    if way is None:  # it is gone, or nothing can run in it
        return ""
    question = own_fact(cluster)
    own = value_of(answer_to(question, host.inside(way).run(question.command)))
    return way.container if own is not None and own.sshd_pids else ""


def _own(node: Node, answers: Mapping[str, Answer[Any]]) -> Own:
    found: Answer[Own] = answers["own"]
    if isinstance(found, Unanswered):
        raise NodeError(node.name, found.message)
    return found.value


def _lock(node: Node, answer: Answer[Lock] | None) -> Lock:
    return Lock() if answer is None else ours(node.name, answer)
