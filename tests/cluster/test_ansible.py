"""The example role, with Ansible itself, on the practice cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator

pytestmark = pytest.mark.cluster

EXAMPLE = Path(__file__).parents[2] / "examples/ansible"


def test_the_role_sets_up_and_trains_and_a_second_run_changes_nothing(
    practice_cluster: Lab,
) -> None:
    operator, programs = Operator(practice_cluster), Path(sys.executable).parent
    operator.wipe()
    # Its tasks run in the playbook's folder: the records of the checkout are not this cluster's.
    example = shutil.copytree(EXAMPLE, practice_cluster.directory / "ansible")
    env = {
        **os.environ,
        "ASCENDBOOT_INVENTORY": str(practice_cluster.inventory),
        # Of hosts that this test made. ssh does not ask HOME where the user's own file is.
        "ANSIBLE_SSH_EXTRA_ARGS": "-o StrictHostKeyChecking=accept-new"
        f" -o UserKnownHostsFile={practice_cluster.directory / 'known_hosts'}",
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(practice_cluster.directory),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }

    def played(*words: str) -> str:
        argv = [str(programs / "ansible-playbook"), "-i", str(example / "inventory.sh"), *words]
        done = subprocess.run(
            [*argv, str(example / "site.yml")],
            check=False,
            capture_output=True,
            text=True,
            cwd=practice_cluster.directory,
            env=env,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    accept = ("-e", '{"ascendboot_setup_flags": ["--accept-new"]}')
    assert "changed: [localhost]" in played("--check", *accept)
    assert operator.sh("lab-1", "ls /var/lib/ascendboot 2>/dev/null || true") == ""
    first = played(*accept)
    assert "ok: [lab-1]" in first
    assert "ok: [lab-2]" in first
    assert "changed: [localhost]" in first
    again = played(
        "-e", "ascendboot_script=main.py", "-e", '{"ascendboot_script_args": ["--steps", "2"]}'
    )
    assert "ok: [localhost]" in again
    assert again.count("changed: [localhost]") == 1  # the training
    operator.wipe()
