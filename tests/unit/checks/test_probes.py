"""Which nodes probe which, and the script that does it, run by a real bash."""

from __future__ import annotations

from itertools import permutations, product, starmap
from pathlib import Path

import pytest

from ascendboot.checks.probes import (
    Coverage,
    NodeProbes,
    Npu,
    PingProbe,
    ProbeResults,
    TcpProbe,
    TcpResult,
    probe_command,
    probes_of,
    read_probes,
)
from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.parsers.hccn_tool import DeviceAddress, Ping
from ascendboot.facts.parsers.system import KernelPorts
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.value import replace
from tests.fake_transport import Answer, framed
from tests.here import Here
from tests.unit.checks import well


def probes(count: int, coverage: Coverage, **changes: object) -> dict[str, NodeProbes]:
    numbers = range(1, count + 1)
    cluster = well.cluster(*(well.node(n) for n in numbers), **changes)
    facts = {f"lab-{n}": well.facts(n) for n in numbers}
    return probes_of(cluster, facts, coverage, ssh_ports={f"lab-{n}": 12345 for n in numbers})


def tcp_pairs(found: dict[str, NodeProbes]) -> set[tuple[str, str]]:
    """Sources and targets of the TCP probes, by the last characters of their names."""
    return {(k.source[4:], k.target[4:]) for each in found.values() for k in each.tcp}


def ping(source: int, device: int, target: int, other: int) -> PingProbe:
    return PingProbe(npu(source, device), npu(target, other))


def npu(node: int, device: int) -> Npu:
    return Npu(f"lab-{node}", device, f"198.19.{node}.{device}")


def test_once_is_a_ring_of_equal_devices() -> None:
    found = probes(3, "once")
    for number in (1, 2, 3):
        pings = tuple(ping(number, i, number % 3 + 1, i) for i in range(8))
        assert found[f"lab-{number}"].pings == pings


def test_a_ring_goes_back_too_to_the_device_after() -> None:
    after = [ping(1, i, 2, i) for i in range(8)]
    before = [ping(1, i, 3, (i + 1) % 8) for i in range(8)]
    assert probes(3, "ring")["lab-1"].pings == (*after, *before)


def test_all_pairs_leave_nothing_out_but_the_node_itself() -> None:
    found = probes(3, "all-pairs")
    pairs = list(permutations((1, 2, 3), 2))
    assert {p for each in found.values() for p in each.pings} == {
        ping(s, i, t, j) for s, t in pairs for i in range(8) for j in range(8)
    }
    assert tcp_pairs(found) == {(str(s), str(t)) for s, t in pairs}


@pytest.mark.parametrize("coverage", ["once", "ring", "all-pairs"])
def test_one_node_tries_nothing(coverage: Coverage) -> None:
    assert probes(1, coverage) == {"lab-1": NodeProbes()}


def test_nodes_with_fewer_devices_or_none_and_devices_with_two_ports() -> None:
    ips = ("192.0.2.1", "192.0.2.2", "2001:db8::1")  # IPv6 is not pinged
    addresses = Answered(tuple(DeviceAddress(ip, "0") for ip in ips))
    two_ports = Answered((well.network(2, 0, addresses=addresses),))
    facts = {
        "lab-1": well.facts(1, **well.npus(0, 1)),
        "lab-2": well.facts(2, **well.npus(0), device_networks=two_ports),
        "lab-3": well.facts(3, **well.npus(), device_networks=Answered(())),
    }
    cluster = well.cluster(*(well.node(n) for n in (1, 2, 3)))
    found = probes_of(cluster, facts, "all-pairs", ssh_ports={})
    ports = [Npu("lab-2", 0, "192.0.2.1"), Npu("lab-2", 0, "192.0.2.2")]
    first = [npu(1, 0), npu(1, 1)]
    assert found["lab-1"].pings == tuple(starmap(PingProbe, product(first, ports)))
    assert found["lab-2"].pings == tuple(starmap(PingProbe, product(ports, first)))
    assert found["lab-3"].pings == ()


def test_tcp_goes_from_and_to_the_primary_and_around_a_ring() -> None:
    of_primary = {(s, t) for n in "234" for s, t in (("1", n), (n, "1"))}
    assert tcp_pairs(probes(4, "ring")) == of_primary | {("2", "3"), ("3", "4")}


def test_the_ports_are_those_that_a_job_needs() -> None:
    def tcp(**changes: object) -> list[tuple[int, str, bool]]:
        return [(k.port, k.use, k.is_open) for k in probes(2, "ring", **changes)["lab-2"].tcp]

    assert tcp() == [
        (12345, "the cluster's sshd", True),
        (60000, "HCCL", False),
        (40000, "Open MPI", False),
        (1024, "Open MPI's ranks", False),
    ]
    assert (50000, "HCCL", False) in tcp(env={"HCCL_IF_BASE_PORT": "50000"})
    assert (61000, "HCCL", False) in tcp(env={"HCCL_HOST_SOCKET_PORT_RANGE": "61000-61050"})
    uses = [use for _, use, _ in tcp(env={"HCCL_HOST_SOCKET_PORT_RANGE": "auto"})]
    assert uses == ["the cluster's sshd", "Open MPI", "Open MPI's ranks"]


def test_the_ports_of_open_mpi_that_are_stated_are_tried() -> None:
    def ports(**changes: object) -> list[tuple[int, str]]:
        return [(k.port, k.use) for k in probes(2, "ring", **changes)["lab-2"].tcp[2:]]

    stated = (
        *("--mca", "oob_tcp_dynamic_ipv4_ports", "50000-50003"),
        *("--mca", "btl_tcp_port_min_v4", "50200"),
    )
    assert ports(mpi_args=stated) == [(50000, "Open MPI"), (50200, "Open MPI's ranks")]
    env = {"OMPI_MCA_btl_tcp_port_min_v4": "50300"}
    assert ports(env=env) == [(40000, "Open MPI"), (50300, "Open MPI's ranks")]
    name = "OMPI_MCA_oob_tcp_dynamic_ipv4_ports"
    env = {name: "50400-50403"}
    assert ports(env=env) == [(50400, "Open MPI"), (1024, "Open MPI's ranks")]
    assert ports(env=env, mpi_args=stated)[0] == (50000, "Open MPI")  # so does mpirun
    odd = ("--mca", "oob_tcp_dynamic_ipv4_ports", "any", "--mca", "btl_tcp_port_min_v4")
    assert ports(mpi_args=odd) == [(40000, "Open MPI"), (1024, "Open MPI's ranks")]


def test_daemons_of_open_mpi_call_mpirun_alone_as_long_as_they_are_few() -> None:
    def called(count: int) -> set[str]:
        tcp = (k for a in probes(count, "ring").values() for k in a.tcp)
        return {k.target for k in tcp if k.use == "Open MPI"}

    assert called(3) == called(65) == {"lab-1"}
    assert called(66) == {f"lab-{n}" for n in range(1, 67)}


def test_torchrun_needs_no_port_of_open_mpi() -> None:
    tcp = probes(2, "ring", launcher="torchrun")["lab-2"].tcp
    assert [(k.port, k.use) for k in tcp[2:]] == [(40000, "gloo")]


def test_without_the_sshd_of_the_cluster_other_ports_are_tried() -> None:
    facts = {f"lab-{n}": well.facts(n) for n in (1, 2)}
    ports = Answered(KernelPorts(2048, 9999))
    facts["lab-1"] = well.facts(1, kernel_ports=ports)
    found = probes_of(well.TWO, facts, "ring", ssh_ports={})
    assert found["lab-2"].tcp == (
        TcpProbe("lab-2", "lab-1", "198.18.0.1", 60000, "HCCL"),
        TcpProbe("lab-2", "lab-1", "198.18.0.1", 2048, "Open MPI"),
        TcpProbe("lab-2", "lab-1", "198.18.0.1", 1024, "Open MPI's ranks"),
    )


def test_an_unreachable_primary_does_not_keep_the_others_from_trying() -> None:
    cluster = well.cluster(*(well.node(n) for n in (1, 2, 3)))
    facts = {f"lab-{n}": well.facts(n) for n in (2, 3)}
    found = probes_of(cluster, facts, "ring", ssh_ports={})
    assert tcp_pairs(found) == {("2", "3"), ("3", "2")}


# ---------------------------------------------------------------------------------- super pods


def in_pods(*pods: int | None, coverage: Coverage = "once") -> dict[str, NodeProbes]:
    """Nodes of two A3 devices in these super pods; the third has no addresses outside its own."""
    facts = {}
    for n, pod in enumerate(pods, 1):
        no_ip = {"addresses": Answered(())} if n == 3 else {}
        networks = [well.network(n, i, vnic=Answered(f"192.168.{n}.{i}"), **no_ip) for i in (0, 1)]
        facts[f"lab-{n}"] = well.a3(n, pod, 2, device_networks=Answered(tuple(networks)))
    cluster = well.cluster(*(well.node(n) for n, _ in enumerate(pods, 1)), product="a3")
    return probes_of(cluster, facts, coverage, ssh_ports={})


def test_inside_a_super_pod_the_fabric_is_tried_and_the_answer_decides() -> None:
    mine = in_pods(0, 0)["lab-1"]
    assert [(p.command, p.source.address, p.target.address) for p in mine.pings] == [
        ("hccs_ping", f"192.168.1.{i}", f"192.168.2.{i}") for i in (0, 1)
    ]
    assert mine.failed_pings_are_errors


def test_between_super_pods_the_network_is_tried_where_there_is_one() -> None:
    found = in_pods(0, 1, 0, coverage="all-pairs")
    ways = {(p.source.node, p.target.node): p.command for a in found.values() for p in a.pings}
    between = dict.fromkeys(permutations(("lab-1", "lab-2")), "ping")
    assert ways == between | dict.fromkeys(permutations(("lab-1", "lab-3")), "hccs_ping")


def test_where_super_pods_are_not_known_plain_pings_only_warn() -> None:
    found = in_pods(None, None)
    assert {p.command for a in found.values() for p in a.pings} == {"ping"}
    assert [a.failed_pings_are_errors for a in found.values()] == [False, False]


FIRST = PingProbe(Npu("lab-1", 0, "192.0.2.10"), Npu("lab-2", 3, "192.0.2.23"))
SECOND = PingProbe(Npu("lab-1", 7, "192.0.2.17"), Npu("lab-2", 1, "192.0.2.21"))
CLOSED = TcpProbe("lab-1", "lab-2", "127.0.0.1", 1, "HCCL")
BOTH = NodeProbes((FIRST, SECOND))

TOOL = """\
echo "$*" >>"${0%/*}/calls"
if [ "$(grep -c . "${0%/*}/calls")" = 1 ]; then
  echo 'hccn_tool is busy, please try again.'; exit 11
fi
echo "device $2 PING $6"
if [ "$2" = 7 ]; then
  echo 'recv time out seq=0'; echo '3 packets transmitted, 0 received, 100.00% packet loss'
  echo 'Command execute failed!' >&2; exit 1
fi
echo '3 packets transmitted, 3 received, 0.00% packet loss'
"""


def run(probes: NodeProbes, folder: Path) -> ProbeResults:
    """The results of the script with the programs of a folder."""
    command = probe_command(probes)
    return read_probes(probes, Here(folder)(command).to(command))


def read(probes: NodeProbes, *sections: tuple[str, str]) -> ProbeResults:
    """The results in these sections of an output."""
    return read_probes(probes, Answer(framed(dict(sections))).to(probe_command(probes)))


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A folder with an hccn_tool that is busy once."""
    Here(tmp_path).put("hccn_tool", TOOL)
    return tmp_path


def test_pings_run_one_after_the_other_and_a_busy_tool_is_tried_again(tool: Path) -> None:
    pings = {FIRST: Answered(Ping(3, 3)), SECOND: Answered(Ping(3, 0))}
    assert run(BOTH, tool) == ProbeResults(pings)
    assert (tool / "calls").read_text().splitlines() == [
        "-i 0 -ping -g address 192.0.2.23",
        "-i 0 -ping -g address 192.0.2.23",
        "-i 7 -ping -g address 192.0.2.21",
    ]


def test_a_clock_that_is_set_ends_no_pings(tool: Path) -> None:
    command = probe_command(BOTH)
    argv = ("bash", "-c", f"SECONDS=1000\n{command.argv[2]}", *command.argv[3:])
    result = Here(tool)(replace(command, argv=argv)).to(command)
    assert set(read_probes(BOTH, result).pings) == {FIRST, SECOND}


def test_the_time_limit_leaves_two_seconds_for_each_ping() -> None:
    assert probe_command(NodeProbes((FIRST,) * 100)).timeout_s > 200


def test_a_missing_tool_prevents_the_pings_and_not_the_connections(tmp_path: Path) -> None:
    tried = run(NodeProbes((FIRST,), (CLOSED,)), tmp_path)
    why = "hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools"
    trouble = Unanswered("missing", f"could not ping from the NPUs: {why}")
    tcp = {CLOSED: TcpResult(1, "Connection refused")}
    assert tried == ProbeResults({}, tcp, trouble)
    assert run(NodeProbes(tcp=(CLOSED,)), tmp_path) == ProbeResults({}, tcp)


def test_an_unknown_output_of_the_tool_concerns_one_ping() -> None:
    line = "3 packets transmitted, 3 received, 0.00% packet loss"
    tried = read(BOTH, ("hccn_tool", "x"), ("ping/0", "new"), ("ping/1", line), ("tcp", ""))
    assert tried.pings[SECOND] == Answered(Ping(3, 3))
    assert tried.pings[FIRST] == Unanswered(
        "not-understood",
        "could not ping device 3 of lab-2 (192.0.2.23): hccn_tool -i 0 -ping -g address "
        '192.0.2.23: line 1 not understood: "new"; expected the answer to a packet, or a failure '
        "that is known",
    )


def test_pings_that_were_not_made_have_no_result() -> None:
    assert read(BOTH, ("hccn_tool", "x"), ("tcp", "")) == ProbeResults()


@pytest.mark.parametrize("tcp", ["0 x refused", "7 1 Connection refused", "hello"])
def test_the_result_of_an_unknown_connection_is_refused(tcp: str) -> None:
    with pytest.raises(NotUnderstoodError):
        read(NodeProbes(tcp=(CLOSED,)), ("hccn_tool", "not needed"), ("tcp", tcp))


def test_a_script_that_was_ended_is_an_error() -> None:
    with pytest.raises(ToolError):
        read_probes(BOTH, Answer(exit_code=124).to(probe_command(BOTH)))


def test_the_fabric_of_a_super_pod_has_its_own_command(tmp_path: Path) -> None:
    source, target = Npu("lab-1", 0, "192.168.1.199"), Npu("lab-2", 3, "192.168.2.199")
    fabric = PingProbe(source, target, "hccs_ping")
    output = (
        "This pkt ping success!\n" * 3 + "3 packets transmitted, 3 received, 0.00% packets loss"
    )
    Here(tmp_path).put("hccn_tool", f'echo "$*" >>"${{0%/*}}/calls"; echo "{output}"')
    assert run(NodeProbes((fabric, FIRST)), tmp_path).pings[fabric] == Answered(Ping(3, 3))
    assert (tmp_path / "calls").read_text().splitlines() == [
        "-i 0 -hccs_ping -g address 192.168.2.199",
        "-i 0 -ping -g address 192.0.2.23",
    ]
