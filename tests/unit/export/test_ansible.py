"""The dynamic inventory as Ansible itself reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[3] / "examples/ansible/inventory.sh"
INVENTORY = """\
cluster: 2-racks
groups: {rack-1: {identity: keys/one, container: rec-sdk}}
nodes:
  "atlas-[1-2]": {address: "192.0.2.[11-12]", groups: [rack-1]}
  atlas-3: {address: 192.0.2.13, port: 2222, cluster_address: 198.51.100.3, server_id: node_3}
defaults: {user: ops, jump: "root@203.0.113.5"}
primary: atlas-3
env: {HF_TOKEN: hf_planted}
"""


def listed(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "atlas.yaml").write_text(text)
    programs = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(folder)}
    argv = [str(programs / "ansible-inventory"), "-i", str(SCRIPT), "--list"]
    return subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=folder, env=env, timeout=120
    )


def test_ansible_finds_nodes_groups_and_how_to_log_in(tmp_path: Path) -> None:
    done = listed(tmp_path, INVENTORY)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    groups = {name: group["hosts"] for name, group in found.items() if "hosts" in group}
    one, two, three = "atlas-1", "atlas-2", "atlas-3"
    assert groups == {"_2_racks": [one, two, three], "primary": [three], "rack_1": [one, two]}
    hosts = found["_meta"]["hostvars"]
    jump = "-o ProxyJump=root@203.0.113.5"
    assert hosts[two] == {
        "ansible_host": "192.0.2.12",
        "ansible_port": 22,
        "ansible_ssh_common_args": jump,
        "ansible_ssh_private_key_file": str(tmp_path / "keys/one"),
        "ansible_user": "ops",
        "ascendboot_cluster_address": "192.0.2.12",
        "ascendboot_container": "rec-sdk",
        "ascendboot_server_id": "192.0.2.12",
    }
    assert hosts[three] == {
        "ansible_host": "192.0.2.13",
        "ansible_port": 2222,
        "ansible_ssh_common_args": jump,
        "ansible_user": "ops",
        "ascendboot_cluster_address": "198.51.100.3",
        "ascendboot_server_id": "node_3",
    }
    assert "hf_planted" not in done.stdout


def test_ansible_shows_what_is_wrong_with_the_inventory(tmp_path: Path) -> None:
    done = listed(tmp_path, "cluster: x\nnodes: {a: {}}\n")
    assert "atlas.yaml:2: nodes.a: address is missing" in " ".join(done.stderr.split())
