"""What the container that setup creates should be, how it differs, and what keeps it from being."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from ascendboot.checks.finding import Finding, Findings, error, unanswered
from ascendboot.facts import container
from ascendboot.facts.container import Premises
from ascendboot.facts.derive import device_ids, present_ids, stated_or_seen_product
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.system import RUNNING, Container
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, Creation, Node
from ascendboot.model.names import runs
from ascendboot.value import Value

STARTABLE = ("created", "exited", "stopped", "configured", "initialized")
"""States of a container that `start` ends, as docker and podman call them."""
VISIBLE = "ASCEND_VISIBLE_DEVICES"
"""By this variable ascend-docker-runtime gives NPUs to a container."""


class Pending(Value, kw_only=True):
    """What setup has to do about a container before anything else."""

    action: str
    """`create`, `replace` or `start`."""
    why: str
    engine: str
    """The path of its program."""
    before: Mapping[str, Any]
    """The description with which it was created; empty where there is none."""
    wanted: Mapping[str, Any]


def pending(cluster: Cluster, node: Node, facts: NodeFacts) -> Pending | None:
    """What setup has to do about the node's container; None: nothing, or it may not touch it."""
    engines, premises = value_of(facts.container), value_of(facts.premises)
    if engines is None or premises is None or value_of(facts.npus) is None:
        return None  # an error of its own
    found, wanted = engines.container, description(cluster, node, facts)
    if found is not None:
        return _of_existing(cluster, node, found, wanted)
    if engines.refused or not premises.images:
        return None
    engine, why = next(iter(premises.images)), f"there is no container {node.container}"
    return Pending(action="create", why=why, engine=engine, before={}, wanted=wanted)


def _of_existing(
    cluster: Cluster, node: Node, found: Container, wanted: Mapping[str, Any]
) -> Pending | None:
    labels, name = found.labels, f"the container {node.container}"
    if labels is None or not is_ours(cluster, found) or found.status not in (RUNNING, *STARTABLE):
        return None
    before, action, why = _read(labels.description), "start", f"{name} is {found.status}"
    if labels.digest != digest(wanted):
        keys = [key for key in wanted if before.get(key) != wanted[key]]
        action, why = "replace", f"{name} differs in {', '.join(keys) or 'its labels'}"
    elif found.status == RUNNING:
        return None
    return Pending(action=action, why=why, engine=found.engine, before=before, wanted=wanted)


def is_ours(cluster: Cluster, found: Container) -> bool:
    """Whether setup created the container, for this cluster."""
    return found.labels is not None and found.labels.cluster == cluster.name


def is_foreign(cluster: Cluster, node: Node, facts: NodeFacts) -> bool:
    """Whether setup did not create the container that it should: it may not even enter that."""
    engines = value_of(facts.container)
    found = engines.container if engines else None
    return node.creation is not None and found is not None and not is_ours(cluster, found)


def description(cluster: Cluster, node: Node, facts: NodeFacts) -> dict[str, Any]:
    """All that makes a container another one; instead of secrets it has digests of them."""
    made, premises = node.creation, value_of(facts.premises)
    if made is None or premises is None:
        return {}
    ids = device_ids(node, facts) if made.devices == "used" else present_ids(facts)
    is_950 = stated_or_seen_product(cluster, facts) == "a5"
    devices = [f"/dev/davinci{device_id}" for device_id in sorted(ids)]
    devices += _managers(premises, is_950=is_950)
    return {
        "image": made.image,
        "devices": [runs(ids)] if made.runtime == "ascend" else devices,
        "mounts": [*_of_driver(made, premises, is_950=is_950), *made.mounts],
        "shm": made.shm,
        "runtime": made.runtime,
        "env": {
            name: _hidden(cluster.name, name, value) if cluster.is_secret(name, value) else value
            for name, value in sorted(made.env.items())
        },
    }


def digest(wanted: Mapping[str, Any]) -> str:
    """The SHA-256 of a description."""
    return hashlib.sha256(as_text(wanted).encode()).hexdigest()


def as_text(wanted: Mapping[str, Any]) -> str:
    """A description on one line."""
    return json.dumps(wanted, ensure_ascii=True, separators=(",", ":"))


def _read(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _managers(premises: Premises, *, is_950: bool) -> list[str]:
    needed = [f"/dev/{name}" for name in container.MANAGERS]
    if not is_950:
        return needed
    of_950 = [path for path in container.DEVICES_OF_950 if path in premises.places]
    return [path for path in needed if path != "/dev/devmm_svm"] + of_950


def _of_driver(made: Creation, premises: Premises, *, is_950: bool) -> list[str]:
    """The existing files of the driver, read-only, except where a mount takes their place."""
    of_950 = container.DRIVER_OF_950 if is_950 else ()
    patterns = container.BY_RUNTIME if made.runtime == "ascend" else (*container.DRIVER, *of_950)
    taken = {mount.split(":")[1].rstrip("/") for mount in made.mounts}
    return [
        f"{path}:{path}:ro"
        for pattern in patterns
        for path in premises.places
        if fnmatchcase(path, pattern) and path not in taken
    ]


@cache
def _hidden(cluster: str, name: str, value: str) -> str:
    """A digest that shows a change of a secret; made slowly, so that guessing takes long."""
    salt = f"{cluster} {name}".encode()
    made = hashlib.scrypt(value.encode(), salt=salt, n=1 << 14, r=8, p=1, dklen=16)
    return f"secret {made.hex()}"


def creation_findings(cluster: Cluster, node: Node, facts: NodeFacts) -> Findings:
    """What keeps setup from creating the node's container; it touches none of others."""
    made, engines = node.creation, value_of(facts.container)
    if made is None or engines is None:
        return
    if engines.container and is_foreign(cluster, node, facts):
        yield _foreign(node, engines.container)
        return
    yield from unanswered("container-premises-unknown", node, facts.premises)
    todo, premises = pending(cluster, node, facts), value_of(facts.premises)
    if todo is None or premises is None or todo.action == "start":
        return
    if not premises.images.get(todo.engine) and not made.pull:
        text = f"{todo.engine} has no image {made.image}, from which to create {node.container}"
        remedy = (
            "Load it (docker load -i FILE, docker pull), correct `container.image`, or state "
            "`pull: true` there"
        )
        yield error("container-image-missing", (node.name,), text, remedy)
    sources = (mount.split(":")[0] for mount in made.mounts)
    if absent := [path for path in sources if path.rstrip("/") not in _plain(premises)]:
        text = f"`container.mounts` names what does not exist: {', '.join(absent)}"
        remedy = f"Create it on the server, or correct it in {cluster.source}"
        yield error("container-mount-missing", (node.name,), text, remedy)
    listed = todo.wanted["devices"] if made.runtime == "default" else ()
    if absent := [path for path in listed if path not in premises.places]:
        text = f"could not give {', '.join(absent)} to the container: the server has no such device"
        remedy = "Load the driver of the NPUs, or correct `devices`"
        yield error("container-device-missing", (node.name,), text, remedy)


def busy_findings(node: Node, jobs: Sequence[str], users: Sequence[str]) -> Findings:
    """Who keeps the node's container from being re-created: jobs, and processes with an NPU."""
    what = f"the container {node.container} is to be re-created, and"
    for job_id in jobs:
        text = f"{what} job {job_id} runs in it"
        remedy = f"Wait for its end, or end it where it was started: stop --job {job_id}"
        yield error("container-busy", (node.name,), text, remedy)
    for line in users:
        pid, _, name = line.partition(" ")
        text = f"{what} process {pid} ({name}) uses an NPU in it"
        yield error("container-busy", (node.name,), text, "End it, and run setup again")


def _plain(premises: Premises) -> set[str]:
    return {path.rstrip("/") for path in premises.places}


def _foreign(node: Node, found: Container) -> Finding:
    """A container of the stated name that setup may not touch."""
    by = f"for the cluster {found.labels.cluster}" if found.labels else "not created by ascendboot"
    text = f"the container {node.container} exists already, {by}: it is left as it is"
    remedy = (
        "Remove it if nobody needs it, or state another `container.name`; or remove "
        "`container.image` to use it as it is"
    )
    return error("container-not-ours", (node.name,), text, remedy)
