"""What several tests of transports use."""

from __future__ import annotations

from ascendboot.model.cluster import Node, SshAccess


def node(name: str = "n1", address: str = "192.0.2.1", **access: str | int | None) -> Node:
    ssh = SshAccess(**{"user": "root", **access})  # type: ignore[arg-type]
    return Node(name=name, address=address, cluster_address=address, server_id=name, ssh=ssh)
