"""The acceptance tests for real servers, on the practice cluster, and what they find there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from ascendboot.lab.faults import Fault
from tests.cluster.operating import Operator

pytestmark = pytest.mark.cluster


def accepted(lab: Lab, raw: Path) -> tuple[int, str]:
    """Run them from a checkout, as docs/how-to/first-contact.md says."""
    options = ["--inventory", str(lab.inventory), "--raw", str(raw), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "hardware", "tests/hardware", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=200,
    )
    return done.returncode, done.stdout


def test_they_pass_on_good_servers_and_keep_what_the_tools_printed(
    practice_cluster: Lab, tmp_path: Path
) -> None:
    operator = Operator(practice_cluster)
    operator.wipe()
    assert operator.setup("--accept-new", "--plan").code == 0
    before = operator.on_all("find /var/lib /root /etc -newer /run/sshd.pid -type f | sort")
    code, out = accepted(practice_cluster, tmp_path / "raw")
    assert code == 0, out
    assert "skipped" not in out
    assert operator.on_all("find /var/lib /root /etc -newer /run/sshd.pid -type f | sort") == before
    hosts = [tmp_path / "raw" / node / "host" for node in ("lab-1", "lab-2")]
    address = operator.sh("lab-1", "/usr/local/Ascend/driver/tools/hccn_tool -i 0 -ip -g")
    assert (hosts[0] / "0-ip").read_text().strip() == address.strip()
    assert len({host.joinpath("0-ip").read_text() for host in hosts}) == len(hosts)


def test_they_name_the_node_and_what_is_wrong_there(
    practice_cluster: Lab, tmp_path: Path, fault: Callable[..., Fault]
) -> None:
    fault("lab-2", "busy", device=1)
    code, out = accepted(practice_cluster, tmp_path / "raw")
    assert code == 1
    assert re.search("lab-2: could not read the IP of device 1: .* is busy", out), out
