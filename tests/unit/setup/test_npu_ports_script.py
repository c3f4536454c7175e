"""The script that sets ports: one after the other, read back, ended by the first failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ascendboot.templates import script

TOOL = """\
#!/bin/bash
# Keeps what is set in files; device 2 refuses, device 3 forgets, device 4 is in use.
f=$STATE/$2$3
case $4 in
  -g)
    case $3 in
      -process) [ "$2" != 4 ] || echo "device hccp process: exist" ;;
      -link) echo "link status: UP" ;;
      -ip) read -r a m <"$f"; printf 'ipaddr:%s\\nnetmask:%s\\n' "$a" "$m" ;;
      -mtu) echo "mtu:$(<"$f")" ;;
    esac ;;
  -s)
    if [ -e "$STATE/busy" ]; then
      rm "$STATE/busy"; echo "hccn_tool is busy, please try again."; exit 11
    fi
    echo "$*" >>"$STATE/calls"
    [ "$2" != 2 ] || { echo "The ip address you configured is conflicted!" >&2; exit 7; }
    [ "$2" = 3 ] || echo "$6 ${8-}" | sed 's/ $//' >"$f"
    echo "Cmd executed successfully!" ;;
esac
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "hccn_tool").write_text(TOOL)
    (tmp_path / "hccn_tool").chmod(0o755)
    for device_id in range(5):
        (tmp_path / f"{device_id}-ip").write_text(f"10.0.0.{device_id} 255.0.0.0\n")
        (tmp_path / f"{device_id}-mtu").write_text("1500\n")
    return tmp_path


def run(state: Path, mode: str, *lines: str) -> tuple[int, str, list[str]]:
    """Exit code, message, and the calls that set something."""
    text = script("setup-npu-ports.sh", b=state / "b", mode=mode, busy_s=5, link_s=5, call_s=5)
    done = subprocess.run(
        ["/bin/bash", "-c", text],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": f"{state}:{os.environ['PATH']}", "STATE": str(state)},
    )
    calls = state / "calls"
    seen = calls.read_text().splitlines() if calls.exists() else []
    calls.unlink(missing_ok=True)
    return done.returncode, done.stderr.strip(), seen


def setting(device_id: int) -> list[str]:
    return [
        f"{device_id} ip was 10.0.0.{device_id} 255.0.0.0",
        f"{device_id} ip set 10.1.0.{device_id} 255.0.0.0",
    ]


def test_what_was_there_is_noted_once_and_restored(state: Path) -> None:
    (state / "busy").touch()  # it is asked again
    mtu = ["0 mtu was -", "0 mtu set 4200"]
    code, error, calls = run(state, "set", *setting(0), *mtu, *setting(1))
    assert (code, error) == (0, "")
    assert calls == [
        "-i 0 -ip -s address 10.1.0.0 netmask 255.0.0.0",
        "-i 0 -mtu -s size 4200",
        "-i 1 -ip -s address 10.1.0.1 netmask 255.0.0.0",
    ]
    again = ["0 ip was 10.1.0.0 255.0.0.0", "0 ip set 10.2.0.0 255.0.0.0"]
    assert run(state, "set", *again)[0] == 0
    noted = (state / "b/npu-network.before").read_text().splitlines()
    assert noted == ["0 ip 10.0.0.0 255.0.0.0", "0 mtu -", "1 ip 10.0.0.1 255.0.0.0"]
    back = [f"-i {i} -ip -s address 10.0.0.{i} netmask 255.0.0.0" for i in (1, 0)]
    assert run(state, "restore") == (0, "", back)
    assert not (state / "b/npu-network.before").exists()
    assert (state / "0-mtu").read_text() == "4200\n"  # there was none, and nothing removes it
    assert run(state, "restore") == (0, "", [])


@pytest.mark.parametrize(
    ("device_id", "message"),
    [
        (2, "hccn_tool -i 2 -ip -s address 10.1.0.2 netmask 255.0.0.0: The ip address you conf"),
        (3, "device 3 has another ip after hccn_tool -i 3 -ip -s address 10.1.0.3 netmask 255.0"),
        (4, "device 4 is in use (hccn_tool -i 4 -process -g)"),
    ],
)
def test_the_first_failure_ends_it(state: Path, device_id: int, message: str) -> None:
    code, error, calls = run(state, "set", *setting(0), *setting(device_id), *setting(1))
    assert (code, error.startswith(message)) == (1, True), error
    assert not any(call.startswith("-i 1 ") for call in calls)
    assert (state / "1-ip").read_text() == "10.0.0.1 255.0.0.0\n"
