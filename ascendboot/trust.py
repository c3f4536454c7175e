"""What lets the primary in everywhere: our own sshd, keys, and certificates or pinned keys."""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import TYPE_CHECKING, Literal

from ascendboot.facts.api import value_of
from ascendboot.model.certificate import Authority, Claims, fingerprint
from ascendboot.steps.certificates import CertificateFile, Clocks
from ascendboot.steps.daemon import Daemon
from ascendboot.steps.files import Absent, FileContent, Later
from ascendboot.steps.keys import KeyPair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.context import Context
    from ascendboot.model.cluster import Node
    from ascendboot.steps.api import Step

HOST_CERTIFICATE: Literal["sshd/host_key-cert.pub"] = "sshd/host_key-cert.pub"
USER_CERTIFICATE: Literal["trust/cluster_key-cert.pub"] = "trust/cluster_key-cert.pub"
_CLUSTER_KEY: Literal["trust/cluster_key"] = "trust/cluster_key"
_OF_SOME_NODES = (
    HOST_CERTIFICATE,
    _CLUSTER_KEY,
    USER_CERTIFICATE,
    "trust/known_hosts",
    "trust/ssh_config",
)
"""What another kind of trust or another primary leaves behind."""


def sshd(context: Context, node: Node) -> Sequence[Step]:
    """Our own sshd: host key, configuration, running process; on the primary the cluster's key."""
    steps: list[Step] = [
        KeyPair("sshd/host_key", f"{node.name} of {context.cluster.name}"),
        FileContent("sshd/sshd_config", _sshd_config(context, node), 0o600),
        _daemon(context, node),
    ]
    if node == context.cluster.primary:
        steps.append(KeyPair(_CLUSTER_KEY, context.cluster.name))
    return steps


def trust(context: Context, node: Node) -> Sequence[Step]:
    """The primary's key opens every node, and the primary knows every node's host key."""
    certified = context.cluster.trust == "ca"
    steps = [*(_certified if certified else _pinned)(context, node)]
    kept = {step.name for step in steps}
    if node == context.cluster.primary:
        steps.append(FileContent("trust/ssh_config", _ssh_config(context)))
        kept |= {"trust/ssh_config", _CLUSTER_KEY}
    there = context.seen.own[node.name].files
    return [
        *steps,
        *(Absent(path) for path in _OF_SOME_NODES if path in there and path not in kept),
    ]


def _certified(context: Context, node: Node) -> list[Step]:
    """Trust `ca`: each node proves itself, and the primary too, by a certificate."""
    authority, is_primary = context.authority, node == context.cluster.primary
    if authority is None:
        paths = ["trust/authorized_keys", HOST_CERTIFICATE]
        paths += [USER_CERTIFICATE, "trust/known_hosts"] if is_primary else []
        signed = any(own.certificates for own in context.seen.own.values())
        again = "a new CA signs everything again; the keys of the present one are not on this side"
        until = again if signed else "the cluster's CA is made"
        return [Later(path, until) for path in paths]
    steps: list[Step] = [
        FileContent("trust/authorized_keys", _authorized_keys(context, authority.user)),
        _host_certificate(context, authority, node),
    ]
    if is_primary:
        known = {"authority": authority.host, "hosts": (), "port": context.decisions.port}
        text = context.templates.text("trust/known_hosts.j2", known)
        steps += [_user_certificate(context, authority), FileContent("trust/known_hosts", text)]
    return steps


def _pinned(context: Context, node: Node) -> list[Step]:
    """Trust `pinned`: every node knows the cluster's key, the primary knows every host key."""
    cluster, own = context.cluster, context.seen.own
    key = own[cluster.primary_name].cluster_key
    path = "trust/authorized_keys"
    steps: list[Step] = [
        FileContent(path, _authorized_keys(context, key))
        if key is not None
        else Later(path, "the cluster's key is made")
    ]
    if node != cluster.primary:
        return steps
    hosts = [(n.cluster_address, own[n.name].host_key) for n in cluster.nodes]
    path = "trust/known_hosts"
    if any(key is None for _, key in hosts):
        return [*steps, Later(path, "the host keys are made")]
    known = {"authority": None, "hosts": hosts, "port": context.decisions.port}
    return [*steps, FileContent(path, context.templates.text("trust/known_hosts.j2", known))]


def _host_certificate(context: Context, authority: Authority, node: Node) -> Step:
    own = context.seen.own[node.name]
    if own.host_key is None:
        return Later(HOST_CERTIFICATE, "the host keys are made")
    claims = Claims(
        kind="host",
        key=fingerprint(own.host_key),
        ca=fingerprint(authority.host),
        key_id=f"{node.name} of {context.cluster.name}",
        principals=(node.cluster_address, node.name),
    )
    return CertificateFile(
        path=HOST_CERTIFICATE,
        claims=claims,
        clocks=_clocks(context),
        sign=partial(authority.sign, claims, own.host_key) if authority.sign else None,
        load=_daemon(context, node).start(own),
    )


def _user_certificate(context: Context, authority: Authority) -> Step:
    cluster = context.cluster
    key = context.seen.own[cluster.primary_name].cluster_key
    if key is None:
        return Later(USER_CERTIFICATE, "the cluster's key is made")
    source = ipaddress.ip_network(cluster.primary.cluster_address)
    claims = Claims(
        kind="user",
        key=fingerprint(key),
        ca=fingerprint(authority.user),
        key_id=f"{cluster.primary_name} of {cluster.name}",
        principals=(_principal(context),),
        options=(f"source-address {source}",),
    )
    return CertificateFile(
        path=USER_CERTIFICATE,
        claims=claims,
        clocks=_clocks(context),
        sign=partial(authority.sign, claims, key) if authority.sign else None,
    )


def _clocks(context: Context) -> Clocks:
    clocks = {name: value_of(facts.clock) for name, facts in context.seen.facts.items()}
    times = [(context.now + (c.offset_s if c else 0.0), name) for name, c in clocks.items()]
    return Clocks(now=context.now, earliest=min(times), latest=max(times))


def _principal(context: Context) -> str:
    return f"mpi-{context.cluster.name}"


def _daemon(context: Context, node: Node) -> Daemon:
    server = value_of(context.seen.facts[node.name].sshd)
    return Daemon(server.path if server else "/usr/sbin/sshd", _sshd_config(context, node))


def _authorized_keys(context: Context, key: str) -> str:
    return context.templates.text(
        "trust/authorized_keys.j2",
        {
            "cluster": context.cluster.name,
            "primary_address": context.cluster.primary.cluster_address,
            "principal": _principal(context) if context.cluster.trust == "ca" else None,
            "key": key,
        },
    )


def _sshd_config(context: Context, node: Node) -> str:
    return context.templates.text(
        "sshd/sshd_config.j2",
        {
            "node": node.name,
            "cluster": context.cluster.name,
            "primary": context.cluster.primary_name,
            "port": context.decisions.port,
            "address": node.cluster_address,
            "base": str(context.decisions.base),
            "certificate": HOST_CERTIFICATE if context.cluster.trust == "ca" else None,
            "user": context.user(node),
        },
    )


def _ssh_config(context: Context) -> str:
    cluster = context.cluster
    own_user = context.user(cluster.primary)
    users = [(n.cluster_address, context.user(n)) for n in cluster.nodes]
    return context.templates.text(
        "trust/ssh_config.j2",
        {
            "cluster": cluster.name,
            "primary": cluster.primary_name,
            "port": context.decisions.port,
            "base": str(context.decisions.base),
            "certificate": USER_CERTIFICATE if cluster.trust == "ca" else None,
            "user": own_user,
            "other_users": [(address, user) for address, user in users if user != own_user],
        },
    )
