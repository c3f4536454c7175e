"""How a node is asked, both its sides at once, whether it is ready for a job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendboot.before.answers import NodeLook
from ascendboot.before.wanted import host_questions, work_questions
from ascendboot.errors import NodeError
from ascendboot.facts.api import Fact, Unanswered, answer_to, ask, value_of
from ascendboot.facts.code import code_questions
from ascendboot.facts.own import own_question, parse_own
from ascendboot.model.container import Inside
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.both import Both

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.applied import Applied, OnNode
    from ascendboot.before.wanted import Wanted
    from ascendboot.code.send import Sending
    from ascendboot.facts.api import Answer, Clock
    from ascendboot.facts.own import Own
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.code import CodeTree
    from ascendboot.transport.api import Result, Sides

OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables by which a launcher finds its parts; a container's image may set them."""

_IMAGE = Command(
    argv=("bash", "-c", "".join(f'printf "%s\\0" "${{{n}-}}";' for n in OF_THE_IMAGE)),
    purpose="look at the environment of the container",
    effect=Effect.READ,
)


@dataclass(frozen=True)
class Heard:
    """What one node said."""

    problems: tuple[str, ...]
    """What is not as setup left it."""
    own: tuple[Own, ...]
    """What of ours is there, by side."""
    has_script: bool
    clock: Clock
    image: Mapping[str, str]
    code: CodeTree | None
    look: NodeLook


@dataclass(frozen=True)
class Asking:
    """How a node is asked: both its sides, in one execution."""

    cluster: Cluster
    applied: Applied
    job: Wanted
    sending: Sending | None

    def ask(self, node: Node, sides: Sides) -> Heard:
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
        return Heard(
            problems=left.problems(values["own"], values.get("served"), now=time.time())
            if is_checked
            else (),
            own=tuple(values[name] for name in ("own", "served") if name in values),
            has_script=values.get("script", False),
            clock=values["clock"],
            image=values.get("image", {}),
            code=values.get("code_tree"),
            look=NodeLook.of(answers),
        )

    def _needed(self, node: Node) -> dict[str, Fact[Any]]:
        """What has to be answered, or nothing is started."""
        asked: dict[str, Fact[Any]] = {"own": self._own(self.applied.nodes[node.name])}
        if self.job.script is not None:
            asked["script"] = _script_question(str(self.job.script))
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


def _script_question(path: str) -> Fact[bool]:
    has_script = Command(
        argv=("test", "-f", path, "-a", "-r", path),
        purpose=f"look for {path}",
        effect=Effect.READ,
        expect=frozenset({0, 1}),
    )
    return Fact("script", has_script, lambda result: result.checked().exit_code == 0)


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
