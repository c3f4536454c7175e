"""The judge on the devices' network: one test per rule, over the whole message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.facts.parsers.hccn_tool import DeviceAddress, HccnConf
from ascendboot.facts.query import NOT_ASKED, Answered, Unanswered
from ascendboot.model.cluster import Device
from tests.unit.checks.well import TWO, cluster, facts, judged, network, networks, node, second

if TYPE_CHECKING:
    from ascendboot.facts.npus import DeviceNetwork
    from ascendboot.facts.query import Lack

NO_IP = Answered(())
DOWN = Answered(value=False)
TLS_ON = Answered(value=True)


def with_ip(device_id: int, ip: str) -> DeviceNetwork:
    return network(2, device_id, addresses=Answered((DeviceAddress(ip, "255.255.0.0"),)))


def test_a_device_without_an_ip() -> None:
    assert second(**networks(2, network(2, 3, addresses=NO_IP))) == [
        (
            "device-ip-missing error lab-2: device 3 has no IP address. "
            "Set it: hccn_tool -i 3 -ip -s address ADDRESS netmask MASK."
        )
    ]


def test_devices_without_an_ip_do_for_one_node() -> None:
    bare = [network(2, i, addresses=NO_IP) for i in (3, 4)]
    assert judged(cluster(node(2)), facts(2, **networks(2, *bare))) == [
        (
            "device-ip-missing warning lab-2: devices 3-4 have no IP address. "
            "Set it: hccn_tool -i 3 -ip -s address ADDRESS netmask MASK."
        )
    ]


def test_two_devices_with_one_ip() -> None:
    same = with_ip(5, "198.19.1.3")
    assert second(**networks(2, same), hccn_conf=NOT_ASKED) == [
        (
            "device-ip-twice error lab-[1-2]: device IP 198.19.1.3 is used twice: lab-1 device 3 "
            "and lab-2 device 5. Give each device an IP of its own with hccn_tool."
        )
    ]


def test_three_devices_with_one_ip() -> None:
    same = [with_ip(i, "198.19.1.3") for i in (5, 6)]
    assert second(**networks(2, *same), hccn_conf=NOT_ASKED) == [
        (
            "device-ip-twice error lab-[1-2]: device IP 198.19.1.3 is used 3 times: "
            "lab-1 device 3 and lab-2 device 5 and lab-2 device 6. "
            "Give each device an IP of its own with hccn_tool."
        )
    ]


def test_a_device_with_the_ip_of_a_node() -> None:
    same = with_ip(5, "198.18.0.1")
    assert second(**networks(2, same), hccn_conf=NOT_ASKED) == [
        (
            "device-ip-twice error lab-[1-2]: device IP 198.18.0.1 is used twice: lab-1 "
            "and lab-2 device 5. Give each device an IP of its own with hccn_tool."
        )
    ]


def test_a_node_may_be_reached_by_a_host_name() -> None:
    wish = cluster(node(1), node(2, address="lab-2.example"))
    assert judged(wish, facts(1), facts(2)) == []


def test_an_ip_other_than_the_inventory_states() -> None:
    named = tuple(Device(i, "198.19.9.9" if i == 3 else None) for i in range(8))
    wish = cluster(node(1), node(2, devices=named))
    assert judged(wish, facts(1), facts(2)) == [
        (
            "device-ip-differs error lab-2: device 3 has the IP 198.19.2.3; the inventory states "
            "198.19.9.9. Correct the inventory, or set the IP of the device with hccn_tool."
        )
    ]


def silent(kind: Lack, what: str, device_id: int, said: str) -> Unanswered:
    tool = f"hccn_tool -i {device_id} -x -g"
    return Unanswered(kind, f"could not read the {what} of device {device_id}: {tool}: {said}")


def test_something_new_from_one_device() -> None:
    new = network(2, 3, link_up=silent("not-understood", "link", 3, "line 1 not understood"))
    assert second(**networks(2, new)) == [
        (
            "device-link-unknown error lab-2: could not read the link of device 3: "
            "hccn_tool -i 3 -x -g: line 1 not understood."
        )
    ]


def test_devices_that_are_busy_are_named_together() -> None:
    busy = [network(2, i, addresses=silent("busy", "IP", i, "busy")) for i in (2, 3, 4)]
    assert second(**networks(2, *busy)) == [
        (
            "device-ip-unknown error lab-2: could not read the IP of devices 2-4: "
            "hccn_tool -i 2 -x -g: busy."
        )
    ]


def test_a_tls_switch_that_the_tool_cannot_tell_is_no_obstacle() -> None:
    dumb = network(2, 3, tls_enabled=silent("failed", "TLS switch", 3, "not supported"))
    new = network(2, 4, tls_enabled=silent("not-understood", "TLS switch", 4, "line 1"))
    assert second(**networks(2, dumb, new)) == [
        (
            "device-tls-unknown error lab-2: could not read the TLS switch of device 4: "
            "hccn_tool -i 4 -x -g: line 1."
        ),
        (
            "device-tls-unknown warning lab-2: could not read the TLS switch of device 3: "
            "hccn_tool -i 3 -x -g: not supported."
        ),
    ]


def test_links_that_are_down() -> None:
    down = [network(2, i, link_up=DOWN) for i in (3, 5)]
    words = (
        "lab-2: the link of devices 3,5 is down. "
        "Look at cable and switch port; hccn_tool -i 3 -link_stat -g shows since when; "
        "or state the other devices under `devices`."
    )
    assert second(**networks(2, *down)) == [f"link-down error {words}"]
    a3 = replace(TWO, product="a3")
    found = judged(a3, facts(1), facts(2, **networks(2, *down)))
    assert [text for text in found if "link" in text] == [f"link-down warning {words}"]


def test_devices_that_the_job_does_not_use_are_not_judged() -> None:
    down = network(2, 5, link_up=DOWN)
    wish = cluster(*(node(i, devices=(Device(0), Device(1))) for i in (1, 2)))
    assert judged(wish, facts(1), facts(2, **networks(2, down))) == []


def test_a_tls_switch_that_is_on_at_few() -> None:
    on = [network(2, i, tls_enabled=TLS_ON) for i in (3, 5)]
    assert second(**networks(2, *on)) == [
        (
            "tls-differs error lab-2: the TLS switch of lab-2 devices 3,5 is on, that of the "
            "14 other devices off. Set it alike on all: hccn_tool -i ID -tls -s enable 0."
        )
    ]


def test_a_tls_switch_that_is_off_at_few() -> None:
    on = [network(1, i, tls_enabled=TLS_ON) for i in range(8)]
    most = [network(2, i, tls_enabled=TLS_ON) for i in range(1, 8)]
    assert judged(TWO, facts(1, **networks(1, *on)), facts(2, **networks(2, *most))) == [
        (
            "tls-differs error lab-2: the TLS switch of lab-2 device 0 is off, that of the "
            "15 other devices on. Set it alike on all: hccn_tool -i ID -tls -s enable 0."
        )
    ]


def test_hccn_conf_that_differs_from_the_device() -> None:
    stale = {i: f"198.19.2.{i}" for i in range(8)} | {3: "198.19.2.99"}
    assert second(hccn_conf=Answered(HccnConf(stale))) == [
        (
            "hccn-conf-differs warning lab-2: /etc/hccn.conf gives device 3 the IP 198.19.2.99, "
            "but the device has 198.19.2.3. Find out which is right and set it: "
            "hccn_tool -i 3 -ip -s address ADDRESS netmask MASK."
        )
    ]


def test_hccn_conf_may_leave_devices_out() -> None:
    assert second(hccn_conf=Answered(HccnConf({}))) == []
