"""Trust between nodes: host keys, certificates, and the cluster's sshd."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from functools import partial

from ascendboot.facts.container import container_exec
from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Node
from ascendboot.model.files import Claims, fingerprint
from ascendboot.setup.cluster_plan import Context
from ascendboot.setup.steps import (
    SSHD,
    SSHD_CONFIG,
    Absent,
    CertificateFile,
    Closed,
    FileContent,
    KeyPair,
    Later,
    Sshd,
    Step,
)
from ascendboot.transport.api import Command
from ascendboot.value import replace

HOST_CERTIFICATE = "sshd/host_key-cert.pub"
USER_CERTIFICATE = "trust/cluster_key-cert.pub"
_ENTER = "sshd/enter"
"""What a login runs if the cluster's sshd is on the host side: only a command in the container."""
_ADMITTED = "trust/authorized_keys"
_KNOWN = "trust/known_hosts"
_CLUSTER_KEY = "trust/cluster_key"
_PUBLIC_KEY = "trust/cluster_key.pub"
"""OpenSSH 7.4 finds the private key of a certificate only by this file."""
_OF_A_PRIMARY = (_CLUSTER_KEY, _PUBLIC_KEY, USER_CERTIFICATE, _KNOWN, "trust/ssh_config")
"""Files that another kind of trust or another primary leaves."""


def has_logins(context: Context) -> bool:
    """Whether nodes log in to each other; one alone keeps the sshd of a larger cluster."""
    there = context.facts.sshd_side(context.cluster.primary_name)
    return context.cluster.has_logins or SSHD_CONFIG in there.files


def sshd(context: Context, node: Node) -> Sequence[Step]:
    """The cluster's own sshd: host key, configuration, running process."""
    steps: list[Step] = [Closed()]
    if context.control is not None and context.owner is None:
        steps.append(Later("owner", "the keys of this control folder are made"))
    elif context.owner is not None:  # setup from another control folder is refused
        steps.append(FileContent("owner", context.owner.text))
    if not has_logins(context):
        return steps
    steps.append(KeyPair("sshd/host_key", f"{node.name} of {context.cluster.name}"))
    if context.cluster.serves_from_host(node):
        container = container_exec(node, context.facts.nodes[node.name].container)
        engine, name = container.engine if container else "docker", node.container
        enter = context.text("sshd/enter.j2", node=node.name, engine=engine, container=name)
        steps.append(FileContent(_ENTER, enter, 0o755))
    daemon = _daemon(context, node)
    return [*steps, FileContent(SSHD_CONFIG, daemon.config, 0o600), daemon]


def _daemon(context: Context, node: Node) -> Sshd:
    server = value_of(context.facts.nodes[node.name].sshd)
    base = str(context.facts.sshd_side(node.name).base)
    config = context.text(
        "sshd/sshd_config.j2",
        node=node.name,
        address=node.cluster_address,
        base=base,
        certificate=HOST_CERTIFICATE if context.cluster.trust == "ca" else None,
        enter=f"{base}/{_ENTER}" if context.cluster.serves_from_host(node) else None,
        user=context.user(node),
    )
    sshd = server.path if server else SSHD
    return Sshd(sshd=sshd, config=config, port=context.plan.port)


def cluster_key(context: Context, node: Node) -> Sequence[Step]:
    """On the primary and its stand-bys, the key for logins to every node."""
    # If the cluster's sshd runs on the same side, one of its steps closes the folder.
    steps: list[Step] = [Closed()] if context.cluster.serves_from_host(node) else []
    if node in context.cluster.heads and has_logins(context):
        steps.append(KeyPair(_CLUSTER_KEY, context.cluster.name, _known(context)))
    return steps


def _cluster_key(context: Context, head: Node) -> str | None:
    """The key with which this node logs in; None before it has one that is not replaced."""
    key = context.facts.installed[head.name].cluster_key
    return None if key and f"key:{fingerprint(key)}" in _known(context) else key


def _known(context: Context) -> Collection[str]:
    """Former keys of this control folder."""
    return context.control.known if context.control else ()


def without_keys(context: Context) -> Context:
    """For a plan that replaces all keys: those that are there are former ones."""
    key = context.facts.installed[context.cluster.primary_name].cluster_key
    control = context.control
    if control and key:
        control = replace(control, known=control.known | {f"key:{fingerprint(key)}"})
    return replace(context, authority=None, control=control)


def admission(context: Context, node: Node) -> Sequence[Step]:
    """The cluster's sshd accepts the primary's key and, with trust `ca`, has a host certificate."""
    cluster, there = context.cluster, context.facts.sshd_side(node.name)
    if not has_logins(context):
        return []
    if cluster.trust == "pinned":
        key = _cluster_key(context, cluster.primary)
        is_left = HOST_CERTIFICATE in there.files
        return [_admitted(context, key), *([Absent(HOST_CERTIFICATE)] if is_left else [])]
    names, load = (node.cluster_address, node.name), _daemon(context, node).start(there)
    certificate = _certificate(
        context, HOST_CERTIFICATE, node, there.host_key, principals=names, load=load
    )
    ca_key = context.authority.user if context.authority else None
    return [_admitted(context, ca_key), certificate]


def _admitted(context: Context, key: str | None) -> Step:
    """The key of the primary, or of the CA that certifies it, is authorized."""
    cluster, certified = context.cluster, context.cluster.trust == "ca"
    if key is None:
        return Later(_ADMITTED, _signing(context) if certified else "the cluster's key is made")
    heads = ",".join(node.cluster_address for node in cluster.heads)
    principal = _principal(context) if certified else None
    text = context.text("trust/authorized_keys.j2", heads=heads, principal=principal, key=key)
    return FileContent(_ADMITTED, text)


def trust(context: Context, node: Node) -> Sequence[Step]:
    """The primary and its stand-bys trust every node and can log in there; others cannot."""
    is_head = node in context.cluster.heads and has_logins(context)
    steps = _of_head(context, node) if is_head else []
    kept = {step.name for step in steps} | ({_CLUSTER_KEY} if is_head else set())
    there = context.facts.installed[node.name].files
    return [*steps, *(Absent(path) for path in _OF_A_PRIMARY if path in there and path not in kept)]


def _of_head(context: Context, head: Node) -> list[Step]:
    """It knows every host, by its CA or by its key, and how to log in there."""
    cluster, facts, authority = context.cluster, context.facts, context.authority
    certified = cluster.trust == "ca"
    steps: list[Step] = []
    keys = ((node, facts.sshd_side(node.name).host_key) for node in cluster.nodes)
    changed = context.only or facts.nodes
    hosts = [(n.cluster_address, key) for n, key in keys if key or n.name in changed]
    if certified:
        key = _cluster_key(context, head)
        public = FileContent(_PUBLIC_KEY, f"{key}\n") if key else None
        steps.append(public or Later(_PUBLIC_KEY, "the cluster's key is made"))
        address = ipaddress.ip_network(head.cluster_address)
        names, options = (_principal(context),), (f"source-address {address}",)
        certificate = _certificate(
            context, USER_CERTIFICATE, head, key, principals=names, options=options
        )
        steps.append(certificate)
    if certified and authority is None:
        steps.append(Later(_KNOWN, _signing(context)))
    elif not certified and any(key is None for _, key in hosts):
        steps.append(Later(_KNOWN, "the host keys are made"))
    else:
        ca = authority.host if certified and authority else None
        known = context.text("trust/known_hosts.j2", authority=ca, hosts=() if certified else hosts)
        steps.append(FileContent(_KNOWN, known))
    users = {n.cluster_address: context.user(n) for n in cluster.nodes}
    user = users[head.cluster_address]
    config = context.text(
        "trust/ssh_config.j2",
        certificate=USER_CERTIFICATE if certified else None,
        user=user,
        other_users=[(address, other) for address, other in users.items() if other != user],
    )
    return [*steps, FileContent("trust/ssh_config", config)]


def _certificate(
    context: Context,
    name: str,
    node: Node,
    key: str | None,
    *,
    principals: tuple[str, ...],
    options: tuple[str, ...] = (),
    load: Command | None = None,
) -> Step:
    """The certificate of a node's host key, or of the cluster's key on a node that starts jobs."""
    authority, is_host = context.authority, name == HOST_CERTIFICATE
    if authority is None:
        return Later(name, _signing(context))
    if key is None:
        return Later(name, "the host keys are made" if is_host else "the cluster's key is made")
    claims = Claims(
        kind="host" if is_host else "user",
        key=fingerprint(key),
        ca=fingerprint(authority.host if is_host else authority.user),
        key_id=f"{node.name} of {context.cluster.name}",
        principals=principals,
        options=options,
    )
    sign = partial(authority.sign, claims, key) if authority.sign else None
    return CertificateFile(name=name, claims=claims, now=context.now, sign=sign, load=load)


def _signing(context: Context) -> str:
    """What must happen before certificates are signed."""
    sides = (*context.facts.installed.values(), *context.facts.sshd_sides.values())
    signers = {each.claims.ca for side in sides for each in side.certificates.values()}
    if signers and signers.isdisjoint(_known(context)):
        return "a new CA signs everything again; this control machine lacks the present CA's keys"
    return "a new CA signs everything again" if signers else "the cluster's CA is made"


def _principal(context: Context) -> str:
    return f"mpi-{context.cluster.name}"
