"""What ~/.ssh/config states counts where the inventory states nothing."""

from __future__ import annotations

import getpass
import re
from pathlib import Path

import pytest

from ascendboot.cli.verbs import Call
from ascendboot.errors import UsageError
from ascendboot.model.cluster import Node
from ascendboot.setup.record import digest
from ascendboot.transport.ssh import jump_node

CONFIG = """\
Include more/*.conf
Host atlas-1
  HostName 192.0.2.1
  User ops
  Port 2201
  IdentityFile %d/.ssh/%r_%h
  IdentityFile ~/.ssh/other
Host atlas-2
  ProxyJump me@far:2200,near
  IdentitiesOnly yes
Host near
  HostName 192.0.2.9
  Port 2209
Match host atlas-4
  ProxyJump none
Host * !gate
  ProxyJump gate
  User nobody
"""
NODES = """\
cluster: x
nodes:
  n1: {address: atlas-1, cluster_address: 198.51.100.1}
  n2: {address: atlas-2, cluster_address: 198.51.100.2}
  n3:
    {address: atlas-1, cluster_address: 198.51.100.3, user: root, port: 22, identity: k, jump: j.x}
  n4: {address: atlas-4, cluster_address: 198.51.100.4}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".ssh").mkdir()
    Path("x.yaml").write_text(NODES)
    return tmp_path


def nodes() -> list[Node]:
    return list(Call("x.yaml").cluster().nodes)


def test_the_inventory_wins_and_the_file_fills_in(home: Path) -> None:
    assert [n.address for n in nodes()] == ["atlas-1", "atlas-2", "atlas-1", "atlas-4"]
    (home / ".ssh/config").write_text(CONFIG)
    found = [(n.address, n.ssh.user, n.ssh.port, n.ssh.jump) for n in nodes()]
    assert found == [
        ("192.0.2.1", "ops", 2201, "gate"),
        ("atlas-2", "nobody", 22, "me@far:2200,near"),
        ("192.0.2.1", "root", 22, "j.x"),
        ("atlas-4", "nobody", 22, None),
    ]
    first, second, third, _ = nodes()
    assert first.ssh.files == (f"{home}/.ssh/ops_192.0.2.1", "~/.ssh/other")
    assert (third.ssh.files, third.ssh.identity) == ((), f"{home}/k")
    assert (first.ssh.only_files, second.ssh.only_files) == (False, True)
    before = digest(Call("x.yaml").cluster())
    (home / ".ssh/config").write_text(CONFIG.replace("other", "another"))
    assert digest(Call("x.yaml").cluster()) == before


@pytest.mark.parametrize(
    ("stated", "names", "path"),
    [("~/.ssh/other", [], "~/.ssh/other"), ("/k/%u", ["ann"], "/k/ann")],
)
def test_a_user_id_without_a_name_needs_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, stated: str, names: list[str], path: str
) -> None:
    monkeypatch.setattr(getpass, "getuser", names.pop)  # an IndexError without a name
    (home / ".ssh/config").write_text(f"Host atlas-1\n  IdentityFile {stated}\n")
    assert nodes()[0].ssh.files == (path,)


def test_a_chain_of_jump_hosts_is_resolved_from_the_node_on(home: Path) -> None:
    (home / ".ssh/config").write_text(CONFIG)
    near = jump_node(nodes()[1], {})
    assert (near.address, near.ssh.user, near.ssh.port) == ("192.0.2.9", "nobody", 2209)
    far = jump_node(near, {}, ("n2",))
    assert (far.address, far.ssh.user, far.ssh.port, far.ssh.jump) == ("far", "me", 2200, "gate")
    gate = jump_node(far, {}, ("n2", near.name))
    assert (gate.address, gate.ssh.jump) == ("gate", None)


def test_a_proxy_command_that_equals_a_jump_host_is_one(home: Path) -> None:
    (home / ".ssh/config").write_text("Host *\nProxyCommand /usr/bin/ssh -W %h:%p -q me@gate\n")
    assert [node.ssh.jump for node in nodes()] == ["me@gate", "me@gate", "j.x", "me@gate"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Bogus x\n", "line 1: Bad configuration option: bogus; correct the file, which"),
        ("Host *\nPort many\n", "line 2: Bad port 'many'"),
        ("Host *\nProxyJump a\n", "jumphost loop via a"),
        ("ProxyCommand nc %h %p\n", "states a ProxyCommand for atlas-1, which ascendboot does not"),
    ],
)
def test_a_broken_file_is_named_with_its_line(text: str, words: str, home: Path) -> None:
    (home / ".ssh/config").write_text(text)
    with pytest.raises(UsageError) as caught:
        jump_node(nodes()[0], {})
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{home}/.ssh/config")
    assert str(caught.value).count("/.ssh/config") == 1


def test_ssh_refuses_a_user_id_without_a_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "ssh").write_text("#!/bin/sh\necho No user exists for uid 12345 >&2\nexit 255\n")
    (home / "ssh").chmod(0o755)
    (home / ".ssh/config").write_text("Host z\n")
    monkeypatch.setenv("PATH", str(home))
    said = (
        "~/.ssh/config: could not be read: ssh -G: No user exists for uid 12345; add this user id"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(said)} to /etc/passwd, or unset HOME$"):
        nodes()


def test_without_the_program_ssh_a_file_is_not_ignored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".ssh/config").write_text("Host z\n")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"ssh -G: .*; install OpenSSH's client"):
        nodes()
