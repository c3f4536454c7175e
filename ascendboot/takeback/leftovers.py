"""What there is to take back on both sides of a node, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot.code.takeback import (
    SentCode,
    parse_sent_code,
    sent_code_question,
    sent_code_removal,
)
from ascendboot.errors import CommandError
from ascendboot.facts.api import answer_to, value_of
from ascendboot.facts.container import container_question, way_into
from ascendboot.facts.own import base_script
from ascendboot.judge.container import obstacles
from ascendboot.launch.look import look_below, looked
from ascendboot.model.report import Cause, Outcome, StepResult
from ascendboot.takeback.files import leftovers_question, parse_leftovers, removal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.launch.look import JobLook
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.container import Inside
    from ascendboot.takeback.files import Leftovers
    from ascendboot.transport.api import HostSide, Result

_SHOWN = 5


@dataclass(frozen=True)
class Part:
    """What is left on one side of a node."""

    way: Inside | None
    """The way into the container; None: the host side."""
    left: Leftovers
    code: SentCode

    @classmethod
    def read(cls, way: Inside | None, left: Result, code: Result) -> Part:
        """What the answers to both questions, or both removals, say."""
        return cls(way, parse_leftovers(left), parse_sent_code(code))


@dataclass(frozen=True)
class Found:
    """What is left on a node, the workload side first, and what is known of jobs there."""

    parts: tuple[Part, ...]
    jobs: dict[str, JobLook]

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to take back."""
        return all(part.left.is_nothing and not part.code.files for part in self.parts)


def find(cluster: Cluster, node: Node, host: HostSide, former: Node | None = None) -> Found:
    """Ask a node, in one execution per side; a container that is gone took all with it.

    `former`: the node as it was at the last setup, where that knew it by another container.

    Raises:
        NodeError: it could not be asked, or a container is there and cannot be looked into.
    """
    found = _find(cluster, node, host)
    if former is None:
        return found
    before = _find(cluster, former, host)
    inside = tuple(part for part in before.parts if part.way is not None)
    return Found((*inside, *found.parts), {**before.jobs, **found.jobs})


def _find(cluster: Cluster, node: Node, host: HostSide) -> Found:
    asked = [
        sent_code_question(cluster.name),
        leftovers_question(cluster.name),
        look_below(base_script(cluster.name)),
    ]
    fact = container_question(node).get("container")
    if fact is None:
        code, left, jobs = host.run_all(asked)
        return Found((Part.read(None, left, code),), looked(jobs))
    code, left, said = host.run_all([*asked[:2], fact.command])
    on_host = Part.read(None, left, code)
    answer = answer_to(fact, said)
    way = way_into(node, answer)
    if way is not None:
        code, left, jobs = host.inside(way).run_all(asked)
        return Found((Part.read(way, left, code), on_host), looked(jobs))
    engines = value_of(answer)
    if engines is not None and engines.container is None and not engines.refused:
        return Found((on_host,), {})
    why = next(iter(obstacles(node, answer)))
    what = f"could not look at what setup left in the container {node.container}"
    raise CommandError(node.name, f"{what}: {why.text}; {why.remedy}, or remove it")


def take_back(cluster: Cluster, found: Found, host: HostSide) -> Found:
    """Take it all back, the host side last; what was there before, with what went wrong.

    Raises:
        NodeError: a side could not be told.
    """
    work = (sent_code_removal(cluster.name), removal(cluster.name))
    parts = []
    for part in found.parts:
        side = host.inside(part.way) if part.way else host
        code, left = side.run_all(work)
        parts.append(Part.read(part.way, left, code))
    return replace(found, parts=tuple(parts))


def results(node: str, found: Found, done: Outcome, duration_s: float = 0.0) -> list[StepResult]:
    """What was, or would be, taken back on one node."""
    told = [r for part in found.parts for r in _of_part(node, part, done, duration_s)]
    if not any(result.step in {"sshd", "files", "code"} for result in told):
        words = "nothing of ascendboot is here"
        told.insert(0, _result(node, "files", Outcome.OK, words, duration_s))
    return told


def _of_part(node: str, part: Part, done: Outcome, duration_s: float) -> Sequence[StepResult]:
    left, told = part.left, []
    place = f" in the container {part.way.container}" if part.way else ""
    would = "would be " if done is Outcome.WOULD_CHANGE else ""
    if part.code.files:
        words = f"{would}removed{place}, {part.code.files} files of the code that setup sent"
        told.append(_result(node, "code", done, words, duration_s))
    if left.sshd is not None:
        words = f"the cluster's sshd{place} {would}stopped"
        told.append(_result(node, "sshd", done, words, duration_s))
    if left.files or left.has_empty:
        words = f"{left.base}{place} {would}removed, {left.files} files of ascendboot"
        told.append(_result(node, "files", done, words, duration_s))
    remedy = "keep what is wanted and remove the rest by hand"
    cause = Cause(id="not-ours", level="warning", nodes=(node,), remedy=remedy)
    for step, paths, where in (
        ("foreign", left.foreign, f"in {left.base}{place}, not made by ascendboot"),
        ("code", part.code.changed, f"of the code that setup sent{place}, changed since"),
    ):
        if paths:
            names = ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")
            words = f"left alone {where}: {names}"
            found = _result(node, step, Outcome.OK, words, duration_s)
            told.append(replace(found, cause=cause))
    return [
        *told,
        *(
            _result(node, "files", Outcome.FAILED, f"{node}: {words}{place}", duration_s)
            for words in (*left.problems, *part.code.problems)
        ),
    ]


def _result(node: str, step: str, outcome: Outcome, detail: str, duration_s: float) -> StepResult:
    return StepResult(
        node=node,
        phase="reset",
        step=step,
        outcome=outcome,
        detail=detail,
        duration_s=duration_s,
    )
