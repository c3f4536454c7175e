"""The containers of a practice cluster: real, like those of Ascend servers, and removable."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ascendboot.errors import NodeError, UsageError
from ascendboot.lab.cluster import Lab, down, status_of
from tests.cluster.operating import PROGRAM, Operator, ascendboot, heal

BringUp = Callable[..., Lab]

pytestmark = pytest.mark.cluster

START = "/usr/local/Ascend/lab/start-container"


def test_it_shares_the_network_of_its_node_and_nothing_else(container_cluster: Lab) -> None:
    kinds = ("net", "pid", "uts", "mnt", "ipc")
    script = "readlink " + " ".join(f"/proc/self/ns/{kind}" for kind in kinds)
    ours = Operator(container_cluster).sh("lab-1", script).split()
    its = Operator(container_cluster).inside("lab-1", script).split()
    same = [kind for kind, one, other in zip(kinds, ours, its, strict=True) if one == other]
    assert same == ["net"]


def test_what_ends_in_it_is_reaped(container_cluster: Lab) -> None:
    Operator(container_cluster).inside("lab-1", "(sleep 0.1 &) ; (true &)")
    script = "for _ in {1..200}; do ps -eo stat= | grep -q Z || exit 0; sleep 0.05; done; exit 1"
    assert Operator(container_cluster).inside("lab-1", script) == ""


def test_it_restarts_with_its_node_and_keeps_its_files(bring_up: BringUp) -> None:
    lab = bring_up(containers=True)
    Operator(lab).inside("lab-1", "echo kept >/root/file")
    lab.fault("lab-1", "node-down")
    assert [node.container for node in status_of(lab)] == ["node down"]
    with pytest.raises(NodeError, match="could not restart its container: the node is down"):
        lab.fault("lab-1", "container-restart")
    lab.undo("lab-1", "node-down")
    assert Operator(lab).inside("lab-1", "cat /root/file") == "kept\n"
    Operator(lab).sh("lab-1", "podman stop -t 1 rec-sdk && podman start rec-sdk")
    assert Operator(lab).inside("lab-1", "cat /root/file") == "kept\n"


def test_what_ascendboot_has_on_the_machine_is_on_no_node(bring_up: BringUp) -> None:
    base = Path("/var/lib/ascendboot")
    of_machine = base / f"test-{secrets.token_hex(4)}"
    of_machine.mkdir(parents=True)
    try:
        operator, look = Operator(bring_up(containers=True)), f"ls {base} 2>&1; true"
        assert "cannot access" in operator.sh("lab-1", look)
        assert "cannot access" in operator.inside("lab-1", look)
    finally:
        of_machine.rmdir()
        with suppress(OSError):  # not empty: others use it, too
            base.rmdir()


def state(lab: Lab) -> str | None:
    """The state of the first node's container."""
    return status_of(lab)[0].container


def test_the_state_is_shown_and_a_new_one_is_empty(bring_up: BringUp) -> None:
    lab = bring_up(containers=True)

    seen = [state(lab)]
    Operator(lab).inside("lab-1", "echo lost >/root/file")
    for script in ("podman stop -t 1 rec-sdk", "podman rm rec-sdk", START):
        Operator(lab).sh("lab-1", script)
        seen.append(state(lab))
    assert seen == ["running", "exited", "absent", "running"]
    assert Operator(lab).inside("lab-1", "ls /root/file 2>/dev/null; true") == ""


def test_its_faults_are_real_and_outlast_a_reboot(bring_up: BringUp) -> None:
    lab = bring_up(containers=True)
    sshd = "ls /usr/sbin/sshd* /root/file 2>/dev/null; true"

    Operator(lab).inside("lab-1", "echo kept >/root/file")
    lab.fault("lab-1", "no-container-sshd")
    assert Operator(lab).inside("lab-1", sshd).split() == ["/root/file", "/usr/sbin/sshd.away"]
    lab.fault("lab-1", "container-stopped")
    assert state(lab) == "exited"
    lab.undo("lab-1", "no-container-sshd")
    lab.fault("lab-1", "node-down")
    lab.undo("lab-1", "node-down")
    assert state(lab) == "exited"
    lab.undo("lab-1", "container-stopped")
    assert Operator(lab).inside("lab-1", sshd).split() == ["/root/file", "/usr/sbin/sshd"]
    lab.fault("lab-1", "container-gone")
    lab.fault("lab-1", "no-container-sshd")
    assert state(lab) == "absent"
    lab.undo("lab-1", "container-gone")
    assert Operator(lab).inside("lab-1", sshd).split() == ["/usr/sbin/sshd.away"]
    heal(lab)
    assert (state(lab), lab.faults("lab-1")) == ("running", [])
    assert Operator(lab).inside("lab-1", sshd).split() == ["/usr/sbin/sshd"]


def test_a_fault_of_a_container_needs_one(practice_cluster: Lab) -> None:
    with pytest.raises(UsageError) as caught:
        practice_cluster.fault("lab-1", "container-gone")
    assert str(caught.value) == (
        "lab.fault: container-gone is a fault of a container, and this lab has none; run"
        " lab.down, then lab.up --containers"
    )


def test_lab_shell_enters_the_container(container_cluster: Lab, practice_cluster: Lab) -> None:
    def shell(lab: Lab) -> tuple[int, str, str]:
        words = ("lab.shell", "lab-2", "--container", "--lab", lab.lab_id)
        return ascendboot(lab.directory, *words, stdin="hostname; exit 3\n")

    assert shell(container_cluster) == (3, "lab-2-rec-sdk\n", "")
    could_not = "lab-2: could not open a shell in its container: "
    none = f"{could_not}it has none; run lab.shell lab-2\n"
    assert shell(practice_cluster) == (1, "", none)
    container_cluster.fault("lab-2", "container-stopped")
    refused = shell(container_cluster)
    heal(container_cluster)
    exited = "rec-sdk is exited; run /usr/local/Ascend/lab/start-container in lab.shell"
    assert refused == (1, "", f"{could_not}{exited} lab-2\n")


HINDRANCES = {
    "mount --bind /dev/null /usr/bin/podman": (
        "No containers: not installed: podman; the Debian packages are podman; ranks run on the"
        " servers themselves."
    ),
    # Nothing of it shows from outside, as where this machine is a container itself.
    "mount -t tmpfs -o ro none /sys/fs/cgroup": "No containers: lab-1: could not boot: Error: ",
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
@pytest.mark.usefixtures("containers_possible")
def test_without_support_the_default_is_no_containers_with_the_reason(
    tmp_path: Path, hindrance: str
) -> None:
    networks = "198.18.60.0/22,198.19.60.0/22"
    up = f"{PROGRAM} lab.up --json --nodes 1 --devices 1 --network {networks}"
    script = f"{hindrance} && {up}; {PROGRAM} lab.down >&2"
    done = subprocess.run(
        ["/usr/bin/unshare", "--mount", "bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=300,
    )
    reply = json.loads(done.stdout)
    assert reply["containers"] is False
    assert reply["note"].startswith(HINDRANCES[hindrance])
    assert reply["note"].endswith("; ranks run on the servers themselves.")
    assert "The practice cluster is down." in done.stderr


def test_it_cannot_write_on_a_full_disk(bring_up: BringUp) -> None:
    lab = bring_up(containers=True)
    writer = "podman exec rec-sdk bash -c 'echo x >/root/file'"
    lab.fault("lab-1", "disk-full")
    done = lab.exec("lab-1", ["bash", "-c", writer], check=False)
    assert done.returncode != 0
    assert b"no space left on device" in done.stderr.lower()
    lab.undo("lab-1", "disk-full")
    Operator(lab).sh("lab-1", writer)


def test_down_removes_their_cgroups(bring_up: BringUp) -> None:
    lab = bring_up(nodes=2, containers=True)
    record = lab._record
    folders = [record.disk(n.name) / "containers/storage/overlay-containers" for n in lab.nodes]
    ids = [path.name for folder in folders for path in folder.iterdir() if path.is_dir()]
    assert len(ids) == 2
    assert cgroups(ids) != []
    down(lab.lab_id)
    assert cgroups(ids) == []


def cgroups(ids: list[str]) -> list[Path]:
    root = Path("/sys/fs/cgroup")
    found = [*root.glob("libpod_parent/libpod*"), *root.glob("*/libpod_parent/libpod*")]
    return [path for path in found if any(name in path.name for name in ids)]
