"""The table of contents of `setup`: its phases and their steps on a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.checks.launchers import needs_openmpi
from ascendboot.facts.derive import carrier_of, logic_ids, renumbered
from ascendboot.facts.query import value_of
from ascendboot.hccl.profiles import packages_of, profile_paths
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.setup.steps import Absent, FileContent, Step
from ascendboot.setup.trust import admission, cluster_key, sshd, trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.setup.context import Context, StepsOf


def nothing(_context: Context, _node: Node) -> Sequence[Step]:
    """No steps."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A named group of steps; `after_all`: it needs the results of earlier phases on all nodes."""

    name: str
    title: str
    steps: StepsOf
    """On the workload side."""
    sshd_steps: StepsOf = nothing
    """On the side where the cluster's sshd runs; they run before the others."""
    after_all: bool = False


REACH = "Reach the nodes"
QUERY = "Query every node"
CHECK = "Check the answers"
CODE = "Send the code"
VERIFY = "Verify logins from the primary"
COMPARE = "Compare with the desired state"
NETWORK = "Verify the network between the nodes"

_SINGLE_COPY = "btl_vader_single_copy_mechanism"


def environment(context: Context, node: Node) -> Sequence[Step]:
    """What every rank starts with: the inventory's variables and the per-rank wrapper."""
    stated = sorted(context.cluster.env_of(node).items())
    secrets = [(name, value) for name, value in stated if context.cluster.is_secret(name, value)]
    values = {
        "node": node.name,
        "cluster": context.cluster.name,
        "env": [item for item in stated if item not in secrets],
        "secrets": secrets,
        "address": node.cluster_address,
        "in_container": node.container is not None,
        "rec_sdk": _rec_sdk(context, node) if context.cluster.profile == "rec-sdk-tf" else None,
        "torch": _torch(context, node) if context.cluster.is_for_torch else {},
        "logic_ids": renumbered(node, context.facts.nodes[node.name]),
        "no_single_copy": _lacks_single_copy(context, node),
        "base": str(context.plan.base),
    }
    steps: list[Step] = [
        FileContent("env/node.env", context.templates.text("env/node.env.j2", values)),
        FileContent("env/rank-exec", context.templates.text("env/rank-exec.j2", values), 0o755),
        FileContent("env/keep.sh", context.templates.text("env/keep.sh", {})),
    ]
    if secrets:
        text = context.templates.text("env/secrets.env.j2", values)
        steps.append(FileContent("env/secrets.env", text, 0o600, secret=True))
    elif "env/secrets.env" in context.facts.installed[node.name].files:
        steps.append(Absent("env/secrets.env"))
    if node == context.cluster.primary and traits_of(context.plan.launcher).ssh_shim:
        steps.append(FileContent("env/bin/ssh", _ssh_shim(context), 0o755))
    kept = {step.name for step in steps}
    # It stands first in a launcher's PATH: what else lies there would be run in place of others.
    there = (
        path for path in context.facts.installed[node.name].files if path.startswith("env/bin/")
    )
    return [*steps, *(Absent(path) for path in sorted(there) if path not in kept)]


def _rec_sdk(context: Context, node: Node) -> dict[str, str]:
    """What Rec SDK needs to know of this very node; the inventory's own values count before."""
    python = value_of(context.facts.nodes[node.name].python)
    packages = packages_of(python.path, python.version) if python else ""
    values = {
        **profile_paths(context.cluster.profile, packages),
        "NCCL_SOCKET_IFNAME": carrier_of(node, context.facts.nodes[node.name]) or "",
    }
    return {k: v for k, v in values.items() if v and k not in context.cluster.env_of(node)}


def _torch(context: Context, node: Node) -> dict[str, str]:
    """What PyTorch's ranks need to know of this very node; the inventory's own values count."""
    facts, stated = context.facts.nodes[node.name], context.cluster.env_of(node)
    interface = carrier_of(node, facts) or ""
    values = {
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        # `=`: exactly this one; a bare name means all that begin with it.
        "HCCL_SOCKET_IFNAME": f"={interface}" if interface else "",
        # It counts before the interface: never beside one that somebody chose.
        "HCCL_IF_IP": "" if "HCCL_SOCKET_IFNAME" in stated else node.cluster_address,
        "ASCEND_RT_VISIBLE_DEVICES": _visible_devices(logic_ids(node, facts)),
    }
    return {k: v for k, v in values.items() if v and k not in stated}


def _lacks_single_copy(context: Context, node: Node) -> bool:
    """Whether Open MPI is to copy between ranks by shared memory alone; the inventory counts."""
    cluster, facts = context.cluster, context.facts.nodes
    given = value_of(facts[node.name].surroundings)
    words = (*cluster.env_of(node), *cluster.mpi_args)
    is_stated = any(_SINGLE_COPY in word for word in words)
    return bool(given and given.single_copy) and not is_stated and needs_openmpi(cluster, facts)


def _visible_devices(ids: Sequence[int]) -> str:
    """Nothing where local rank N is logic id N already: CANN calls this variable experimental."""
    return "" if list(ids) == list(range(len(ids))) else ",".join(map(str, ids))


def _ssh_shim(context: Context) -> str:
    """An `ssh` that always uses the cluster's configuration, for horovodrun."""
    primary = context.cluster.primary_name
    ssh = value_of(context.facts.nodes[primary].ssh)
    values = {
        "ssh": ssh.path if ssh else "/usr/bin/ssh",
        "config": str(context.plan.base / "trust/ssh_config"),
    }
    return context.templates.text("env/ssh.j2", values)


def resources(context: Context, node: Node) -> Sequence[Step]:
    """Rank table (unless the job goes without) and hostfile, equal on all nodes; no stale ones."""
    files = context.resources
    there = (
        path for path in context.facts.installed[node.name].files if path.startswith("resources/")
    )
    stale = sorted(path for path in there if path.removeprefix("resources/") not in files)
    return [
        *(FileContent(f"resources/{name}", text) for name, text in files.items()),
        *(Absent(path) for path in stale),
    ]


SETUP: tuple[Phase, ...] = (
    Phase(name="sshd", title="Run the cluster's own sshd", steps=cluster_key, sshd_steps=sshd),
    Phase(
        name="trust",
        title="Let the primary in everywhere",
        steps=trust,
        sshd_steps=admission,
        after_all=True,
    ),
    Phase(name="environment", title="Lay out what ranks start with", steps=environment),
    Phase(name="resources", title="Write rank table and hostfile", steps=resources),
)


def step_names(context: Context, node: Node) -> frozenset[str]:
    """The names of all steps of `setup` on a node; a file's step is named by its path."""
    return frozenset(
        step.name
        for phase in SETUP
        for steps in (phase.sshd_steps, phase.steps)
        for step in steps(context, node)
    )


def rounds(phases: Sequence[Phase]) -> list[list[Phase]]:
    """The phases grouped into rounds: a new round begins where all nodes must be done."""
    grouped: list[list[Phase]] = []
    for phase in phases:
        if phase.after_all or not grouped:
            grouped.append([])
        grouped[-1].append(phase)
    return grouped
