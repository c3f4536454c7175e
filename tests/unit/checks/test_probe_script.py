"""The script that tries the network: run by a real bash, and what its answers are taken for."""

from __future__ import annotations

import subprocess
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
from ascendboot.transport.api import Effect, Result

FIRST = PingProbe(Npu("lab-1", 0, "192.0.2.10"), Npu("lab-2", 3, "192.0.2.23"))
SECOND = PingProbe(Npu("lab-1", 7, "192.0.2.17"), Npu("lab-2", 1, "192.0.2.21"))
CLOSED = TcpProbe("lab-1", "lab-2", "127.0.0.1", 1, "HCCL")
BOTH = NodeProbes((FIRST, SECOND))

TOOL = """\
#!/bin/bash
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


def run(attempts: NodeProbes, *path: Path) -> Result:
    asked = probe_command(attempts)
    done = subprocess.run(
        asked.argv,
        input=asked.stdin,
        capture_output=True,
        check=False,
        timeout=300,
        env={"PATH": ":".join([*map(str, path), "/usr/bin", "/bin"])},
    )
    return result(attempts, done.stdout, done.returncode, done.stderr)


def result(attempts: NodeProbes, out: bytes, code: int = 0, err: bytes = b"") -> Result:
    return Result(
        node="lab-1",
        command=probe_command(attempts),
        exit_code=code,
        stdout=out,
        stderr=err,
        duration_s=0.1,
    )


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A folder with an hccn_tool that is busy once."""
    path = tmp_path / "hccn_tool"
    path.write_text(TOOL)
    path.chmod(0o755)
    return tmp_path


def test_pings_go_one_after_the_other_and_a_busy_tool_is_asked_again(tool: Path) -> None:
    assert read_probes(BOTH, run(BOTH, tool)) == ProbeResults(
        {FIRST: Answered(Ping(3, 3)), SECOND: Answered(Ping(3, 0))}
    )
    assert (tool / "calls").read_text().splitlines() == [
        "-i 0 -ping -g address 192.0.2.23",
        "-i 0 -ping -g address 192.0.2.23",
        "-i 7 -ping -g address 192.0.2.21",
    ]


def test_a_clock_that_is_set_ends_no_pings(tool: Path) -> None:
    asked = probe_command(BOTH)
    argv = ("bash", "-c", f"SECONDS=1000\n{asked.argv[2]}", *asked.argv[3:])
    env = {"PATH": f"{tool}:/usr/bin:/bin"}
    done = subprocess.run(argv, input=asked.stdin, capture_output=True, check=True, env=env)
    assert set(read_probes(BOTH, result(BOTH, done.stdout)).pings) == {FIRST, SECOND}


def test_it_only_looks_and_its_time_is_bounded_by_its_pings() -> None:
    assert probe_command(BOTH).effect is Effect.READ
    assert probe_command(BOTH).timeout_s == 64
    assert probe_command(NodeProbes((FIRST,) * 100)).timeout_s == 260


def test_a_closed_port_proves_that_packets_pass() -> None:
    attempts = NodeProbes(tcp=(CLOSED,))
    assert read_probes(attempts, run(attempts)) == ProbeResults(
        {}, {CLOSED: TcpResult(1, "Connection refused")}
    )


def test_a_missing_tool_costs_the_pings_and_not_the_connections() -> None:
    attempts = NodeProbes((FIRST,), (CLOSED,))
    tried = read_probes(attempts, run(attempts))
    assert tried.pings == {}
    assert tried.trouble == Unanswered(
        "missing",
        "could not ping from the NPUs: hccn_tool is neither on PATH nor in "
        "/usr/local/Ascend/driver/tools",
    )
    assert tried.tcp == {CLOSED: TcpResult(1, "Connection refused")}


def test_what_the_tool_says_and_nobody_knows_is_an_answer_of_that_ping_alone() -> None:
    told = "3 packets transmitted, 3 received, 0.00% packet loss"
    out = _sections(("hccn_tool", "x"), ("ping/0", "new"), ("ping/1", told), ("tcp", ""))
    tried = read_probes(BOTH, result(BOTH, out))
    assert tried.pings[SECOND] == Answered(Ping(3, 3))
    assert tried.pings[FIRST] == Unanswered(
        "not-understood",
        "could not ping device 3 of lab-2 (192.0.2.23): hccn_tool -i 0 -ping -g address "
        '192.0.2.23: line 1 not understood: "new"; expected the answer to a packet, or a failure '
        "that is known",
    )


def test_pings_that_were_not_made_are_in_no_mapping() -> None:
    out = _sections(("hccn_tool", "x"), ("tcp", ""))
    assert read_probes(BOTH, result(BOTH, out)) == ProbeResults()


@pytest.mark.parametrize("tcp", ["0 x refused", "7 1 Connection refused", "hello"])
def test_a_connection_that_nobody_asked_for_is_refused(tcp: str) -> None:
    out = _sections(("hccn_tool", "not needed"), ("tcp", tcp))
    attempts = NodeProbes(tcp=(CLOSED,))
    with pytest.raises(NotUnderstoodError):
        read_probes(attempts, result(attempts, out))


def test_a_script_that_was_ended_is_an_error() -> None:
    with pytest.raises(ToolError):
        read_probes(BOTH, result(BOTH, b"", 124))


def _sections(*sections: tuple[str, str]) -> bytes:
    whole = [*sections, ("end", "")]
    return "".join(f"@@ {n} 0 {len(text)}\n{text}\n" for n, text in whole).encode()


def test_the_fabric_of_a_super_pod_is_tried_by_its_own_command(tool: Path) -> None:
    source, target = Npu("lab-1", 0, "192.168.1.199"), Npu("lab-2", 3, "192.168.2.199")
    fabric = PingProbe(source, target, "hccs_ping")
    both = NodeProbes((fabric, FIRST))
    (tool / "said").write_text(
        "This pkt ping success!\n" * 3 + "3 packets transmitted, 3 received, 0.00% packets loss\n"
    )
    calls = 'echo "$*" >>"${0%/*}/calls"; cat "${0%/*}/said"\n'
    (tool / "hccn_tool").write_text(f"#!/bin/bash\n{calls}")
    assert read_probes(both, run(both, tool)).pings[fabric] == Answered(Ping(3, 3))
    assert (tool / "calls").read_text().splitlines() == [
        "-i 0 -hccs_ping -g address 192.168.2.199",
        "-i 0 -ping -g address 192.0.2.23",
    ]
