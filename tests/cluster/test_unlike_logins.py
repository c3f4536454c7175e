"""Nodes with different logins: user, port, key, and a jump host."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import PROGRAM, Operator
from tests.integration.real_sshd import keygen
from tests.needs import missing
from tests.terminal import shown

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
    admin = keygen(operator.lab.directory / "admin").with_suffix(".pub").read_bytes()
    operator.lab.exec("lab-2", ["bash", "-c", ADMIN], input=admin)
    operator.lab.fault("lab-2", "no-sshd")
    # Addresses of the operator's side are not answered there.
    here = operator.lab.shape.operator_address
    operator.sh("lab-3", f"ip route add prohibit {here}/32")
    yield operator
    operator.sh("lab-2", "kill $(cat /run/other-sshd.pid)")


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


PASSWORD = "never-shown 7'x"  # noqa: S105
# A user who is not root, and what sudo allows.
OPS = f"""\
useradd -m -d /home/ops -s /bin/bash ops
echo "ops:{PASSWORD}" | chpasswd
install -d -m 700 -o ops /home/ops/.ssh
cat >/home/ops/.ssh/authorized_keys
chown ops /home/ops/.ssh/authorized_keys
/usr/sbin/sshd -p {PORT} -o AllowUsers=ops -o PidFile=/run/other-sshd.pid
"""


def test_users_who_are_not_root_work_by_sudo_without_and_with_a_password(
    bring_up: Callable[..., Lab],
) -> None:
    if not shutil.which("sudo"):
        missing("sudo is not installed")
    operator = Operator(bring_up(nodes=2, devices=1))
    public = keygen(operator.lab.directory / "admin").with_suffix(".pub").read_bytes()
    document = operator.document()
    for name, tag, kind in (("lab-1", "NOPASSWD:", "nopasswd"), ("lab-2", "", "ask")):
        operator.lab.exec(name, ["bash", "-c", OPS], input=public)
        operator.sh(name, f"echo 'ops ALL=(ALL) {tag}ALL' >/etc/sudoers.d/ops")
        login = {"user": "ops", "port": PORT, "identity": "admin", "sudo": kind}
        document["nodes"][name] |= login
    inventory = operator.inventory("sudo.yaml", document)
    host = f"ops@{operator.lab.nodes[0].address}:{PORT}"
    flags = ("--identity", "admin", "--accept-new", "--output", "-")
    assert "node-1: ops is not root" in operator.call("init", host, *flags, exits=0).err
    done = operator.call("init", host, *flags, "--sudo", "nopasswd", exits=0)
    assert "is not root" not in done.err
    assert "  sudo: nopasswd\n" in done.out

    def setup(password: str | None, exits: int) -> str:
        env = {"ASCENDBOOT_SUDO_PASSWORD": password} if password else {}
        argv = ("setup", "--accept-new", "--inventory", str(inventory))
        ended = operator.start(*argv, env=env).end(exits=exits)
        return " ".join((ended.out + ended.err).split())

    assert "`sudo: ask`: no password was given; set $ASCENDBOOT_SUDO_PASSWORD" in setup(None, 2)
    refused = setup("wrong", 1)
    wrong = "sudo refused the password of ops; give the right one"
    assert f"lab-2 failed could not read the clock: {wrong}" in refused
    assert "0 things changed" not in setup(PASSWORD, 0)
    assert "0 things changed" in setup(PASSWORD, 0)
    assert operator.sh("lab-1", "stat -c %U /var/lib/ascendboot/lab/owner").strip() == "root"
    operator.script("job.py", "import os; print('rank', os.environ['RANK'], os.getuid())\n")
    job = operator.start("train", "job.py", env={"ASCENDBOOT_SUDO_PASSWORD": PASSWORD}).end()
    assert sorted(job.out.splitlines()) == ["lab-1:0 | rank 0 0", "lab-2:1 | rank 1 0"], job.err
    operator.sh("lab-2", "echo 'tty; id -un; exit 7' >/root/.bash_profile")
    seen = shown(
        f"{PROGRAM} shell lab-2 --host --inventory {inventory}; echo exit $?",
        columns=80,
        cwd=operator.lab.directory,
        env={"ASCENDBOOT_SUDO_PASSWORD": PASSWORD},
        timeout_s=60,
    )
    text = " ".join(filter(None, seen))
    assert re.search("/dev/pts/[0-9]+ root exit 7$", text), text
    assert "password" not in text
    kept = [path for path in operator.lab.directory.rglob("*") if path.is_file()]
    assert [path for path in kept if PASSWORD.encode() in path.read_bytes()] == []
    operator.sh("lab-1", "rm /etc/sudoers.d/ops")
    assert "state `sudo: ask`" in setup(PASSWORD, 1)
    for name in ("lab-1", "lab-2"):
        operator.sh(name, "kill $(cat /run/other-sshd.pid)")


def test_a_password_for_sudo_counts_alike_on_the_server_and_in_the_container(
    bring_up: Callable[..., Lab],
) -> None:
    if not shutil.which("sudo"):
        missing("sudo is not installed")
    operator = Operator(bring_up(nodes=1, devices=1, containers=True))
    public = keygen(operator.lab.directory / "admin").with_suffix(".pub").read_bytes()
    operator.lab.exec("lab-1", ["bash", "-c", OPS], input=public)
    operator.sh("lab-1", "echo 'ops ALL=(ALL) ALL' >/etc/sudoers.d/ops")
    operator.script("file", "content\n")
    document = operator.document()
    document["nodes"]["lab-1"] |= {"user": "ops", "port": PORT, "identity": "admin", "sudo": "ask"}
    operator.inventory("ask.yaml", document)

    def call(password: str, line: str, exits: int) -> str:
        env = {"ASCENDBOOT_SUDO_PASSWORD": password, "ASCENDBOOT_INVENTORY": "ask.yaml"}
        ended = operator.start(*line.split(), env=env).end(exits=exits)
        return " ".join((ended.out + ended.err).split())

    copy, fetch = "copy file /root/f", "fetch /root/f got --force"
    lines = ["exec --host -- id -un", f"{copy} --host", f"{fetch} --host"]
    lines += ["exec -- id -un", copy, fetch]

    def all_refused() -> None:
        for line in (*lines, "setup", "check"):
            refused = call("wrong", line, 1)
            assert "sudo refused the password of ops; give the right one" in refused, line

    all_refused()
    call(PASSWORD, "setup --accept-new", 0)
    all_refused()  # now a container is entered without a query of its server
    for line in lines:
        done = call(PASSWORD, line, 0)
        assert ("root" if "exec" in line else "1 file") in done
    assert (operator.lab.directory / "got/lab-1/f").read_text() == "content\n"
    operator.sh("lab-1", "kill $(cat /run/other-sshd.pid)")
