"""The faults of a practice cluster that change the node itself are real, and can be undone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab import faults
from ascendboot.lab.cluster import Lab, down
from ascendboot.lab.faults import Fault
from ascendboot.lab.host import LabError, ProcessId
from ascendboot.lab.node import ssh_answers
from tests.cluster.operating import ascendboot, heal, ssh
from tests.integration.real_sshd import keygen
from tests.needs import missing

Break = Callable[..., Fault]
BringUp = Callable[..., Lab]

pytestmark = pytest.mark.cluster


def wrote(lab: Lab, node: str, path: str) -> str:
    """ "" if a byte could be written there, else the message of bash."""
    script = f"echo x >{path} && rm {path}"
    return lab.exec(node, ["bash", "-c", script], check=False).stderr.decode()


# -------------------------------------------------------------------------------- /etc/hccn.conf


def addresses(lab: Lab, node: str) -> list[str]:
    text = lab.exec(node, ["cat", "/etc/hccn.conf"]).stdout.decode()
    return [line.split("=")[1] for line in text.splitlines() if line.startswith("address_")]


def right(lab: Lab, node: str) -> list[str]:
    return [device.device_ip or "" for device in lab.node(node).devices]


def test_a_stale_address_is_of_one_device(practice_cluster: Lab, fault: Break) -> None:
    lab = practice_cluster
    fault("lab-1", "stale-hccn-conf", device=2)
    seen, wanted = addresses(lab, "lab-1"), right(lab, "lab-1")
    assert [i for i in range(8) if seen[i] != wanted[i]] == [2]
    assert seen[2] not in {device.device_ip for node in lab.nodes for device in node.devices}
    lab.undo("lab-1", "stale-hccn-conf", device=2)
    assert addresses(lab, "lab-1") == wanted


def test_edits_of_hccn_conf_are_kept(bring_up: BringUp) -> None:
    lab = bring_up(devices=2)
    edit = ["sed", "-i", "s/^address_1=.*/address_1=10.1.2.3/", "/etc/hccn.conf"]
    lab.exec("lab-1", edit)
    lab.fault("lab-1", "stale-hccn-conf")
    lab.undo("lab-1", "stale-hccn-conf")
    assert addresses(lab, "lab-1") == [right(lab, "lab-1")[0], "10.1.2.3"]


# --------------------------------------------------------------------------------------- the disk


def test_nothing_fits_on_a_full_disk(practice_cluster: Lab, fault: Break) -> None:
    lab, folders = practice_cluster, ("/var/lib", "/tmp", "/root", "/etc")  # noqa: S108

    def written(node: str) -> list[str]:
        return [folder for folder in folders if wrote(lab, node, f"{folder}/more") == ""]

    for kind in ("disk-full", "stale-hccn-conf"):
        fault("lab-1", kind)
    assert (written("lab-1"), written("lab-2")) == ([], list(folders))
    assert wrote(lab, "lab-1", "/etc/more").endswith("/etc/more: No space left on device\n")
    assert set(addresses(lab, "lab-1")).isdisjoint(right(lab, "lab-1"))
    heal(lab)
    assert (addresses(lab, "lab-1"), lab.faults("lab-1")) == (right(lab, "lab-1"), [])
    assert written("lab-1") == list(folders)


# --------------------------------------------------------------------------------- the slow link


def round_trip_ms(lab: Lab, node: str) -> float:
    """The shortest of three."""
    ping = ["ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "5", str(lab.node(node).address)]
    done = subprocess.run(ping, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1].split(" = ")[1].split("/")[0])


def test_a_slow_link_is_slow_both_ways(practice_cluster: Lab, fault: Break) -> None:
    fault("lab-1", "delay")
    slow = round_trip_ms(practice_cluster, "lab-1")
    assert 50 <= slow < 100
    assert ssh_answers(practice_cluster.node("lab-1"))
    assert round_trip_ms(practice_cluster, "lab-2") < 25
    fault("lab-1", "delay", milliseconds=5)
    assert 10 <= round_trip_ms(practice_cluster, "lab-1") < 50
    assert [f.milliseconds for f in practice_cluster.faults("lab-1")] == [5]
    practice_cluster.undo("lab-1", "delay")
    assert round_trip_ms(practice_cluster, "lab-1") < 10


def test_connections_survive_the_start_of_a_delay(practice_cluster: Lab, fault: Break) -> None:
    argv = [
        "bash",
        "-c",
        "exec 3<>/dev/tcp/lab-2/22; read -r a <&3; echo; read -r _; echo x >&3; cat <&3",
    ]
    process = practice_cluster.process("lab-1")
    assert process
    prefix = ["nsenter", "-t", str(process.pid), "--mount", "--uts", "--net", "--pid", "--root"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*prefix, *argv], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        fault("lab-1", "delay", milliseconds=5)
        answer, _ = child.communicate(b"\n", timeout=300)
        assert answer == b"Invalid SSH identification string.\r\n"
    assert round_trip_ms(practice_cluster, "lab-1") >= 10


def test_down_ends_the_slow_wire(bring_up: BringUp) -> None:
    lab = bring_up(nodes=2)
    record = lab._record
    lab.fault("lab-1", "delay")
    wire = ProcessId.parsed((record.folder / "lab-1.delay").read_text())
    down(lab.lab_id)
    assert wire
    assert not wire.alive
    assert [p for p in Path("/run/netns").glob("*") if lab.lab_id in p.name] == []


# -------------------------------------------------------------------------------------- the clock


def test_sshd_uses_the_clock_of_its_node(
    practice_cluster: Lab, fault: Break, tmp_path: Path
) -> None:
    """A certificate that is not valid yet is valid for a clock that is ahead."""
    if faults.note(Fault("clock", seconds=1)):
        missing("libfaketime is not installed (Debian package libfaketime)")
    lab = practice_cluster
    key = certified_key(tmp_path)
    trust = "mkdir -p /etc/ssh/keys && cat >/etc/ssh/keys/ca.pub"
    lab.exec("lab-1", ["bash", "-c", trust], input=(tmp_path / "ca.pub").read_bytes())
    line = "TrustedUserCAKeys /etc/ssh/keys/ca.pub\n"
    conf = "/etc/ssh/sshd_config.d/trust.conf"
    lab.exec("lab-1", ["tee", conf], input=line.encode())
    try:
        for ahead, code in ((1, 255), (7200, 0), (1, 255)):
            fault("lab-1", "clock", seconds=ahead)  # sshd reads its configuration again
            assert ssh(lab, "lab-1", "true", identity=key).returncode == code
    finally:
        lab.exec("lab-1", ["rm", conf])


def certified_key(folder: Path) -> Path:
    """A key with a certificate that begins to be valid in an hour, signed by `ca` beside it."""
    for name in ("ca", "user"):
        keygen(folder / name)
    sign = ["ssh-keygen", "-q", "-s", "ca", "-I", "late", "-n", "root", "-V", "+1h:+4h", "user.pub"]
    subprocess.run(sign, check=True, cwd=folder)
    return folder / "user"


# ------------------------------------------------------------------------------------- wrong use


def test_a_fault_that_fails_leaves_no_mark(bring_up: BringUp) -> None:
    lab = bring_up()
    lab.exec("lab-1", ["bash", "-c", "rm /etc/hccn.conf && mkdir /etc/hccn.conf"])
    with pytest.raises(LabError, match="lab-1: could not change the fault: bash exited"):
        lab.fault("lab-1", "stale-hccn-conf")
    assert lab.faults("lab-1") == []


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        (("clock", "--seconds=-90"), 0, "lab-1: clock by -90 s\n", ""),
        (("clock",), 0, "lab-1: clock by +90 s\n", ""),
        (("delay",), 0, "lab-1: delay of 25 ms each way\n", ""),
        (("tls", "--device", "1"), 0, "lab-1 device 1: tls\n", ""),
        (("tls", "--undo"), 0, "lab-1: no more tls\n", ""),
        (
            ("delay", "--milliseconds=-5"),
            2,
            "",
            '--milliseconds: "-5" is not a whole number of at least 0\n',
        ),
    ],
)
@pytest.mark.usefixtures("fault")
def test_the_verb(
    practice_cluster: Lab, words: tuple[str, ...], code: int, out: str, err: str
) -> None:
    ended = ascendboot(practice_cluster.directory, "lab.fault", "lab-1", *words)
    said_of_clock = faults.note(Fault("clock", seconds=90)) if words[0] == "clock" else None
    note = f"{said_of_clock}\n" if said_of_clock and code == 0 else ""
    assert ended == (code, out + note, err)
