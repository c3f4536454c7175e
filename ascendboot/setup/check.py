"""Runs all checks of `check`, which changes nothing."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.checks.finding import warning
from ascendboot.checks.launchers import needs_openmpi
from ascendboot.checks.probes import Coverage, probes_of
from ascendboot.facts.query import value_of
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.apply import code_planned, sides_of
from ascendboot.setup.cluster_plan import ClusterFacts, sshd_ports
from ascendboot.setup.phases import COMPARE, SETUP
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

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.setup.context import Context
    from ascendboot.setup.survey import Connect, Survey, Surveyed
    from ascendboot.setup.sync import CodeSender
    from ascendboot.transport.api import Sides

_SETTLE = "Run setup"


def check_cluster(survey: Survey, connect: Connect, coverage: Coverage) -> None:
    """Check everything that the nodes' answers allow, also after errors.

    `connect` gives transports that refuse to write.

    Raises:
        Stopped: the operator interrupted.
    """
    surveyed = survey.look(connect)
    facts = surveyed.facts
    if not facts.nodes:
        return
    known = tuple(node for node in survey.cluster.nodes if node.name in facts.nodes)
    cluster = replace(survey.cluster, nodes=known)
    compared = _compared(cluster, surveyed)
    if survey.sender is not None:
        compared += _code(survey.sender, facts)
    survey.progress.end(COMPARE, compared)
    ports = {node.name: port for node in known for port in sshd_ports(node, facts)[:1]}
    probes = probes_of(cluster, facts.nodes, coverage, ssh_ports=ports)
    logins = _logins(cluster, facts, surveyed.context)
    verification = Verification(cluster.primary_name, logins, probes)
    run_verification(survey.progress, verification, surveyed.sides)


def _compared(cluster: Cluster, surveyed: Surveyed) -> list[StepResult]:
    """What setup would change; one result where nothing is set up, or steps are not known."""
    installed = [surveyed.facts.installed[node.name] for node in cluster.nodes]
    if not any(there.files or there.daemon for there in installed):
        names = tuple(node.name for node in cluster.nodes)
        nothing = warning("not-set-up", names, "nothing is set up yet", _SETTLE)
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


def _code(sender: CodeSender, facts: ClusterFacts) -> Iterator[StepResult]:
    """What setup would send of the code, as a warning."""
    for result in code_planned(sender, facts):
        if result.outcome is not Outcome.WOULD_CHANGE:
            yield result
            continue
        difference = warning(
            "not-as-setup-wishes",
            (result.node,),
            f"the code is not that of the source: setup {result.detail}",
            _SETTLE,
        )
        [found_] = found(result.phase, result.step, {}, [difference])
        yield replace(found_, step=result.step)


def _differences(context: Context, node: Node, sides: Sides) -> Iterator[StepResult]:
    both = sides_of(context, SETUP, node, sides)
    states = [(p, s, s.check(side.installed)) for side in both for p, s in side.steps]
    for phase, step, state in states:
        if not isinstance(state, Change):
            yield checked(phase, node, step, state)
            continue
        difference = warning(
            "not-as-setup-wishes",
            (node.name,),
            f"not in the desired state: {state.summary}",
            _SETTLE,
        )
        [result] = found(phase.name, step.name, {}, [difference])
        yield replace(result, step=step.name)


def _logins(cluster: Cluster, facts: ClusterFacts, context: Context | None) -> Expectation | None:
    """What the primary's logins must find; None while it has nothing to log in with."""
    installed = facts.installed.get(cluster.primary_name)
    if (
        installed is None
        or installed.cluster_key is None
        or "trust/ssh_config" not in installed.files
    ):
        return None
    files = context.resources if context else {}
    texts = {f"resources/{name}": text for name, text in files.items()}
    openmpi = value_of(facts.nodes[cluster.primary_name].openmpi)
    is_needed = openmpi is not None and needs_openmpi(cluster, facts.nodes)
    return Expectation(
        cluster=cluster,
        base=installed.base,
        mpirun=openmpi.path if openmpi and is_needed else "",
        # another finding reports files that differ or are missing
        programs={
            **(rank_wrapper(installed.base) if _is_everywhere(facts, "env/rank-exec") else {}),
            **(daemon_of(openmpi.path) if openmpi and is_needed else {}),
        },
        files={path: text for path, text in texts.items() if _is_there(facts, path, text)},
    )


def _is_everywhere(facts: ClusterFacts, path: str) -> bool:
    return all(path in installed.files for installed in facts.installed.values())


def _is_there(facts: ClusterFacts, path: str, text: str) -> bool:
    digest = sha256(text.encode()).hexdigest()
    found = [installed.files.get(path) for installed in facts.installed.values()]
    return all(file is not None and file.sha256 == digest for file in found)
