"""The nodes of an inventory as Ansible reads them from a dynamic inventory script."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from ascendboot.model.cluster import Cluster, Node


def inventory(cluster: Cluster) -> dict[str, Any]:
    """The document that such a script prints for `--list`: groups, and the variables of all hosts.

    Groups are the cluster, `primary`, and the groups of the inventory. They are named as Ansible
    wants: letters, digits and _.
    """
    groups: dict[str, list[str]] = {"primary": [cluster.primary.name]}
    for node in cluster.nodes:
        for name in (cluster.name, *node.groups):
            groups.setdefault(_group(name), []).append(node.name)
    hostvars = {node.name: _variables(node) for node in cluster.nodes}
    return {"_meta": {"hostvars": hostvars}} | {name: {"hosts": groups[name]} for name in groups}


def _group(name: str) -> str:
    return re.sub(r"^(?=\d)|\W", "_", name, flags=re.ASCII)


def _variables(node: Node) -> dict[str, object]:
    ssh = node.ssh
    variables: dict[str, object] = {
        "ansible_host": node.address,
        "ansible_port": ssh.port,
        "ansible_user": ssh.user,
        "ascendboot_cluster_address": node.cluster_address,
        "ascendboot_server_id": node.server_id,
    }
    if ssh.identity:
        variables["ansible_ssh_private_key_file"] = str(Path(ssh.identity).absolute())
    if ssh.sudo != "none":
        variables["ansible_become"] = True
    if ssh.jump:
        variables["ansible_ssh_common_args"] = f"-o ProxyJump={shlex.quote(ssh.jump)}"
    if node.container:
        variables["ascendboot_container"] = node.container
    return variables
