"""Shapes, ranges and texts of a lab: values in, values out."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from ascendboot.errors import NodeError, UsageError
from ascendboot.inventory.load import load
from ascendboot.lab import records
from ascendboot.lab.cluster import Lab, inventory_text, known_hosts_text
from ascendboot.lab.faults import Fault, marks_of
from ascendboot.lab.host import LabError, ProcessId
from ascendboot.lab.records import UsedRange, conflicts, labs_collide, route_ranges
from ascendboot.lab.shape import DEFAULT_NETWORKS, Shape, lab_called, root_info_text
from ascendboot.model.cluster import Device
from ascendboot.ranktable.formats.levels import LevelTable, device_places
from ascendboot.ranktable.text import from_text
from ascendboot.ranktable.validate import validate_table

DEFAULT = Shape.requested(2, 8, DEFAULT_NETWORKS)
SMALL = Shape.requested(1, 2, "198.18.64.0/20,198.19.64.0/20")
ED25519 = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO5A5kx/FM8+kBrKd+V8fcOquVY7F2j5ZnOO1nZyxQd4",
    "SHA256:3MM6Ywxw+UegnRl6qO57GfyPyYfYTaSmJANW9c4tYYM",
)
"""A public key and its fingerprint as ssh-keygen -l prints it."""
ECDSA = "ecdsa-sha2-nistp256 AAAA"


def test_the_default_lab() -> None:
    assert [(n.name, str(n.address), n.devices[0], n.devices[7]) for n in DEFAULT.nodes] == [
        ("lab-1", "198.18.0.1", Device(0, "198.19.1.100"), Device(7, "198.19.1.107")),
        ("lab-2", "198.18.0.2", Device(0, "198.19.2.100"), Device(7, "198.19.2.107")),
    ]
    around = (str(DEFAULT.operator_address), str(DEFAULT.gateway), DEFAULT.lab_id)
    assert around == ("198.18.255.254", "198.19.255.254", "c6120000")


@pytest.mark.parametrize("word", ["", ".", "..", "/home", "../../home", "c6120000/..", "c612000*"])
def test_a_word_that_is_no_lab_id_is_refused(word: str) -> None:
    assert lab_called(DEFAULT.lab_id) == "c6120000"
    with pytest.raises(UsageError) as caught:
        lab_called(word)
    assert str(caught.value) == (
        f'--lab: "{word}" is not the id of a lab, such as c6120000; lab.status lists them'
    )


@pytest.mark.parametrize(
    ("nodes", "devices", "networks", "product", "message"),
    [
        (0, 8, DEFAULT_NETWORKS, "a2", "--nodes: 0 cannot be; from 1 to 254 can"),
        (2, 17, DEFAULT_NETWORKS, "a2", "--devices: 17 cannot be; from 1 to 16 can"),
        (2, 8, DEFAULT_NETWORKS, "a9", '--product: "a9" cannot be; a2, a3, a5 can'),
        (2, 3, DEFAULT_NETWORKS, "a3", "--devices: 3 cannot be with --product a3"),
        (2, 8, "198.18.0.0/16", "a2", '--network: "198.18.0.0/16" is not two networks; '),
        (2, 8, "198.18.0.1/16,198.19.0.0/16", "a2", '--network: "198.18.0.1/16" is not an IPv4 '),
        (2, 8, "198.18.0.0/15,198.19.0.0/16", "a2", "198.18.0.0/15 and 198.19.0.0/16 overlap; "),
        (2, 8, "8.8.0.0/16,198.19.0.0/16", "a2", "--network: 8.8.0.0/16 belongs to others; "),
        (14, 8, "198.18.0.0/28,198.19.0.0/16", "a2", "management address would be 198.18.0.14"),
        (16, 8, "198.18.0.0/16,198.19.0.0/20", "a2", "NPU address would be 198.19.16.107"),
    ],
)
def test_impossible_shapes_are_refused(
    nodes: int, devices: int, networks: str, product: str, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Shape.requested(nodes, devices, networks, product=product)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "labs"
    monkeypatch.setattr(records, "ROOT", root)
    return root


def test_a_record_keeps_the_shape(root: Path) -> None:
    root.mkdir()
    shape = Shape.requested(1, 2, DEFAULT_NETWORKS, containers=True, product="a3")
    record = records.Record(shape, root, 0, 0, "boot")
    record.save()
    assert records.recorded() == [record]
    (root / "other").mkdir()
    (root / "other/lab.json").write_text("[1]")
    assert records.recorded() == [record], "an unreadable record does not hide the others"
    assert shape.described() == (
        "1 node of 2 NPUs of a3 with containers on 198.18.0.0/16 and 198.19.0.0/16"
    )


@pytest.mark.parametrize("kind", ["container-gone", "container-stopped"])
def test_a_container_that_a_fault_keeps_down_is_not_restarted(root: Path, kind: str) -> None:
    shape = Shape.requested(1, 2, DEFAULT_NETWORKS, containers=True)
    record = records.Record(shape, root, 0, 0, records.current_boot_id())
    record.disk("lab-1").joinpath("lab/faults").mkdir(parents=True)
    own = ProcessId.own()
    record.folder.joinpath("lab-1.pid").write_text(f"{own.pid} {own.started}")
    marks_of(record, shape.nodes[0]).add(Fault(kind))
    with pytest.raises(NodeError) as refused:
        Lab(record).fault("lab-1", "container-restart")
    why = f"{kind} is in effect; end it: lab.fault lab-1 {kind} --undo"
    assert str(refused.value) == f"lab-1: could not restart its container: {why}"


def test_the_wait_for_the_lock_has_a_deadline(root: Path) -> None:
    with records.locked():
        pauses: list[float] = []
        times = iter([0.0, 1.0, 2.0])
        waiting = records.locked(patience_s=2, clock=lambda: next(times), pause=pauses.append)
        with pytest.raises(LabError, match=rf"has been at work for 2 s; .* fuser -v {root}/lock$"):
            waiting.__enter__()
    assert len(pauses) == 1
    with records.locked(patience_s=0):
        assert root.is_dir()


def test_the_lock_is_taken_once_it_is_free(root: Path) -> None:
    first = records.locked()
    first.__enter__()

    def free(_seconds: float) -> None:
        first.__exit__(None, None, None)

    with records.locked(pause=free):
        assert root.is_dir()


def test_used_ranges_of_a_machine() -> None:
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "0.0.0.0/1", "dev": "tun0"},
        {"dst": "198.18.4.0/24", "dev": "tun0"},
        {"dst": "198.18.5.5", "type": "blackhole"},
        {"dst": "198.18.0.0/16", "dev": "ablab-c6120000"},
    ]
    assert route_ranges(routes, {"ablab-c6120000"}) == [
        UsedRange(IPv4Network("198.18.4.0/24"), "the route to 198.18.4.0/24 on tun0"),
        UsedRange(IPv4Network("198.18.5.5/32"), "the route to 198.18.5.5/32"),
    ]


def test_conflicts_name_the_holder_of_a_range() -> None:
    claims = [
        UsedRange(IPv4Network("192.0.2.0/24"), "the route to 192.0.2.0/24 on eth0"),
        UsedRange(IPv4Network("198.19.7.0/24"), "the route to 198.19.7.0/24 on tun0"),
    ]
    [text] = conflicts(DEFAULT, claims)
    assert text == "198.19.0.0/16 is used by the route to 198.19.7.0/24 on tun0"
    assert conflicts(SMALL, claims) == []


@pytest.mark.parametrize(
    ("other", "collide"),
    [
        (DEFAULT_NETWORKS, True),
        ("198.18.0.0/20,198.19.64.0/20", True),  # lab-1 and lab-2 of the default live there
        ("198.18.64.0/20,198.19.0.0/20", True),  # so do their NPUs
        ("198.18.240.0/20,198.19.64.0/20", True),  # and the operator's side
        ("198.19.64.0/20,10.9.0.0/16", True),
        ("198.18.64.0/20,198.19.64.0/20", False),  # inside, where nobody lives
        ("10.8.0.0/16,10.9.0.0/16", False),
    ],
)
def test_labs_collide_if_a_range_has_addresses_of_the_other(other: str, collide: bool) -> None:  # noqa: FBT001
    shape = Shape.requested(2, 8, other)
    assert (labs_collide(DEFAULT, shape), labs_collide(shape, DEFAULT)) == (collide, collide)


def test_a_lab_finds_room_beside_others() -> None:
    first, *_, last = DEFAULT.elsewhere()
    assert (str(first.management), str(first.npu)) == ("198.18.16.0/20", "198.19.16.0/20")
    labs = [DEFAULT, *DEFAULT.elsewhere()]
    assert [(a, b) for a in labs for b in labs if a is not b and labs_collide(a, b)] == []
    assert (last.node_count, last.device_count) == (2, 8)
    parts = {n: len(Shape.requested(n, 16, DEFAULT_NETWORKS).elsewhere()) for n in (15, 16, 63, 64)}
    assert parts == {15: 14, 16: 6, 63: 2, 64: 0}


def test_the_root_info_of_a_950_makes_a_valid_table() -> None:
    places = device_places(root_info_text(SMALL.nodes[0]), "root info").values()
    table = LevelTable.merged([LevelTable(rank_list=(place,)) for place in places])
    assert validate_table(from_text("table", table.to_json()), product="a5") == ()


def test_the_inventory_of_a_lab(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    keys = {"lab-1": (ED25519[0], ECDSA)}
    path.write_text(inventory_text(SMALL, Path("/home/me/a dir/id_ed25519"), keys))
    cluster = load(path)
    (node,) = cluster.nodes
    assert (cluster.name, node.name, node.address) == ("lab", "lab-1", "198.18.64.1")
    assert (node.ssh.user, node.ssh.identity) == ("root", "/home/me/a dir/id_ed25519")
    assert (node.ssh.fingerprint, node.device_count) == (ED25519[1], 2)
    assert (cluster.code_path, cluster.trust) == ("/workspace/little_demo", "ca")
    assert cluster.env == {"OMPI_MCA_mpi_yield_when_idle": "1"}
    assert known_hosts_text(SMALL, keys) == f"198.18.64.1 {ED25519[0]}\n198.18.64.1 {ECDSA}\n"


def test_the_committed_inventory_is_that_of_the_default_lab(pytestconfig: pytest.Config) -> None:
    cluster = load(pytestconfig.rootpath / "inventories/lab.yaml")
    assert [(n.name, n.address, n.device_count) for n in cluster.nodes] == [
        (n.name, str(n.address), len(n.devices)) for n in DEFAULT.nodes
    ]
    assert {n.ssh.identity for n in cluster.nodes} == {
        str(Path(".ascendboot/lab/id_ed25519").absolute())
    }
    assert {n.container for n in cluster.nodes} == {"rec-sdk"}
    assert cluster.env == {"OMPI_MCA_mpi_yield_when_idle": "1"}
