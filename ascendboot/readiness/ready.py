"""Decides whether the nodes of a job are ready for it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.checks.containers import code_findings
from ascendboot.checks.finding import Finding, in_order
from ascendboot.checks.hosts import open_to_others
from ascendboot.errors import NodeError
from ascendboot.facts.container import code_queries
from ascendboot.facts.installed import Installed, installed_query, parse_installed
from ascendboot.facts.query import Answer, Clock, Fact, Unanswered, answer_to, query, value_of
from ascendboot.model.cluster import Cluster, ContainerExec, Node, NodeClocks
from ascendboot.model.names import fold, names_file_here
from ascendboot.readiness.checks import (
    ORDER,
    disk_findings,
    imported_by,
    readiness_findings,
    script_findings,
)
from ascendboot.readiness.queries import NodeProbe
from ascendboot.readiness.requirements import (
    JobRequirements,
    Leftover,
    host_queries,
    job_requirements,
    leftovers,
    work_queries,
)
from ascendboot.transport.api import Command, Effect, HostSide, Result, Sides, Transport
from ascendboot.transport.pool import for_each
from ascendboot.transport.script import HostAndContainer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ascendboot.facts.parsers.system import FileSystem
    from ascendboot.model.files import CodeTree
    from ascendboot.setup.record import NodeRecord, SetupRecord
    from ascendboot.setup.sync import CodeSender

OF_THE_IMAGE = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables by which a launcher finds its parts; a container's image may set them."""

_IMAGE = Command(
    argv=("bash", "-c", "".join(f'printf "%s\\0" "${{{n}-}}";' for n in OF_THE_IMAGE)),
    purpose="look at the environment of the container",
    effect=Effect.READ,
)


@dataclass(frozen=True)
class NodeReply:
    """The reply of one node."""

    problems: tuple[str, ...]
    """Differences from what setup left."""
    own: tuple[Installed, ...]
    """What ascendboot has installed, by side."""
    has_script: bool
    clock: Clock
    image: Mapping[str, str]
    code: CodeTree | None
    probe: NodeProbe


@dataclass(frozen=True)
class ReadinessQuery:
    """Queries both sides of a node in one execution."""

    cluster: Cluster
    record: SetupRecord
    job: JobRequirements
    sending: CodeSender | None

    def run(self, node: Node, sides: Sides) -> NodeReply:
        """Query a node.

        Raises:
            NodeError: the query failed, or an answer that every job needs was not understood.
        """
        left = self.record.nodes[node.name]
        needed = self._needed(node)
        work = {**needed, **work_queries(self.job, node)}
        host: dict[str, Fact[Any]] = {**host_queries(self.job, node)}
        if left.host_sshd:
            host["served"] = self._own(left)
        answers = _query_sides(node, sides, left.engine, host, work)
        for name in (*needed, *host.keys() & {"served"}):
            answer = answers[name]
            if isinstance(answer, Unanswered):
                raise NodeError(node.name, answer.message)
        values: dict[str, Any] = {name: value_of(answer) for name, answer in answers.items()}
        is_checked = self.job.makes("setup")
        return NodeReply(
            problems=left.problems(values["own"], values.get("served"), now=time.time())
            if is_checked
            else (),
            own=tuple(values[name] for name in ("own", "served") if name in values),
            has_script=values.get("script", False),
            clock=values["clock"],
            image=values.get("image", {}),
            code=values.get("code_tree"),
            probe=NodeProbe.of(answers),
        )

    def _needed(self, node: Node) -> dict[str, Fact[Any]]:
        """The queries without whose answers no job starts."""
        queries: dict[str, Fact[Any]] = {"own": self._own(self.record.nodes[node.name])}
        if self.job.script is not None:
            queries["script"] = _script_query(str(self.job.script))
        if self.job.makes("code"):
            queries |= code_queries(self.cluster)
            queries |= self.sending.questions() if self.sending else {}
        if node.container is not None and node == self.cluster.primary:
            queries["image"] = Fact(_IMAGE, _set_by_image)
        return queries

    def _own(self, left: NodeRecord) -> Fact[Installed]:
        question = installed_query(
            self.cluster.name,
            with_public_keys=False,
            with_certificates=left.expires is None,
        )
        return Fact(question, parse_installed)


def _script_query(path: str) -> Fact[bool]:
    has_script = Command(
        argv=("test", "-f", path, "-a", "-r", path),
        purpose=f"look for {path}",
        effect=Effect.READ,
        expect=frozenset({0, 1}),
    )
    return Fact(has_script, lambda result: result.checked().exit_code == 0)


def _query_sides(
    node: Node,
    sides: Sides,
    engine: str,
    host: Mapping[str, Fact[Any]],
    work: Mapping[str, Fact[Any]],
) -> dict[str, Answer[Any]]:
    """The answers of both sides, from one execution; from two if the engine is unknown."""
    if node.container is None:
        return query(sides.work, {**work, **host})
    commands = tuple(dict.fromkeys(fact.command for fact in host.values()))
    if engine:
        both = HostAndContainer(sides.host, ContainerExec(engine, node.container), commands)
        answers, results = query(both, work), both.on_host
    else:
        answers, results = query(sides.work, work), sides.host.run_all(commands)
    result = dict(zip(commands, results, strict=True))
    return {
        **answers,
        **{name: answer_to(fact, result[fact.command]) for name, fact in host.items()},
    }


def _set_by_image(result: Result) -> dict[str, str]:
    values = result.checked().text.split("\0")[: len(OF_THE_IMAGE)]
    return {name: value for name, value in zip(OF_THE_IMAGE, values, strict=True) if value}


_STATED = (
    "`facts: stated` is in the inventory: where npu-smi or hccn_tool could not be read at setup, "
    "the devices and addresses of this job are what the inventory states"
)
_HERE = "on this side, for the logs of the job"


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The result of all readiness checks."""

    script: PurePosixPath
    """Where the script lies on the nodes; only its name counts when it is copied there."""
    is_copied: bool
    """It is not on the nodes and comes from the control machine."""
    problems: tuple[str, ...]
    """Why the job cannot start, nodes folded; empty if all nodes are ready."""
    warnings: tuple[str, ...] = ()
    """Findings that do not stop the job."""
    leftovers: tuple[Leftover, ...] = ()
    """Processes of earlier jobs; they must end before the job starts."""
    left: tuple[str, ...] = ()
    """The same in words."""
    clocks: NodeClocks
    image: Mapping[str, str]
    """What the primary's container sets of `OF_THE_IMAGE`; empty without a container."""


def check_readiness(
    cluster: Cluster,
    record: SetupRecord,
    transports: Mapping[str, Transport],
    script: str,
    *,
    hosts: Mapping[str, HostSide],
    forks: int,
    sending: CodeSender | None = None,
    skipped: Collection[str] = (),
    control_disk: FileSystem | None = None,
) -> Readiness:
    """Run all checks but the `skipped` ones on every node, in one execution each.

    `sending` holds the code that the control machine sends to the nodes, `control_disk` the file
    system of its logs.
    """
    has_place = cluster.code_path is not None and not names_file_here(script)
    path = PurePosixPath(cluster.code_path or "", script) if has_place else None
    readiness_query = ReadinessQuery(
        cluster, record, job_requirements(cluster, record, path, skipped), sending
    )
    sides = {name: Sides(hosts[name], transports[name]) for name in transports}
    answers = for_each(
        cluster.nodes,
        lambda node: readiness_query.run(node, sides[node.name]),
        forks=forks,
    )
    return _readiness(readiness_query, answers, script, control_disk)


def _readiness(
    readiness_query: ReadinessQuery,
    answers: Mapping[str, NodeReply | NodeError],
    script: str,
    control_disk: FileSystem | None,
) -> Readiness:
    """Combines the answers of all nodes."""
    replies = {name: a for name, a in answers.items() if not isinstance(a, NodeError)}
    is_copied = not any(answer.has_script for answer in replies.values()) and Path(script).is_file()
    found = _found(readiness_query, replies, script, control_disk, is_copied=is_copied)
    errors = [finding for finding in found if finding.level == "error"]
    return Readiness(
        script=readiness_query.job.script or PurePosixPath(Path(script).name),
        is_copied=is_copied,
        problems=(
            *_unreachable(answers),
            *(_finding_line(f) for f in errors if f.id != "leftovers"),
        ),
        warnings=(
            *((_STATED,) if readiness_query.cluster.facts == "stated" else ()),
            *(_finding_line(finding) for finding in found if finding.level != "error"),
        ),
        leftovers=leftovers({name: answer.probe for name, answer in replies.items()}),
        left=tuple(_finding_line(finding) for finding in errors if finding.id == "leftovers"),
        clocks=NodeClocks(
            {name: answer.clock.offset_s for name, answer in replies.items()},
            max((answer.clock.uncertainty_s for answer in replies.values()), default=0.0),
        ),
        image=next((answer.image for answer in replies.values() if answer.image), {}),
    )


def _found(
    readiness_query: ReadinessQuery,
    replies: Mapping[str, NodeReply],
    script: str,
    control_disk: FileSystem | None,
    *,
    is_copied: bool,
) -> list[Finding]:
    """The findings of all checks that are not skipped, in the order of the report."""
    job = readiness_query.job
    probes = {name: answer.probe for name, answer in replies.items()}
    text = Path(script).read_text(errors="replace") if is_copied else ""
    found = [
        *_of_setup(replies),
        *open_to_others({name: answer.own for name, answer in replies.items()}),
        *_of_code_and_script(readiness_query, replies, script, is_copied=is_copied),
        *script_findings(script, text.partition("\n")[0], ()),
        *readiness_findings(job, probes, imported_by(text)),
        *(disk_findings(control_disk, (), what_for=_HERE) if control_disk else ()),
    ]
    made = (finding for finding in found if job.makes(finding.id))
    return sorted(made, key=lambda finding: ORDER.index(finding.id))


def _unreachable(answers: Mapping[str, NodeReply | NodeError]) -> list[str]:
    """The nodes whose query failed, each reason once."""
    reasons: dict[str, list[str]] = {}
    for name, answer in answers.items():
        if isinstance(answer, NodeError):
            reasons.setdefault(answer.message, []).append(name)
    return [f"{fold(names)}: {reason}" for reason, names in reasons.items()]


def _finding_line(finding: Finding) -> str:
    where = f"{fold(finding.nodes)}: " if finding.nodes else ""
    return f"{where}{finding.text}{'; ' if finding.remedy else ''}{finding.remedy}"


def _problem(id_: str, nodes: Sequence[str], text: str, remedy: str) -> Finding:
    return Finding(id=id_, level="error", nodes=tuple(nodes), text=text, remedy=remedy)


def _of_setup(replies: Mapping[str, NodeReply]) -> tuple[Finding, ...]:
    return in_order(
        _problem("setup", (name,), f"not ready: {problem}", "run setup")
        for name, answer in replies.items()
        for problem in answer.problems
    )


def _of_code_and_script(
    readiness_query: ReadinessQuery,
    replies: Mapping[str, NodeReply],
    script: str,
    *,
    is_copied: bool,
) -> tuple[Finding, ...]:
    """Differences of the code; only without any, a missing script."""
    trees = {name: answer.code for name, answer in replies.items() if answer.code is not None}
    found = (
        tuple(_of_code(readiness_query.cluster, trees, readiness_query.sending)) if trees else ()
    )
    having = [name for name, answer in replies.items() if answer.has_script]
    lacking = [] if is_copied else [name for name in replies if name not in having]
    missing = _of_script(lacking, having, readiness_query.job.script, script) if lacking else ()
    return found or tuple(missing)


def _of_code(
    cluster: Cluster, trees: Mapping[str, CodeTree], sending: CodeSender | None
) -> Iterator[Finding]:
    """Finds differences from the code that the nodes should have."""
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
    lacking: Sequence[str], having: Sequence[str], path: PurePosixPath | None, script: str
) -> Iterator[Finding]:
    if having:
        text = f"has no readable {path}, but {fold(having)} has"
        yield _problem("script", lacking, text, "copy it there")
        return
    here = os.path.relpath(script)
    if path is None:
        text = f"{script}: is no file on the control machine ({here})"
        remedy = "check its name, or state the folder of the nodes' code as code.path"
        yield _problem("script", (), text, remedy)
        return
    text = f"{script}: is neither {path} on the nodes nor a file here ({here})"
    yield _problem("script", (), text, "check its name")
