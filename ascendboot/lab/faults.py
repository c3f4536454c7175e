"""Faults on demand: each is a mark on the node's disk, plus what really happens to the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.lab.shape import LabNode

KINDS = (
    *("node-down", "link-down", "npu-missing", "npu-alarm", "tls", "stale-hccn-conf", "busy"),
    *("no-sshd", "disk-full", "delay", "clock"),
    *("container-stopped", "container-gone", "no-container-sshd"),
)
OF_A_CONTAINER = ("container-stopped", "container-gone", "no-container-sshd")
OF_A_DEVICE = ("link-down", "npu-missing", "npu-alarm", "tls", "stale-hccn-conf", "busy")
DEFAULT_MILLISECONDS = 25
DEFAULT_SECONDS = 90

_MOST_MILLISECONDS = 1000
_ALWAYS = "always"


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with a node, or with one of its NPUs."""

    kind: str
    device: int | None = None
    """None: the node itself, or all of its NPUs."""
    times: int | None = None
    """For `busy`: how many calls are still to be refused; None: all."""
    milliseconds: int | None = None
    """For `delay`: how much later everything arrives, each way."""
    seconds: int | None = None
    """For `clock`: how far it is ahead, or behind when negative."""

    @classmethod
    def asked(
        cls,
        node: LabNode,
        kind: str,
        *,
        device: int | None = None,
        times: int | None = None,
        milliseconds: int | None = None,
        seconds: int | None = None,
    ) -> Fault:
        """The fault that the operator asks for.

        Raises:
            UsageError: there is no such fault, or not with these options.
        """
        if kind not in KINDS:
            raise UsageError(f'lab.fault: no fault "{kind}"; there are {", ".join(KINDS)}')
        if device is not None and kind not in OF_A_DEVICE:
            raise UsageError(f"lab.fault: {kind} is a fault of a node; leave out --device")
        if device is not None and not 0 <= device < len(node.devices):
            raise UsageError(
                f"lab.fault: {node.name} has no device {device}; it has 0 to"
                f" {len(node.devices) - 1}"
            )
        if times is not None and (kind != "busy" or times < 1):
            raise UsageError("lab.fault: --times counts refused calls, from 1, of busy only")
        if milliseconds is not None and (
            kind != "delay" or not 1 <= milliseconds <= _MOST_MILLISECONDS
        ):
            raise UsageError(
                f"lab.fault: --milliseconds is how long delay delays, from 1 to"
                f" {_MOST_MILLISECONDS}, and of no other fault"
            )
        if seconds is not None and (kind != "clock" or seconds == 0):
            raise UsageError(
                "lab.fault: --seconds is how far clock is ahead, or behind with a minus, not 0,"
                " and of no other fault"
            )
        if kind == "delay":
            milliseconds = milliseconds or DEFAULT_MILLISECONDS
        if kind == "clock":
            seconds = seconds or DEFAULT_SECONDS
        return cls(kind, device, times, milliseconds, seconds)

    @property
    def mark(self) -> str:
        """The name of the file that stands for it."""
        return self.kind if self.device is None else f"{self.kind}.{self.device}"

    @property
    def amount(self) -> int | None:
        """How many or how much, for kinds that have that."""
        return next(
            (n for n in (self.times, self.milliseconds, self.seconds) if n is not None), None
        )

    def devices(self, node: LabNode) -> range:
        """The devices that it is about."""
        if self.device is None:
            return range(len(node.devices))
        return range(self.device, self.device + 1)


@dataclass(frozen=True)
class Marks:
    """The faults of one node, as files on its disk, where the stand-ins see them too."""

    folder: Path

    @classmethod
    def on(cls, disk: Path) -> Marks:
        """The marks on a node's disk."""
        return cls(disk / "lab/faults")

    def add(self, fault: Fault) -> None:
        """Note a fault."""
        amount = _ALWAYS if fault.amount is None else str(fault.amount)
        mark = self.folder.joinpath(fault.mark)
        mark.write_text(f"{amount}\n")
        mark.chmod(0o666)  # the stand-ins count down, whoever runs them

    def clear(self, fault: Fault) -> None:
        """Note that a fault is over; one of all devices includes those of each."""
        marks = [fault.mark]
        if fault.device is None:
            marks += [path.name for path in self.folder.glob(f"{fault.kind}.*")]
        for mark in marks:
            self.folder.joinpath(mark).unlink(missing_ok=True)

    def present(self) -> list[Fault]:
        """The faults there are, by kind and device; a `busy` that is used up is over."""
        if not self.folder.is_dir():
            return []
        found = (_read(path) for path in self.folder.iterdir())
        return sorted(
            (f for f in found if f), key=lambda f: (f.kind, -1 if f.device is None else f.device)
        )

    def of_kind(self, kind: str) -> Fault | None:
        """The fault of a whole node of this kind, or None."""
        return next((f for f in self.present() if f.kind == kind and f.device is None), None)

    def devices(self, kind: str, node: LabNode) -> set[int]:
        """The devices that have this fault."""
        faults = (fault for fault in self.present() if fault.kind == kind)
        return {device for fault in faults for device in fault.devices(node)}

    def links_down(self, node: LabNode) -> set[int]:
        """The devices whose link is to stay down."""
        return self.devices("link-down", node)


def _read(path: Path) -> Fault | None:
    kind, _, device = path.name.partition(".")
    word = path.read_text().strip()
    if word == "0":
        return None
    amount = None if word == _ALWAYS else int(word)
    return Fault(
        kind,
        int(device) if device else None,
        times=amount if kind == "busy" else None,
        milliseconds=amount if kind == "delay" else None,
        seconds=amount if kind == "clock" else None,
    )
