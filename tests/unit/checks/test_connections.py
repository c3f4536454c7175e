"""Findings from all probes: each fault once, at the end that has it."""

from __future__ import annotations

from collections.abc import Callable

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
from tests.unit.checks.test_probes import in_pods
from tests.unit.checks.test_probes import probes as probes_among

Pinged = Callable[[PingProbe], Answer[Ping] | None]
Opened = Callable[[TcpProbe], TcpResult]

WELL = Answered(Ping(3, 3))
LOST = Answered(Ping(3, 0))
OPEN, REFUSED = TcpResult(0, ""), TcpResult(1, "Connection refused")
NO_ROUTE = TcpResult(1, "No route to host")
LOOK = "Look at cable, switch port and address: hccn_tool -i 3 -link -g, -ip -g, -link_stat -g"
COVERAGES: tuple[Coverage, ...] = ("once", "ring", "all-pairs")


def findings(
    count: int,
    pinged: Pinged = lambda _: WELL,
    opened: Opened = lambda k: OPEN if k.is_open else REFUSED,
    coverage: Coverage = "ring",
) -> list[str]:
    """The findings of these results among so many nodes."""
    probes = probes_among(count, coverage)
    results = {
        name: ProbeResults(
            {ping: answer for ping in mine.pings if (answer := pinged(ping)) is not None},
            {probe: opened(probe) for probe in mine.tcp},
        )
        for name, mine in probes.items()
    }
    return [f"{f.id} {f.level} {f.message}" for f in probe_findings(probes, results)]


def is_device(npu: Npu, node: str = "lab-2", device: int = 3) -> bool:
    return (npu.node, npu.device_id) == (node, device)


def touches(ping: PingProbe, node: str = "lab-2", device: int = 3) -> bool:
    return is_device(ping.source, node, device) or is_device(ping.target, node, device)


def lost_where(fails: Callable[[PingProbe], bool]) -> Pinged:
    return lambda ping: LOST if fails(ping) else WELL


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("coverage", COVERAGES)
def test_no_failure_is_no_finding(count: int, coverage: Coverage) -> None:
    assert findings(count, coverage=coverage) == []


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("coverage", COVERAGES[1:])
def test_a_dead_device_is_one_finding(count: int, coverage: Coverage) -> None:
    pattern = (
        "mesh-device-cut-off error lab-2: device 3 (198.19.2.3) reaches no other device and is "
        f"reached by none: … pings failed, 3 packets transmitted, 0 received. {LOOK}."
    )
    assert well.alike(well.only(findings(count, lost_where(touches), coverage=coverage)), pattern)


def test_a_link_that_is_down_is_named_in_the_words_of_the_tool() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        if is_device(ping.source):
            answer = "Execute failed: Link status is down."
            tool = f"hccn_tool -i 3 -ping -g address {ping.target.address}"
            return Unanswered("failed", f"could not ping {ping.target}: {tool}: {answer}")
        return LOST if touches(ping) else WELL

    [finding] = findings(2, pinged)
    assert "pings failed, Execute failed: Link status is down. Look at cable" in finding


@pytest.mark.parametrize(
    ("fails", "pattern"),
    [
        (
            lambda ping: is_device(ping.target),
            "mesh-device-unreached error lab-2: device 3 (198.19.2.3) is reached by no other …",
        ),
        (
            lambda ping: is_device(ping.source),
            "mesh-device-reaches-nobody error lab-2: device 3 (198.19.2.3) reaches no other …",
        ),
        (
            lambda ping: "lab-2" in (ping.source.node, ping.target.node),
            "mesh-node-cut-off error lab-2: no NPU of the node reaches another node's …",
        ),
    ],
    ids=["unreached", "reaches none", "node cut off"],
)
def test_one_direction_of_a_device_and_a_whole_node_are_one_finding(
    fails: Callable[[PingProbe], bool], pattern: str
) -> None:
    assert well.alike(well.only(findings(4, lost_where(fails))), pattern)


@pytest.mark.parametrize("count", [2, 4])
def test_a_network_that_is_down_is_one_finding(count: int) -> None:
    [finding] = findings(count, lambda _: LOST)
    pattern = (
        f"mesh-down error lab-[1-{count}]: no NPU reaches one of another node: {16 * count} pings "
        "failed, the first from device 0 of lab-1 (198.19.1.0) to device 0 of lab-2 (198.19.2.0): "
        "3 packets transmitted, 0 received. Look at …: hccn_tool -i 0 -gateway -g."
    )
    assert well.alike(finding, pattern)


OLD_TOOL = Unanswered("failed", "could not ping: hccn_tool -hccs_ping: Get invalid major cmd.")


@pytest.mark.parametrize(
    ("pod", "answer", "found"),
    [
        (None, LOST, ("mesh-down", "warning")),  # a super pod may have a fabric of its own
        (0, WELL, None),
        (0, LOST, ("mesh-down", "error")),
        (0, OLD_TOOL, ("mesh-unknown", "warning")),
    ],
)
def test_lost_packets_on_a3(
    pod: int | None, answer: Answer[Ping], found: tuple[str, str] | None
) -> None:
    probes = in_pods(pod, pod, coverage="ring")
    results = {name: ProbeResults(dict.fromkeys(p.pings, answer)) for name, p in probes.items()}
    assert [(f.id, f.level) for f in probe_findings(probes, results)] == ([found] if found else [])


def test_a_single_failure_has_both_ends_and_a_late_answer_is_a_failure() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        ends = (ping.source.node, ping.source.device_id, ping.target.node, ping.target.device_id)
        return Answered(Ping(3, 2)) if ends == ("lab-1", 3, "lab-2", 3) else WELL

    assert well.only(findings(2, pinged)) == (
        "mesh-ping-failed error lab-[1-2]: device 3 of lab-1 (198.19.1.3) cannot reach "
        f"device 3 of lab-2 (198.19.2.3): 3 packets transmitted, 2 received. {LOOK} "
        "at both ends."
    )


def test_of_many_failures_between_two_nodes_the_first_is_named() -> None:
    lost = lost_where(lambda ping: (ping.source.node, ping.target.node) == ("lab-1", "lab-2"))
    [finding] = findings(3, lost, coverage="all-pairs")
    assert "; 63 more pings from lab-1 to lab-2 failed. " in finding


def test_two_dead_devices_are_two_findings() -> None:
    lost = lost_where(lambda ping: touches(ping) or touches(ping, "lab-3", 5))
    assert [finding.split(": ")[0] for finding in findings(4, lost)] == [
        "mesh-device-cut-off error lab-2",
        "mesh-device-cut-off error lab-3",
    ]


def test_a_busy_tool_and_an_unknown_answer_are_inconclusive() -> None:
    def pinged(ping: PingProbe) -> Answer[Ping]:
        tool = f"hccn_tool -i {ping.source.device_id} -ping -g address {ping.target.address}"
        if ping.source.node == "lab-1":
            return Unanswered("busy", f"could not ping {ping.target}: {tool}: is busy")
        if ping.source.device_id == 4:
            why = f'{tool}: line 2 not understood: "new"; expected counts'
            return Unanswered("not-understood", f"could not ping {ping.target}: {why}")
        return WELL

    assert findings(2, pinged) == [
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
    finding = well.only(findings(2, lambda p: None if p.source.device_id > 1 else WELL))
    assert well.alike(finding, "mesh-untested error lab-[1-2]: 12 of 16 pings were not made: …")


def test_a_missing_tool_is_named() -> None:
    trouble = Unanswered("missing", "could not ping from the NPUs: hccn_tool is not there")
    probes = probes_of(well.TWO, {f"lab-{n}": well.facts(n) for n in (1, 2)}, "once", ssh_ports={})
    [finding] = probe_findings(probes, {"lab-1": ProbeResults(trouble=trouble)})
    assert (finding.id, finding.nodes) == ("mesh-untested", ("lab-1",))
    assert finding.text == trouble.message


SSHD = "12345 (the cluster's sshd)"
RANKS, MPI, HCCL = "1024 (Open MPI's ranks)", "40000 (Open MPI)", "60000 (HCCL)"
BLOCKED = "tcp-blocked error lab-"


@pytest.mark.parametrize(
    ("count", "fails", "result", "patterns"),
    [
        (
            3,
            lambda k: k.target == "lab-3" and not k.is_open,
            TcpResult(124, ""),
            f"{BLOCKED}[1-3]: lab-[1-2] … lab-3 (198.18.0.3) … {RANKS}, {HCCL}: no answer … 3 s. …",
        ),
        (
            5,
            lambda k: not k.is_open,
            NO_ROUTE,
            (
                f"{BLOCKED}[1-5]: lab-[1-4] … lab-[2-5] … {RANKS}, {HCCL}: No route to host. …\n"
                f"{BLOCKED}[1-5]: lab-[2-5] … lab-1 (198.18.0.1) … {RANKS}, {MPI}, {HCCL}: No …"
            ),
        ),
        (
            3,
            lambda k: k.use == "HCCL" or (k.target == "lab-3" and k.port == 1024),
            NO_ROUTE,
            (
                f"… cannot reach lab-2 (198.18.0.2) over TCP on port {HCCL}: …\n"
                f"… cannot reach lab-3 (198.18.0.3) over TCP on ports {RANKS}, {HCCL}: …\n"
                f"… cannot reach lab-1 (198.18.0.1) over TCP on port {HCCL}: …"
            ),
        ),
        (
            2,
            lambda k: k.source == "lab-2",
            NO_ROUTE,
            f"{BLOCKED}[1-2]: lab-2 … lab-1 … {RANKS}, {SSHD}, {MPI}, {HCCL}: No route to host. …",
        ),
        (
            2,
            lambda k: k.target == "lab-2",
            REFUSED,
            "tcp-refused error lab-[1-2]: lab-1 … lab-2 at 198.18.0.2:12345, … refused. …",
        ),
        (
            2,
            lambda _: True,
            TcpResult(1, "No such file or directory"),
            "tcp-untested warning lab-[1-2]: …",
        ),
    ],
)
def test_tcp_connections_that_fail(
    count: int, fails: Callable[[TcpProbe], bool], result: TcpResult, patterns: str
) -> None:
    def opened(probe: TcpProbe) -> TcpResult:
        return result if fails(probe) else OPEN if probe.is_open else REFUSED

    assert well.alike("\n".join(findings(count, opened=opened)), patterns)
