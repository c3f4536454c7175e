"""What really happens to a node when a fault begins and ends; marks alone change the stand-ins."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.lab import delay, wiring
from ascendboot.lab.faults import OF_A_CONTAINER, Marks
from ascendboot.lab.files import ours
from ascendboot.lab.node import DISK_OPTIONS, execute, wait_until_up
from ascendboot.lab.programs import LabError, run

if TYPE_CHECKING:
    from ascendboot.lab.faults import Fault
    from ascendboot.lab.records import Record
    from ascendboot.lab.shape import LabNode

_STALE = 100
"""How far the address in a stale /etc/hccn.conf is from that of the device; nobody has it."""

_TIMEOUT_S = 60.0
_RESTART_SSHD = """\
if read -r pid </run/sshd.pid && [[ $(</proc/$pid/comm) == sshd ]]; then
  kill "$pid"
  while [[ -e /proc/$pid ]]; do sleep 0.02; done
fi 2>/dev/null
exec /usr/local/Ascend/lab/start-sshd"""
_START_CONTAINER = "exec /usr/local/Ascend/lab/start-container"
"""It makes the container what the marks say."""

_FAKETIME = ("lib", "*/faketime/libfaketime.so.1")


def begin(record: Record, node: LabNode, fault: Fault) -> None:
    """Break for real what the mark of `fault`, which is there already, stands for.

    Raises:
        LabError: it could not be broken.
    """
    if fault.kind == "link-down":
        for number in fault.devices(node):
            wiring.set_link(record.shape, node, number, up=False)
    elif fault.kind == "delay":
        delay.begin(record, node, fault.milliseconds or 0)
    elif fault.kind == "disk-full":
        _fill_disk(record, node)
    elif fault.kind in ("no-sshd", "clock"):
        _in_node(record, node, _RESTART_SSHD)
    elif fault.kind == "stale-hccn-conf":
        _with_room(record, node)
    elif fault.kind in OF_A_CONTAINER:
        _in_node(record, node, _START_CONTAINER)


def end(record: Record, node: LabNode, fault: Fault) -> None:
    """Mend what `fault`, whose mark is gone already, did.

    Raises:
        LabError: it could not be mended.
        NodeError: its sshd does not answer.
    """
    if fault.kind == "link-down" and record.process(node.name):
        for number in fault.devices(node):
            wiring.set_link(record.shape, node, number, up=True)
        wait_for_links(record, node)
    elif fault.kind == "delay":
        delay.end(record, node)
    elif fault.kind == "disk-full":
        _empty_disk(record, node)
    elif fault.kind in ("no-sshd", "clock") and record.process(node.name):
        _in_node(record, node, _RESTART_SSHD)
        wait_until_up(record, node, ssh=not _marks(record, node).of_kind("no-sshd"))
    elif fault.kind == "stale-hccn-conf":
        _with_room(record, node)
    elif fault.kind in OF_A_CONTAINER:
        _in_node(record, node, _START_CONTAINER)


def note(fault: Fault, usr: Path = Path("/usr")) -> str | None:
    """What the operator should know about a fault on this machine; mostly nothing."""
    folder, pattern = _FAKETIME
    if fault.kind != "clock" or any((usr / folder).glob(pattern)):
        return None
    return (
        "Only `date` is off: the node's sshd keeps the machine's clock, because libfaketime is not"
        " installed (Debian package libfaketime)."
    )


def make_room(record: Record, node: LabNode) -> None:
    """Make room on a disk that is full, for a while."""
    if _marks(record, node).of_kind("disk-full"):
        _empty_disk(record, node)


def after_boot(record: Record, node: LabNode) -> None:
    """Break again what a boot mended, and what was broken or mended while the node was down."""
    _write_hccn_conf(record, node)
    _fill_again(record, node)


def wait_for_links(record: Record, node: LabNode) -> None:
    """Return when all links of a node work that should."""
    links_down = _marks(record, node).links_down(node)
    wiring.wait_for_links(record.shape, node, links_down=links_down)


def _with_room(record: Record, node: LabNode) -> None:
    """Write /etc/hccn.conf also where the disk is full."""
    make_room(record, node)
    _write_hccn_conf(record, node)
    _fill_again(record, node)


def _fill_again(record: Record, node: LabNode) -> None:
    if _marks(record, node).of_kind("disk-full"):
        _fill_disk(record, node)


def _fill_disk(record: Record, node: LabNode) -> None:
    script = ours("fill-disk")
    run(
        ["bash", "-s", "--", str(record.disk(node.name))],
        purpose=f"fill the disk of {node.name}",
        text=script,
    )
    _in_node(record, node, script, "/tmp")  # noqa: S108 - the node's


def _empty_disk(record: Record, node: LabNode) -> None:
    options = f"remount,{DISK_OPTIONS}"
    disk = str(record.disk(node.name))
    run(["mount", "-n", "-o", options, disk], purpose=f"make room on the disk of {node.name}")
    _in_node(record, node, f"mount -n -o {options} /tmp && rm -f /tmp/.full")


def _write_hccn_conf(record: Record, node: LabNode) -> None:
    """Make the addresses stale or right, as marked; what somebody else wrote there stays."""
    stale = _marks(record, node).devices("stale-hccn-conf", node)
    edits = []
    for device in node.devices:
        right = device.device_ip or ""
        wrong = str(IPv4Address(right) + _STALE)
        before, after = (right, wrong) if device.device_id in stale else (wrong, right)
        key = f"address_{device.device_id}"
        edits.append(f"s/^{key}={before}$/{key}={after}/")
    # sed -i would write the file also where nothing changes.
    script = """\
conf=/etc/hccn.conf
[[ -e $conf ]] || exit 0
after=$(sed "$1" "$conf") && [[ $after == "$(<"$conf")" ]] || sed -i "$1" "$conf\""""
    _in_node(record, node, script, ";".join(edits))


def _in_node(record: Record, node: LabNode, script: str, *words: str) -> None:
    """Run a script in the node; one that is down is left alone.

    Raises:
        LabError: it failed.
    """
    process = record.process(node.name)
    if process is None:
        return
    argv = ["bash", "-c", script, "bash", *words]
    done = execute(node, process, argv, stdin=b"", timeout_s=_TIMEOUT_S)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise LabError(
            f"{node.name}: could not change the fault: bash exited {done.returncode}: {said[-1]};"
            " try invoke lab.status"
        )


def _marks(record: Record, node: LabNode) -> Marks:
    return Marks.on(record.disk(node.name))
