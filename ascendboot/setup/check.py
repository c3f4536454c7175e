"""`check`: everything that setup would judge or prove, without changing anything."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.checks.finding import Finding
from ascendboot.checks.launchers import needs_openmpi
from ascendboot.checks.probes import probes_of
from ascendboot.facts.query import value_of
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.apply import code_planned, halves
from ascendboot.setup.phases import COMPARE, SETUP
from ascendboot.setup.plan import our_ports
from ascendboot.setup.results import checked, found
from ascendboot.setup.steps import Change
from ascendboot.setup.verify import (
    Expectation,
    Verification,
    daemon_of,
    rank_wrapper,
    run_verification,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascendboot.checks.probes import Coverage
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.setup.context import Context
    from ascendboot.setup.plan import ClusterFacts
    from ascendboot.setup.survey import Connect, Survey, Surveyed
    from ascendboot.setup.sync import CodeSender
    from ascendboot.transport.api import Sides

_SETTLE = "Run setup"


def check_cluster(survey: Survey, connect: Connect, coverage: Coverage) -> None:
    """Look at everything and go on after findings: as far as the answers reach.

    `connect` gives transports that refuse to write.

    Raises:
        Stopped: the operator interrupted.
    """
    surveyed = survey.look(connect)
    seen = surveyed.seen
    if not seen.facts:
        return
    known = tuple(node for node in survey.cluster.nodes if node.name in seen.facts)
    cluster = replace(survey.cluster, nodes=known)
    compared = _compared(cluster, surveyed)
    if survey.sending is not None:
        compared += _code(survey.sending, seen)
    survey.progress.end(COMPARE, compared)
    ports = {node.name: port for node in known for port in our_ports(node, seen)[:1]}
    wanted = probes_of(cluster, seen.facts, coverage, ssh_ports=ports)
    logins = _logins(cluster, seen, surveyed.context)
    proofs = Verification(cluster.primary_name, logins, wanted)
    run_verification(survey.progress, proofs, surveyed.sides)


def _compared(cluster: Cluster, surveyed: Surveyed) -> list[StepResult]:
    """What setup would change; one line where nothing is set up, or wishes are not known."""
    own = [surveyed.seen.own[node.name] for node in cluster.nodes]
    if not any(there.files or there.daemon for there in own):
        names = tuple(node.name for node in cluster.nodes)
        nothing = Finding(
            id="not-set-up",
            level="warning",
            nodes=names,
            text="nothing is set up yet",
            remedy=_SETTLE,
        )
        return found("compare", "files", {}, [nothing])
    context = surveyed.context
    if context is None:
        return [
            StepResult(
                node=node.name,
                phase="compare",
                step="files",
                outcome=Outcome.NOT_RUN,
                detail="what setup would change is not known before the problems above are solved",
            )
            for node in cluster.nodes
        ]
    sides = surveyed.sides
    return [r for n in cluster.nodes for r in _differences(context, n, sides[n.name])]


def _code(sending: CodeSender, seen: ClusterFacts) -> Iterator[StepResult]:
    """What setup would send of the code, as a warning."""
    for result in code_planned(sending, seen):
        if result.outcome is not Outcome.WOULD_CHANGE:
            yield result
            continue
        difference = Finding(
            id="not-as-setup-wishes",
            level="warning",
            nodes=(result.node,),
            text=f"the code is not that of the source: setup {result.detail}",
            remedy=_SETTLE,
        )
        [found_] = found(result.phase, result.step, {}, [difference])
        yield replace(found_, step=result.step)


def _differences(context: Context, node: Node, sides: Sides) -> Iterator[StepResult]:
    both = halves(context, SETUP, node, sides)
    verdicts = [(p, s, s.check(half.own)) for half in both for p, s in half.wishes]
    for phase, step, verdict in verdicts:
        if not isinstance(verdict, Change):
            yield checked(phase, node, step, verdict)
            continue
        difference = Finding(
            id="not-as-setup-wishes",
            level="warning",
            nodes=(node.name,),
            text=f"not as setup wishes: {verdict.summary}",
            remedy=_SETTLE,
        )
        [result] = found(phase.name, step.name, {}, [difference])
        yield replace(result, step=step.name)


def _logins(cluster: Cluster, seen: ClusterFacts, context: Context | None) -> Expectation | None:
    """What the primary's logins must find; None while it has nothing to log in with."""
    own = seen.own.get(cluster.primary_name)
    if own is None or own.cluster_key is None or "trust/ssh_config" not in own.files:
        return None
    files = context.resources if context else {}
    wished = {f"resources/{name}": text for name, text in files.items()}
    openmpi = value_of(seen.facts[cluster.primary_name].openmpi)
    is_needed = openmpi is not None and needs_openmpi(cluster, seen.facts)
    return Expectation(
        cluster=cluster,
        base=own.base,
        mpirun=openmpi.path if openmpi and is_needed else "",
        # what is not as wished, or is not there at all, has been told already
        programs={
            **(rank_wrapper(own.base) if _is_everywhere(seen, "env/rank-exec") else {}),
            **(daemon_of(openmpi.path) if openmpi and is_needed else {}),
        },
        files={path: text for path, text in wished.items() if _is_there(seen, path, text)},
    )


def _is_everywhere(seen: ClusterFacts, path: str) -> bool:
    return all(path in own.files for own in seen.own.values())


def _is_there(seen: ClusterFacts, path: str, text: str) -> bool:
    digest = sha256(text.encode()).hexdigest()
    found = [own.files.get(path) for own in seen.own.values()]
    return all(file is not None and file.sha256 == digest for file in found)
