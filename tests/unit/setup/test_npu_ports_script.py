"""The script that sets ports: one call after the other, ended by the first failure."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from ascendboot.facts.installed import Installed
from ascendboot.facts.npus import NpuPort
from ascendboot.facts.query import Answered
from ascendboot.setup.reset import restore_command
from ascendboot.setup.steps import Change, NpuNetwork
from ascendboot.transport.api import Command
from tests.here import Here

TOOL = """
case $3 in
  -process) [ "$2" != 4 ] || echo "device hccp process: exist" ;;
  -link) echo "link status: UP" ;;
  *)
    if rm ~/busy 2>/dev/null; then echo "hccn_tool is busy, please try again."; exit 11; fi
    echo "$*" >>~/calls
    [ "$2" != 2 ] || { echo "The ip address you configured is conflicted!" >&2; exit 7; } ;;
esac
"""
MASK = "255.0.0.0"


def setting(folder: Path, *device_ids: int, **wanted: str) -> Command:
    """The command that sets 10.1.0.N, or `wanted`, where the devices have 10.0.0.N."""
    return changing(folder, *device_ids, **wanted).commands[0]


def changing(folder: Path, *device_ids: int, **wanted: str) -> Change:
    has = {i: NpuPort({"ip": f"10.0.0.{i}/{MASK}", "gateway": "10.0.0.9"}, {}) for i in device_ids}
    stated = {i: wanted or {"ip": f"10.1.0.{i}/{MASK}"} for i in device_ids}
    installed = Installed(PurePosixPath(folder / "a/b"), ports=Answered(has))
    change = NpuNetwork(ports=stated).check(installed)
    assert isinstance(change, Change)
    return change


def run(folder: Path, command: Command) -> tuple[int, str, list[str]]:
    """Exit code, message, and the calls that set something."""
    here = Here(folder)
    here.put("hccn_tool", TOOL)
    result = here(command).to(command)
    calls = (folder / "calls").read_text().splitlines()
    (folder / "calls").unlink()
    return result.exit_code, result.stderr.decode().strip(), calls


def test_equal_devices_are_folded_in_the_row_of_a_node(tmp_path: Path) -> None:
    change = changing(tmp_path, *range(8))
    first = f"device 0: ip 10.1.0.0/{MASK} instead of 10.0.0.0/{MASK}"
    assert change.summary == f"{first}; 1-7 likewise"
    assert change.action == "set the network of devices 0-7"


def test_what_was_there_is_noted_once_and_restored(tmp_path: Path) -> None:
    (tmp_path / "busy").touch()  # the call is repeated
    calls = [f"-i {i} -ip -s address 10.1.0.{i} netmask {MASK}" for i in (0, 1)]
    assert run(tmp_path, setting(tmp_path, 0, 1)) == (0, "", calls)
    again = run(tmp_path, setting(tmp_path, 0, ip=f"10.2.0.0/{MASK}", mtu="4200"))
    assert again[2] == [f"-i 0 -ip -s address 10.2.0.0 netmask {MASK}", "-i 0 -mtu -s size 4200"]
    noted = (tmp_path / "a/b/npu-network.before").read_text().splitlines()
    ports = [[f"device {i}: ip 10.0.0.{i}/{MASK}", f"device {i}: gateway 10.0.0.9"] for i in (0, 1)]
    assert noted == [*ports[0], *ports[1], "device 0: mtu none"]
    back = [f"-i {i} -ip -s address 10.0.0.{i} netmask {MASK}" for i in (1, 0)]
    back += [f"-i {i} -gateway -s gateway 10.0.0.9" for i in (1, 0)]
    assert run(tmp_path, restore_command(str(tmp_path / "a/b"), noted)) == (0, "", back)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("device_id", "message"),
    [
        (2, f"hccn_tool -i 2 -ip -s address 10.1.0.2 netmask {MASK}: The ip address you conf"),
        (4, "device 4 is in use (hccn_tool -i 4 -process -g)"),
    ],
)
def test_the_first_failure_ends_it(tmp_path: Path, device_id: int, message: str) -> None:
    code, error, calls = run(tmp_path, setting(tmp_path, 0, device_id, 1))
    assert (code, error.startswith(message)) == (1, True), error
    assert not any(call.startswith(("-i 1 ", "-i 4 ")) for call in calls)
