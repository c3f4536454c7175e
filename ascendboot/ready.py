"""Whether every node is ready for a job: as setup left it, with the script in place."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.before.answers import NodeLook
from ascendboot.before.checks import ORDER
from ascendboot.before.judge import disk_findings, judged
from ascendboot.before.leftovers import leftovers
from ascendboot.before.packages import imported_by
from ascendboot.before.wanted import host_questions, wanted, work_questions
from ascendboot.errors import NodeError
from ascendboot.facts.api import Fact, Unanswered, answer_to, ask, value_of
from ascendboot.facts.code import code_questions
from ascendboot.facts.own import own_question, parse_own
from ascendboot.judge.code import code_findings
from ascendboot.judge.finding import Finding, in_order
from ascendboot.model.container import Inside
from ascendboot.model.names import fold
from ascendboot.transport.api import Command, Effect, Sides
from ascendboot.transport.both import Both
from ascendboot.transport.pool import for_each, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ascendboot.applied import Applied, OnNode
    from ascendboot.before.leftovers import Leftover
    from ascendboot.before.wanted import Wanted
    from ascendboot.code.send import Sending
    from ascendboot.facts.api import Answer, Clock
    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.code import CodeTree
    from ascendboot.parse.disk import FileSystem
    from ascendboot.transport.api import HostSide, Result, Transport


OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables by which a launcher finds its parts; a container's image may set them."""


_HERE = "on this side, for the logs of the job"


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What was found on all nodes together."""

    script: PurePosixPath
    """Where the script lies on the nodes, or its name when it is copied there."""
    is_copied: bool
    """It is not on the nodes and comes from the operator's side."""
    problems: tuple[str, ...]
    """Why nothing may be started, nodes folded; empty when all are ready."""
    warnings: tuple[str, ...] = ()
    """What stops nothing and is worth a word."""
    leftovers: tuple[Leftover, ...] = ()
    """What is left of earlier jobs; nothing may be started before it is ended."""
    left: tuple[str, ...] = ()
    """The same in words."""
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
    skipped: Collection[str] = (),
    here: FileSystem | None = None,
) -> Readiness:
    """Make all checks but the `skipped` ones on every node, in one execution each.

    `sending` holds the code that the nodes should have from this side. `here` is where this side
    keeps the logs. `meanwhile` is called while the nodes look.
    """
    path = PurePosixPath(cluster.code_path or "/") / script
    job = wanted(cluster, applied, path, skipped)
    asking = _Asking(cluster, applied, job, sending)
    sides = {name: Sides(hosts[name], transports[name]) for name in transports}
    answers = for_each(
        cluster.nodes,
        lambda node: asking.ask(node, sides[node.name]),
        forks=forks,
        meanwhile=meanwhile,
    )
    heard = {name: a for name, a in answers.items() if not isinstance(a, NodeError)}
    is_copied = not any(answer.has_script for answer in heard.values()) and Path(script).is_file()
    looks = {name: answer.look for name, answer in heard.items()}
    imported = imported_by(Path(script).read_text(errors="replace")) if is_copied else ()
    found = [
        *_of_setup(heard),
        *_of_code_and_script(asking, heard, path, script, is_copied=is_copied),
        *judged(job, looks, imported),
        *(disk_findings(here, (), what_for=_HERE) if here else ()),
    ]
    found = [finding for finding in found if job.makes(finding.id)]
    found.sort(key=lambda finding: ORDER.index(finding.id))
    errors = [finding for finding in found if finding.level == "error"]
    return Readiness(
        script=PurePosixPath(Path(script).name) if is_copied else path,
        is_copied=is_copied,
        problems=(*_silent(answers), *(_told(f) for f in errors if f.id != "leftovers")),
        warnings=tuple(_told(finding) for finding in found if finding.level != "error"),
        leftovers=leftovers(looks),
        left=tuple(_told(finding) for finding in errors if finding.id == "leftovers"),
        clock_offsets={name: answer.clock.offset_s for name, answer in heard.items()},
        clock_uncertainty_s=max((a.clock.uncertainty_s for a in heard.values()), default=0.0),
        image=next((answer.image for answer in heard.values() if answer.image), {}),
    )


_IMAGE = Command(
    argv=("bash", "-c", "".join(f'printf "%s\\0" "${{{n}-}}";' for n in OF_THE_IMAGE)),
    purpose="look at the environment of the container",
    effect=Effect.READ,
)


@dataclass(frozen=True)
class _Answer:
    problems: tuple[str, ...]
    """What is not as setup left it."""
    has_script: bool
    clock: Clock
    image: Mapping[str, str]
    code: CodeTree | None
    look: NodeLook


@dataclass(frozen=True)
class _Asking:
    """How a node is asked: both its sides, in one execution."""

    cluster: Cluster
    applied: Applied
    job: Wanted
    sending: Sending | None

    def ask(self, node: Node, sides: Sides) -> _Answer:
        """What a node says.

        Raises:
            NodeError: it could not be asked, or not understood in what every job needs.
        """
        left = self.applied.nodes[node.name]
        needed = self._needed(node)
        work = {**needed, **work_questions(self.job, node)}
        host: dict[str, Fact[Any]] = {**host_questions(self.job, node)}
        if left.host_sshd:
            host["served"] = self._own(left)
        answers = _asked(node, sides, left.engine, host, work)
        for name in (*needed, *host.keys() & {"served"}):
            answer = answers[name]
            if isinstance(answer, Unanswered):
                raise NodeError(node.name, answer.message)
        values: dict[str, Any] = {name: value_of(answer) for name, answer in answers.items()}
        is_checked = self.job.makes("setup")
        return _Answer(
            problems=left.problems(values["own"], values.get("served"), now=time.time())
            if is_checked
            else (),
            has_script=values["script"],
            clock=values["clock"],
            image=values.get("image", {}),
            code=values.get("code_tree"),
            look=NodeLook.of(answers),
        )

    def _needed(self, node: Node) -> dict[str, Fact[Any]]:
        """What has to be answered, or nothing is started."""
        script = self.job.script
        has_script = Command(
            argv=("test", "-f", str(script), "-a", "-r", str(script)),
            purpose=f"look for {script}",
            effect=Effect.READ,
            expect=frozenset({0, 1}),
        )
        asked: dict[str, Fact[Any]] = {
            "own": self._own(self.applied.nodes[node.name]),
            "script": Fact("script", has_script, lambda result: result.checked().exit_code == 0),
        }
        if self.job.makes("code"):
            asked |= code_questions(self.cluster)
            asked |= self.sending.questions() if self.sending else {}
        if node.container is not None and node == self.cluster.primary:
            asked["image"] = Fact("image", _IMAGE, _set_by_image)
        return asked

    def _own(self, left: OnNode) -> Fact[Own]:
        question = own_question(
            self.cluster.name,
            with_public_keys=False,
            with_certificates=left.expires is None,
        )
        return Fact("own", question, parse_own)


def _asked(
    node: Node,
    sides: Sides,
    engine: str,
    host: Mapping[str, Fact[Any]],
    work: Mapping[str, Fact[Any]],
) -> dict[str, Answer[Any]]:
    """The answers of both sides, in one execution; in two where nobody knows the engine."""
    if node.container is None:
        return ask(sides.work, {**work, **host})
    commands = tuple(dict.fromkeys(fact.command for fact in host.values()))
    if engine:
        both = Both(sides.host, Inside(engine, node.container), commands)
        answers, said = ask(both, work), both.on_host
    else:
        answers, said = ask(sides.work, work), sides.host.run_all(commands)
    result = dict(zip(commands, said, strict=True))
    return {
        **answers,
        **{name: answer_to(fact, result[fact.command]) for name, fact in host.items()},
    }


def _set_by_image(result: Result) -> dict[str, str]:
    values = result.checked().text.split("\0")[: len(OF_THE_IMAGE)]
    return {name: value for name, value in zip(OF_THE_IMAGE, values, strict=True) if value}


def _silent(answers: Mapping[str, _Answer | NodeError]) -> list[str]:
    """The nodes that could not be asked, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if isinstance(answer, NodeError):
            reasons.setdefault(answer.message, []).append(name)
    return [f"{fold(names)}: {reason}" for reason, names in reasons.items()]


def _told(finding: Finding) -> str:
    where = f"{fold(finding.nodes)}: " if finding.nodes else ""
    return f"{where}{finding.text}{'; ' if finding.remedy else ''}{finding.remedy}"


def _problem(id_: str, nodes: Sequence[str], text: str, remedy: str) -> Finding:
    return Finding(id=id_, level="error", nodes=tuple(nodes), text=text, remedy=remedy)


def _of_setup(heard: Mapping[str, _Answer]) -> tuple[Finding, ...]:
    return in_order(
        _problem("setup", (name,), f"not ready: {problem}", "run setup")
        for name, answer in heard.items()
        for problem in answer.problems
    )


def _of_code_and_script(
    asking: _Asking,
    heard: Mapping[str, _Answer],
    path: PurePosixPath,
    script: str,
    *,
    is_copied: bool,
) -> tuple[Finding, ...]:
    """Where the code differs, that says more than that a script is missing."""
    trees = {name: answer.code for name, answer in heard.items() if answer.code is not None}
    found = tuple(_of_code(asking.cluster, trees, asking.sending)) if trees else ()
    having = [name for name, answer in heard.items() if answer.has_script]
    return found or tuple(_of_script(list(heard), having, path, script, is_copied=is_copied))


def _of_code(
    cluster: Cluster, trees: Mapping[str, CodeTree], sending: Sending | None
) -> Iterator[Finding]:
    """Why the code is not what it should be."""
    if sending is None:
        remedy = "make the folders equal, or state code.source and run setup"
        for finding in in_order(code_findings(cluster, trees)):
            if finding.level == "error":
                yield _problem("code", finding.nodes, f"not ready: {finding.text}", remedy)
        return
    sending = sending.after(trees)
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name, tree in trees.items():
        if send := sending.needed(tree):
            lacking.setdefault(send, []).append(name)
    for send, nodes in lacking.items():
        more = f"; {len(send) - 1} more" if len(send) > 1 else ""
        text = f"not ready: {send[0]} is not as in {sending.source.shown}{more}"
        yield _problem("code", nodes, text, "run setup")


def _of_script(
    answered: Sequence[str],
    having: Sequence[str],
    path: PurePosixPath,
    script: str,
    *,
    is_copied: bool,
) -> Iterator[Finding]:
    lacking = [name for name in answered if name not in having]
    if is_copied or not lacking:
        return
    if having:
        text = f"has no readable {path}, but {fold(having)} has"
        yield _problem("script", lacking, text, "copy it there")
        return
    here = os.path.relpath(script)
    text = f"{script}: is neither {path} on the nodes nor a file here ({here})"
    yield _problem("script", (), text, "check its name")
