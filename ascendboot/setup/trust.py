"""Trust between nodes: host keys, certificates, and the cluster's sshd."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.facts.container import container_exec
from ascendboot.facts.query import value_of
from ascendboot.model.files import Authority, Claims, fingerprint
from ascendboot.setup.ca import CertificateFile, Clocks
from ascendboot.setup.steps import (
    Absent,
    Change,
    Closed,
    FileContent,
    KeyPair,
    Later,
    Satisfied,
    Step,
    StepState,
)
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.facts.installed import Installed
    from ascendboot.model.cluster import Node
    from ascendboot.setup.context import Context


@dataclass(frozen=True, kw_only=True)
class Daemon(Step):
    """Our sshd runs with exactly `config` (the text of `sshd/sshd_config`)."""

    name: str = "sshd"
    sshd: str
    """Absolute path of the program; sshd refuses to start when called otherwise."""
    config: str

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a running sshd of the cluster with this configuration and host key."""
        config = self.config.encode()
        identity = sha256(config + f"{installed.host_key}\n".encode()).hexdigest()
        if installed.strays:
            why = "an sshd of the cluster runs without its record"
        elif installed.daemon is None:
            why = "the cluster's sshd does not run"
        elif installed.daemon.identity != identity:
            why = "the cluster's sshd runs with another configuration or host key"
        else:
            return Satisfied("runs as configured")
        return Change(summary=why, commands=(self.start(installed),))

    def start(self, installed: Installed) -> Command:
        """The command that starts it, in place of one that runs; sessions go on."""
        text = script(
            "setup-sshd.sh",
            b=installed.base,
            digest=sha256(self.config.encode()).hexdigest(),
            sshd=self.sshd,
        )
        return Command(
            argv=("bash", "-c", text),
            purpose="start the cluster's sshd",
            effect=Effect.WRITE,
            timeout_s=20.0,
        )


HOST_CERTIFICATE = "sshd/host_key-cert.pub"
USER_CERTIFICATE = "trust/cluster_key-cert.pub"
_ENTER = "sshd/enter"
"""What a login runs where our sshd is on the host side: nothing but a command in the container."""
_CLUSTER_KEY = "trust/cluster_key"
_OF_A_PRIMARY = (_CLUSTER_KEY, USER_CERTIFICATE, "trust/known_hosts", "trust/ssh_config")
"""What another kind of trust or another primary leaves behind."""


def sshd(context: Context, node: Node) -> Sequence[Step]:
    """Our own sshd: host key, configuration, running process."""
    record = [] if context.control is None else [_record(context)]
    key = KeyPair("sshd/host_key", f"{node.name} of {context.cluster.name}")
    steps: list[Step] = [Closed(), *record, key]
    if context.cluster.serves_from_host(node):
        steps.append(FileContent(_ENTER, _enter(context, node), 0o755))
    config = FileContent("sshd/sshd_config", _sshd_config(context, node), 0o600)
    return [*steps, config, _daemon(context, node)]


def _record(context: Context) -> Step:
    """The control folder that sets the node up: setup from another one is refused."""
    if context.owner is None:
        return Later("owner", "the keys of this control folder are made")
    return FileContent("owner", context.owner.text)


def cluster_key(context: Context, node: Node) -> Sequence[Step]:
    """On the primary, the key that opens every node."""
    # Beside our sshd the folder is closed already.
    steps: list[Step] = [Closed()] if context.cluster.serves_from_host(node) else []
    is_primary = node == context.cluster.primary
    retired = context.control.known if context.control else ()
    key = KeyPair(_CLUSTER_KEY, context.cluster.name, retired)
    return [*steps, key] if is_primary else steps


def admission(context: Context, node: Node) -> Sequence[Step]:
    """The cluster's sshd accepts the primary's key and, with trust `ca`, has a host certificate."""
    path = "trust/authorized_keys"
    if context.cluster.trust == "pinned":
        key = context.facts.installed[context.cluster.primary_name].cluster_key
        steps: list[Step] = [
            FileContent(path, _authorized_keys(context, key))
            if key is not None
            else Later(path, "the cluster's key is made")
        ]
        is_left = HOST_CERTIFICATE in context.facts.sshd_side(node.name).files
        return [*steps, Absent(HOST_CERTIFICATE)] if is_left else steps
    authority = context.authority
    if authority is None:
        return [Later(path, _signing(context)) for path in (path, HOST_CERTIFICATE)]
    return [
        FileContent(path, _authorized_keys(context, authority.user)),
        _host_certificate(context, authority, node),
    ]


def trust(context: Context, node: Node) -> Sequence[Step]:
    """The primary trusts every node and can log in there; other nodes cannot."""
    is_primary = node == context.cluster.primary
    steps = _of_primary(context) if is_primary else []
    kept = {step.name for step in steps} | ({_CLUSTER_KEY} if is_primary else set())
    there = context.facts.installed[node.name].files
    return [*steps, *(Absent(path) for path in _OF_A_PRIMARY if path in there and path not in kept)]


def _of_primary(context: Context) -> list[Step]:
    certified = context.cluster.trust == "ca"
    steps = (_certified if certified else _pinned)(context)
    return [*steps, FileContent("trust/ssh_config", _ssh_config(context))]


def _certified(context: Context) -> list[Step]:
    """Trust `ca`: the primary trusts every host with a certificate of the cluster's CA."""
    authority, path = context.authority, "trust/known_hosts"
    if authority is None:
        return [Later(each, _signing(context)) for each in (USER_CERTIFICATE, path)]
    known = {"authority": authority.host, "hosts": (), "port": context.plan.port}
    text = context.templates.text("trust/known_hosts.j2", known)
    return [_user_certificate(context, authority), FileContent(path, text)]


def _pinned(context: Context) -> list[Step]:
    """Trust `pinned`: the primary knows every host key."""
    facts, path = context.facts, "trust/known_hosts"
    hosts = [(n.cluster_address, facts.sshd_side(n.name).host_key) for n in context.cluster.nodes]
    if any(key is None for _, key in hosts):
        return [Later(path, "the host keys are made")]
    known = {"authority": None, "hosts": hosts, "port": context.plan.port}
    return [FileContent(path, context.templates.text("trust/known_hosts.j2", known))]


def _signing(context: Context) -> str:
    """What must happen before certificates are signed."""
    sides = (*context.facts.installed.values(), *context.facts.sshd_sides.values())
    if any(installed.certificates for installed in sides):
        return "a new CA signs everything again; this control machine lacks the present CA's keys"
    return "the cluster's CA is made"


def _host_certificate(context: Context, authority: Authority, node: Node) -> Step:
    installed = context.facts.sshd_side(node.name)
    if installed.host_key is None:
        return Later(HOST_CERTIFICATE, "the host keys are made")
    claims = Claims(
        kind="host",
        key=fingerprint(installed.host_key),
        ca=fingerprint(authority.host),
        key_id=f"{node.name} of {context.cluster.name}",
        principals=(node.cluster_address, node.name),
    )
    return CertificateFile(
        name=HOST_CERTIFICATE,
        claims=claims,
        clocks=_clocks(context),
        sign=partial(authority.sign, claims, installed.host_key) if authority.sign else None,
        load=_daemon(context, node).start(installed),
    )


def _user_certificate(context: Context, authority: Authority) -> Step:
    cluster = context.cluster
    key = context.facts.installed[cluster.primary_name].cluster_key
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
        name=USER_CERTIFICATE,
        claims=claims,
        clocks=_clocks(context),
        sign=partial(authority.sign, claims, key) if authority.sign else None,
    )


def _clocks(context: Context) -> Clocks:
    clocks = {name: value_of(facts.clock) for name, facts in context.facts.nodes.items()}
    times = [(context.now + (c.offset_s if c else 0.0), name) for name, c in clocks.items()]
    return Clocks(now=context.now, earliest=min(times), latest=max(times))


def _principal(context: Context) -> str:
    return f"mpi-{context.cluster.name}"


def _daemon(context: Context, node: Node) -> Daemon:
    server = value_of(context.facts.nodes[node.name].sshd)
    path = server.path if server else "/usr/sbin/sshd"
    return Daemon(sshd=path, config=_sshd_config(context, node))


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


def _enter(context: Context, node: Node) -> str:
    way = container_exec(node, context.facts.nodes[node.name].container)
    values = {
        "node": node.name,
        "engine": way.engine if way else "docker",
        "container": node.container,
    }
    return context.templates.text("sshd/enter.j2", values)


def _sshd_config(context: Context, node: Node) -> str:
    base = context.facts.sshd_side(node.name).base
    return context.templates.text(
        "sshd/sshd_config.j2",
        {
            "node": node.name,
            "cluster": context.cluster.name,
            "primary": context.cluster.primary_name,
            "port": context.plan.port,
            "address": node.cluster_address,
            "base": str(base),
            "certificate": HOST_CERTIFICATE if context.cluster.trust == "ca" else None,
            "enter": str(base / _ENTER) if context.cluster.serves_from_host(node) else None,
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
            "port": context.plan.port,
            "base": str(context.plan.base),
            "certificate": USER_CERTIFICATE if cluster.trust == "ca" else None,
            "user": own_user,
            "other_users": [(address, user) for address, user in users if user != own_user],
        },
    )
