"""Records of a practice cluster: what runs, and which addresses are in use."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from ascendboot.lab.host import LabError, ProcessId, run
from ascendboot.lab.shape import Shape
from ascendboot.model.files import held, write_atomically
from ascendboot.value import Value, as_json, from_json

ROOT = Path("/run/ascendboot-lab")
_RECORD = "lab.json"
_PATIENCE_S = 600.0
"""Many nodes with containers take minutes to come up."""
_POLL_S = 0.05


class Record(Value):
    """One lab: its shape, its owner, and whether it was ever complete."""

    shape: Shape
    directory: Path
    """The operator's working directory."""
    uid: int
    gid: int
    boot_id: str
    """The boot id of the machine when it was created: processes end with the boot."""
    ready: bool = False

    @property
    def runs(self) -> bool:
        """Whether it is complete, and was brought up since the machine's boot."""
        return self.ready and self.boot_id == current_boot_id()

    @property
    def folder(self) -> Path:
        """The folder of this lab's state."""
        return ROOT / self.shape.lab_id

    def disk(self, node: str) -> Path:
        """The mount point of the node's disk."""
        return self.folder / node

    def log(self, node: str) -> Path:
        """The output of the node's boot."""
        return self.folder / f"{node}.log"

    def process(self, node: str) -> ProcessId | None:
        """The node's PID 1 while it runs."""
        path = self.folder / f"{node}.pid"
        if self.boot_id != current_boot_id() or not path.is_file():
            return None
        process = ProcessId.parsed(path.read_text())
        return process if process and process.alive else None

    def save(self) -> None:
        """Write the record, making the folder."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        members = as_json(self)
        shape = members.pop("shape")
        text = json.dumps({**shape, **members}, indent=1)
        write_atomically(self.folder / _RECORD, text.encode())


def current_boot_id() -> str:
    """The number of the machine's current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@contextmanager
def locked(
    *,
    patience_s: float = _PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock of all labs on this machine; LabError if it is not free in `patience_s`."""
    ROOT.mkdir(mode=0o700, exist_ok=True)
    lock, deadline = ROOT / "lock", clock() + patience_s
    while True:
        with held(lock, f"pid {os.getpid()}") as other:
            if other is None:
                yield
                return
        if clock() >= deadline:
            raise LabError(
                f"lab: could not begin: another lab.up, lab.down or lab.fault on this machine has "
                f"been at work for {patience_s:g} s; see what it does: fuser -v {lock}"
            )
        pause(_POLL_S)


def recorded() -> list[Record]:
    """All labs, complete or not, without unreadable records."""
    if not ROOT.is_dir():
        return []
    found = (_read(path) for path in sorted(ROOT.glob(f"*/{_RECORD}")))
    return [record for record in found if record]


def of_directory(directory: Path) -> Record | None:
    """The lab of a working directory."""
    return next((r for r in recorded() if r.directory == directory), None)


def of_id(lab_id: str) -> Record | None:
    """The lab with this id."""
    return next((r for r in recorded() if r.shape.lab_id == lab_id), None)


def forget(folder: Path) -> None:
    """Unmount everything below the folder of a lab or node, and remove the folder."""
    while places := mounts_below(folder):
        run(["umount", "-n", "-l", *map(str, places)], purpose=f"unmount what is below {folder}")
    if folder.exists():
        shutil.rmtree(folder)


def mounts_below(folder: Path) -> list[Path]:
    """The mount points at and below a folder, innermost first.

    Mounts that another one hides do not count: a namespace with a /run of its own keeps them in its
    table, and cannot unmount them.
    """
    table = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    places = [(Path(fields[4]), fields[0]) for fields in table]
    below = [(place, number) for place, number in places if place.is_relative_to(folder)]
    return sorted((place for place, number in below if _mount_at(place) == number), reverse=True)


def _mount_at(path: Path) -> str | None:
    """The number of the mount that a path leads to."""
    try:
        handle = os.open(path, os.O_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return None
    info = Path(f"/proc/self/fdinfo/{handle}").read_text()
    os.close(handle)
    return info.partition("mnt_id:")[2].split()[0]


def _read(path: Path) -> Record | None:
    try:
        members = json.loads(path.read_text())
        return from_json({"shape": members, **members}, Record)
    except (OSError, TypeError, ValueError):
        return None


_SHORTEST_PREFIX = 8
"""Wider routes are default routes in effect; the narrower route of a lab wins."""


class UsedRange(Value):
    """A range of addresses that this machine reaches already, and by what."""

    network: IPv4Network
    holder: str


def used_ranges(own_interfaces: Iterable[str]) -> list[UsedRange]:
    """The ranges that this machine reaches, without interfaces of known labs."""
    argv = ["ip", "-json", "-4", "route", "show", "table", "all"]
    return route_ranges(json.loads(run(argv, purpose="list routes")), set(own_interfaces))


def route_ranges(routes: Iterable[dict[str, Any]], skip: set[str]) -> list[UsedRange]:
    """The ranges in the output of `ip -json route`; default routes do not count.

    Every address of the machine has a route to its network.
    """
    ranges = []
    for route in routes:
        device = route.get("dev", "")
        if route["dst"] == "default" or device in skip:
            continue
        network = IPv4Network(route["dst"], strict=False)
        if network.prefixlen >= _SHORTEST_PREFIX:
            via = f" on {device}" if device else ""
            ranges.append(UsedRange(network, f"the route to {network}{via}"))
    return ranges


def conflicts(shape: Shape, ranges: Iterable[UsedRange]) -> list[str]:
    """The networks of `shape` that are in use, each with its holder."""
    found: list[str] = []
    for network in (shape.management, shape.npu):
        holders = [used.holder for used in ranges if used.network.overlaps(network)]
        found.extend(f"{network} is used by {holder}" for holder in holders[:1])
    return found


def labs_collide(one: Shape, other: Shape) -> bool:
    """Whether two labs cannot run side by side.

    A lab inside a range of a wider one can, if no address of the wider one is in it: the narrower
    route wins on the machine. So tests run beside the default lab, which is a /16.
    """
    labs = (one, other)
    wide, narrow = sorted(labs, key=lambda lab: lab.management.prefixlen)
    on_management = {wide.operator_address, *(node.address for node in wide.nodes)}
    wide_npu, narrow_npu = sorted(labs, key=lambda lab: lab.npu.prefixlen)
    devices = (device for node in wide_npu.nodes for device in node.devices)
    on_npu = {wide_npu.gateway, *(IPv4Address(d.device_ip) for d in devices if d.device_ip)}
    return (
        any(address in narrow.management for address in on_management)
        or any(address in narrow_npu.npu for address in on_npu)
        or one.management.overlaps(other.npu)
        or one.npu.overlaps(other.management)
    )
