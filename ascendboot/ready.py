"""Whether every node is ready for a job: as setup left it, with the script in place."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.errors import NodeError
from ascendboot.facts.api import Fact, Unanswered, ask, value_of
from ascendboot.facts.code import code_questions
from ascendboot.facts.own import own_question, parse_own
from ascendboot.judge.code import code_findings
from ascendboot.judge.finding import in_order
from ascendboot.model.names import fold
from ascendboot.transport.api import Command, Effect, Sides
from ascendboot.transport.pool import for_each, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascendboot.applied import Applied
    from ascendboot.code.send import Sending
    from ascendboot.facts.api import Clock
    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.code import CodeTree
    from ascendboot.transport.api import HostSide, Result, Transport


OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables by which a launcher finds its parts; a container's image may set them."""


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What was found on all nodes together."""

    script: PurePosixPath
    """Where the script lies on the nodes, or its name when it is copied there."""
    is_copied: bool
    """It is not on the nodes and comes from the operator's side."""
    problems: tuple[str, ...]
    """Why nothing may be started, nodes folded; empty when all are ready."""
    clock_offsets: Mapping[str, float]
    """By how many seconds each node's clock is ahead of the operator's."""
    clock_uncertainty_s: float
    """By how much that may be wrong."""
    image: Mapping[str, str]
    """What the primary's container sets of `OF_THE_IMAGE`; empty without a container."""


def look(
    cluster: Cluster,
    applied: Applied,
    transports: Mapping[str, Transport],
    script: str,
    *,
    hosts: Mapping[str, HostSide],
    forks: int,
    sending: Sending | None = None,
    meanwhile: Callable[[], object] = nothing,
) -> Readiness:
    """Hold every node against what setup left there, in one execution each.

    Where our sshd serves a container from the host side, that is asked, too. `sending`
    holds the code that the nodes should have from this side. `meanwhile` is called while they look.
    """
    path = PurePosixPath(cluster.code_path or "/") / script
    questions = partial(_questions, cluster, path, sending)
    sides = {name: Sides(hosts[name], transports[name]) for name in transports}
    work = partial(_ask, applied, sides, questions)
    answers = for_each(cluster.nodes, work, forks=forks, meanwhile=meanwhile)
    problems: dict[str, list[str]] = {}
    with_script: list[str] = []
    offsets: dict[str, float] = {}
    uncertain_s = 0.0
    image: Mapping[str, str] = {}
    trees: dict[str, CodeTree] = {}
    for name, answer in answers.items():
        if isinstance(answer, NodeError):
            problems.setdefault(answer.message, []).append(name)
            continue
        offsets[name] = answer.clock.offset_s
        uncertain_s = max(uncertain_s, answer.clock.uncertainty_s)
        image = answer.image or image
        if answer.code is not None:
            trees[name] = answer.code
        if answer.has_script:
            with_script.append(name)
        for problem in answer.problems:
            problems.setdefault(f"not ready: {problem}; run setup", []).append(name)
    told = [f"{fold(nodes)}: {problem}" for problem, nodes in problems.items()]
    is_copied = not with_script and Path(script).is_file()
    told += _of_code(cluster, trees, sending) or _without_script(
        list(offsets), with_script, path, script, is_copied=is_copied
    )
    return Readiness(
        script=PurePosixPath(Path(script).name) if is_copied else path,
        is_copied=is_copied,
        problems=tuple(told),
        clock_offsets=offsets,
        clock_uncertainty_s=uncertain_s,
        image=image,
    )


_IMAGE = Command(
    argv=("bash", "-c", "".join(f'printf "%s\\0" "${{{n}-}}";' for n in OF_THE_IMAGE)),
    purpose="look at the environment of the container",
    effect=Effect.READ,
)


@dataclass(frozen=True)
class _Answer:
    problems: tuple[str, ...]
    has_script: bool
    clock: Clock
    image: Mapping[str, str]
    code: CodeTree | None


def _questions(
    cluster: Cluster, script: PurePosixPath, sending: Sending | None, node: Node
) -> dict[str, Fact[Any]]:
    has_script = Command(
        argv=("test", "-f", str(script), "-a", "-r", str(script)),
        purpose=f"look for {script}",
        effect=Effect.READ,
        expect=frozenset({0, 1}),
    )
    asked: dict[str, Fact[Any]] = {
        "own": _own(cluster.name),
        "script": Fact("script", has_script, lambda result: result.checked().exit_code == 0),
        **code_questions(cluster),
        **(sending.questions() if sending else {}),
    }
    if node.container is not None and node == cluster.primary:
        asked["image"] = Fact("image", _IMAGE, _set_by_image)
    return asked


def _own(cluster: str) -> Fact[Own]:
    return Fact("own", own_question(cluster, with_public_keys=False), parse_own)


def _ask(
    applied: Applied,
    sides: Mapping[str, Sides],
    questions: Callable[[Node], Mapping[str, Fact[Any]]],
    node: Node,
) -> _Answer:
    answers = ask(sides[node.name].work, questions(node))
    for answer in answers.values():
        if isinstance(answer, Unanswered):
            raise NodeError(node.name, answer.message)
    values: dict[str, Any] = {name: value_of(answer) for name, answer in answers.items()}
    left, own = applied.nodes[node.name], _own(applied.cluster)
    host = own.parse(sides[node.name].host.run(own.command)) if left.host_sshd else None
    problems = left.problems(values["own"], host, now=time.time())
    return _Answer(
        problems=problems,
        has_script=values["script"],
        clock=values["clock"],
        image=values.get("image", {}),
        code=values.get("code_tree"),
    )


def _set_by_image(result: Result) -> dict[str, str]:
    values = result.checked().text.split("\0")[: len(OF_THE_IMAGE)]
    return {name: value for name, value in zip(OF_THE_IMAGE, values, strict=True) if value}


def _of_code(cluster: Cluster, trees: Mapping[str, CodeTree], sending: Sending | None) -> list[str]:
    """Why the code is not what it should be, nodes folded."""
    if sending is None:
        found = in_order(code_findings(cluster, trees))
        return [
            f"{fold(finding.nodes)}: not ready: {finding.text}; make the folders equal, or state "
            "code.source and run setup"
            for finding in found
            if finding.level == "error"
        ]
    sending = sending.after(trees)
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name, tree in trees.items():
        if send := sending.needed(tree):
            lacking.setdefault(send, []).append(name)
    return [
        f"{fold(nodes)}: not ready: {send[0]} is not as in {sending.source.shown}"
        f"{f'; {len(send) - 1} more' if len(send) > 1 else ''}; run setup"
        for send, nodes in lacking.items()
    ]


def _without_script(
    answered: Sequence[str],
    having: Sequence[str],
    path: PurePosixPath,
    script: str,
    *,
    is_copied: bool,
) -> list[str]:
    lacking = [name for name in answered if name not in having]
    if is_copied or not lacking:
        return []
    if having:
        return [f"{fold(lacking)}: has no readable {path}, but {fold(having)} has; copy it there"]
    here = os.path.relpath(script)
    return [f"{script}: is neither {path} on the nodes nor a file here ({here}); check its name"]
