"""Whether every node is ready for a job: as setup left it, with the script in place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ascendboot.before.asking import Asking
from ascendboot.before.checks import ORDER
from ascendboot.before.judge import disk_findings, judged, script_findings
from ascendboot.before.leftovers import leftovers
from ascendboot.before.packages import imported_by
from ascendboot.before.wanted import wanted
from ascendboot.errors import NodeError
from ascendboot.judge.code import code_findings
from ascendboot.judge.finding import Finding, in_order
from ascendboot.judge.folders import open_to_others
from ascendboot.model.clocks import NodeClocks
from ascendboot.model.names import fold, names_file_here
from ascendboot.transport.api import Sides
from ascendboot.transport.pool import for_each, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ascendboot.applied import Applied
    from ascendboot.before.asking import Heard
    from ascendboot.before.leftovers import Leftover
    from ascendboot.code.send import Sending
    from ascendboot.model.cluster import Cluster
    from ascendboot.model.code import CodeTree
    from ascendboot.parse.disk import FileSystem
    from ascendboot.transport.api import HostSide, Transport

_STATED = (
    "`facts: stated` is in the inventory: where npu-smi or hccn_tool could not be read at setup, "
    "the devices and addresses of this job are what the inventory states"
)
_HERE = "on this side, for the logs of the job"


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """What was found on all nodes together."""

    script: PurePosixPath
    """Where the script lies on the nodes; only its name counts when it is copied there."""
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
    clocks: NodeClocks
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
    has_place = cluster.code_path is not None and not names_file_here(script)
    path = PurePosixPath(cluster.code_path or "", script) if has_place else None
    asking = Asking(cluster, applied, wanted(cluster, applied, path, skipped), sending)
    sides = {name: Sides(hosts[name], transports[name]) for name in transports}
    answers = for_each(
        cluster.nodes,
        lambda node: asking.ask(node, sides[node.name]),
        forks=forks,
        meanwhile=meanwhile,
    )
    return _readiness(asking, answers, script, here)


def _readiness(
    asking: Asking,
    answers: Mapping[str, Heard | NodeError],
    script: str,
    here: FileSystem | None,
) -> Readiness:
    """What follows from the answers of all nodes together."""
    heard = {name: a for name, a in answers.items() if not isinstance(a, NodeError)}
    is_copied = not any(answer.has_script for answer in heard.values()) and Path(script).is_file()
    found = _found(asking, heard, script, here, is_copied=is_copied)
    errors = [finding for finding in found if finding.level == "error"]
    return Readiness(
        script=asking.job.script or PurePosixPath(Path(script).name),
        is_copied=is_copied,
        problems=(*_silent(answers), *(_told(f) for f in errors if f.id != "leftovers")),
        warnings=(
            *((_STATED,) if asking.cluster.facts == "stated" else ()),
            *(_told(finding) for finding in found if finding.level != "error"),
        ),
        leftovers=leftovers({name: answer.look for name, answer in heard.items()}),
        left=tuple(_told(finding) for finding in errors if finding.id == "leftovers"),
        clocks=NodeClocks(
            {name: answer.clock.offset_s for name, answer in heard.items()},
            max((answer.clock.uncertainty_s for answer in heard.values()), default=0.0),
        ),
        image=next((answer.image for answer in heard.values() if answer.image), {}),
    )


def _found(
    asking: Asking,
    heard: Mapping[str, Heard],
    script: str,
    here: FileSystem | None,
    *,
    is_copied: bool,
) -> list[Finding]:
    """What the checks that are made find, in the order in which it is told."""
    job = asking.job
    looks = {name: answer.look for name, answer in heard.items()}
    text = Path(script).read_text(errors="replace") if is_copied else ""
    found = [
        *_of_setup(heard),
        *open_to_others({name: answer.own for name, answer in heard.items()}),
        *_of_code_and_script(asking, heard, script, is_copied=is_copied),
        *script_findings(script, text.partition("\n")[0], ()),
        *judged(job, looks, imported_by(text)),
        *(disk_findings(here, (), what_for=_HERE) if here else ()),
    ]
    made = (finding for finding in found if job.makes(finding.id))
    return sorted(made, key=lambda finding: ORDER.index(finding.id))


def _silent(answers: Mapping[str, Heard | NodeError]) -> list[str]:
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


def _of_setup(heard: Mapping[str, Heard]) -> tuple[Finding, ...]:
    return in_order(
        _problem("setup", (name,), f"not ready: {problem}", "run setup")
        for name, answer in heard.items()
        for problem in answer.problems
    )


def _of_code_and_script(
    asking: Asking,
    heard: Mapping[str, Heard],
    script: str,
    *,
    is_copied: bool,
) -> tuple[Finding, ...]:
    """Where the code differs, that says more than that a script is missing."""
    trees = {name: answer.code for name, answer in heard.items() if answer.code is not None}
    found = tuple(_of_code(asking.cluster, trees, asking.sending)) if trees else ()
    having = [name for name, answer in heard.items() if answer.has_script]
    lacking = [] if is_copied else [name for name in heard if name not in having]
    missing = _of_script(lacking, having, asking.job.script, script) if lacking else ()
    return found or tuple(missing)


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
