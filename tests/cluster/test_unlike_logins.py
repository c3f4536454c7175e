"""Nodes with different logins: user, port, key, and a jump host."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator

pytestmark = pytest.mark.cluster

PORT = 2222
# Somebody else than root by name and home, who may do what root may.
ADMIN = f"""\
useradd -o -u 0 -m -d /home/admin -s /bin/bash admin
install -d -m 700 /home/admin/.ssh
cat >/home/admin/.ssh/authorized_keys
/usr/sbin/sshd -p {PORT} -o AllowUsers=admin -o PidFile=/run/other-sshd.pid
"""


@pytest.fixture
def operator(bring_up: Callable[..., Lab]) -> Iterator[Operator]:
    """Three nodes: a usual one, one with another user, port and key, one behind the first."""
    operator = Operator(bring_up(nodes=3, devices=1))
    key = own_key(operator)
    admin = key.with_suffix(".pub").read_bytes()
    operator.lab.exec("lab-2", ["bash", "-c", ADMIN], input=admin)
    operator.lab.fault("lab-2", "no-sshd")
    # Addresses of the operator's side are not answered there.
    here = operator.lab.shape.operator_address
    operator.sh("lab-3", f"ip route add prohibit {here}/32")
    yield operator
    operator.sh("lab-2", "kill $(cat /run/other-sshd.pid)")


def own_key(operator: Operator) -> Path:
    key = operator.lab.directory / "admin"
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(make, check=True)
    return key


def test_row_05_each_node_has_a_user_a_port_a_key_and_a_jump_host_of_its_own(
    operator: Operator,
) -> None:
    document = operator.document()
    document["nodes"]["lab-2"] |= {"user": "admin", "port": PORT, "identity": "admin"}
    document["nodes"]["lab-3"] |= {"jump": "lab-1"}
    unlike = operator.inventory("unlike.yaml", document)

    alike = operator.setup(exits=4)
    assert [node for node, *_ in alike.outcomes("unreachable")] == ["lab-2", "lab-3"]
    operator.setup(inventory=unlike, exits=0)
    assert operator.setup(inventory=unlike).outcomes("changed") == []
    operator.script("job.py", "import os; print('rank', os.environ['RANK'])\n")
    job = operator.call("train", "job.py")
    assert sorted(job.out.splitlines()) == [f"lab-{n + 1}:{n} | rank {n}" for n in range(3)], (
        job.err
    )
