"""Creates the containers of nodes where the inventory states an image, before all other steps."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Mapping

from ascendboot.checks.creation import VISIBLE, Pending, as_text, digest, pending
from ascendboot.errors import CommandError, NodeError
from ascendboot.facts.container import container_query
from ascendboot.facts.parsers.system import LABELS
from ascendboot.facts.query import answer_to
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import FOLDER
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.phases import COMPARE, CONTAINERS
from ascendboot.setup.results import failed
from ascendboot.setup.survey import Survey, Surveyed, container_users
from ascendboot.templates import script
from ascendboot.transport.api import Command, write_script
from ascendboot.value import replace

_STEP, _PHASE = "container", "containers"
_LIMIT_S, _PULL_LIMIT_S = 120.0, 3600.0
_DONE = {"create": "created", "replace": "re-created", "start": "started"}


def volume_of(cluster: str, container: str) -> str:
    """The name of the volume that keeps the cluster's folder when a container is re-created."""
    return f"ascendboot-{cluster}-{container}"


def create_containers(survey: Survey, surveyed: Surveyed) -> Surveyed:
    """Create, re-create or start what is pending, and query those nodes again.

    Raises:
        Stopped: a container could not be created, or something blocks setup now.
    """
    cluster, progress = survey.cluster, survey.progress
    if not any(node.creation for node in cluster.nodes):
        return surveyed
    progress.begin(CONTAINERS)
    began = time.monotonic()
    outcomes = progress.for_each(
        surveyed.pending, lambda node: _apply(cluster, node, surveyed, surveyed.pending[node.name])
    )
    took = time.monotonic() - began
    results = _as_described(cluster, surveyed)
    for name, outcome in outcomes.items():
        if isinstance(outcome, NodeError):
            results.append(failed(_PHASE, _STEP, outcome, took))
        else:
            results.append(StepResult(name, _PHASE, _STEP, Outcome.CHANGED, outcome, took))
    progress.end(CONTAINERS, results)
    progress.stop_if_bad()
    if not surveyed.pending:
        return surveyed
    surveyed = survey.again(surveyed)
    progress.stop_if_bad()
    return surveyed


def plan_containers(survey: Survey, surveyed: Surveyed) -> None:
    """Report what `create_containers` would do."""
    cluster, progress = survey.cluster, survey.progress
    if not any(node.creation for node in cluster.nodes):
        return
    results = _as_described(cluster, surveyed)
    for name, todo in surveyed.pending.items():
        words = f"{todo.why}: it would be {_DONE[todo.action]}"
        if todo.action == "replace":
            words += ", and what lies in it and in no mount is lost"
        detail = StepResult(name, _PHASE, _STEP, Outcome.WOULD_CHANGE, words, diff=_diff(todo))
        results.append(detail)
    progress.end(CONTAINERS, results)
    if surveyed.pending:
        words = "not known before the containers run"
        later = Outcome.WOULD_CHANGE
        progress.end(
            COMPARE, [StepResult(n.name, "compare", "files", later, words) for n in cluster.nodes]
        )


def _as_described(cluster: Cluster, surveyed: Surveyed) -> list[StepResult]:
    return [
        StepResult(node.name, _PHASE, _STEP, Outcome.OK, "runs as described")
        for node in cluster.nodes
        if node.creation and node.name not in surveyed.pending
    ]


def _apply(cluster: Cluster, node: Node, surveyed: Surveyed, todo: Pending) -> str:
    """Do what is pending on a node. Returns what was done.

    Raises:
        NodeError: it failed, or somebody uses the container meanwhile.
    """
    host, facts = surveyed.sides[node.name].host, surveyed.facts.nodes[node.name]
    if todo.action == "replace":
        for finding in container_users(cluster, node, facts, host):
            raise CommandError(node.name, f"{finding.text}; {finding.remedy}")
    query = container_query(node)["container"]
    done, last = host.run_all([_command(cluster, node, todo), query.command])
    now = pending(cluster, node, replace(facts, container=answer_to(query, last)))
    if now is None and done.as_expected:
        return f"{todo.why}: {_DONE[todo.action]}"
    left = f"; {now.why}" if now and done.as_expected else ""
    outcome = done.outcome().removeprefix("a script ")
    text = f"could not {done.command.purpose}: {outcome}{left}; fix that and run setup again"
    raise CommandError(node.name, text)


def _command(cluster: Cluster, node: Node, todo: Pending) -> Command:
    made, name, wanted = node.creation, node.container or "", todo.wanted
    if made is None:
        raise NodeError(node.name, f"could not create {name}: the inventory states no image")
    env = dict(made.env)
    flags = ["--network=host", "--user=0", f"--shm-size={_size(made.shm)}"]
    volume = volume_of(cluster.name, name)
    flags += ["--mount", f"type=volume,source={volume},target={FOLDER}"]
    if made.runtime == "ascend":
        flags.append("--runtime=ascend")
        [env[VISIBLE]] = wanted["devices"]
    else:
        flags += [f"--device={path}" for path in wanted["devices"]]
    for mount in wanted["mounts"]:
        source, target, *mode = mount.split(":")
        read_only = ",readonly" if mode else ""
        flags += ["--mount", f"type=bind,source={source},target={target}{read_only}"]
    noted = zip(LABELS, (cluster.name, digest(wanted), as_text(wanted)), strict=True)
    lines = [f"{key}={value}\n" for key, value in (*noted, *env.items())]
    pull = "pull" if made.pull else ""
    words = (todo.action, todo.engine, name, cluster.name, volume, made.image, pull, *flags)
    verb = {"create": "create", "replace": "re-create", "start": "start"}[todo.action]
    return write_script(
        script("setup-container.sh"),
        *words,
        purpose=f"{verb} the container {name}",
        timeout_s=_PULL_LIMIT_S if pull else _LIMIT_S,
        stdin="".join(lines).encode(),
    )


def _size(text: str) -> str:
    """`64 GiB` as both engines take it: 64g."""
    return text.replace(" ", "").removesuffix("iB").lower()


def _diff(todo: Pending) -> str:
    """The keys of the description that differ, as unified diff."""
    before, wanted = (_lines(each) for each in (todo.before, todo.wanted))
    name = "the container's description"
    old = name if todo.before else "/dev/null"
    return "\n".join(difflib.unified_diff(before, wanted, old, name, lineterm="", n=0))


def _lines(description: Mapping[str, object]) -> list[str]:
    return json.dumps(description, indent=1).splitlines() if description else []
