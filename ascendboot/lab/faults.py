"""Faults of a practice cluster."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from ascendboot.errors import UsageError
from ascendboot.lab import links
from ascendboot.lab.host import LabError, did_you_mean, last_line, ours, run
from ascendboot.lab.node import DISK_OPTIONS, execute, wait_until_up
from ascendboot.lab.records import Record
from ascendboot.lab.shape import LabNode
from ascendboot.value import Value, replace

KINDS = (
    *("node-down", "link-down", "npu-missing", "npu-alarm", "tls", "stale-hccn-conf", "busy"),
    *("link-flaps", "net-health", "packet-errors", "ecc-errors", "npu-slow", "npu-broken"),
    *("no-sshd", "disk-full", "delay", "clock"),
    *("container-stopped", "container-gone", "container-restart", "no-container-sshd"),
)
RESTART = "container-restart"
"""The one that is over at once: it leaves no mark, and has no end."""
NOT_THERE = ("container-gone", "container-stopped")
OF_A_CONTAINER = (*NOT_THERE, RESTART, "no-container-sshd")
COUNTED = ("link-flaps", "packet-errors", "ecc-errors")
OF_A_DEVICE = (
    *("link-down", "npu-missing", "npu-alarm", "tls", "stale-hccn-conf", "busy", "net-health"),
    *("npu-slow", "npu-broken", *COUNTED),
)
DEFAULT_MILLISECONDS = 25
DEFAULT_SECONDS = 90

_MOST_MILLISECONDS = 1000
_ALWAYS = "always"
_AMOUNTS = {
    "busy": ("times", None),
    **dict.fromkeys(COUNTED, ("times", 1)),
    "delay": ("milliseconds", DEFAULT_MILLISECONDS),
    "clock": ("seconds", DEFAULT_SECONDS),
}
"""The field that has the number of a fault, and its default."""


class Fault(Value):
    """A fault of a node, or of one of its NPUs."""

    kind: str
    device: int | None = None
    """None: the node itself, or all its NPUs."""
    times: int | None = None
    """For `busy`: how many calls it still refuses; None: all. For `COUNTED`: how many there are."""
    milliseconds: int | None = None
    """For `delay`: the delay in each direction."""
    seconds: int | None = None
    """For `clock`: how far it is ahead; negative: behind."""

    @classmethod
    def requested(cls, node: LabNode, kind: str, **options: int | None) -> Fault:
        """The fault that the operator requests; UsageError if there is none with these fields."""
        fault = cls(kind, **options)
        device, seconds = fault.device, fault.seconds
        if kind not in KINDS:
            hint = f"{', '.join(KINDS)}{did_you_mean(kind, KINDS)}"
            raise UsageError(f'lab.fault: no fault "{kind}"; there are {hint}')
        if device is not None and kind not in OF_A_DEVICE:
            raise UsageError(f"lab.fault: {kind} is a fault of a node; leave out --device")
        if device is not None and not 0 <= device < len(node.devices):
            why = f"{node.name} has no device {device}; it has 0 to {len(node.devices) - 1}"
            raise UsageError(f"lab.fault: {why}")
        if fault.times is not None and (kind not in ("busy", *COUNTED) or fault.times < 1):
            counted = f"refused calls of busy, or {', '.join(COUNTED)}"
            raise UsageError(f"lab.fault: --times counts, from 1, {counted}; no other fault")
        milliseconds = fault.milliseconds
        is_possible = kind == "delay" and 1 <= (milliseconds or 0) <= _MOST_MILLISECONDS
        if milliseconds is not None and not is_possible:
            why = f"from 1 to {_MOST_MILLISECONDS}, and of no other fault"
            raise UsageError(f"lab.fault: --milliseconds is how long delay delays, {why}")
        if seconds is not None and (kind != "clock" or seconds == 0):
            why = "or behind with a minus, not 0, and of no other fault"
            raise UsageError(f"lab.fault: --seconds is how far clock is ahead, {why}")
        name, default = _AMOUNTS.get(kind, ("times", None))
        return replace(fault, **{name: getattr(fault, name) or default})

    @property
    def mark(self) -> str:
        """The name of its mark file."""
        return self.kind if self.device is None else f"{self.kind}.{self.device}"

    @property
    def amount(self) -> int | None:
        """The number, milliseconds or seconds, if the kind has one."""
        return getattr(self, _AMOUNTS[self.kind][0]) if self.kind in _AMOUNTS else None

    def devices(self, node: LabNode) -> range:
        """The affected devices."""
        if self.device is None:
            return range(len(node.devices))
        return range(self.device, self.device + 1)


class Marks(Value):
    """The faults of one node, as files on its disk that the stand-ins read, too."""

    folder: Path

    def add(self, fault: Fault) -> None:
        """Write the mark of a fault."""
        amount = _ALWAYS if fault.amount is None else str(fault.amount)
        mark = self.folder.joinpath(fault.mark)
        mark.write_text(f"{amount}\n")
        mark.chmod(0o666)  # the stand-ins count down, as any user

    def clear(self, fault: Fault) -> None:
        """Remove the mark of a fault; a fault of all devices includes those of each."""
        marks = [fault.mark]
        if fault.device is None:
            marks += [path.name for path in self.folder.glob(f"{fault.kind}.*")]
        for mark in marks:
            self.folder.joinpath(mark).unlink(missing_ok=True)

    def present(self) -> list[Fault]:
        """The current faults by kind and device, without a `busy` that is used up."""
        if not self.folder.is_dir():
            return []
        found = filter(None, map(_read, self.folder.iterdir()))
        return sorted(found, key=lambda f: (f.kind, -1 if f.device is None else f.device))

    def of_kind(self, kind: str) -> Fault | None:
        """The fault of a whole node of this kind, or None."""
        return next((f for f in self.present() if f.kind == kind and f.device is None), None)

    def devices(self, kind: str, node: LabNode) -> set[int]:
        """The devices that have this fault."""
        faults = (fault for fault in self.present() if fault.kind == kind)
        return {device for fault in faults for device in fault.devices(node)}


def _read(path: Path) -> Fault | None:
    kind, _, device = path.name.partition(".")
    word = path.read_text().strip()
    if word == "0":
        return None
    amount = {_AMOUNTS[kind][0]: int(word)} if kind in _AMOUNTS and word != _ALWAYS else {}
    return Fault(kind, int(device) if device else None, **amount)


_STALE = 100
"""The difference of a wrong address in /etc/hccn.conf; no device has that address."""

_TIMEOUT_S = 60.0


def apply(record: Record, node: LabNode, fault: Fault, *, begins: bool) -> None:
    """Start or end a fault whose mark changed; NodeError if its sshd is silent after the end."""
    runs = record.process(node.name) is not None
    if fault.kind == "link-down" and (begins or runs):
        for number in fault.devices(node):
            links.set_link(record.shape, node, number, up=not begins)
        if not begins:
            wait_for_links(record, node)
    elif fault.kind == "delay":
        links.delay(record, node, fault.milliseconds or 0 if begins else 0)
    elif fault.kind == "disk-full":
        (_fill_disk if begins else _empty_disk)(record, node)
    elif fault.kind in ("no-sshd", "clock"):
        _in_node(record, node, ours("restart-sshd"))
        if runs and not begins:
            wait_until_up(record, node, ssh=not marks_of(record, node).of_kind("no-sshd"))
    elif fault.kind == "stale-hccn-conf":
        make_room(record, node)  # /etc/hccn.conf changes also on a full disk
        after_boot(record, node)
    elif fault.kind in OF_A_CONTAINER:
        # It sets the container to the state of the marks.
        once = "restart" if fault.kind == RESTART else ""
        _in_node(record, node, "exec /usr/local/Ascend/lab/start-container $1", once)


def note(fault: Fault, usr: Path = Path("/usr")) -> str | None:
    """The part of a fault that does not work on this machine, if any."""
    if fault.kind != "clock" or any((usr / "lib").glob("*/faketime/libfaketime.so.1")):
        return None
    return (
        "Only `date` is off: the node's sshd keeps the machine's clock, because libfaketime is not"
        " installed (Debian package libfaketime)."
    )


def make_room(record: Record, node: LabNode) -> None:
    """Free the disk of a node with the fault `disk-full`."""
    if marks_of(record, node).of_kind("disk-full"):
        _empty_disk(record, node)


def after_boot(record: Record, node: LabNode) -> None:
    """Apply faults that a boot undid, and those that changed while the node was down."""
    marks = marks_of(record, node)
    stale = marks.devices("stale-hccn-conf", node)
    edits = []  # other addresses stay
    for device in node.devices:
        right = device.device_ip or ""
        wrong = str(IPv4Address(right) + _STALE)
        before, after = (right, wrong) if device.device_id in stale else (wrong, right)
        key = f"address_{device.device_id}"
        edits.append(f"s/^{key}={before}$/{key}={after}/")
    _in_node(record, node, ours("edit-hccn-conf"), ";".join(edits))
    if marks.of_kind("disk-full"):
        _fill_disk(record, node)


def wait_for_links(record: Record, node: LabNode) -> None:
    """Wait until the links of a node without link faults are up."""
    links_down = marks_of(record, node).devices("link-down", node)
    links.wait_for_links(record.shape, node, links_down=links_down)


def _fill_disk(record: Record, node: LabNode) -> None:
    script, argv = ours("fill-disk"), ["bash", "-s", "--", str(record.disk(node.name))]
    run(argv, purpose=f"fill the disk of {node.name}", text=script)
    _in_node(record, node, script, "/tmp")  # noqa: S108 - the node's


def _empty_disk(record: Record, node: LabNode) -> None:
    options = f"remount,{DISK_OPTIONS}"
    disk = str(record.disk(node.name))
    run(["mount", "-n", "-o", options, disk], purpose=f"make room on the disk of {node.name}")
    _in_node(record, node, f"mount -n -o {options} /tmp && rm -f /tmp/.full")


def _in_node(record: Record, node: LabNode, script: str, *words: str) -> None:
    """Run a script in the node unless it is down; LabError if it failed."""
    process = record.process(node.name)
    if process is None:
        return
    argv = ["bash", "-c", script, "bash", *words]
    done = execute(node, process, argv, stdin=b"", timeout_s=_TIMEOUT_S)
    if done.returncode:
        why = f"bash exited {done.returncode}: {last_line(done.stderr)}; try lab.status"
        raise LabError(f"{node.name}: could not change the fault: {why}")


def marks_of(record: Record, node: LabNode) -> Marks:
    """The faults of a node."""
    return Marks(record.disk(node.name) / "lab/faults")
