"""The script that tries the network, run by a real bash, and the reader of its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.checks.probes import (
    NodeProbes,
    Npu,
    PingProbe,
    ProbeResults,
    TcpProbe,
    TcpResult,
    probe_command,
    read_probes,
)
from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.parsers.hccn_tool import Ping
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.value import replace
from tests.fake_transport import Answer, framed
from tests.here import Here

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
