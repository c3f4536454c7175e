"""Runs all checks of `check`, which changes nothing."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from ascendboot.checks.finding import warning
from ascendboot.checks.launchers import needs_openmpi
from ascendboot.checks.probes import Coverage, probes_of
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.apply import check_steps, code_planned
from ascendboot.setup.cluster_plan import ClusterFacts, sshd_ports
from ascendboot.setup.context import Context
from ascendboot.setup.phases import COMPARE, SETUP
from ascendboot.setup.results import found
from ascendboot.setup.steps import Change
from ascendboot.setup.survey import Connect, Survey, Surveyed
from ascendboot.setup.verify import Expectation, run_verification


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
    for result in code_planned(survey.sender, facts) if survey.sender else ():
        if result.outcome is Outcome.WOULD_CHANGE:
            text = f"the code is not that of the source: setup {result.detail}"
            compared.append(_difference(result, text))
        else:
            compared.append(result)
    survey.progress.end(COMPARE, compared)
    ports = {node.name: port for node in known for port in sshd_ports(node, facts)[:1]}
    probes = probes_of(cluster, facts.nodes, coverage, ssh_ports=ports)
    logins = _logins(cluster, facts, surveyed.context)
    run_verification(survey.progress, logins, probes, surveyed.sides)


def _compared(cluster: Cluster, surveyed: Surveyed) -> list[StepResult]:
    """What setup would change; one result where nothing is set up, or steps are not known."""
    installed = [surveyed.facts.installed[node.name] for node in cluster.nodes]
    names = tuple(node.name for node in cluster.nodes)
    if not any(there.files or there.daemon for there in installed):
        nothing = warning("not-set-up", names, "nothing is set up yet", "Run setup")
        return found("compare", "files", {}, [nothing])
    if surveyed.context is None:
        text = "not compared with the desired state: fix the errors above first"
        return [StepResult(name, "compare", "files", Outcome.NOT_RUN, text) for name in names]
    results = []
    for node in cluster.nodes:
        for result, state in check_steps(surveyed.context, SETUP, node, surveyed.sides[node.name]):
            is_change = isinstance(state, Change)
            text = f"not in the desired state: {result.detail}"
            results.append(_difference(result, text) if is_change else result)
    return results


def _difference(result: StepResult, text: str) -> StepResult:
    """A result that would be a change, as a warning."""
    difference = warning("not-as-setup-wishes", (result.node,), text, "Run setup")
    [warned] = found(result.phase, result.step, {}, [difference])
    return replace(warned, step=result.step)


def _logins(cluster: Cluster, facts: ClusterFacts, context: Context | None) -> Expectation | None:
    """What the primary's logins must find; None while it has nothing to log in with."""
    installed = facts.installed.get(cluster.primary_name)
    if installed is None or not installed.cluster_key:
        return None
    if "trust/ssh_config" not in installed.files:
        return None

    def is_everywhere(path: str, digest: str = "") -> bool:
        files = [each.files.get(path) for each in facts.installed.values()]
        return all(file is not None and digest in ("", file.sha256) for file in files)

    # Another finding reports files that differ or are missing.
    texts = (
        {f"resources/{name}": text for name, text in context.resources.items()} if context else {}
    )
    files = {p: t for p, t in texts.items() if is_everywhere(p, sha256(t.encode()).hexdigest())}
    openmpi = value_of(facts.nodes[cluster.primary_name].openmpi)
    return Expectation(
        cluster=cluster,
        base=installed.base,
        mpirun=openmpi.path if openmpi and needs_openmpi(cluster, facts.nodes) else "",
        has_wrapper=is_everywhere("env/rank-exec"),
        files=files,
    )
