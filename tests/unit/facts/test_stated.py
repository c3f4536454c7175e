"""`facts: stated`: the inventory replaces answers that vendor tools do not give."""

from __future__ import annotations

from ascendboot.facts.derive import devices_of
from ascendboot.facts.node_facts import with_stated
from ascendboot.facts.query import NOT_QUERIED, Answered, Unanswered
from ascendboot.model.cluster import Device
from ascendboot.value import replace
from tests.unit.checks.well import cluster, facts, messages, network, node

DEVICES = (Device(0, "192.0.2.20"), Device(1, "192.0.2.21"))
NODE = node(2, devices=DEVICES)
STATED = replace(cluster(NODE), facts="stated")
UNREAD = Unanswered("not-understood", "could not list the NPUs: npu-smi info -m: line 1 …")
NO_TOOL = Unanswered("missing", "could not read the network of the devices: no hccn_tool")
NO_IP = Unanswered("failed", "could not read the IP of device 0: it broke")


def test_hostile_15_stated_facts_replace_missing_answers() -> None:
    unread = facts(2, npus=UNREAD, device_networks=NO_TOOL)
    seen = with_stated(STATED, NODE, unread)
    assert devices_of(NODE, seen) == ((0, "192.0.2.20"), (1, "192.0.2.21"))
    assert [n.link_up for n in seen.device_networks.value] == [NOT_QUERIED, NOT_QUERIED]  # type: ignore[union-attr]
    assert seen.stated == (UNREAD.message, NO_TOOL.message)
    told = [text for text in messages(STATED, seen) if "error" in text or "stated" in text]
    assert " ".join(told) == (
        "facts-stated warning lab-2: devices 0-1 and their addresses are what the inventory states "
        f"(`facts: stated`), not what the node reports: {UNREAD.message}; {NO_TOOL.message}. "
        "Health, links, TLS switches and pings of these devices are not checked. Repair the "
        "tool, then remove `facts: stated`."
    )


def test_hostile_15_answers_of_tools_take_precedence_over_stated_facts() -> None:
    read = facts(2)
    assert with_stated(STATED, NODE, read) is read
    unread = facts(2, npus=UNREAD)
    assert with_stated(replace(STATED, facts="read"), NODE, unread) is unread
    assert with_stated(STATED, node(2), unread) is unread

    silent = replace(network(2, 0), addresses=NO_IP, link_up=NO_IP)
    half = facts(2, device_networks=Answered((silent, network(2, 1), network(2, 7))))
    seen = with_stated(STATED, NODE, half)
    assert seen.npus == half.npus
    assert devices_of(NODE, seen) == ((0, "192.0.2.20"), (1, network(2, 1).device_ip))
    assert seen.stated == (NO_IP.message,)


def test_hostile_15_unknown_lines_of_tools_are_a_warning() -> None:
    lines = tuple(f'npu-smi info -m: "warning {n}"' for n in range(6))
    seen = facts(2, unknown_lines=Answered(lines))
    [told] = [text for text in messages(cluster(NODE), seen) if "tool-" in text]
    assert told == (
        f"tool-lines-unknown warning lab-2: vendor tools print more than their answers: "
        f"{', '.join(lines[:4])} and 2 more. Read what they warn of."
    )
