"""The table of contents of `setup`: its phases and their steps on a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ascendboot.checks.launchers import needs_openmpi
from ascendboot.facts.derive import carrier_of, device_ids, logic_ids, renumbered
from ascendboot.facts.installed import FIREWALL_RULES, firewall_table
from ascendboot.facts.query import value_of
from ascendboot.launch.launchers import traits_of
from ascendboot.model.cluster import Node
from ascendboot.model.names import runs
from ascendboot.model.ports import closed_ports
from ascendboot.setup.cluster_plan import Context, library_paths
from ascendboot.setup.steps import Absent, Closed, FileContent, Firewall, NpuNetwork, Step
from ascendboot.setup.trust import admission, cluster_key, sshd, trust
from ascendboot.value import Value

StepsOf = Callable[[Context, Node], Sequence[Step]]


class Phase(Value, kw_only=True):
    """A named group of steps; `after_all`: it needs the results of earlier phases on all nodes."""

    name: str
    title: str
    steps: StepsOf = lambda _context, _node: ()
    """On the workload side."""
    sshd_steps: StepsOf = lambda _context, _node: ()
    """On the side where the cluster's sshd runs; they run before the others."""
    host_steps: StepsOf = lambda _context, _node: ()
    """On the host side."""
    after_all: bool = False


REACH = "Reach the nodes"
QUERY = "Query every node"
CHECK = "Check the answers"
CONTAINERS = "Create the containers"
CODE = "Send the code"
VERIFY = "Verify logins from the primary"
COMPARE = "Compare with the desired state"
NETWORK = "Verify the network between the nodes"

_SINGLE_COPY = "btl_vader_single_copy_mechanism"


def environment(context: Context, node: Node) -> Sequence[Step]:
    """What every rank starts with: the inventory's variables and the per-rank wrapper."""
    cluster, facts = context.cluster, context.facts.nodes[node.name]
    stated = sorted(cluster.env_of(node).items())
    secrets = [(name, value) for name, value in stated if cluster.is_secret(name, value)]

    values: dict[str, object] = {
        "node": node.name,
        "env": [item for item in stated if item not in secrets],
        "secrets": secrets,
        "address": node.cluster_address,
        "in_container": node.container is not None,
        "rec_sdk": _rec_sdk(context, node) if cluster.profile == "rec-sdk-tf" else None,
        "torch": _torch(context, node) if cluster.is_for_torch else {},
        "logic_ids": renumbered(node, facts),
        "no_single_copy": _lacks_single_copy(context, node),
        "by_leaf": cluster.master_index is not None,
        "devices": len(device_ids(node, facts)),
    }
    steps: list[Step] = [
        FileContent("env/node.env", context.text("env/node.env.j2", **values)),
        FileContent("env/rank-exec", context.text("env/rank-exec.j2", **values), 0o755),
        FileContent("env/keep.sh", context.text("env/keep.sh")),
    ]
    if secrets:
        text = context.text("env/secrets.env.j2", **values)
        steps.append(FileContent("env/secrets.env", text, 0o600, secret=True))
    if node in cluster.heads and traits_of(context.plan.launcher).ssh_shim:
        ssh = value_of(facts.ssh)
        config = str(context.plan.base / "trust/ssh_config")
        shim = context.text("env/ssh.j2", ssh=ssh.path if ssh else "/usr/bin/ssh", config=config)
        steps.append(FileContent("env/bin/ssh", shim, 0o755))
    # bin/ is first in a launcher's PATH: other programs there would hide the system's.
    return [*steps, *_stale(context, node, steps, "env/bin/", "env/secrets.env")]


def _rec_sdk(context: Context, node: Node) -> dict[str, str]:
    """Rec SDK's variables of this node; what the inventory states has precedence."""
    facts = context.facts.nodes[node.name]
    nic = {"NCCL_SOCKET_IFNAME": carrier_of(node, facts) or ""}
    values = {**library_paths(context.cluster, facts), **nic}
    return {k: v for k, v in values.items() if v and k not in context.cluster.env_of(node)}


def _torch(context: Context, node: Node) -> dict[str, str]:
    """PyTorch's variables of this node; what the inventory states has precedence."""
    facts, stated = context.facts.nodes[node.name], context.cluster.env_of(node)
    interface, ids = carrier_of(node, facts) or "", logic_ids(node, facts)
    # Not where local rank N is logic id N already: CANN calls this variable experimental. One rank
    # with all devices would see those that the inventory leaves out as well.
    is_plain = list(ids) == list(range(len(ids))) and context.cluster.ranks_per_node is None
    visible = "" if is_plain else ",".join(map(str, ids))
    values = {
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        # `=`: exactly this one; a bare name means all that begin with it.
        "HCCL_SOCKET_IFNAME": f"={interface}" if interface else "",
        # It has precedence over the interface: not where the inventory states that one.
        "HCCL_IF_IP": "" if "HCCL_SOCKET_IFNAME" in stated else node.cluster_address,
        "ASCEND_RT_VISIBLE_DEVICES": visible,
    }
    return {k: v for k, v in values.items() if v and k not in stated}


def _lacks_single_copy(context: Context, node: Node) -> bool:
    """Whether Open MPI must copy between ranks by shared memory alone, unless it is stated."""
    cluster, facts = context.cluster, context.facts.nodes
    surroundings = value_of(facts[node.name].surroundings)
    words = (*cluster.env_of(node), *cluster.mpi_args)
    is_stated = any(_SINGLE_COPY in word for word in words)
    is_refused = surroundings is not None and bool(surroundings.single_copy)
    return is_refused and not is_stated and needs_openmpi(cluster, facts)


def resources(context: Context, node: Node) -> Sequence[Step]:
    """Rank table, if the job uses one, and hostfile: equal on all nodes; no stale ones."""
    steps = [FileContent(path, text) for path, text in context.resources.items()]
    return [*steps, *_stale(context, node, steps, "resources/")]


def firewall(context: Context, node: Node) -> Sequence[Step]:
    """On the host, the ports of jobs are closed to machines outside of the cluster, if stated."""
    cluster, there = context.cluster, context.facts.host_side(node.name)
    if not cluster.firewall:
        is_left = there.firewall is not None or FIREWALL_RULES in there.files
        left = [Firewall(cluster=cluster.name, rules=""), Absent(FIREWALL_RULES)]
        return left if is_left else ()
    addresses = sorted({each.cluster_address for each in cluster.nodes})
    table, ports = firewall_table(cluster.name), runs(closed_ports(cluster)).replace(",", ", ")
    rules = context.text("env/firewall.nft.j2", table=table, addresses=addresses, ports=ports)
    steps = (FileContent(FIREWALL_RULES, rules), Firewall(cluster=cluster.name, rules=rules))
    return _on_host(context, node, *steps)


def npu_network(context: Context, node: Node) -> Sequence[Step]:
    """On the host, the network ports of the NPUs are set as stated."""
    return _on_host(context, node, NpuNetwork(ports=node.npu_ports)) if node.npu_ports else ()


def _on_host(context: Context, node: Node, *steps: Step) -> Sequence[Step]:
    # If the cluster's sshd runs on the same side, one of its steps closes the folder.
    return (Closed(), *steps) if node.name in context.facts.unused_hosts else steps


def _stale(context: Context, node: Node, steps: Sequence[Step], *places: str) -> list[Step]:
    """Removes files at these places that no step makes."""
    kept, there = {step.name for step in steps}, sorted(context.facts.installed[node.name].files)
    return [Absent(path) for path in there if path.startswith(places) and path not in kept]


SETUP: tuple[Phase, ...] = (
    Phase(name="sshd", title="Run the cluster's own sshd", steps=cluster_key, sshd_steps=sshd),
    Phase(name="npu-network", title="Set the network of the NPUs", host_steps=npu_network),
    Phase(
        name="trust",
        title="Authorize the primary on every node",
        steps=trust,
        sshd_steps=admission,
        after_all=True,
    ),
    Phase(name="environment", title="Write the environment of the ranks", steps=environment),
    Phase(name="resources", title="Write rank table and hostfile", steps=resources),
    Phase(name="firewall", title="Close the ports of jobs to other machines", host_steps=firewall),
)


def step_names(context: Context, node: Node) -> frozenset[str]:
    """The names of all steps of `setup` on a node; a file's step is named by its path."""
    return frozenset(
        step.name
        for phase in SETUP
        for steps in (phase.sshd_steps, phase.steps, phase.host_steps)
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
