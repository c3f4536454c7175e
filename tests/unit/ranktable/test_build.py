"""Tables made for a cluster: generation by product, order, subsets; nothing that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import Exit

from ascendboot.checks.rank_table import member
from ascendboot.cli.ranktable import write
from ascendboot.errors import RankTableError
from ascendboot.inventory.load import load
from ascendboot.ranktable.convert import build, generation_for
from ascendboot.ranktable.formats import Generation
from ascendboot.ranktable.formats.parts import Member, MemberDevice
from ascendboot.ranktable.rules import Product
from tests.unit.checks import well
from tests.unit.ranktable.examples import call

DEVICES = "{device_id: 0, device_ip: 198.51.100.%d}, {device_id: 1, device_ip: 198.51.100.%d}"
INVENTORY = f"""\
cluster: four
nodes:
  n9: {{address: 192.0.2.9, devices: [{DEVICES % (90, 91)}]}}
  n10: {{address: 192.0.2.10, devices: [{DEVICES % (100, 101)}]}}
  n11:
    address: 192.0.2.11
    devices:
    - {{device_id: 1, device_ip: 198.51.100.111}}
    - {{device_id: 0, device_ip: 198.51.100.110}}
primary: n10
defaults:
  user: root
"""


def members(*names: str, pod: str | None = None) -> list[Member]:
    def device(n: int, d: int) -> MemberDevice:
        place = (n << 22 | d << 16 | d) if pod else None
        return MemberDevice(d, f"198.51.100.{10 * n + d}", place)

    return [Member(name, (device(n, 0), device(n, 1)), pod) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("product", "pod", "generation"),
    [
        ("910", None, "1.0"),
        ("a2", None, "1.0"),
        (None, None, "1.0"),
        ("a3", "0", "1.2"),
        ("a3", None, "1.0"),
        ("a5", None, "2.0"),
    ],
)
def test_the_product_decides_the_generation(
    product: Product | None, pod: str | None, generation: str
) -> None:
    assert generation_for(product, members("a", "b", pod=pod)) == generation


def test_servers_in_and_outside_of_super_pods_make_no_table() -> None:
    with pytest.raises(RankTableError) as caught:
        generation_for("a3", [*members("a", pod="0"), *members("b")])
    assert str(caught.value) == (
        "could not write a rank table: a is in a super pod, and b is not; write one for servers "
        "that are in super pods, or say --to 1.0"
    )


OF_950 = [member(well.node(n), well.a5(n)) for n in (2, 1)]


@pytest.mark.parametrize(
    ("servers", "generation", "product", "names"),
    [
        (members("10.0.0.9", "10.0.0.10"), "1.0", "a2", ["10.0.0.9", "10.0.0.10"]),
        (OF_950, "2.0", "a5", ["sp_0_srv_2", "sp_0_srv_1"]),
    ],
)
def test_servers_are_numbered_as_given_or_as_text(
    servers: list[Member], generation: Generation, product: Product, names: list[str]
) -> None:
    given = build(servers, generation, "given", product).rows
    by_text = build(servers, generation, "server-id", product).rows
    assert [row.server for row in given][::2] == names
    assert [row.server for row in by_text][::2] == sorted(names)


def test_super_pods_of_a3_are_written_and_left_out_of_1_0() -> None:
    made = json.loads(build(members("a", "b", pod="7"), "1.2", "given", "a3").to_json())
    assert made["super_pod_list"] == [
        {"super_pod_id": "7", "server_list": [{"server_id": "a"}, {"server_id": "b"}]}
    ]
    assert made["server_list"][1]["device"][1]["super_device_id"] == str(1 << 22 | 1 << 16 | 1)
    plain = build(members("a", "b", pod="7"), "1.0", "given", "a3").to_json()
    assert "super" not in plain


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "i.yaml").write_text(INVENTORY, encoding="utf-8")
    return tmp_path


def offline(capfd: pytest.CaptureFixture[str], **flags: Any) -> list[tuple[str, str, str]]:
    call(write, inventory="i.yaml", offline=True, json=True, **flags)
    table = json.loads(capfd.readouterr().out)["table"]
    return [
        (server["server_id"], device["device_id"], device["rank_id"])
        for server in table["server_list"]
        for device in server["device"]
    ]


@pytest.mark.usefixtures("here")
def test_offline_the_inventory_s_devices_are_written_in_its_order(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert offline(capfd) == [
        *(("192.0.2.10", "0", "0"), ("192.0.2.10", "1", "1")),
        *(("192.0.2.9", "0", "2"), ("192.0.2.9", "1", "3")),
        *(("192.0.2.11", "1", "4"), ("192.0.2.11", "0", "5")),
    ]
    chosen = offline(capfd, nodes="n[11,9]", devices="1")
    assert chosen == [("192.0.2.11", "1", "0"), ("192.0.2.9", "1", "1")]
    first, _ = offline(capfd, nodes="n9", devices="0-1", product="910", job="mindspore")
    assert first[0] == "192.0.2.9"


LACKING = "could not write version 2.0: what is missing is local_id and level_list"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        ({"nodes": "n7"}, 2, '--nodes: there is no "n7", only '),
        ({"nodes": "n[9"}, 2, "--nodes: "),
        ({"devices": "5"}, 2, "--devices: n10 has no 5; it has 0,1"),
        ({"devices": "a"}, 2, '--devices: "a" is not a number or a range such as 0-3'),
        ({"devices": "1-0"}, 2, "--devices: 1-0 runs backwards; write 0-1"),
        ({"to": "1.2"}, 2, "what is missing is super_device_id of 6 devices"),
        ({"to": "2.0", "product": "a2"}, 2, "2.0: it is for 950, and the NPUs are of A2"),
        ({"product": "a5"}, 2, f"{LACKING} of 192.0.2.10 device 0 and 5 more; the servers of 950"),
        ({"job": "rec-sdk-tf"}, 1, "the new table is refused and was not written"),
    ],
)
def test_what_cannot_be_written_is_said(flags: dict[str, str], code: int, problem: str) -> None:
    with pytest.raises(Exit) as caught:
        call(write, inventory="i.yaml", offline=True, **flags)
    assert caught.value.code == code
    assert problem in str(caught.value)


def test_the_own_table_of_the_inventory_may_be_what_is_written(here: Path) -> None:
    with (here / "i.yaml").open("a", encoding="utf-8") as file:
        file.write("resources: {file: own.json}\n")
    call(write, inventory="i.yaml", offline=True, output="own.json")
    assert load(here / "i.yaml").own_table is not None
    (here / "own.json").write_text("{", encoding="utf-8")
    call(write, inventory="i.yaml", offline=True, output="own.json", force=True)
    assert load(here / "i.yaml").own_table is not None


def test_offline_wants_devices_that_are_stated(here: Path) -> None:
    (here / "i.yaml").write_text(
        "cluster: c\nnodes:\n  n1: {address: 192.0.2.1}\ndefaults: {user: root}\n", encoding="utf-8"
    )
    with pytest.raises(Exit, match="does not name the devices of n1; state them as"):
        call(write, inventory="i.yaml", offline=True)
