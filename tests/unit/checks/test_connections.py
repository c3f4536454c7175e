"""What the attempts say together: each fault once, at the end that has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ascendboot.checks.connections import probe_findings
from ascendboot.checks.probes import (
    Coverage,
    Npu,
    PingProbe,
    ProbeResults,
    TcpProbe,
    TcpResult,
    probes_of,
)
from ascendboot.facts.parsers.hccn_tool import Ping
from ascendboot.facts.query import Answer, Answered, Unanswered
from tests.unit.checks import well

Pinged = Callable[[PingProbe], Answer[Ping] | None]
Opened = Callable[[TcpProbe], TcpResult]

WELL = Answered(Ping(3, 3))
LOST = Answered(Ping(3, 0))
FIREWALL = (
    "Look for a firewall or a missing route on both and between them: `nft list ruleset`, "
    "`iptables -S`, `firewall-cmd --list-all`, `ip route get`."
)
REFUSED = TcpResult(1, "Connection refused")
LOOK = "Look at cable, switch port and address: hccn_tool -i 3 -link -g, -ip -g, -link_stat -g"


def said(
    count: int,
    pinged: Pinged = lambda _: WELL,
    opened: Opened = lambda k: TcpResult(0, "") if k.is_open else REFUSED,
    coverage: Coverage = "ring",
) -> list[str]:
    numbers = range(1, count + 1)
    cluster = well.cluster(*(well.node(n) for n in numbers))
    facts = {f"lab-{n}": well.facts(n) for n in numbers}
    ports = dict.fromkeys(facts, 12345)
    wanted = probes_of(cluster, facts, coverage, ssh_ports=ports)
    tried = {
        name: ProbeResults(
            {ping: answer for ping in mine.pings if (answer := pinged(ping)) is not None},
            {probe: opened(probe) for probe in mine.tcp},
        )
        for name, mine in wanted.items()
    }
    return [f"{f.id} {f.level} {f.message}" for f in probe_findings(wanted, tried)]


def touches(ping: PingProbe, node: str, device: int) -> bool:
    return (node, device) in {(npu.node, npu.device_id) for npu in (ping.source, ping.target)}


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("coverage", ["once", "ring", "all-pairs"])
def test_where_all_answers_nothing_is_said(count: int, coverage: Coverage) -> None:
    assert said(count, coverage=coverage) == []


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("coverage", ["ring", "all-pairs"])
def test_a_dead_device_is_named_alone(count: int, coverage: Coverage) -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        return LOST if touches(ping, "lab-2", 3) else WELL

    [finding] = said(count, pinged, coverage=coverage)
    assert finding.startswith(
        "mesh-device-cut-off error lab-2: device 3 (198.19.2.3) reaches nobody and is reached by "
        "nobody: "
    )
    assert finding.endswith(f" pings failed, 3 packets transmitted, 0 received. {LOOK}.")


def test_a_link_that_is_down_is_told_in_the_device_s_own_words() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        if (ping.source.node, ping.source.device_id) == ("lab-2", 3):
            said = "Execute failed: Link status is down."
            tool = f"hccn_tool -i 3 -ping -g address {ping.target.address}"
            return Unanswered("failed", f"could not ping {ping.target}: {tool}: {said}")
        return LOST if touches(ping, "lab-2", 3) else WELL

    [finding] = said(2, pinged)
    assert "pings failed, Execute failed: Link status is down. Look at cable" in finding


def is_device(npu: Npu) -> bool:
    return (npu.node, npu.device_id) == ("lab-2", 3)


@pytest.mark.parametrize(
    ("fails", "count", "words"),
    [
        pytest.param(
            lambda ping: is_device(ping.target),
            3,
            "mesh-device-unreached error lab-2: device 3 (198.19.2.3) is reached by nobody: ",
        ),
        pytest.param(
            lambda ping: is_device(ping.source),
            3,
            "mesh-device-reaches-nobody error lab-2: device 3 (198.19.2.3) reaches nobody: ",
        ),
        pytest.param(
            lambda ping: "lab-2" in (ping.source.node, ping.target.node),
            4,
            "mesh-node-cut-off error lab-2: no NPU of the node reaches another node's or is "
            "reached by one: ",
        ),
    ],
    ids=["unreached", "reaches nobody", "node cut off"],
)
def test_one_direction_of_a_device_and_a_whole_node_are_named_alone(
    fails: Callable[[PingProbe], bool], count: int, words: str
) -> None:
    [finding] = said(count, lambda ping: LOST if fails(ping) else WELL)
    assert finding.startswith(words)


@pytest.mark.parametrize("count", [2, 4])
def test_a_network_that_is_down_is_one_finding(count: int) -> None:
    [finding] = said(count, lambda _: LOST)
    pings = 20 * count
    assert finding == (
        f"mesh-down error lab-[1-{count}]: no NPU reaches one of another node: {pings} pings "
        "failed, the first from device 0 of lab-1 (198.19.1.0) to device 0 of lab-2 (198.19.2.0): "
        "3 packets transmitted, 0 received. Look at the switch between the NPUs, their VLAN and "
        "their gateways: hccn_tool -i 0 -gateway -g."
    )


def test_on_a3_pings_warn_because_a_super_pod_has_a_fabric_of_its_own() -> None:
    cluster = replace(well.TWO, product="a3")
    facts = {f"lab-{n}": well.facts(n) for n in (1, 2)}
    wanted = probes_of(cluster, facts, "ring", ssh_ports={})
    tried = {name: ProbeResults(dict.fromkeys(mine.pings, LOST)) for name, mine in wanted.items()}
    assert [(f.id, f.level) for f in probe_findings(wanted, tried)] == [("mesh-down", "warning")]


def test_on_the_fabric_lost_packets_refute_and_an_old_tool_proves_nothing() -> None:
    cluster = replace(well.TWO, product="a3")
    vnics = {
        n: tuple(well.network(n, i, vnic=Answered(f"192.168.{n}.{i}")) for i in range(8))
        for n in (1, 2)
    }
    facts = {
        f"lab-{n}": well.facts(
            n,
            super_pods=Answered({i: Answered(well.place(n, i, 0)) for i in range(8)}),
            device_networks=Answered(vnics[n]),
        )
        for n in (1, 2)
    }
    wanted = probes_of(cluster, facts, "ring", ssh_ports={})

    def found(answer: Answer[Ping]) -> list[tuple[str, str]]:
        tried = {
            name: ProbeResults(dict.fromkeys(mine.pings, answer)) for name, mine in wanted.items()
        }
        return [(f.id, f.level) for f in probe_findings(wanted, tried)]

    assert found(WELL) == []
    assert found(LOST) == [("mesh-down", "error")]
    old = "could not ping a device: hccn_tool -hccs_ping: Get invalid major cmd."
    assert found(Unanswered("failed", old)) == [("mesh-unknown", "warning")]


def test_one_pair_is_told_with_both_ends_and_a_late_answer_is_a_failure() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        ends = (ping.source.node, ping.source.device_id, ping.target.node, ping.target.device_id)
        return Answered(Ping(3, 2)) if ends == ("lab-1", 3, "lab-2", 3) else WELL

    assert well.only(said(2, pinged)) == (
        "mesh-ping-failed error lab-[1-2]: device 3 of lab-1 (198.19.1.3) cannot reach "
        f"device 3 of lab-2 (198.19.2.3): 3 packets transmitted, 2 received. {LOOK} "
        "at both ends."
    )


def test_many_failures_between_two_nodes_are_told_by_the_first() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        return LOST if (ping.source.node, ping.target.node) == ("lab-1", "lab-2") else WELL

    found = said(3, pinged, coverage="all-pairs")
    assert len(found) == 1
    assert "; 63 more pings from lab-1 to lab-2 failed. " in found[0]


def test_two_dead_devices_are_two_findings() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        is_dead = touches(ping, "lab-2", 3) or touches(ping, "lab-3", 5)
        return LOST if is_dead else WELL

    found = said(4, pinged)
    assert [finding.split(": ")[0] for finding in found] == [
        "mesh-device-cut-off error lab-2",
        "mesh-device-cut-off error lab-3",
    ]


def test_a_busy_tool_and_a_new_answer_prove_nothing() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        tool = f"hccn_tool -i {ping.source.device_id} -ping -g address {ping.target.address}"
        if ping.source.node == "lab-1":
            return Unanswered("busy", f"could not ping {ping.target}: {tool}: is busy")
        if ping.source.device_id == 4:
            why = f'{tool}: line 2 not understood: "new"; expected counts'
            return Unanswered("not-understood", f"could not ping {ping.target}: {why}")
        return WELL

    assert said(2, pinged) == [
        (
            "mesh-unknown error lab-1: could not tell what devices 0-7 reach: "
            "hccn_tool -i 0 -ping -g address 198.19.2.0: is busy."
        ),
        (
            "mesh-unknown error lab-2: could not tell what device 4 reaches: "
            'hccn_tool -i 4 -ping -g address 198.19.1.4: line 2 not understood: "new"; expected '
            "counts."
        ),
    ]


def test_pings_that_were_not_made_are_counted() -> None:
    assert well.only(said(2, lambda p: None if p.source.device_id > 1 else WELL)) == (
        "mesh-untested error lab-[1-2]: 15 of 20 pings were not made: those before took too "
        "long. Look at the failures of those that were made, then check again."
    )


def test_a_missing_tool_is_named() -> None:
    wanted = probes_of(well.TWO, {f"lab-{n}": well.facts(n) for n in (1, 2)}, "once", ssh_ports={})
    trouble = Unanswered("missing", "could not ping from the NPUs: hccn_tool is not there")
    tried = {"lab-1": ProbeResults(trouble=trouble)}
    assert well.only([f.message for f in probe_findings(wanted, tried)]) == (
        "lab-1: could not ping from the NPUs: hccn_tool is not there. "
        "Is the Ascend driver installed on the host side?"
    )


def test_a_firewall_in_front_of_one_node_is_named_with_its_ports() -> None:
    def opened(probe: TcpProbe) -> TcpResult:
        if probe.target == "lab-3" and not probe.is_open:
            return TcpResult(124, "")
        return TcpResult(0, "") if probe.is_open else REFUSED

    assert well.only(said(3, opened=opened)) == (
        "tcp-blocked error lab-[1-3]: lab-[1-2] cannot reach lab-3 (198.18.0.3) over TCP on "
        f"ports 1024 (Open MPI's ranks), 60000 (HCCL): no answer within 3 s. {FIREWALL}"
    )


def test_firewalls_everywhere_are_one_finding() -> None:
    def opened(probe: TcpProbe) -> TcpResult:
        return TcpResult(0, "") if probe.is_open else TcpResult(1, "No route to host")

    assert well.only(said(5, opened=opened)) == (
        "tcp-blocked error lab-[1-5]: no node reaches another over TCP on ports "
        "1024 (Open MPI's ranks), 40000 (Open MPI), 60000 (HCCL): "
        f"No route to host. {FIREWALL}"
    )


def test_a_node_that_keeps_more_from_others_than_all_do_is_told_by_itself() -> None:
    def opened(probe: TcpProbe) -> TcpResult:
        if probe.use == "HCCL" or (probe.target == "lab-3" and probe.port == 1024):
            return TcpResult(1, "No route to host")
        return TcpResult(0, "") if probe.is_open else REFUSED

    told = [
        words.partition(": No")[0].partition(" over TCP on ")[::2]
        for words in said(3, opened=opened)
    ]
    assert [(who.partition("cannot reach ")[2], ports) for who, ports in told] == [
        ("lab-2 (198.18.0.2)", "port 60000 (HCCL)"),
        ("lab-3 (198.18.0.3)", "ports 1024 (Open MPI's ranks), 60000 (HCCL)"),
        ("lab-1 (198.18.0.1)", "port 60000 (HCCL)"),
    ]


def test_nodes_that_reach_one_over_tcp_but_not_back() -> None:
    def opened(probe: TcpProbe) -> TcpResult:
        if probe.source == "lab-2":
            return TcpResult(1, "No route to host")
        return TcpResult(0, "") if probe.is_open else REFUSED

    assert well.only(said(2, opened=opened)) == (
        "tcp-blocked error lab-[1-2]: lab-2 cannot reach lab-1 (198.18.0.1) over TCP on "
        "ports 1024 (Open MPI's ranks), 12345 (the cluster's sshd), 40000 (Open MPI), "
        "60000 (HCCL): "
        f"No route to host. {FIREWALL}"
    )


def test_a_refusal_where_something_must_listen_is_a_fault() -> None:
    assert well.only(
        said(2, opened=lambda k: REFUSED if k.target == "lab-2" else TcpResult(0, ""))
    ) == (
        "tcp-refused error lab-[1-2]: lab-1 cannot reach the cluster's sshd of lab-2 at "
        "198.18.0.2:12345, which runs: Connection refused. Look for a firewall that refuses: "
        "`nft list ruleset`, `iptables -S`."
    )


def test_a_bash_that_cannot_connect_proves_nothing() -> None:
    found = said(2, opened=lambda _: TcpResult(1, "No such file or directory"))
    assert [finding.split(":")[0] for finding in found] == ["tcp-untested warning lab-[1-2]"]
