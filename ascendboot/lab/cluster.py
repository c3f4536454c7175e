"""A practice cluster that was brought up: ask it, break it, mend it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, NodeError, UsageError
from ascendboot.lab import effects, records, wiring
from ascendboot.lab.faults import OF_A_CONTAINER, Fault, Marks
from ascendboot.lab.handover import Handover
from ascendboot.lab.node import boot, end_all, execute, wait_until_up
from ascendboot.lab.programs import LabError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from ascendboot.lab.processes import ProcessId
    from ascendboot.lab.records import Record
    from ascendboot.lab.shape import LabNode

_MENDED_FIRST = {"node-down": -2, "disk-full": -1}
"""Of these, the others may need to be mended, the least first."""


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
            end_all([process])
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


def find(directory: Path, lab_id: str | None = None) -> Lab | None:
    """The lab with this id, or else the one of this working directory."""
    record = records.of_id(lab_id) if lab_id else records.of_directory(directory.resolve())
    return Lab(record) if record else None
