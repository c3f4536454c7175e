"""Checks of what jobs need: launcher, resources, HCCL settings and ports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ascendboot.checks.finding import (
    Finding,
    devices,
    differences,
    error,
    known,
    numbers,
    too_old,
    unanswered,
    warning,
)
from ascendboot.facts.derive import answered_nodes, device_ids, logic_ids, product_of
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.hccl.profiles import profile_env
from ascendboot.hccl.variables import WITHOUT_CM, hccl_ports, why_not, why_not_read
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.model.cluster import CHIEF_PORT, Cluster, LauncherChoice, Node, OwnTable
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node_facts import NodeFacts

LEAST_FREE_BYTES: Final = 100 * 1000**2
"""With less, a job may not even be able to say why it ended."""
LEAST_FREE_INODES: Final = 1000

SSHD_OPTIONS: Final = {
    "DisableForwarding": (7, 4),
    "KexAlgorithms curve25519-sha256": (7, 4),
    "restrict in authorized_keys": (7, 2),
    "HostKeyAlgorithms": (7, 0),
    "PubkeyAcceptedKeyTypes": (6, 8),
    "AllowStreamLocalForwarding": (6, 7),
    "PermitUserRC": (6, 7),
    "ed25519 keys": (6, 5),
}
"""What we write for sshd, and the release of OpenSSH that knows it first; the newest decides."""
SSH_OPTIONS: Final = {
    "IdentityAgent": (7, 3),
    "CertificateFile": (7, 2),
    "UpdateHostKeys": (6, 8),
    "ed25519 keys": (6, 5),
}
"""The same for ssh on the primary."""

_INSTALL_TORCH = "Install PyTorch for the Python that `code.python` states"
_INSTALL = "Install Horovod with MPI (HOROVOD_WITH_MPI=1) for the Python that `code.python` states"


def choose_launcher(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> LauncherChoice:
    """Return the launcher that the inventory states; for `auto` the first that works."""
    if cluster.launcher == "auto" and cluster.resource_mode == "root-info":
        return _for_root_info(cluster, facts)
    horovod = value_of(facts[cluster.primary_name].horovod)
    if cluster.launcher != "auto":
        choice = LauncherChoice(cluster.launcher, "the inventory states it")
        if cluster.launcher != "horovod":
            return choice
        return replace(choice, path=horovod.path if horovod else "horovodrun")
    obstacle = _obstacle(cluster, facts)
    if obstacle or horovod is None:
        return LauncherChoice("mpirun", obstacle)
    beside = f"Horovod {horovod.version} beside {cluster.python} works on {cluster.primary_name}"
    return LauncherChoice("horovod", beside, horovod.path)


def needs_openmpi(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> bool:
    """Whether jobs need `mpirun`."""
    return cluster.primary_name not in facts or traits_of(choose_launcher(cluster, facts)).openmpi


def launcher_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    nodes = tuple(answered_nodes(cluster, facts))
    found = known({node.name: node_facts.horovod for node, node_facts in nodes})
    yield from differences(
        "horovod-differs",
        {name: horovod.version for name, horovod in found.items()},
        has="Horovod ",
        level="error",
        remedy="Install the same version on all nodes",
    )
    yield from differences(
        "torch-differs",
        {name: torch.words for name, torch in known({n.name: s.torch for n, s in nodes}).items()},
        has="",
        level="error",
        remedy="Install the same versions on all nodes",
    )
    for node, node_facts in nodes:
        if cluster.launcher == "torchrun":
            yield from unanswered("torch-missing", node, node_facts.torch, _INSTALL_TORCH)
        if node.name == cluster.primary_name:  # whatever starts ranks reaches the nodes by ssh
            yield from unanswered("ssh-missing", node, node_facts.ssh, "Install openssh-client")
            remedy = "Install OpenSSH 7.4 or later where ranks run"
            yield from too_old("ssh-old", node, value_of(node_facts.ssh), SSH_OPTIONS, remedy)
    if cluster.launcher != "horovod":
        return
    for node, node_facts in nodes:
        yield from unanswered("horovod-missing", node, node_facts.horovod, _INSTALL)
        horovod = value_of(node_facts.horovod)
        if horovod is not None and horovod.has_mpi is False:
            yield error(
                "horovod-without-mpi",
                (node.name,),
                f"Horovod {horovod.version} was built without MPI",
                _INSTALL,
            )


def _for_root_info(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> LauncherChoice:
    nodes = tuple(answered_nodes(cluster, facts))
    found = known({node.name: node_facts.torch for node, node_facts in nodes})
    lacking = [node.name for node, _ in nodes if node.name not in found]
    if lacking:
        return LauncherChoice("mpirun", f"{fold(lacking)}: there is no torch for {cluster.python}")
    versions = " and ".join(dict.fromkeys(torch.words for torch in found.values()))
    why = f"resources.mode is root-info, and {cluster.python} has {versions} on every node"
    return LauncherChoice("torchrun", why)


def _obstacle(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> str:
    """Why horovodrun cannot be taken; empty when it can."""
    primary = facts[cluster.primary_name]
    if isinstance(primary.horovod, Unanswered):
        return f"{cluster.primary_name}: {primary.horovod.why}"
    if not primary.horovod.value.has_mpi:
        return f"Horovod on {cluster.primary_name} was built without MPI"
    if isinstance(primary.ssh, Unanswered):
        return f"{cluster.primary_name}: {primary.ssh.message}"
    lacking = [
        n.name
        for n, node_facts in answered_nodes(cluster, facts)
        if value_of(node_facts.horovod) is None
    ]
    return f"there is no Horovod on {fold(lacking)}" if lacking else ""


MOST_RANKS, MOST_RANKS_OF_REC_SDK = 32768, 512


def resource_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    by_chief = cluster.resource_mode == "no-rank-table"
    for node, node_facts in answered_nodes(cluster, facts):
        if by_chief:
            yield from _product(node, node_facts)
        if cluster.is_for_torch:
            yield from _order(node, node_facts)
    primary = facts.get(cluster.primary_name)
    if primary is None or not cluster.has_meeting_port:
        return
    yield from _taken(cluster, primary)
    yield from _ephemeral(cluster, primary)
    if by_chief:
        yield from _chief_device(cluster, primary)
        yield from _size(cluster, facts)


def _size(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """CM_WORKER_SIZE, which counts all ranks, has a limit of HCCL and a smaller one of Rec SDK."""
    size = sum(
        len(device_ids(node, node_facts)) for node, node_facts in answered_nodes(cluster, facts)
    )
    rec_sdk = cluster.profile == "rec-sdk-tf"
    most = MOST_RANKS_OF_REC_SDK if rec_sdk else MOST_RANKS
    if size > most:
        yield error(
            "worker-size",
            (cluster.primary_name,),
            f"the job has {size} ranks, and {'Rec SDK' if rec_sdk else 'HCCL'} takes {most} "
            "without a rank table (CM_WORKER_SIZE)",
            "State `resources: {mode: rank-table}`, or use fewer devices",
        )


def _order(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """PyTorch's local rank N takes the Nth device that it can see, and it sees them ascending."""
    ids = logic_ids(node, node_facts)
    if list(ids) != sorted(ids):
        yield error(
            "device-order",
            (node.name,),
            f"PyTorch takes devices in the order of their logic ids, but those of "
            f"{devices(device_ids(node, node_facts))} are {numbers(ids)}",
            "State `devices` in that order",
        )


def _product(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    product = product_of(node_facts)
    if product in WITHOUT_CM:
        yield error(
            "no-rank-table-unsupported",
            (node.name,),
            f"the NPUs are of the {WITHOUT_CM[product]}, and HCCL reads CM_ variables on 910 "
            "and A2 only",
            "State `resources: {mode: rank-table}`",
        )


def _taken(cluster: Cluster, node_facts: NodeFacts) -> Iterator[Finding]:
    for listener in value_of(node_facts.listeners) or ():
        if listener.port == cluster.chief_port:
            yield error(
                "chief-port-taken",
                (cluster.primary_name,),
                f"port {cluster.chief_port}, where the ranks are to meet, is taken by "
                f"{listener.holder}",
                "State another `resources.chief_port`",
            )
            return


def _ephemeral(cluster: Cluster, node_facts: NodeFacts) -> Iterator[Finding]:
    yield from unanswered(
        "kernel-ports-unknown", cluster.primary, node_facts.kernel_ports, level="warning"
    )
    ports = value_of(node_facts.kernel_ports)
    if ports is not None and ports.may_take(cluster.chief_port):
        yield warning(
            "chief-port-ephemeral",
            (cluster.primary_name,),
            f"any outgoing connection may take port {cluster.chief_port}: Linux gives "
            f"{ports.first}-{ports.last} to them",
            f"State a `resources.chief_port` outside, such as {CHIEF_PORT}, or add it to "
            "net.ipv4.ip_local_reserved_ports",
        )


def _chief_device(cluster: Cluster, node_facts: NodeFacts) -> Iterator[Finding]:
    npus = value_of(node_facts.npus)
    if npus is None or not npus.npus:
        return
    ids = sorted(logic_ids(cluster.primary, node_facts))
    if cluster.chief_device not in ids:
        yield error(
            "chief-device-missing",
            (cluster.primary_name,),
            f"no device of the job has the logic id {cluster.chief_device} that "
            f"`resources.chief_device` states; they have {numbers(ids) or 'none'}",
            "State one of these",
        )


_VISIBLE, _RETRY = "ASCEND_RT_VISIBLE_DEVICES", "HCCL_OP_RETRY_ENABLE"


def hccl_setting_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    yield from _values(cluster, facts)
    for node, node_facts in answered_nodes(cluster, facts):
        yield from _visible_devices(cluster, node, node_facts)
        yield from _retry(cluster, node, node_facts)


def _values(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """Each variable alone; where a product is stated, the inventory was checked with it."""
    if cluster.product != "auto":
        return
    of_profile = profile_env(cluster.profile)
    for node, node_facts in answered_nodes(cluster, facts):
        product = product_of(node_facts) or ""
        for name, value in cluster.env_of(node).items():
            if of_profile.get(name) == value:
                continue
            wrong, unread = why_not(name, value, product), why_not_read(name, product)
            if wrong or unread:
                yield Finding(
                    id="hccl-setting",
                    level="error" if wrong else "warning",
                    nodes=(node.name,),
                    text=f"{name}: {wrong or unread}",
                    remedy="Correct it in the inventory",
                )


def _visible_devices(cluster: Cluster, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """Local rank N gets the Nth of this list: that must be its device."""
    stated, used = cluster.env_of(node).get(_VISIBLE), logic_ids(node, node_facts)
    if stated is None or why_not(_VISIBLE, stated) or not used:
        return
    ids = [int(word) for word in stated.split(",")]
    if ids[: len(used)] != list(used):
        yield error(
            "hccl-setting",
            (node.name,),
            f"{_VISIBLE} shows {numbers(ids)}, and the ranks of this node have the devices "
            f"with the logic ids {numbers(used)}",
            "Leave it out, and state the ones to use as `devices`",
        )


def _retry(cluster: Cluster, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """HCCL's manual: a step is repeated only where ranks find each other's hosts in the table."""
    product = product_of(node_facts) if cluster.product == "auto" else cluster.product
    is_on = ":1" in cluster.env_of(node).get(_RETRY, "")
    if product != "a3" or cluster.resource_mode != "rank-table" or not is_on:
        return
    if cluster.own_table is None or not _has_hosts(cluster.own_table):
        yield warning(
            "hccl-setting",
            (node.name,),
            f"{_RETRY}: nothing is repeated, because the rank table does not state a host_ip "
            "for every server",
            "Give a table that does as `resources.file`, or switch it off",
        )


def _has_hosts(table: OwnTable) -> bool:
    match json.loads(table.text):
        case {"server_list": list(servers)}:
            return all(isinstance(server, dict) and server.get("host_ip") for server in servers)
        case _:
            return False


def ports_of_hccl(cluster: Cluster, node: Node) -> tuple[range, ...]:
    """The node's ports that HCCL takes: 60000-60031 unless the job's environment moves them.

    Empty where the environment leaves the choice to HCCL or holds what we do not understand.
    """
    return tuple(hccl_ports(cluster.env_of(node)))


def hccl_port_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module; between the devices of one server HCCL needs no port."""
    if len(cluster.nodes) == 1:
        return
    for node, node_facts in answered_nodes(cluster, facts):
        for ports in ports_of_hccl(cluster, node):
            yield from _taken_ports(ports, node, node_facts)
            yield from _given_away(ports, node, node_facts)


def _taken_ports(ports: range, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    """A warning only: a job that is running holds them rightly."""
    holders: dict[str, set[int]] = {}
    for listener in value_of(node_facts.listeners) or ():
        if listener.port in ports:
            holders.setdefault(listener.holder, set()).add(listener.port)
    for holder, taken in holders.items():
        many = "ports" if len(taken) > 1 else "port"
        yield warning(
            "hccl-port-taken",
            (node.name,),
            f"{many} {numbers(sorted(taken))} of HCCL's {numbers(ports)} "
            f"{'are' if len(taken) > 1 else 'is'} taken by {holder}",
            "Unless that is a job which runs now, end it, or move HCCL: "
            "HCCL_IF_BASE_PORT under `env`",
        )


def _given_away(ports: range, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    kernel = value_of(node_facts.kernel_ports)
    if kernel is not None and any(kernel.may_take(port) for port in ports):
        yield warning(
            "hccl-ports-ephemeral",
            (node.name,),
            f"any outgoing connection may take a port of HCCL's {numbers(ports)}: "
            f"Linux gives {kernel.first}-{kernel.last} to them",
            "Add the range to net.ipv4.ip_local_reserved_ports, behind what is there",
        )
