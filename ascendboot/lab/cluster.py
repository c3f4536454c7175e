"""The practice cluster as a whole: bring it up, ask it, break it, mend it, take it down."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, NodeError, UsageError
from ascendboot.lab import claims, containers, delay, effects, records, wiring
from ascendboot.lab.faults import OF_A_CONTAINER, Fault, Marks
from ascendboot.lab.handover import Handover
from ascendboot.lab.node import boot, execute, mount_disk, wait_until_up
from ascendboot.lab.processes import ProcessId, kill_all
from ascendboot.lab.programs import LabError, RangeInUseError, need_programs, run
from ascendboot.lab.records import Record
from ascendboot.lab.shape import prefix_of
from ascendboot.lab.staging import Surroundings, host_keys, make_key, stage

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from ascendboot.lab.shape import LabNode, Shape

_KEY = "operator_key"
_KILL_TIMEOUT_S = 10.0
_MENDED_FIRST = {"node-down": -2, "disk-full": -1}
"""Of these, the others may need to be mended, the least first."""

_MADE_NAMESPACE_FOLDER = "made-run-netns"


class Lab:
    """A practice cluster that was brought up."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.shape = record.shape
        self.nodes = record.shape.nodes
        self.directory = record.directory
        self._handover = Handover.of(record)

    @property
    def lab_id(self) -> str:
        """Its name on this machine."""
        return self.shape.lab_id

    @property
    def inventory(self) -> Path:
        """The inventory of its nodes, in the working directory."""
        return self._handover.inventory

    @property
    def identity(self) -> Path:
        """The operator's private key, in the working directory."""
        return self._handover.identity

    @property
    def known_hosts(self) -> Path:
        """The known host keys, in the working directory."""
        return self._handover.known_hosts

    def node(self, name: str) -> LabNode:
        """The node called `name`.

        Raises:
            UsageError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        raise UsageError(f'lab: no node "{name}"; there are lab-1 to lab-{len(self.nodes)}')

    def process(self, name: str) -> ProcessId | None:
        """PID 1 of a node, or None while the node is down."""
        return self._record.process(self.node(name).name)

    def exec(
        self,
        node: str,
        argv: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as in subprocess.run
        check: bool = True,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program in a node, as root, past its sshd; with a clean environment.

        Raises:
            NodeError: the node is down.
            CommandError: no end within `timeout_s`, or with `check` an exit code other than 0.
        """
        target = self.node(node)
        process = self._record.process(node)
        if process is None:
            raise NodeError(node, f"could not run {argv[0]}: the node is down; mend it or lab.up")
        done = execute(target, process, argv, stdin=input, timeout_s=timeout_s)
        if check and done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            words = said.splitlines() or ["it said nothing"]
            raise CommandError(
                node, f"could not run {argv[0]}: it exited {done.returncode}: {words[-1]}"
            )
        return done

    def faults(self, node: str) -> list[Fault]:
        """What is wrong with a node, as far as lab.fault did it."""
        return self._marks(self.node(node)).present()

    def fault(
        self,
        node: str,
        kind: str,
        *,
        device: int | None = None,
        times: int | None = None,
        milliseconds: int | None = None,
        seconds: int | None = None,
    ) -> Fault:
        """Break something; what is broken already stays so.

        Raises:
            UsageError: there is no such node or fault.
            LabError: this machine cannot do it; then nothing is broken.
        """
        target = self.node(node)
        if kind in OF_A_CONTAINER and not self.shape.containers:
            raise UsageError(
                f"lab.fault: {kind} is a fault of a container, and this lab has none; say"
                " invoke lab.down, then invoke lab.up --containers"
            )
        fault = Fault.asked(
            target, kind, device=device, times=times, milliseconds=milliseconds, seconds=seconds
        )
        with records.locked():
            self._marks(target).add(fault)
            if kind == "node-down":
                self._power_off(target)
                return fault
            try:
                effects.begin(self._record, target, fault)
            except LabError:
                self._marks(target).clear(fault)
                raise
        return fault

    def undo(self, node: str, kind: str, *, device: int | None = None) -> Fault:
        """Take a fault back; without `device`, for all devices. What is not broken stays so.

        Raises:
            UsageError: there is no such node or fault.
            NodeError: the node did not boot again.
        """
        target = self.node(node)
        fault = Fault.asked(target, kind, device=device)
        with records.locked():
            marks = self._marks(target)
            before = marks.present()
            self._keep_others(marks, fault)
            marks.clear(fault)
            if kind == "node-down":
                self._power_on(target)
            elif marks.present() != before:
                effects.end(self._record, target, fault)
        return fault

    def heal(self) -> None:
        """Take back every fault of every node."""
        for node in self.nodes:
            present = self.faults(node.name)
            for fault in sorted(present, key=lambda f: _MENDED_FIRST.get(f.kind, 0)):
                self.undo(node.name, fault.kind, device=fault.device)

    def _marks(self, node: LabNode) -> Marks:
        return Marks.on(self._record.disk(node.name))

    def _keep_others(self, marks: Marks, fault: Fault) -> None:
        """Turn a fault of all devices into one of each, where only one is taken back."""
        whole = replace(fault, device=None)
        same = next((f for f in marks.present() if f.mark == whole.mark), None)
        if fault.device is None or same is None:
            return
        marks.clear(whole)
        for number in range(self.shape.device_count):
            marks.add(replace(same, device=number))

    def _power_off(self, node: LabNode) -> None:
        process = self._record.process(node.name)
        if process:
            _end([process])
        wiring.set_node_power(self.shape, node, on=False, links_down=())

    def _power_on(self, node: LabNode) -> None:
        marks = self._marks(node)
        wiring.set_node_power(self.shape, node, on=True, links_down=marks.links_down(node))
        if self._record.process(node.name):
            return
        effects.make_room(self._record, node)
        boot(self._record, node)
        wait_until_up(self._record, node, ssh=not marks.of_kind("no-sshd"))
        effects.wait_for_links(self._record, node)
        effects.after_boot(self._record, node)


def up(
    shape: Shape,
    *,
    directory: Path,
    project: Path | None = None,
    owner: tuple[int, int] | None = None,
) -> Lab:
    """Bring a lab up for a working directory; one that runs there in the same shape is kept.

    `project` is the checkout that the nodes see, `owner` gets the files written in `directory`.

    Raises:
        LabError: a program is missing, a range is in use, another shape runs, or a part failed;
            then nothing of it is left.
        NodeError: a node did not boot; then nothing of the lab is left.
    """
    need_programs()
    if shape.containers:
        containers.need_containers(Path("/proc/self/mounts").read_text())
    directory = directory.resolve()
    uid, gid = owner or (os.getuid(), os.getgid())
    with records.locked():
        running = records.of_directory(directory)
        if running and not _is_whole(running):
            _take_down(running.shape.lab_id)
        elif running:
            return _same_again(running, shape)
        _refuse_what_is_used(shape)
        record = Record(shape, directory, uid, gid, records.current_boot_id())
        try:
            _build(record, Surroundings.of_this_process(directory, project))
        except BaseException:
            with suppress(LabError):
                _take_down(shape.lab_id)
            raise
        record = replace(record, ready=True)
        record.save()
    return Lab(record)


def down(lab_id: str) -> None:
    """Take a lab down, whole or in parts; none at all is fine.

    Raises:
        LabError: something of it would not go.
    """
    with records.locked():
        _take_down(lab_id)


def find(directory: Path, lab_id: str | None = None) -> Lab | None:
    """The lab with this id, or else the one of this working directory."""
    record = records.of_id(lab_id) if lab_id else records.of_directory(directory.resolve())
    return Lab(record) if record else None


def remains(lab_id: str) -> bool:
    """Whether anything is left of a lab, be it without its record."""
    return (records.ROOT / lab_id).exists() or bool(wiring.existing(prefix_of(lab_id)))


def _is_whole(record: Record) -> bool:
    return record.ready and record.boot_id == records.current_boot_id()


def _same_again(running: Record, shape: Shape) -> Lab:
    if running.shape != shape:
        raise LabError(
            f"lab: could not bring up {shape.described()}: a lab of {running.shape.described()}"
            f" runs for {running.directory}; say invoke lab.down first"
        )
    _hand_over(running)
    return Lab(running)


def _refuse_what_is_used(shape: Shape) -> None:
    labs = records.recorded()
    known = any(record.shape.lab_id == shape.lab_id for record in labs)
    if not known and wiring.existing(shape.prefix):
        raise LabError(
            f"lab: could not bring up {shape.described()}: {shape.prefix}* is left over from a lab"
            f" whose record is gone; remove it with invoke lab.down --lab {shape.lab_id}"
        )
    interfaces = [record.shape.prefix for record in labs]
    problems = claims.conflicts(shape, claims.claims_of_machine(interfaces))
    problems += [
        f"{shape.management} or {shape.npu} is used by the lab {record.shape.lab_id} of"
        f" {record.directory} ({record.shape.described()})"
        for record in labs
        if claims.labs_collide(record.shape, shape)
    ]
    if problems:
        raise RangeInUseError(
            f"lab: could not bring up {shape.described()}: {'; '.join(problems)};"
            " take other ranges with --network MANAGEMENT,NPU"
        )


def _build(record: Record, surroundings: Surroundings) -> None:
    _note_namespace_folder()
    record.save()
    make_key(record.folder / _KEY, "ed25519", "ascendboot-lab")
    public = (record.folder / f"{_KEY}.pub").read_text()
    wiring.build(record.shape)
    for node in record.shape.nodes:
        mount_disk(record, node)
        disk = record.disk(node.name)
        stage(disk, record.shape, node, operator_key=public, surroundings=surroundings)
    _hand_over(record)  # before the boot: a node hides this folder if it sees the directory
    for node in record.shape.nodes:
        boot(record, node)
    for node in record.shape.nodes:
        wait_until_up(record, node)
        wiring.wait_for_links(record.shape, node)


def _hand_over(record: Record) -> None:
    keys = {node.name: host_keys(record.disk(node.name)) for node in record.shape.nodes}
    private = (record.folder / _KEY).read_text()
    handover = Handover.of(record)
    try:
        handover.write(record.shape, private, keys)
    except OSError as error:
        raise LabError(
            f"lab: could not write {handover.inventory.parent}: {error.strerror}:"
            f" {error.filename}; make room for it or work in another directory"
        ) from error


def _take_down(lab_id: str) -> None:
    record = records.of_id(lab_id)
    if record:
        processes = (record.process(node.name) for node in record.shape.nodes)
        _end([process for process in processes if process])
        for node in record.shape.nodes:
            delay.end_wire(record, node)
            containers.remove_cgroups(record.disk(node.name))
    wiring.take_down(prefix_of(lab_id))
    for place in records.mounts_below(records.ROOT / lab_id):
        run(["umount", "-n", "-l", str(place)], purpose=f"unmount {place}")
    if record:
        with suppress(NotADirectoryError):
            Handover.of(record).remove()
    records.forget(lab_id)
    _remove_namespace_folder()


def _end(processes: Sequence[ProcessId]) -> None:
    left = kill_all(processes, timeout_s=_KILL_TIMEOUT_S)
    if left:
        raise LabError(
            f"lab: could not end process {left[0].pid}: it lives {_KILL_TIMEOUT_S:g} s after"
            " SIGKILL; say invoke lab.down again"
        )


def _note_namespace_folder() -> None:
    """Remember that /run/netns was not there, to remove it with the last lab."""
    if not wiring.NAMESPACES.exists():
        (records.ROOT / _MADE_NAMESPACE_FOLDER).touch()


def _remove_namespace_folder() -> None:
    note = records.ROOT / _MADE_NAMESPACE_FOLDER
    if records.recorded() or not note.exists():
        return
    note.unlink()
    if not wiring.NAMESPACES.is_dir() or any(wiring.NAMESPACES.iterdir()):
        return
    while records.is_mounted(wiring.NAMESPACES):
        run(["umount", "-n", str(wiring.NAMESPACES)], purpose="unmount /run/netns")
    wiring.NAMESPACES.rmdir()
