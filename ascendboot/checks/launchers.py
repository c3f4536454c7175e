"""Checks of what jobs need: launcher, resources, HCCL settings and ports."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ascendboot.checks import finding
from ascendboot.facts import derive
from ascendboot.facts.node_facts import FactsByNode, NodeFacts
from ascendboot.facts.parsers.system import KernelPorts
from ascendboot.facts.query import Unanswered, value_of
from ascendboot.hccl import variables as hccl
from ascendboot.hccl.profiles import profile_env
from ascendboot.launch.launchers import traits_of
from ascendboot.model.cluster import CHIEF_PORT, Cluster, LauncherChoice, Node
from ascendboot.model.names import fold
from ascendboot.value import replace

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
"""What we write for sshd, and the first release of OpenSSH that knows it."""
SSH_OPTIONS: Final = {
    "IdentityAgent": (7, 3),
    "CertificateFile": (7, 2),
    "UpdateHostKeys": (6, 8),
    "ed25519 keys": (6, 5),
}


def choose_launcher(cluster: Cluster, facts: FactsByNode) -> LauncherChoice:
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


def needs_openmpi(cluster: Cluster, facts: FactsByNode) -> bool:
    """Whether jobs need `mpirun`."""
    return cluster.primary_name not in facts or traits_of(choose_launcher(cluster, facts)).openmpi


def _for_root_info(cluster: Cluster, facts: FactsByNode) -> LauncherChoice:
    torch = {n.name: value_of(found.torch) for n, found in derive.answered_nodes(cluster, facts)}
    if lacking := [name for name, found in torch.items() if found is None]:
        return LauncherChoice("mpirun", f"{fold(lacking)}: there is no torch for {cluster.python}")
    versions = " and ".join(dict.fromkeys(found.words for found in torch.values() if found))
    why = f"resources.mode is root-info, and {cluster.python} has {versions} on every node"
    return LauncherChoice("torchrun", why)


def _obstacle(cluster: Cluster, facts: FactsByNode) -> str:
    """Why horovodrun cannot be used; empty if it can."""
    primary = facts[cluster.primary_name]
    if isinstance(primary.horovod, Unanswered):
        return f"{cluster.primary_name}: {primary.horovod.why}"
    if not primary.horovod.value.has_mpi:
        return f"Horovod on {cluster.primary_name} was built without MPI"
    if isinstance(primary.ssh, Unanswered):
        return f"{cluster.primary_name}: {primary.ssh.message}"
    nodes = derive.answered_nodes(cluster, facts)
    lacking = [node.name for node, found in nodes if value_of(found.horovod) is None]
    return f"there is no Horovod on {fold(lacking)}" if lacking else ""


def launcher_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Horovod, torch and ssh, as far as the launcher needs them."""
    nodes = tuple(derive.answered_nodes(cluster, facts))
    horovods = derive.known(cluster, facts, lambda its: its.horovod)
    torches = derive.known(cluster, facts, lambda its: its.torch)
    for id_, has, versions in (
        ("horovod-differs", "Horovod ", {name: it.version for name, it in horovods.items()}),
        ("torch-differs", "", {name: it.words for name, it in torches.items()}),
    ):
        remedy = f"Install the same version{'' if has else 's'} on all nodes"
        yield from finding.differences(id_, versions, has=has, level="error", remedy=remedy)
    packages: Collection[str] = ()
    if cluster.launcher != "auto":
        packages = traits_of(LauncherChoice(cluster.launcher, "")).packages
    for node, node_facts in nodes:
        if "torch" in packages:
            remedy = "Install PyTorch for the Python that `code.python` states"
            yield from finding.unanswered("torch-missing", node, node_facts.torch, remedy)
        # All launchers reach other nodes by ssh.
        if node.name == cluster.primary_name and cluster.has_logins:
            ssh, remedy = node_facts.ssh, "Install OpenSSH 7.4 or later where ranks run"
            yield from finding.unanswered("ssh-missing", node, ssh, "Install openssh-client")
            yield from finding.too_old("ssh-old", node, value_of(ssh), SSH_OPTIONS, remedy)
    for node, node_facts in nodes if "horovod" in packages else ():
        remedy = "Install Horovod with MPI (HOROVOD_WITH_MPI=1) for the Python of `code.python`"
        yield from finding.unanswered("horovod-missing", node, node_facts.horovod, remedy)
        horovod = value_of(node_facts.horovod)
        if horovod is not None and horovod.has_mpi is False:
            text = f"Horovod {horovod.version} was built without MPI"
            yield finding.error("horovod-without-mpi", (node.name,), text, remedy)


def resource_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Order of devices, the port where ranks meet, and what HCCL takes without a rank table."""
    by_chief = cluster.resource_mode == "no-rank-table"
    for node, node_facts in derive.answered_nodes(cluster, facts):
        product = derive.product_of(node_facts)
        if by_chief and product in hccl.WITHOUT_CM:
            npus = f"the NPUs are of the {hccl.WITHOUT_CM[product]}"
            text = f"{npus}, and HCCL reads CM_ variables on 910 and A2 only"
            remedy = "State `resources: {mode: rank-table}`"
            yield finding.error("no-rank-table-unsupported", (node.name,), text, remedy)
        ids = derive.logic_ids(node, node_facts)
        # PyTorch's local rank N takes the Nth device that it can see, and it sees them ascending.
        if cluster.is_for_torch and list(ids) != sorted(ids):
            used = finding.devices(derive.device_ids(node, node_facts))
            are = f"those of {used} are {finding.numbers(ids)}"
            text = f"PyTorch takes devices in the order of their logic ids, but {are}"
            yield finding.error("device-order", (node.name,), text, "State `devices` in that order")
    primary = facts.get(cluster.primary_name)
    if primary is not None and cluster.has_meeting_port:
        yield from _chief_port(cluster, primary)
        if by_chief:
            yield from _chief(cluster, primary)


def _chief_port(cluster: Cluster, primary: NodeFacts) -> finding.Findings:
    """The port where the ranks meet must be free, and stay free."""
    port, nodes = cluster.chief_port, (cluster.primary_name,)
    if holder := finding.port_holders(value_of(primary.listeners)).get(port):
        text = f"port {port}, where the ranks are to meet, is taken by {holder}"
        remedy = "State another `resources.chief_port`"
        yield finding.error("chief-port-taken", nodes, text, remedy)
    yield from finding.unanswered(
        "kernel-ports-unknown", cluster.primary, primary.kernel_ports, level="warning"
    )
    ports = value_of(primary.kernel_ports)
    if ports is not None and ports.may_take(port):
        text = f"any outgoing connection may take port {port}: {_given(ports)}"
        remedy = f"State a `resources.chief_port` outside, such as {CHIEF_PORT}, or add it to "
        remedy += _RESERVED
        yield finding.warning("chief-port-ephemeral", nodes, text, remedy)


_RESERVED = "net.ipv4.ip_local_reserved_ports"


def _given(ports: KernelPorts) -> str:
    return f"Linux gives {ports.first}-{ports.last} to them"


def _chief(cluster: Cluster, primary: NodeFacts) -> finding.Findings:
    """The chief device must be one of the job."""
    ids = sorted(derive.logic_ids(cluster.primary, primary))
    npus = value_of(primary.npus)
    if npus is not None and npus.npus and cluster.chief_device not in ids:
        text = f"no device of the job has the logic id {cluster.chief_device} that "
        text += f"`resources.chief_device` states; they have {finding.numbers(ids) or 'none'}"
        nodes = (cluster.primary_name,)
        yield finding.error("chief-device-missing", nodes, text, "State one of these")


_TORCH_PORT = 29500
_VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def hccl_setting_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Variables of HCCL with values that this product or these devices do not take."""
    for node, node_facts in derive.answered_nodes(cluster, facts):
        if cluster.product == "auto":  # with a stated product, the inventory was checked
            yield from _values(cluster, node, derive.product_of(node_facts) or "")
        yield from _visible_devices(cluster, node, node_facts)
        yield from _slips(cluster, node)


def elastic_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """The memory of NPUs that MindIO's elastic training takes, where the inventory selects it."""
    for node, node_facts in derive.answered_nodes(cluster, facts):
        needs, seen = hccl.elastic_memory_mb(cluster.env_of(node)), value_of(node_facts.free_memory)
        if needs is None:
            continue
        free = {i: mb for i, mb in (seen or {}).items() if i in derive.device_ids(node, node_facts)}
        text = f"elastic training in the process ({hccl.STRATEGIES}) takes up to {needs} MB more "
        text += f"memory of each NPU ({hccl.BUFFSIZE} x 2 x 9)"
        lacking = [device_id for device_id, mb in free.items() if mb < needs]
        if lacking:
            text += f"; {finding.devices(lacking)}: {min(free.values())} MB free at the least"
            remedy = f"State a smaller {hccl.BUFFSIZE}"
            yield finding.warning("elastic-memory", (node.name,), text, remedy)
        else:
            text += "" if free else "; how much is free is not known"
            remedy = "Leave it free. Neither ClusterD nor TaskD, which it needs, is started here"
            yield finding.Finding("elastic-memory", "info", (node.name,), text, remedy)


def _values(cluster: Cluster, node: Node, product: str) -> finding.Findings:
    of_profile = profile_env(cluster.profile)
    for name, value in cluster.env_of(node).items():
        if of_profile.get(name) == value:
            continue
        wrong, unread = hccl.why_not(name, value, product), hccl.why_not_read(name, product)
        if wrong or unread:
            text, remedy = f"{name}: {wrong or unread}", "Correct it in the inventory"
            level: finding.Level = "error" if wrong else "warning"
            yield finding.Finding("hccl-setting", level, (node.name,), text, remedy)


def _visible_devices(cluster: Cluster, node: Node, node_facts: NodeFacts) -> finding.Findings:
    """Local rank N gets the Nth of this list: that must be its device."""
    stated, used = cluster.env_of(node).get(_VISIBLE), derive.logic_ids(node, node_facts)
    if stated is None or hccl.why_not(_VISIBLE, stated) or not used:
        return
    ids = [int(word) for word in stated.split(",")]
    if ids[: len(used)] != list(used):
        text = f"{_VISIBLE} shows {finding.numbers(ids)}, and the ranks of this node have the "
        text += f"devices with the logic ids {finding.numbers(used)}"
        remedy = "Leave it out, and state the ones to use as `devices`"
        yield finding.error("hccl-setting", (node.name,), text, remedy)


def _slips(cluster: Cluster, node: Node) -> finding.Findings:
    """Misspelt names, and ports of HCCL that PyTorch takes by default."""
    env = cluster.env_of(node)
    for name in env:
        if meant := hccl.near_miss(name):
            text, remedy = f"HCCL reads no variable {name}", f"Write {meant}, if that is meant"
            yield finding.warning("hccl-setting", (node.name,), text, remedy)
    for ports in hccl.hccl_ports(env):
        if _TORCH_PORT in ports and cluster.profile != "rec-sdk-tf":
            of_torch = f"{_TORCH_PORT} is PyTorch's default port (MASTER_PORT)"
            text = f"HCCL takes ports {finding.numbers(ports)}, and {of_torch}"
            remedy = "Move HCCL, for example HCCL_IF_BASE_PORT 60000"
            yield finding.warning("hccl-setting", (node.name,), text, remedy)


def hccl_port_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """HCCL's ports that are taken, or may be; between the devices of one server it needs none."""
    if len(cluster.nodes) == 1:
        return
    for node, node_facts in derive.answered_nodes(cluster, facts):
        holders = finding.port_holders(value_of(node_facts.listeners))
        kernel = value_of(node_facts.kernel_ports)
        for ports in hccl.hccl_ports(cluster.env_of(node)):
            for text in finding.hccl_ports_taken(holders, ports):
                # A warning only: a job that is running holds them rightly.
                remedy = (
                    "Unless it is of a job, end it, or move HCCL: HCCL_IF_BASE_PORT under `env`"
                )
                yield finding.warning("hccl-port-taken", (node.name,), text, remedy)
            if kernel is not None and any(kernel.may_take(port) for port in ports):
                taken = f"a port of HCCL's {finding.numbers(ports)}"
                text = f"any outgoing connection may take {taken}: {_given(kernel)}"
                remedy = f"Add the range to {_RESERVED}, behind what is there"
                yield finding.warning("hccl-ports-ephemeral", (node.name,), text, remedy)
