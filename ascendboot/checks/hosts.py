"""Checks of hosts: system, limits, folders, control machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from ascendboot.checks.launchers import (
    LEAST_FREE_BYTES,
    LEAST_FREE_INODES,
    SSHD_OPTIONS,
    needs_openmpi,
)
from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.derive import answered_nodes, device_ids, product_of
from ascendboot.facts.environment import (
    MANAGERS,
    MOST_SHOWN,
    Confinement,
    NodeEnvironment,
    granted_devices,
)
from ascendboot.facts.query import Clock, value_of
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.installed import Installed
    from ascendboot.facts.node_facts import NodeFacts
    from ascendboot.model.cluster import Cluster, Node


def set_up_elsewhere(owns: Mapping[str, Installed], known: Collection[str]) -> dict[str, str]:
    """By node that is not under one of the keys in `known`: who set it up.

    The record on the node counts, and without one the CA that signed its certificates.
    """
    found = {}
    for node, own in owns.items():
        signers = {certificate.claims.ca for certificate in own.certificates.values()}
        if own.owner is not None:
            if own.owner.key not in known:
                found[node] = own.owner.words
        elif signers and not signers & {*known}:
            found[node] = f"one with CA {', '.join(sorted(signers))}; the node has no other record"
    return found


def elsewhere_findings(
    elsewhere: Mapping[str, str], *, here: str, take_over: bool
) -> Iterable[Finding]:
    """One finding per control folder; `here` describes this one."""
    for words in dict.fromkeys(elsewhere.values()):
        nodes = tuple(node for node, other in elsewhere.items() if other == words)
        node_facts = f"another control folder set up the cluster here: {words}; this is {here}"
        if take_over:
            yield warning(
                "set-up-elsewhere",
                nodes,
                f"{node_facts}. --take-over replaces its keys",
                "Copy this folder's clusters/CLUSTER there if both are to be used",
            )
        else:
            yield error(
                "set-up-elsewhere",
                nodes,
                node_facts,
                "Copy clusters/CLUSTER from that folder into this one and run setup again; "
                "only if that folder is not to be used any more, run setup --take-over",
            )


def left_findings(left: Iterable[Node]) -> Iterable[Finding]:
    """Nodes that were set up from here and are not in the inventory any more."""
    for node in left:
        yield warning(
            "node-left",
            (node.name,),
            f"this node ({node.address}) left the inventory, but the cluster's sshd, its keys "
            "and its login are still there, and the other nodes trust its keys",
            f"Run reset --node {node.name}; if the server is gone for good, with --forget",
        )


def job_findings(jobs: Mapping[str, Collection[str]], why: str) -> Iterable[Finding]:
    """Jobs, with the nodes where they run, that do not survive new keys."""
    for job_id, nodes in jobs.items():
        yield error(
            "job-needs-keys",
            tuple(nodes),
            f"job {job_id} runs, and {why}",
            f"Wait for its end, or end it where it was started: stop --job {job_id}",
        )


def one_session(node: str) -> Finding:
    """A node that opens one session per connection; a job has one for each of its logs and more."""
    return error(
        "one-session",
        (node,),
        "could not open a second session on the connection: the system's sshd allows one "
        "(MaxSessions 1), and every job needs more",
        "Set MaxSessions 10 in its sshd_config and reload it",
    )


def open_above(node_facts: Iterable[tuple[str, Installed]]) -> Iterator[Finding]:
    """Folders above the cluster's in which others could replace files; they are never changed.

    An sshd with StrictModes takes no key from below such a folder.
    """
    for node, own in node_facts:
        for path, there in own.open_above.items():
            remedy = f"chmod go-w {path}" if there.owner is None else f"chown root {path}"
            yield error(
                "open-folders",
                (node,),
                f"{path} {there.why}: others could replace {own.base}, which lies below it "
                "and from which programs are run",
                f"`{remedy}` closes it",
            )


def open_to_others(node_facts: Mapping[str, Iterable[Installed]]) -> Iterator[Finding]:
    """The same, and our own folders and files that others could change."""
    for node, sides in node_facts.items():
        for own in sides:
            yield from open_above([(node, own)])
            if own.open:
                text = f"others could change what runs there: {own.open_words}"
                yield error("open-folders", (node,), text, "run setup")


LEAST_MEMLOCK_KIB = 8 << 10
"""Linux's default since 5.16; the earlier 64 KiB are too little for RDMA."""
_NOT_ON_950 = frozenset({"devmm_svm"})
_CONFINED_TYPES = ("container_t", "svirt_lxc_net_t")


def environment_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from unanswered(
            "surroundings-unknown", node, node_facts.surroundings, level="warning"
        )
        given = value_of(node_facts.surroundings)
        if given is None:
            continue
        yield from _memlock(node, given)
        if node.container is not None:
            product = product_of(node_facts) if cluster.product == "auto" else cluster.product
            ids = device_ids(node, node_facts)
            is_950, place = product == "a5", node.container
            yield from device_node_findings(node.name, place, ids, given, is_950=is_950)
            yield from _confined(node, given, value_of(node_facts.confinement))


def device_node_findings(
    node: str,
    container: str,
    used: Sequence[int],
    given: NodeEnvironment,
    *,
    is_950: bool,
    id_: str = "",
) -> Iterator[Finding]:
    """Devices of the job, and what opens them, that the node's container does not have.

    `id_` is used in place of the ids of `setup` and `check`.
    """
    place = f"the container {container}"
    lacks = [device_id for device_id in sorted(used) if device_id not in given.device_ids]
    granted: Sequence[int] | None = None
    if given.visible is not None:
        try:
            granted = granted_devices(given.visible)
        except NotUnderstoodError:
            shown = given.visible[:MOST_SHOWN]
            text = f'ASCEND_VISIBLE_DEVICES of {place} is "{shown}", which its runtime cannot read'
            remedy = "State ids and ranges, as 0-3,6, and create the container again"
            yield warning(id_ or "device-not-granted", (node,), text, remedy)
    refused = [device_id for device_id in lacks if granted is not None and device_id not in granted]
    if refused:
        verb = "is" if len(refused) == 1 else "are"
        grants = devices(granted) if granted else "no device"
        text = f"{devices(refused)} {verb} not granted to {place}: its ASCEND_VISIBLE_DEVICES"
        text += f"={given.visible[:MOST_SHOWN] if given.visible else ''} grants {grants}"
        remedy = f"Create it again with ASCEND_VISIBLE_DEVICES={numbers(sorted(used))}, or state "
        remedy += "the granted ones under `devices`"
        yield error(id_ or "device-not-granted", (node,), text, remedy)
    absent = [f"davinci{device_id}" for device_id in lacks if device_id not in refused]
    if used and not refused:  # else their reason is the same
        needed = set(MANAGERS) - (_NOT_ON_950 if is_950 else set())
        absent += sorted(needed - given.device_nodes)
    if absent:
        paths = [f"/dev/{name}" for name in absent]
        text = f"{place} has no {', '.join(paths)}"
        remedy = f"Create it again with {' '.join(f'--device={path}' for path in paths)}"
        if granted:
            remedy = "Create it again with --runtime=ascend, which adds what "
            remedy += f"ASCEND_VISIBLE_DEVICES={given.visible} grants"
        yield error(id_ or "device-node-missing", (node,), text, remedy)


def _memlock(node: Node, given: NodeEnvironment) -> Iterator[Finding]:
    if given.memlock_kib is None or given.memlock_kib >= LEAST_MEMLOCK_KIB:
        return
    place = f" in the container {node.container}" if node.container else ""
    remedy = "Set memlock to unlimited in /etc/security/limits.conf or LimitMEMLOCK of the service"
    if node.container:
        remedy = "Create the container again with --ulimit memlock=-1:-1"
    text = f"ranks may lock {given.memlock_kib} KiB of memory{place} (ulimit -l), too little for "
    text += "RDMA and pinned buffers"
    yield warning("memlock-small", (node.name,), text, remedy)


def _confined(node: Node, given: NodeEnvironment, host: Confinement | None) -> Iterator[Finding]:
    """SELinux and AppArmor, by name: else what they refuse looks like wrong modes."""
    kind = given.label.split(":")[2] if given.label.count(":") > 1 else ""
    denials = host.denials if host else ()
    if host is not None and host.enforcing and kind in _CONFINED_TYPES:
        text = f"SELinux is enforcing and confines the container {node.container} ({kind}): it may "
        text += "refuse devices, and folders of the host that were mounted without :z"
        text += _last(denials, f"scontext={given.label}")
        remedy = "Mount with :z, allow devices with setsebool container_use_devices on, or create "
        remedy += "it again with --security-opt label=disable"
        yield warning("selinux-confines", (node.name,), text, remedy)
    profile, _, mode = given.label.partition(" (")
    refused = _last(denials, f'profile="{profile}"') if mode == "enforce)" else ""
    if refused:
        text = f"AppArmor has refused something to the profile {profile}, which the container "
        text += f"{node.container} has{refused}"
        remedy = "If ranks need it, create the container again with --security-opt "
        remedy += "apparmor=unconfined, or permit it in the profile"
        yield warning("apparmor-denies", (node.name,), text, remedy)


def _last(denials: Sequence[str], mark: str) -> str:
    of_it = [line for line in denials if mark in line]
    return f'; its last denial: "{of_it[-1].strip()[:MOST_SHOWN]}"' if of_it else ""


CLOCK_TOLERANCE_S = 30.0
FIRST_UNSUPPORTED_OPEN_MPI = 5


def host_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    for node, node_facts in answered_nodes(cluster, facts):
        yield from unanswered("system-unknown", node, node_facts.system)
        yield from unanswered("machine-unknown", node, node_facts.machine, level="warning")
        if_missing, if_old = _sshd_remedies(cluster, node)
        yield from unanswered("sshd-missing", node, node_facts.sshd, if_missing)
        yield from too_old("sshd-old", node, value_of(node_facts.sshd), SSHD_OPTIONS, if_old)
        yield from _account(cluster, node, node_facts)
        if needs_openmpi(cluster, facts):
            yield from _openmpi(node, node_facts)
        yield from unanswered(
            "python-missing", node, node_facts.python, "Install it, or state another `code.python`"
        )
        yield from _disk(node, node_facts)
        yield from unanswered("clock-unknown", node, node_facts.clock, level="warning")
        yield from unanswered("listeners-unknown", node, node_facts.listeners, level="warning")
    yield from _one_machine(cluster, facts)
    yield from _versions(cluster, facts)
    yield from _names(cluster, facts)
    yield from _clocks(cluster, facts)


def _sshd_remedies(cluster: Cluster, node: Node) -> tuple[str, str]:
    """What to do where there is no sshd, and where it is too old."""
    if node.container is None or cluster.serves_from_host(node):
        place = "on the host side"
        return f"Install openssh-server {place}", f"Install OpenSSH 7.4 or later {place}"
    image = f"{node.container}, or state `ssh: {{via: engine}}`"
    return (
        f"Install openssh-server in the image of {image}",
        f"Install OpenSSH 7.4 or later in the image of {image}",
    )


def _account(cluster: Cluster, node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    server = value_of(node_facts.sshd)
    if server is None or server.lets_us_in:
        return
    from_host = cluster.serves_from_host(node)
    in_container = node.container is not None and not from_host
    system = value_of(node_facts.host if from_host else node_facts.system)
    user, place = system.user if system else "root", ""
    remedy = f"Forbid passwords without locking it: usermod -p '*' {user}"
    if in_container:
        place = f" in the container {node.container}"
        remedy += ", in the image; or state `ssh: {via: engine}`"
    yield error(
        "account-locked",
        (node.name,),
        f"the account {user}{place} is locked (its password in /etc/shadow begins with !): "
        "the cluster's sshd would let nobody in",
        remedy,
    )


def _openmpi(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    remedy = "Install Open MPI 4.1 (package openmpi-bin), or put it in /usr/local/openmpi"
    yield from unanswered("openmpi-missing", node, node_facts.openmpi, remedy)
    openmpi = value_of(node_facts.openmpi)
    if openmpi is not None and openmpi.release[0] >= FIRST_UNSUPPORTED_OPEN_MPI:
        yield error(
            "openmpi-unsupported",
            (node.name,),
            f"Open MPI {openmpi.version} is not supported yet by this version",
            "Install Open MPI 4.1",
        )


def _disk(node: Node, node_facts: NodeFacts) -> Iterator[Finding]:
    yield from unanswered("place-read-only", node, node_facts.place)
    yield from unanswered("disk-unknown", node, node_facts.disk)
    disk = value_of(node_facts.disk)
    for system in dict.fromkeys((disk.base, disk.tmp) if disk else ()):
        lacks = []
        if system.free_bytes < LEAST_FREE_BYTES:
            lacks.append(f"{max(system.free_bytes, 0) // 1000**2} MB")
        if system.free_inodes is not None and system.free_inodes < LEAST_FREE_INODES:
            lacks.append(f"{system.free_inodes} inodes")
        if lacks:
            yield error(
                "disk-full",
                (node.name,),
                f"only {' and '.join(lacks)} are free on {system.mount_point}",
                f"Free {LEAST_FREE_BYTES // 1000**2} MB and {LEAST_FREE_INODES} inodes",
            )


def _one_machine(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    for names in same_machines(cluster, facts):
        yield error(
            "same-machine",
            names,
            f"{fold(names)} are one and the same machine",
            "Correct the addresses in the inventory",
        )


def same_machines(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[tuple[str, ...], ...]:
    """The sets of nodes that are one machine under several names."""
    machines = known(
        {node.name: node_facts.machine for node, node_facts in answered_nodes(cluster, facts)}
    )
    return _equal(machines)


def _versions(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    nodes = tuple(answered_nodes(cluster, facts))
    openmpi = known({node.name: node_facts.openmpi for node, node_facts in nodes})
    if not needs_openmpi(cluster, facts):
        openmpi = {}
    python = known({node.name: node_facts.python for node, node_facts in nodes})
    system = known({node.name: node_facts.system for node, node_facts in nodes})
    for id_, has, versions in (
        ("openmpi-differs", "Open MPI ", {name: found.version for name, found in openmpi.items()}),
        ("python-differs", "Python ", {name: found.version for name, found in python.items()}),
    ):
        series = {version.rpartition(".")[0] for version in versions.values()}
        yield from differences(
            id_,
            versions,
            has=has,
            level="error" if len(series) > 1 else "warning",
            remedy="Install the same version on all nodes",
        )
    yield from differences(
        "openmpi-path-differs",
        {name: found.path for name, found in openmpi.items()},
        has="mpirun at ",
        level="warning",
        remedy="Install Open MPI at the same place on all nodes",
    )
    yield from differences(
        "arch-differs",
        {name: found.arch for name, found in system.items()},
        has="the architecture ",
        level="warning",
        remedy="Use nodes of one architecture, or a `code.python` that is right on each",
    )


def _names(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    systems = known(
        {node.name: node_facts.system for node, node_facts in answered_nodes(cluster, facts)}
    )
    one_machine = same_machines(cluster, facts)
    for names in _equal({name: found.hostname for name, found in systems.items()}):
        if any(set(names) <= set(same) for same in one_machine):
            continue
        yield warning(
            "hostname-twice",
            names,
            f'{len(names)} nodes have the same hostname "{systems[names[0]].hostname}"',
            "Give each its own: hostnamectl set-hostname NAME",
        )


def _clocks(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    clocks = known(
        {node.name: node_facts.clock for node, node_facts in answered_nodes(cluster, facts)}
    )
    if not clocks:
        return
    usual = _usual_offset(clocks)
    for name, clock in clocks.items():
        away = clock.offset_s - usual
        if abs(away) - clock.uncertainty_s > CLOCK_TOLERANCE_S:
            yield warning(
                "clock-off",
                (name,),
                f"the clock is {abs(away):.0f} s {'ahead of' if away > 0 else 'behind'} "
                "the other nodes",
                "Set the time on all nodes from one source (chrony, ntpd)",
            )


def _usual_offset(clocks: Mapping[str, Clock]) -> float:
    """The median; of the two in the middle of an even number, the one closer to our own clock."""
    offsets = sorted(clock.offset_s for clock in clocks.values())
    middle = offsets[(len(offsets) - 1) // 2 : len(offsets) // 2 + 1]
    return min(middle, key=abs)


def _equal(values: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
