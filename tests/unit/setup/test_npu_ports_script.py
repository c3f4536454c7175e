"""The script that sets ports: one call after the other, ended by the first failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.facts.installed import Installed
from ascendboot.facts.npus import NpuPort
from ascendboot.facts.query import Answered
from ascendboot.setup.reset import restore_command
from ascendboot.setup.steps import Change, NpuNetwork
from ascendboot.transport.api import Command

TOOL = """\
#!/bin/bash
# Device 2 refuses, device 4 is in use.
case $3 in
  -process) [ "$2" != 4 ] || echo "device hccp process: exist" ;;
  -link) echo "link status: UP" ;;
  *)
    if [ -e "$STATE/busy" ]; then
      rm "$STATE/busy"; echo "hccn_tool is busy, please try again."; exit 11
    fi
    echo "$*" >>"$STATE/calls"
    [ "$2" != 2 ] || { echo "The ip address you configured is conflicted!" >&2; exit 7; }
    echo "Cmd executed successfully!" ;;
esac
"""
MASK = "255.0.0.0"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "hccn_tool").write_text(TOOL)
    (tmp_path / "hccn_tool").chmod(0o755)
    return tmp_path


def setting(state: Path, *device_ids: int, **wanted: str) -> Command:
    """The command that sets 10.1.0.N, or `wanted`, where the devices have 10.0.0.N."""
    has = {i: NpuPort({"ip": f"10.0.0.{i}/{MASK}", "gateway": "10.0.0.9"}, {}) for i in device_ids}
    stated = {i: wanted or {"ip": f"10.1.0.{i}/{MASK}"} for i in device_ids}
    installed = Installed(PurePosixPath(state / "a/b"), ports=Answered(has))
    change = NpuNetwork(ports=stated).check(installed)
    assert isinstance(change, Change)
    return change.commands[0]


def run(state: Path, command: Command) -> tuple[int, str, list[str]]:
    """Exit code, message, and the calls that set something."""
    done = subprocess.run(
        command.argv,
        input=command.stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={"PATH": f"{state}:{os.environ['PATH']}", "STATE": str(state)},
    )
    calls = state / "calls"
    seen = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return done.returncode, done.stderr.decode().strip(), seen


def test_what_was_there_is_noted_once_and_restored(state: Path) -> None:
    (state / "busy").touch()  # the call is repeated
    calls = [f"-i {i} -ip -s address 10.1.0.{i} netmask {MASK}" for i in (0, 1)]
    assert run(state, setting(state, 0, 1)) == (0, "", calls)
    again = run(state, setting(state, 0, ip=f"10.2.0.0/{MASK}", mtu="4200"))
    assert again[2] == [f"-i 0 -ip -s address 10.2.0.0 netmask {MASK}", "-i 0 -mtu -s size 4200"]
    noted = (state / "a/b/npu-network.before").read_text().splitlines()
    assert noted == [
        *(
            f"device {i}: {what}"
            for i in (0, 1)
            for what in (f"ip 10.0.0.{i}/{MASK}", "gateway 10.0.0.9")
        ),
        "device 0: mtu none",
    ]
    back = [f"-i {i} -ip -s address 10.0.0.{i} netmask {MASK}" for i in (1, 0)]
    back += [f"-i {i} -gateway -s gateway 10.0.0.9" for i in (1, 0)]
    assert run(state, restore_command(str(state / "a/b"), noted)) == (
        0,
        "",
        back,
    )  # nothing can remove an MTU
    assert not (state / "a").exists()


@pytest.mark.parametrize(
    ("device_id", "message"),
    [
        (2, f"hccn_tool -i 2 -ip -s address 10.1.0.2 netmask {MASK}: The ip address you conf"),
        (4, "device 4 is in use (hccn_tool -i 4 -process -g)"),
    ],
)
def test_the_first_failure_ends_it(state: Path, device_id: int, message: str) -> None:
    code, error, calls = run(state, setting(state, 0, device_id, 1))
    assert (code, error.startswith(message)) == (1, True), error
    assert not any(call.startswith(("-i 1 ", "-i 4 ")) for call in calls)
