"""Checks of hosts: system, limits, folders, control machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ascendboot.checks import finding
from ascendboot.checks.launchers import SSHD_OPTIONS, needs_openmpi
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.derive import answered_nodes, device_ids, known, stated_or_seen_product
from ascendboot.facts.installed import Installed
from ascendboot.facts.node_facts import (
    MANAGERS,
    MOST_SHOWN,
    Confinement,
    FactsByNode,
    NodeEnvironment,
    NodeFacts,
    granted_devices,
)
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.names import fold


def set_up_elsewhere(owns: Mapping[str, Installed], keys: Collection[str]) -> dict[str, str]:
    """The nodes that are not under one of these keys, with who set them up.

    The record on the node counts, and without one the CA that signed its certificates.
    """
    found = {}
    for node, own in owns.items():
        signers = {certificate.claims.ca for certificate in own.certificates.values()}
        if own.owner is not None:
            if own.owner.key not in keys:
                found[node] = own.owner.words
        elif signers and not signers & {*keys}:
            found[node] = f"one with CA {', '.join(sorted(signers))}; the node has no other record"
    return found


def elsewhere_findings(
    elsewhere: Mapping[str, str], *, here: str, take_over: bool
) -> finding.Findings:
    """One finding per control folder; `here` describes this one."""
    for words, nodes in finding.grouped((words, node) for node, words in elsewhere.items()).items():
        text = f"another control folder set up the cluster here: {words}; this is {here}"
        if take_over:
            text += ". This run replaces its keys"
            remedy = "Copy this folder's clusters/CLUSTER there if both are to be used"
            yield finding.warning("set-up-elsewhere", tuple(nodes), text, remedy)
        else:
            remedy = "Copy clusters/CLUSTER from that folder into this one and run setup again; "
            remedy += "only if that folder is not to be used any more, run adopt"
            yield finding.error("set-up-elsewhere", tuple(nodes), text, remedy)


def left_findings(left: Iterable[Node]) -> finding.Findings:
    """Nodes that were set up from here and are not in the inventory any more."""
    for node in left:
        text = f"this node ({node.address}) left the inventory, but the cluster's sshd, its keys "
        text += "and its login are still there, and the other nodes may still trust its keys"
        remedy = f"Run remove {node.name}; if the server is gone for good, with --forget"
        yield finding.warning("node-left", (node.name,), text, remedy)


def job_findings(id_: str, jobs: Mapping[str, Collection[str]], why: str) -> finding.Findings:
    """Jobs, with the nodes where they run, that do not survive what setup would change."""
    for job_id, nodes in jobs.items():
        remedy = f"Wait for its end, or end it where it was started: stop --job {job_id}"
        yield finding.error(id_, tuple(nodes), f"job {job_id} runs, and {why}", remedy)


def one_session(node: str) -> finding.Finding:
    """A node that opens one session per connection; a job has one for each of its logs and more."""
    text = "could not open a second session on the connection: the system's sshd allows one "
    text += "(MaxSessions 1), and every job needs more"
    remedy = "Set MaxSessions 10 in its sshd_config and reload it"
    return finding.error("one-session", (node,), text, remedy)


def open_above(installed: Iterable[tuple[str, Installed]]) -> finding.Findings:
    """Folders above the cluster's in which others could replace files; they are never changed.

    An sshd with StrictModes takes no key from below such a folder.
    """
    for node, own in installed:
        for path, there in own.open_above.items():
            text = f"{path} {there.why}: others could replace {own.base} and what is run from there"
            remedy = f"chmod go-w {path}" if there.owner is None else f"chown root {path}"
            yield finding.error("open-folders", (node,), text, f"`{remedy}` closes it")


def open_to_others(installed: Iterable[tuple[str, Installed]]) -> finding.Findings:
    """The same, and our own folders and files that others could change."""
    for node, own in installed:
        yield from open_above([(node, own)])
        if own.open:
            text = f"others could change what runs there: {own.open_words}"
            yield finding.error("open-folders", (node,), text, "run setup")


LEAST_MEMLOCK_KIB = 8 << 10
"""Linux's default since 5.16; the earlier 64 KiB are too little for RDMA."""
_CONFINED_TYPES = ("container_t", "svirt_lxc_net_t")


def environment_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """Limits of ranks; what a container lacks of devices, and what confines it."""
    for node, node_facts in answered_nodes(cluster, facts):
        answer = node_facts.surroundings
        yield from finding.unanswered("surroundings-unknown", node, answer, level="warning")
        given = value_of(answer)
        if given is None:
            continue
        yield from _memlock(node, given)
        if node.container is not None:
            is_950 = stated_or_seen_product(cluster, node_facts) == "a5"
            used = device_ids(node, node_facts)
            yield from device_node_findings(node.name, node.container, used, given, is_950=is_950)
            yield from _confined(node, given, value_of(node_facts.confinement))


def device_node_findings(
    node: str, container: str, used: Sequence[int], given: NodeEnvironment, *, is_950: bool
) -> finding.Findings:
    """Devices of the job, and what opens them, that the node's container does not have."""
    place, variable = f"the container {container}", "ASCEND_VISIBLE_DEVICES"
    lacks = [device_id for device_id in sorted(used) if device_id not in given.device_ids]
    visible = (given.visible or "")[:MOST_SHOWN]
    granted: Sequence[int] | None = None
    if given.visible is not None:
        try:
            granted = granted_devices(given.visible)
        except NotUnderstoodError:
            text = f'{variable} of {place} is "{visible}", which its runtime cannot read'
            remedy = "State ids and ranges, as 0-3,6, and re-create the container"
            yield finding.warning("device-not-granted", (node,), text, remedy)
    refused = [device_id for device_id in lacks if granted is not None and device_id not in granted]
    if refused:
        grants = finding.devices(granted) if granted else "no device"
        text = f"{finding.devices_are(refused)} not granted to {place}: its {variable}={visible} "
        text += f"grants {grants}"
        remedy = f"Re-create it with {variable}={finding.numbers(sorted(used))}, or state "
        remedy += "the granted ones under `devices`"
        yield finding.error("device-not-granted", (node,), text, remedy)
    absent = [f"davinci{device_id}" for device_id in lacks if device_id not in refused]
    if used and not refused:  # else their reason is the same
        needed = set(MANAGERS) - ({"devmm_svm"} if is_950 else set())
        absent += sorted(needed - given.device_nodes)
    if absent:
        paths = [f"/dev/{name}" for name in absent]
        remedy = f"Re-create it with {' '.join(f'--device={path}' for path in paths)}"
        if granted:
            grants = f"{variable}={given.visible} grants"
            remedy = f"Re-create it with --runtime=ascend, which adds what {grants}"
        text = f"{place} has no {', '.join(paths)}"
        yield finding.error("device-node-missing", (node,), text, remedy)


def _memlock(node: Node, given: NodeEnvironment) -> finding.Findings:
    if given.memlock_kib is None or given.memlock_kib >= LEAST_MEMLOCK_KIB:
        return
    place = f" in the container {node.container}" if node.container else ""
    remedy = "Set memlock to unlimited in /etc/security/limits.conf or LimitMEMLOCK of the service"
    if node.container:
        remedy = "Re-create the container with --ulimit memlock=-1:-1"
    if node.creation is not None:
        remedy = "Set memlock in default-ulimits of daemon.json, remove the container and run setup"
    limit = f"{given.memlock_kib} KiB of memory{place} (ulimit -l)"
    text = f"ranks may lock {limit}, too little for RDMA and pinned buffers"
    yield finding.warning("memlock-small", (node.name,), text, remedy)


def _confined(node: Node, given: NodeEnvironment, host: Confinement | None) -> finding.Findings:
    """SELinux and AppArmor, by name: else what they refuse looks like wrong modes."""
    kind = given.label.split(":")[2] if given.label.count(":") > 1 else ""
    denials = host.denials if host else ()
    if host is not None and host.enforcing and kind in _CONFINED_TYPES:
        text = f"SELinux is enforcing and confines the container {node.container} ({kind}): it may "
        text += "refuse devices, and folders of the host that were mounted without :z"
        text += _last(denials, f"scontext={given.label}")
        remedy = "Mount with :z, allow devices with setsebool container_use_devices on, or create "
        remedy += "it again with --security-opt label=disable"
        yield finding.warning("selinux-confines", (node.name,), text, remedy)
    profile, _, mode = given.label.partition(" (")
    if mode == "enforce)" and (refused := _last(denials, f'profile="{profile}"')):
        text = f"AppArmor has refused something to the profile {profile}, which the container "
        text += f"{node.container} has{refused}"
        remedy = "If ranks need it, re-create the container with --security-opt "
        remedy += "apparmor=unconfined, or permit it in the profile"
        yield finding.warning("apparmor-denies", (node.name,), text, remedy)


def _last(denials: Sequence[str], mark: str) -> str:
    of_it = [line for line in denials if mark in line]
    return f'; its last denial: "{of_it[-1].strip()[:MOST_SHOWN]}"' if of_it else ""


CLOCK_TOLERANCE_S = 30.0
FIRST_UNSUPPORTED_OPEN_MPI = 5


_SHARED = ("afs", "ceph", "cifs", "gfs/gfs2", "gpfs", "lustre", "nfs", "ocfs2", "panfs", "smb2")
"""Kinds of file systems that several servers can have, as stat(1) of coreutils names them."""


def host_rules(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    """System, programs and disk of each node; machines, versions and clocks of all."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from finding.unanswered("system-unknown", node, node_facts.system)
        yield from finding.unanswered("machine-unknown", node, node_facts.machine, level="warning")
        if cluster.has_logins:
            yield from _sshd(cluster, node, node_facts)
        if needs_openmpi(cluster, facts):
            yield from _openmpi(node, node_facts)
        remedy = "Install it, or state another `code.python`"
        yield from finding.unanswered("python-missing", node, node_facts.python, remedy)
        yield from finding.unanswered("place-read-only", node, node_facts.place)
        if len(cluster.nodes) > 1 and (kind := value_of(node_facts.place)) in _SHARED:
            text = f"the cluster's folder is on {kind}: if nodes share it, each of them overwrites "
            text += "files of the others, such as env/node.env and RANK_AFTER_ACC"
            remedy = "Use root, or a user whose home is local to each node"
            yield finding.warning("base-shared", (node.name,), text, remedy)
        yield from finding.unanswered("disk-unknown", node, node_facts.disk)
        for system in dict.fromkeys(value_of(node_facts.disk) or ()):
            if lacks := finding.disk_lacks(system):
                yield finding.error("disk-full", (node.name,), lacks, f"Free {finding.LEAST_FREE}")
        yield from finding.unanswered("clock-unknown", node, node_facts.clock, level="warning")
        answer = node_facts.listeners
        yield from finding.unanswered("listeners-unknown", node, answer, level="warning")
    for names in same_machines(cluster, facts):
        text = f"{fold(names)} are one and the same machine"
        yield finding.error("same-machine", names, text, "Correct the addresses in the inventory")
    yield from _versions(cluster, facts)
    yield from _names(cluster, facts)
    yield from _clocks(cluster, facts)


def _sshd(cluster: Cluster, node: Node, node_facts: NodeFacts) -> finding.Findings:
    """The OpenSSH server of a node, and whether it would accept a login."""
    from_host = cluster.serves_from_host(node)
    in_container = node.container is not None and not from_host
    install = "Install openssh-server on the host side"
    upgrade = "Install OpenSSH 7.4 or later on the host side"
    if in_container:
        image = f"{node.container}, or state `ssh: {{via: engine}}`"
        install = f"Install openssh-server in the image of {image}"
        upgrade = f"Install OpenSSH 7.4 or later in the image of {image}"
    yield from finding.unanswered("sshd-missing", node, node_facts.sshd, install)
    server = value_of(node_facts.sshd)
    yield from finding.too_old("sshd-old", node, server, SSHD_OPTIONS, upgrade)
    if server is None or server.accepts_login:
        return
    system = value_of(node_facts.host if from_host else node_facts.system)
    user, place = system.user if system else "root", ""
    remedy = f"Forbid passwords without locking it: usermod -p '*' {user}"
    if in_container:
        place = f" in the container {node.container}"
        remedy += ", in the image; or state `ssh: {via: engine}`"
    text = f"the account {user}{place} is locked (its password in /etc/shadow begins with !): "
    text += "the cluster's sshd would refuse every login"
    yield finding.error("account-locked", (node.name,), text, remedy)


def _openmpi(node: Node, node_facts: NodeFacts) -> finding.Findings:
    remedy = "Install Open MPI 4.1 (package openmpi-bin), or put it in /usr/local/openmpi"
    yield from finding.unanswered("openmpi-missing", node, node_facts.openmpi, remedy)
    openmpi = value_of(node_facts.openmpi)
    if openmpi is not None and openmpi.release[0] >= FIRST_UNSUPPORTED_OPEN_MPI:
        text = f"Open MPI {openmpi.version} is not supported yet by this version"
        yield finding.error("openmpi-unsupported", (node.name,), text, "Install Open MPI 4.1")


def same_machines(cluster: Cluster, facts: FactsByNode) -> list[tuple[str, ...]]:
    """The sets of nodes that are one machine under several names."""
    return _equal(known(cluster, facts, lambda its: its.machine))


def _equal(values: Mapping[str, str]) -> list[tuple[str, ...]]:
    groups = finding.grouped((value, name) for name, value in values.items())
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _versions(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    is_needed = needs_openmpi(cluster, facts)
    openmpi = known(cluster, facts, lambda its: its.openmpi) if is_needed else {}
    python = known(cluster, facts, lambda its: its.python)
    system = known(cluster, facts, lambda its: its.system)
    same = "Install the same version on all nodes"
    same_place = "Install Open MPI at the same place on all nodes"
    one_arch = "Use nodes of one architecture, or a `code.python` that is right on each"
    for id_, has, values, remedy in (
        ("openmpi-differs", "Open MPI ", {n: each.version for n, each in openmpi.items()}, same),
        ("python-differs", "Python ", {n: each.version for n, each in python.items()}, same),
        ("openmpi-path-differs", "mpirun at ", {n: o.path for n, o in openmpi.items()}, same_place),
        ("arch-differs", "the architecture ", {n: s.arch for n, s in system.items()}, one_arch),
    ):
        is_wide = len({value.rpartition(".")[0] for value in values.values()}) > 1
        level: finding.Level = "error" if remedy == same and is_wide else "warning"
        yield from finding.differences(id_, values, has=has, level=level, remedy=remedy)


def _names(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    systems = known(cluster, facts, lambda its: its.system)
    one_machine = same_machines(cluster, facts)
    for names in _equal({name: found.hostname for name, found in systems.items()}):
        if not any(set(names) <= set(same) for same in one_machine):
            text = f'{len(names)} nodes have the same hostname "{systems[names[0]].hostname}"'
            remedy = "Give each its own: hostnamectl set-hostname NAME"
            yield finding.warning("hostname-twice", names, text, remedy)


def _clocks(cluster: Cluster, facts: FactsByNode) -> finding.Findings:
    clocks = known(cluster, facts, lambda its: its.clock)
    offsets = sorted(clock.offset_s for clock in clocks.values())
    # The median; of the two in the middle of an even number, the one closer to our own clock.
    usual = min(offsets[(len(offsets) - 1) // 2 : len(offsets) // 2 + 1], key=abs, default=0.0)
    for name, clock in clocks.items():
        away = clock.offset_s - usual
        if abs(away) - clock.uncertainty_s > CLOCK_TOLERANCE_S:
            direction = "ahead of" if away > 0 else "behind"
            text = f"the clock is {abs(away):.0f} s {direction} the other nodes"
            remedy = "Set the time on all nodes from one source (chrony, ntpd)"
            yield finding.warning("clock-off", (name,), text, remedy)
