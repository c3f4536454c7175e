"""The inventory: what loads and as what, what is refused and how that is said."""

from __future__ import annotations

import os
import pwd
import re
import time
from pathlib import Path

import pytest

from ascendboot.errors import InventoryError
from ascendboot.inventory.load import load
from ascendboot.inventory.yaml import LIMIT
from ascendboot.model.cluster import Cluster, Device, Node, SshAccess
from tests.unit.inventory.written import loaded, refused

ROOT = Path(__file__).parents[3]
REFUSED = sorted((ROOT / "tests/data/inventory").glob("*.yaml"))
FINGERPRINT = "SHA256:uNiVztksCsDhcc0u9e8BrYwXdZ4wwRfTwJvOVJpxAqA"
MINIMAL = "cluster: c\nnodes: {n1: {address: 192.0.2.1}}\n"
UTF_8 = "is not UTF-8; save the file as UTF-8"
ALIAS = "is an alias; write it out, or use `groups`"


def test_every_key_reaches_the_cluster() -> None:
    cluster = loaded(f"""\
cluster: c
product: 910
primary: n2
nodes:
  n1: {{address: n1.example, cluster_address: 198.51.100.1, server_id: one}}
  n2:
    address: 192.0.2.2
    user: me
    port: 2222
    identity: ~/.ssh/id
    jump: root@bastion.example:2200
    fingerprint: {FINGERPRINT}
    container: rec-sdk
    devices: [3, {{device_id: 0, device_ip: 198.51.100.20}}, {{device_id: 1}}]
    interface: eth0
    leaf: leaf-1
defaults: {{user: root, devices: 8}}
ssh: {{port: 7722, trust: pinned}}
resources: {{mode: rank-table}}
launcher: {{kind: mpirun}}
code: {{path: /workspace/little_demo, python: /usr/bin/python3.10}}
env: {{A: 1200, B: 012, C: yes, D: "x y", E: 1.50, F: 2024-01-01, G: "", H: true}}
""")
    as_written = ("1200", "012", "yes", "x y", "1.50", "2024-01-01", "", "true")
    assert cluster == Cluster(
        name="c",
        nodes=(
            Node(
                name="n1",
                address="n1.example",
                cluster_address="198.51.100.1",
                server_id="one",
                ssh=SshAccess(user="root", unstated=("port",)),
                device_count=8,
            ),
            Node(
                name="n2",
                address="192.0.2.2",
                cluster_address="192.0.2.2",
                server_id="192.0.2.2",
                ssh=SshAccess(
                    user="me",
                    port=2222,
                    identity=str(Path("~/.ssh/id").expanduser()),
                    jump="root@bastion.example:2200",
                    fingerprint=FINGERPRINT,
                ),
                container="rec-sdk",
                devices=(Device(3), Device(0, "198.51.100.20"), Device(1)),
                interface="eth0",
                leaf="leaf-1",
            ),
        ),
        primary_name="n2",
        source="i.yaml",
        product="910",
        ssh_port=7722,
        trust="pinned",
        launcher="mpirun",
        code_path="/workspace/little_demo",
        python="/usr/bin/python3.10",
        env=dict(zip("ABCDEFGH", as_written, strict=True)),
    )


def test_ranges_pair_names_and_addresses_in_the_order_written() -> None:
    cluster = loaded(
        """\
cluster: c
nodes:
  "a-[03,01-02]": {address: "2001:db8::[1-3]", cluster_address: "192.0.2.[13,11-12]"}
  "r[1-2]n[1-2]": {address: "192.0.2.[21-24]", server_id: "s[6-9]"}
"""
    )
    assert [(n.name, n.address, n.cluster_address, n.server_id) for n in cluster.nodes] == [
        ("a-03", "2001:db8::1", "192.0.2.13", "192.0.2.13"),
        ("a-01", "2001:db8::2", "192.0.2.11", "192.0.2.11"),
        ("a-02", "2001:db8::3", "192.0.2.12", "192.0.2.12"),
        ("r1n1", "192.0.2.21", "192.0.2.21", "s6"),
        ("r1n2", "192.0.2.22", "192.0.2.22", "s7"),
        ("r2n1", "192.0.2.23", "192.0.2.23", "s8"),
        ("r2n2", "192.0.2.24", "192.0.2.24", "s9"),
    ]


def test_device_addresses_take_ranges_too() -> None:
    nodes = loaded("""\
cluster: c
nodes:
  n[1-2]:
    address: 192.0.2.[1-2]
    devices: [{device_id: 0, device_ip: "198.51.100.[1-2]"}, 1]
""").nodes
    assert [n.devices for n in nodes] == [
        (Device(0, "198.51.100.1"), Device(1)),
        (Device(0, "198.51.100.2"), Device(1)),
    ]


def test_the_node_counts_before_its_groups_and_these_before_the_defaults() -> None:
    cluster = loaded("""\
cluster: c
nodes:
  n1: {address: 192.0.2.1, user: own, groups: [g1, g2]}
  n2: {address: 192.0.2.2, groups: [g2, g1]}
  n3: {address: 192.0.2.3, groups: []}
  n4: {address: 192.0.2.4}
groups:
  g1: {user: g1, leaf: g1, port: 22}
  g2: {user: g2, interface: g2, port: 2}
defaults: {user: all, leaf: all, port: 9, groups: [g2]}
ssh: {standby: [n3, "@g2!n2", n1]}
""")
    assert cluster.standby == ("n3", "n1", "n4")
    assert [(n.ssh.user, n.leaf, n.interface, n.ssh.port) for n in cluster.nodes] == [
        ("own", "g1", "g2", 22),
        ("g2", "g1", "g2", 2),
        ("all", "all", None, 9),
        ("g2", "all", "g2", 2),
    ]


def test_a_leaf_is_stated_for_a_node_or_for_its_devices() -> None:
    cluster = loaded("""\
cluster: c
nodes:
  n1: {address: 192.0.2.1, leaf: {"2-3": b, "0,1": a}}
  n2: {address: 192.0.2.2}
defaults: {leaf: c}
topology: {order: inventory, shape: chain}
""")
    assert [node.leaf for node in cluster.nodes] == [((0, "a"), (1, "a"), (2, "b"), (3, "b")), "c"]
    assert (cluster.topology_order, cluster.topology_shape) == ("inventory", "chain")


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        ("{x: a}", '"x" does not name device ids; write for example 0-1,6-7'),
        ("{3-1: a}", '"3-1" does not name device ids; write for example 0-1,6-7'),
        ("{0-2: a, 2-3: b}", "device id 2 is stated twice; keep one"),
    ],
)
def test_leaves_of_devices_name_each_device_once(leaf: str, text: str) -> None:
    problems = refused(f"cluster: c\nnodes: {{n1: {{address: 192.0.2.1, leaf: {leaf}}}}}\n")
    assert problems == [f"i.yaml:2: nodes.n1.leaf: {text}"]


def test_the_shape_of_a_pipeline_needs_its_number_of_stages() -> None:
    text = "cluster: c\nnodes: {n1: {address: 192.0.2.1}}\ntopology: {shape: pipeline}\n"
    problem = "i.yaml:3: topology.shape: parallel.pp is missing: the number of stages; state it"
    assert refused(text) == [problem]
    assert loaded(f"{text}parallel: {{pp: 2}}\n").stages == 2


def test_groups_of_leaves_name_leaves_that_nodes_have() -> None:
    text = """\
cluster: c
nodes: {n1: {address: 192.0.2.1, leaf: leaf-1}}
topology:
  cores:
    leaf-1: pod-1
    leaf-x: pod-2
"""
    assert refused(text) == [
        'i.yaml:6: topology.cores.leaf-x: no leaf is called "leaf-x"; did you mean "leaf-1"?'
    ]
    assert loaded(text.replace("    leaf-x: pod-2\n", "")).cores == (("leaf-1", "pod-1"),)


def test_without_a_user_it_is_the_operator() -> None:
    assert loaded(MINIMAL).nodes[0].ssh.user == pwd.getpwuid(os.geteuid()).pw_name


def test_a_jump_through_a_node_is_resolved_and_the_node_itself_is_reached_directly() -> None:
    nodes = loaded("""\
cluster: c
nodes:
  gate: {address: "2001:db8::1", cluster_address: 192.0.2.9, user: root, port: 2222}
  n1: {address: 192.0.2.1}
  n2: {address: 192.0.2.2, jump: "bastion:22"}
  n3: {address: 192.0.2.3, jump: "me@[2001:db8::5]:22"}
defaults: {jump: gate}
""").nodes
    jumps = [None, "root@[2001:db8::1]:2222", "bastion:22", "me@[2001:db8::5]:22"]
    assert [n.ssh.jump for n in nodes] == jumps


def test_nodes_behind_one_forwarding_address_differ_by_port() -> None:
    nodes = loaded("""\
cluster: c
nodes:
  n1: {address: gate.example, port: 2201, cluster_address: 198.51.100.1}
  n2: {address: gate.example, port: 2202, cluster_address: 198.51.100.2}
""").nodes
    assert [(n.address, n.ssh.port) for n in nodes] == [("gate.example", p) for p in (2201, 2202)]


@pytest.mark.parametrize("path", REFUSED, ids=lambda p: p.stem)
def test_everything_that_is_wrong_is_said_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(InventoryError) as caught:
        load(Path(path.name))
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text(encoding="utf-8")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "i.yaml: states nothing; it begins with `cluster: NAME` and `nodes:`"),
        ("--- ~", "i.yaml:1: has no value; give it one, or remove it"),
        (b"cluster: c\nprimary: \xe9\n", f"i.yaml:2: byte 0xe9 {UTF_8}"),
        (MINIMAL.encode("utf-16"), f"i.yaml:1: byte 0xff {UTF_8}"),
        (MINIMAL + "primary: a\0", "i.yaml:3: the control character U+0000 stands here; remove it"),
        (MINIMAL + "#" * LIMIT, "i.yaml: is larger than 1 MiB; write many nodes as one range"),
        ("[" * 100_000, "i.yaml:1: nested more than 20 deep; does a bracket miss its partner?"),
        ("a: &a [x]\nb: &b [*a, *a]\n", f"i.yaml:2: *a {ALIAS}"),
        ("cluster: &c {x: *c}\n", f"i.yaml:1: *c {ALIAS}"),
    ],
)
def test_what_is_hardly_a_file_of_text(content: str | bytes, problem: str) -> None:
    assert problem in refused(content)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cluster: c: d", "i.yaml:1:11: not YAML: "),
        ("cluster: c\n nodes: {}", "i.yaml:2:7: not YAML: "),
        ('cluster: c\nprimary: "n1', "i.yaml:"),
        ("nodes: *unknown", "i.yaml:1:8: not YAML: "),
        ("nodes: {a: 1", "i.yaml:"),
    ],
)
def test_a_syntax_error_names_line_and_column(text: str, place: str) -> None:
    (problem,) = refused(text)
    assert problem.startswith(place)
    assert re.match(r"i\.yaml:\d+:\d+: not YAML: .+; check indentation, colons and quotes", problem)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    assert loaded(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode()).name == "c"


ANOTHER = "; name another file"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", f"could not be read: no such file or directory{ANOTHER}"),
        ("d", "is a folder; name the YAML file in it"),
        ("loop", f"could not be read: too many levels of symbolic links{ANOTHER}"),
        pytest.param(
            *("closed", f"could not be read: permission denied{ANOTHER}"),
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file"),
        ),
    ],
)
def test_a_file_that_cannot_be_read(name: str, why: str) -> None:
    Path("d.yaml").mkdir()
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("closed.yaml").touch(mode=0o000)
    with pytest.raises(InventoryError) as caught:
        load(Path(f"{name}.yaml"))
    assert str(caught.value) == f"{name}.yaml: {why}"


def test_messages_name_the_file_from_the_working_directory(tmp_path: Path) -> None:
    Path("i.yaml").write_text("x: 1", encoding="utf-8")
    with pytest.raises(InventoryError, match=r"^i\.yaml:1: "):
        load(tmp_path / "i.yaml")


def test_a_thousand_nodes_load_in_well_under_a_second_of_work() -> None:
    text = 'cluster: c\nnodes: {"n-[0001-1000]": {address: "10.[0-3].0.[1-250]"}}\n'
    loaded(text)
    start = time.process_time()
    assert len(loaded(text).nodes) == 1000
    assert time.process_time() - start < 0.5
