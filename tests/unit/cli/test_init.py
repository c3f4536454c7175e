"""`init` without a node: what is written, asked, and refused."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.cli.init import _Draft, _Node
from ascendboot.errors import UsageError
from ascendboot.inventory.load import load
from ascendboot.setup.record import reach_of
from ascendboot.state import State
from tests.unit.cli.calls import MAIN, called, ended, without_inventory


def test_writes_what_loads_and_says_what_comes_next(tmp_path: Path) -> None:
    ini = "[w]\na1 ansible_host=192.0.2.1 ansible_ssh_pass=abc\n[x]\n192.0.2.2\n[x:vars]\nleaf=l\n"
    (tmp_path / "hosts").write_text(ini)
    (tmp_path / "key").touch()
    line = "init me@192.0.2.3:2222 --from hosts --name lab --user root --no-query --identity key"
    done = called(line, tmp_path)
    assert done.stdout == (
        "inventories/lab.yaml: written, with 3 nodes\nNext: ascendboot check lab\n"
    )
    assert done.stderr.splitlines() == [
        (
            "hosts:2: ansible_ssh_pass: left out: a secret; log in with a key: ssh-copy-id puts "
            "yours on the nodes"
        ),
        "hosts:6: leaf: left out: an inventory has no such key",
    ]
    text = (tmp_path / "inventories/lab.yaml").read_text()
    assert "abc" not in text
    cluster = load(tmp_path / "inventories/lab.yaml")
    assert [(n.name, n.address, n.ssh.user, n.ssh.port, n.groups) for n in cluster.nodes] == [
        ("node-1", "192.0.2.3", "me", 2222, ()),
        ("a1", "192.0.2.1", "root", 22, ("w",)),
        ("node-3", "192.0.2.2", "root", 22, ("x",)),
    ]
    assert {node.ssh.identity for node in cluster.nodes} == {str(tmp_path / "key")}
    again = called(line, tmp_path)
    assert (again.returncode, again.stderr) == (
        2,
        "inventories/lab.yaml: is there already; --force overwrites it, --output names another\n",
    )
    assert called(f"{line} --force", tmp_path).returncode == 0


def test_what_export_ansible_writes_comes_back(tmp_path: Path) -> None:
    text = """\
cluster: c
primary: b
nodes:
  a: {address: 192.0.2.1, port: 22, cluster_address: 198.51.100.1, groups: [both, g]}
  b: {address: 192.0.2.2, port: 2222, jump: me@203.0.113.5, container: x, groups: [both]}
groups: {g: {}, both: {}}
defaults: {user: root}
"""
    (tmp_path / "c.yaml").write_text(text)
    exported = called("export.ansible -i c.yaml", tmp_path).stdout
    (tmp_path / "hosts.json").write_text(exported)
    with (tmp_path / "hosts.json").open() as pipe:
        called("init --from - --no-query --name c", tmp_path, stdin=pipe).check_returncode()
    before, after = load(tmp_path / "c.yaml"), load(tmp_path / "inventories/c.yaml")
    assert (after.primary_name, *after.nodes) == ("b", *before.nodes[::-1])


def test_an_alias_of_ssh_stays_one(tmp_path: Path) -> None:
    config = tmp_path / ".ssh/config"
    config.parent.mkdir()
    config.write_text("Host a1\n  HostName 192.0.2.1\nHost a2 a1 *\n  User me\n")
    words = ("init", "--from", "~/.ssh/config", "--no-query", "--output", "-")
    done = ended(MAIN, *words, cwd=tmp_path, env={**without_inventory(), "HOME": str(tmp_path)})
    assert 'cluster: "a"\nnodes:\n  a1: {address: a1, cluster_address: 192.0.2.1}\n' in done.stdout


CONFIG = """\
Host bastion
  HostName 203.0.113.5
  Port 2200
Host far
  ProxyJump bastion
Host atlas-1
  HostName 192.0.2.1
  User ops
Host atlas-2
  HostName 192.0.2.2
  IdentityFile ~/.ssh/other
Host atlas-3
  HostName 192.0.2.3
  ProxyCommand nc %h %p
Host atlas-4
  HostName 192.0.2.4
  HostKeyAlias four
  ProxyJump far
Host atlas-5
  HostName 192.0.2.5
  ProxyCommand ssh -W %h:%p me@[2001:db8::1]
Match host 192.0.2.5
  Port 2205
Host atlas-*
  ProxyJump me@bastion
  User admin
Host *
  IdentityFile ~/.ssh/cluster
"""


def test_another_ssh_config_than_the_own_is_written_into_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONFIG)
    env = {**without_inventory(), "HOME": str(tmp_path)}
    words = ("init", *(f"atlas-{n}" for n in range(1, 6)), "--from", "config", "--no-query")
    done = ended(MAIN, *words, "--output", "-", cwd=tmp_path, env=env)
    nodes = done.stdout.partition("\nnodes:\n")[2].partition("\n\n")[0]
    key, jump = "identity: ~/.ssh/cluster", "jump: 'me@203.0.113.5:2200'"
    assert nodes.splitlines() == [
        f"  atlas-1: {{address: 192.0.2.1, user: ops, {key}, {jump}}}",
        f"  atlas-2: {{address: 192.0.2.2, user: admin, identity: ~/.ssh/other, {jump}}}",
        f"  atlas-3: {{address: 192.0.2.3, user: admin, {key}}}",
        f"  atlas-4: {{address: 192.0.2.4, user: admin, {key}}}",
        (
            f"  atlas-5: {{address: 192.0.2.5, user: admin, port: 2205, {key}, "
            "jump: 'me@[2001:db8::1]:22'}"
        ),
    ]
    assert done.stderr.splitlines() == [
        (
            "config:9: atlas-2: IdentityFile of me@bastion: left out: the `identity` of the node "
            "is used; state it for 203.0.113.5 in ~/.ssh/config"
        ),
        "config:9: atlas-2: IdentityFile ~/.ssh/cluster: left out: a node has one `identity`",
        (
            "config:12: atlas-3: ProxyCommand: left out: no program is run to connect; state "
            "ProxyJump, or `ssh -W %h:%p HOST`"
        ),
        "config:15: atlas-4: HostKeyAlias: left out: state it for 192.0.2.4 in ~/.ssh/config",
        (
            "config:15: atlas-4: ProxyJump far: left out: a node has one `jump`, and far is itself "
            "reached through bastion; state both for 192.0.2.4 in ~/.ssh/config"
        ),
        "config:22: Match host 192.0.2.5: left out: it may name more hosts; name them as HOST",
    ]


def test_a_proxy_command_names_the_way_around_it(tmp_path: Path) -> None:
    config = tmp_path / ".ssh/config"
    config.parent.mkdir()
    config.write_text("Host a1 a2\n  HostName 192.0.2.1\nHost a2\n  ProxyCommand nc %h %p\n")
    env = {**without_inventory(), "HOME": str(tmp_path)}
    words = ("--from", "~/.ssh/config", "--no-query", "--output", "-")
    done = ended(MAIN, "init", *words, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("name the other hosts: init HOST --from FILE\n")
    ended(MAIN, "init", "a1", *words, cwd=tmp_path, env=env).check_returncode()


@pytest.mark.parametrize(
    ("text", "file", "why"),
    [
        (
            "Host a\nMatch exec 'touch bad'\n  User x\n",
            "config",
            "config:2: Match exec 'touch bad'",
        ),
        ("Host a\n  Bogus x\n  User x\n", "config", "config: line 2: Bad configuration option: bo"),
        (
            "Host n3\n  HostName 192.0.2.3\nHost *\n  User x\nHost bad\n  HostName 192.0.2.3\n",
            "config",
            "config:5: bad has the same address as n3 (config:1): 192.0.2.3; name the hosts",
        ),
        ("Host a\n  User x\n", "-", "/dev/stdin: ssh reads an ssh config again; name a file, not"),
    ],
)
def test_an_ssh_config_that_cannot_be_read_is_refused(
    tmp_path: Path, text: str, file: str, why: str
) -> None:
    (tmp_path / "config").write_text(text)
    done = called(f"init --no-query --from {file}", tmp_path, input=text)
    assert (done.returncode, done.stderr[: len(why)]) == (2, why)
    assert [path.name for path in tmp_path.iterdir()] == ["config"]


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("init", 2, "init: names no host; write init HOST, or init --from FILE"),
        ("init --from .", 2, ".: is a folder"),
        ("init --from nothing", 2, "nothing: could not be read: no such file or directory"),
        ("init 192.0.2.1 192.0.2.1", 2, "192.0.2.1: 192.0.2.1 stands in 192.0.2.1 too; keep one"),
        ("init 192.0.2.1 --user a:b --no-query", 2, "the new inventory: defaults.user: a login"),
        ("init 192.0.2.1 --output .", 2, ".: is a folder; name a file with --output"),
        ("init a --cluster-network b --no-query", 2, "--cluster-network: only the nodes know it"),
        (
            "init a --cluster-network foo",
            2,
            '--cluster-network: "foo" is no network; write one such',
        ),
        ("init 192.0.2.1 --container -x --no-query", 2, "the new inventory: defaults.container:"),
        ("init root@192.0.2.1 --sudo x --no-query", 2, 'init: --sudo: "x" is not one of nopasswd'),
        ("init nowhere.invalid --no-query", 2, "nowhere.invalid: left out: its name has no IPv4"),
        ("init 127.0.0.1:1 --output -", 4, "node-1: unreachable: no sshd answers on port 1"),
    ],
)
def test_what_is_refused_writes_nothing(tmp_path: Path, line: str, code: int, why: str) -> None:
    done = called(line, tmp_path, stdin=None)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(why)
    assert not (tmp_path / "inventories").exists()


def test_two_clusters_set_up_from_here_never_share_a_name(tmp_path: Path) -> None:
    called("init 192.0.2.1 --no-query", tmp_path).check_returncode()
    (node,) = load(tmp_path / "inventories/cluster.yaml").nodes
    records = State(tmp_path / ".ascendboot")
    records.remember("cluster", "nodes", {node.name: reach_of(node)})
    again = called("init 192.0.2.1 --no-query --output again.yaml", tmp_path)
    assert again.returncode == 0
    assert load(tmp_path / "again.yaml").name == "cluster"
    other = called("init 192.0.2.2 --no-query", tmp_path)
    assert other.stdout.startswith("inventories/cluster-2.yaml: written")
    taken = (
        "cluster: another cluster of this name was set up from here, at 192.0.2.1; give this one "
        "another name (`cluster`); if all its addresses have changed, remove "
    )
    text = (tmp_path / "inventories/cluster-2.yaml").read_text()
    (tmp_path / "taken.yaml").write_text(text.replace("cluster-2", "cluster"))
    for line in (
        "init 192.0.2.2 --no-query --name cluster --output new.yaml",
        "setup --inventory taken.yaml",
        "check --inventory taken.yaml",
        "reset --inventory taken.yaml",
    ):
        done = called(line, tmp_path)
        assert (done.returncode, done.stderr[: len(taken)]) == (2, taken), line
    assert not (tmp_path / "new.yaml").exists()


def test_asks_at_a_terminal(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    os.write(master, b"192.0.2.[1-2]\n\nops\nask\n")
    words = ("init", "--no-query", "--output", "x.yaml")
    done = ended(MAIN, *words, cwd=tmp_path, env=without_inventory(), stdin=terminal)
    assert done.stdout.splitlines()[:4] == [
        "Hosts, such as atlas-[01-16] or root@192.0.2.11 root@192.0.2.12",
        "Name of the cluster [cluster]",
        "Login name on the nodes; empty: as with ssh",
        "sudo of ops, one of: nopasswd, ask (for a password), none [none]",
    ]
    cluster = load(tmp_path / "x.yaml")
    assert cluster.name == "cluster"
    assert {(node.ssh.user, node.ssh.sudo) for node in cluster.nodes} == {("ops", "ask")}


def test_asks_again_after_a_wrong_answer(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    os.write(master, b"192.0.2.300\n192.0.2.1\na b\nlab\na:b\nops\nmaybe\nask\n")
    words = ("init", "--no-query", "--output", "x.yaml")
    done = ended(MAIN, *words, cwd=tmp_path, env=without_inventory(), stdin=terminal)
    said = done.stderr.splitlines()
    assert [line.partition(";")[0] for line in said[:4]] == [
        '192.0.2.300: "192.0.2.300" is not an IP address',
        (
            'the new inventory: cluster: "a b" is not a name: letters, digits, - _ . and at most '
            "64 of them"
        ),
        "the new inventory: defaults.user: a login name has no colon",
        'sudo: "maybe" is not one of nopasswd, ask, none',
    ]
    cluster = load(tmp_path / "x.yaml")
    (node,) = cluster.nodes
    assert (cluster.name, node.address, node.ssh.user, node.ssh.sudo, done.returncode) == (
        *("lab", "192.0.2.1", "ops", "ask"),
        0,
    )


@pytest.mark.parametrize("typed", ["", "192.0.2.1\n", "192.0.2.1\n\nops\n"])
def test_end_of_input_at_a_question_writes_nothing(tmp_path: Path, typed: str) -> None:
    master, terminal = pty.openpty()
    os.write(master, typed.encode() + b"\x04" * 4)  # for more questions, if there were any
    words = ("init", "--no-query", "--output", "x.yaml")
    done = ended(MAIN, *words, cwd=tmp_path, env=without_inventory(), stdin=terminal)
    assert (done.returncode, done.stderr) == (130, "Stopped: no inventory was written.\n")
    assert not list(tmp_path.iterdir())


def draft(address: str, *more: tuple[str, str], runs: str = "a b") -> _Draft:
    """Two nodes: at this address, in these networks, with these containers."""
    nodes = []
    for number in ("1", "2"):
        found = {net: (f"{at}{number}", "eth0") for net, at in more}
        running = dict.fromkeys(runs.split(), "image")
        keys = {"address": address + number}
        nodes.append(
            _Node(
                f"n{number}", keys, keys["address"], hostname="h", networks=found, running=running
            )
        )
    return _Draft("c", "", nodes, [])


A, B = ("192.0.2.0/24", "192.0.2."), ("198.51.100.0/24", "198.51.100.")


@pytest.mark.parametrize(
    ("address", "networks", "stated", "typed", "at"),
    [
        ("192.0.2.", (A,), "", "", None),
        ("192.0.2.", (B, A), "", "", None),
        ("192.0.2.", (A, B), "", B[0], "198.51.100.1"),
        ("192.0.2.", (A, B), B[0], "", "198.51.100.1"),
        ("203.0.113.", (A, B), "", "", "192.0.2.1"),
        ("name-", (B,), "", "", "198.51.100.1"),
        ("203.0.113.", (), "", "", None),
    ],
)
def test_the_network_between_the_nodes(
    address: str, networks: tuple[tuple[str, str], ...], stated: str, typed: str, at: str | None
) -> None:
    made = draft(address, *networks)
    made.choose_network(stated, lambda _, default, _check: typed or default)
    assert made.nodes[0].keys.get("cluster_address") == at
    with pytest.raises(
        UsageError, match=r"--cluster-network: 10.0.0.0/8: not all nodes have it; they share"
    ):
        made.choose_network("10.0.0.0/8", lambda _, default, _check: default)


@pytest.mark.parametrize("typed", ["nonsense", "", "a, none"])
def test_only_what_runs_or_none_is_an_answer(typed: str) -> None:
    made = draft("192.0.2.", A, B, runs="a b")

    def ask(question: str, default: str, check: Callable[[str], object]) -> str:
        assert "none" in question or "Network" in question
        check(default)
        with pytest.raises(
            UsageError, match=f'"{typed}" is not one of (a, b, none|{A[0]}, {B[0]})$'
        ):
            check(typed)
        return default

    made.choose_network("", ask)
    made.choose_container("", ask)


def test_what_a_node_says_cannot_break_the_file() -> None:
    made = draft("192.0.2.", runs="a b")
    made.nodes[0].comment = "x\x1b[2J\u2028y: {"
    made.nodes[1].error = "n2: unreachable: \x07z"
    made.loaded()
    assert "# x[2Jy: {\n  # n2: unreachable: z\n" in made.text()


@pytest.mark.parametrize(
    ("runs", "stated", "typed", "container", "says"),
    [
        ("a", "", "", "a", None),
        ("a b", "", "", None, "a of image, b of image"),
        ("a b", "", "b", "b", None),
        ("a", "none", "", None, None),
        ("", "c", "", "c", "n[1-2]: no container c runs there"),
        ("", "", "", None, None),
    ],
)
def test_the_container_of_the_ranks(
    runs: str, stated: str, typed: str, container: str | None, says: str | None
) -> None:
    made = draft("192.0.2.", runs=runs)
    made.choose_container(stated, lambda _, default, _check: typed or default)
    assert made.nodes[1].keys.get("container") == container
    assert (says or "") in "".join((*made.choices, *made.notes))
    assert bool(made.choices or made.notes) is bool(says)
