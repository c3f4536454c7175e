"""Brings a practice cluster up and down."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ascendboot.errors import CommandError, NodeError, UsageError
from ascendboot.lab import faults, host, links, records
from ascendboot.lab import node as nodes
from ascendboot.lab.faults import OF_A_CONTAINER, RESTART, Fault
from ascendboot.lab.records import Record
from ascendboot.lab.shape import LabNode, Shape, hosts_text, prefix_of
from ascendboot.model.files import fingerprint, write_atomically
from ascendboot.value import Value, as_json, replace

CLUSTER = "lab"
_FOLDER = Path(".ascendboot")
INVENTORY = _FOLDER / "lab.yaml"
_IDENTITY = _FOLDER / "lab/id_ed25519"
_KNOWN_HOSTS = _FOLDER / "clusters" / CLUSTER / "known_hosts"
_HEAD = """\
# The practice cluster that runs on this machine. Written by lab.up, removed by lab.down.
"""


def inventory_text(shape: Shape, identity: Path, host_keys: Mapping[str, Sequence[str]]) -> str:
    """The inventory of a lab whose nodes have these host keys."""
    defaults = {"user": "root", "identity": str(identity), "devices": shape.device_count}
    if shape.containers:
        defaults["container"] = nodes.NAME
    inventory = {
        "cluster": CLUSTER,
        "nodes": {
            node.name: {
                "address": str(node.address),
                "fingerprint": fingerprint(host_keys[node.name][0]),
            }
            for node in shape.nodes
        },
        "defaults": defaults,
        "code": {"path": "/workspace/little_demo"},
        # Open MPI polls: without this, 16 ranks on two processors take minutes.
        "env": {"OMPI_MCA_mpi_yield_when_idle": 1},
    }
    return _HEAD + yaml.safe_dump(inventory, sort_keys=False, width=1000)


def known_hosts_text(shape: Shape, host_keys: Mapping[str, Sequence[str]]) -> str:
    """The host keys in the format of OpenSSH's known_hosts, by address."""
    lines = (f"{node.address} {key}\n" for node in shape.nodes for key in host_keys[node.name])
    return "".join(lines)


class Lab:
    """A practice cluster that was brought up."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.shape = record.shape
        self.nodes = record.shape.nodes
        self.directory = record.directory
        self.inventory = record.directory / INVENTORY
        self.identity = record.directory / _IDENTITY
        self.known_hosts = record.directory / _KNOWN_HOSTS

    @property
    def runs(self) -> bool:
        """Whether it was brought up completely, since the machine's boot."""
        return self._record.runs

    @property
    def lab_id(self) -> str:
        """Its name on this machine."""
        return self.shape.lab_id

    def to_json(self) -> dict[str, Any]:
        """Its constant properties, for `--json`."""
        return {
            "lab": self.lab_id,
            "cluster": CLUSTER,
            "directory": str(self.directory),
            "inventory": str(self.inventory),
            "networks": {"management": str(self.shape.management), "npu": str(self.shape.npu)},
            "device_count": self.shape.device_count,
            "containers": self.shape.containers,
        }

    def node(self, name: str) -> LabNode:
        """The node called `name`; UsageError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        hint = host.did_you_mean(name, [node.name for node in self.nodes])
        raise UsageError(f'lab: no node "{name}"; there are lab-1 to lab-{len(self.nodes)}{hint}')

    def process(self, name: str) -> host.ProcessId | None:
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
        """Run a program in a node as root, without sshd, in a clean environment.

        NodeError: the node is down. CommandError: no end within `timeout_s`, or with `check` an
        exit code other than 0.
        """
        target = self.node(node)
        process = self._record.process(node)
        if process is None:
            raise NodeError(node, f"could not run {argv[0]}: the node is down; mend it or lab.up")
        done = nodes.execute(target, process, argv, stdin=input, timeout_s=timeout_s)
        if check and done.returncode:
            why = f"it exited {done.returncode}: {host.last_line(done.stderr or done.stdout)}"
            raise CommandError(node, f"could not run {argv[0]}: {why}")
        return done

    def enter(self, name: str, *, container: bool = False) -> None:
        """Replace this process by a shell in a node or in its container.

        UsageError: there is no such node. NodeError: it is down, or has no container that runs.
        """
        could_not = f"could not open a shell{' in its container' if container else ''}"
        process = self.process(name)
        if process is None:
            raise NodeError(name, f"{could_not}: the node is down; try lab.status")
        inside = []
        if container:
            if not self.shape.containers:
                raise NodeError(name, f"{could_not}: it has none; run lab.shell {name}")
            state = container_state(self, self.node(name))
            if state != "running":
                start = f"run /usr/local/Ascend/lab/start-container in lab.shell {name}"
                raise NodeError(name, f"{could_not}: {nodes.NAME} is {state}; {start}")
            terminal = ["--tty"] if sys.stdin.isatty() else []
            inside = ["podman", "exec", "--interactive", *terminal, nodes.NAME]
        argv = nodes.entry(process, [*inside, "bash", "-l"])
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is involved

    def faults(self, node: str) -> list[Fault]:
        """The faults of a node."""
        return faults.marks_of(self._record, self.node(node)).present()

    def fault(self, node: str, kind: str, **options: int | None) -> Fault:
        """Start a fault with these fields; one that exists already stays.

        UsageError: there is no such node or fault. LabError: this machine cannot do it; then
        nothing has changed.
        """
        target = self.node(node)
        if kind in OF_A_CONTAINER and not self.shape.containers:
            why = f"{kind} is a fault of a container, and this lab has none"
            raise UsageError(f"lab.fault: {why}; run lab.down, then lab.up --containers")
        fault = Fault.requested(target, kind, **options)
        with records.locked():
            marks = faults.marks_of(self._record, target)
            if kind != RESTART:
                marks.add(fault)
            elif not self._record.process(node):
                raise NodeError(node, "could not restart its container: the node is down")
            elif off := next(filter(marks.of_kind, faults.NOT_THERE), None):
                why = f"{off} is in effect; end it: lab.fault {node} {off} --undo"
                raise NodeError(node, f"could not restart its container: {why}")
            if kind == "node-down":
                process = self._record.process(target.name)
                host.kill_all([process] if process else [])
                links.set_node_power(self.shape, target, on=False, links_down=())
                return fault
            try:
                faults.apply(self._record, target, fault, begins=True)
            except host.LabError:
                marks.clear(fault)
                raise
        return fault

    def undo(self, node: str, kind: str, *, device: int | None = None) -> Fault:
        """End a fault; without `device`, of all devices. It is no error if there is none.

        UsageError: there is no such node or fault, or it has no end. NodeError: the node did not
        boot again.
        """
        target = self.node(node)
        fault = Fault.requested(target, kind, device=device)
        if kind == RESTART:
            why = "a restart has no end, the container runs already; run setup, which starts the "
            why += "cluster's sshd in it again"
            raise UsageError(f"lab.fault: {kind}: --undo: not possible: {why}")
        with records.locked():
            marks = faults.marks_of(self._record, target)
            before, whole = marks.present(), replace(fault, device=None)
            of_all = next((f for f in before if f.mark == whole.mark), None)
            if of_all is not None and fault.device is not None:  # it stays on the other devices
                marks.clear(whole)
                for number in range(self.shape.device_count):
                    marks.add(replace(of_all, device=number))
            marks.clear(fault)
            if kind == "node-down":
                self._power_on(target)
            elif marks.present() != before:
                faults.apply(self._record, target, fault, begins=False)
        return fault

    def _power_on(self, node: LabNode) -> None:
        marks = faults.marks_of(self._record, node)
        links.set_node_power(self.shape, node, on=True, links_down=marks.devices("link-down", node))
        if self._record.process(node.name):
            return
        faults.make_room(self._record, node)
        nodes.boot(self._record, node)
        nodes.wait_until_up(self._record, node, ssh=not marks.of_kind("no-sshd"))
        faults.wait_for_links(self._record, node)
        faults.after_boot(self._record, node)


def find(directory: Path, lab_id: str | None = None) -> Lab | None:
    """The lab with this id, by default that of the working directory."""
    record = records.of_id(lab_id) if lab_id else records.of_directory(directory.resolve())
    return Lab(record) if record else None


_KEY = "operator_key"


def up(
    shape: Shape,
    *,
    directory: Path,
    project: Path | None = None,
    owner: tuple[int, int] | None = None,
    instead: Sequence[Shape] = (),
) -> Lab:
    """Start a lab for a working directory; one that runs there stays, and gets missing nodes.

    `project` is the checkout that the nodes see; `owner` gets the files written in `directory`. If
    ranges of the shape are in use, the first shape of `instead` with free ranges replaces it.

    LabError: a program is missing, a range is in use, another shape runs, or a part failed.
    NodeError: a node did not boot. Nothing of the lab or of new nodes remains after an error.
    """
    host.need_programs()
    if shape.containers:
        nodes.need_containers(Path("/proc/self/mounts").read_text())
    directory = directory.resolve()
    uid, gid = owner or (os.getuid(), os.getgid())
    with records.locked():
        running = records.of_directory(directory)
        surroundings = nodes.Surroundings.of_this_process(directory, project)
        if running and running.runs:
            return Lab(_grown(running, (shape, *instead), surroundings))
        if running:
            _take_down(running.shape.lab_id)
        shape = _free_one(shape, instead, directory)
        record = Record(shape, directory, uid, gid, records.current_boot_id())
        try:
            record.save()
            nodes.make_key(record.folder / _KEY, "ed25519", "ascendboot-lab")
            _build(record, surroundings)
        except BaseException:  # also Ctrl-C: nothing of the lab may be left
            with suppress(host.LabError):
                _take_down(shape.lab_id)
            raise
        record = replace(record, ready=True)
        record.save()
    return Lab(record)


def _grown(record: Record, shapes: Sequence[Shape], surroundings: nodes.Surroundings) -> Record:
    """The running lab in one of the shapes, with new nodes where it has fewer."""
    before = record.shape.node_count
    fits = [shape for shape in shapes if replace(shape, node_count=before) == record.shape]
    if not fits or fits[0].node_count < before:
        running = f"a lab of {record.shape.described()} runs for {record.directory}"
        why = f"{running}, and only nodes can be added to it; run lab.down first"
        raise host.LabError(f"lab: could not bring up {shapes[0].described()}: {why}")
    grown = replace(record, shape=fits[0])
    new = grown.shape.nodes[before:]
    down = [node.name for node in record.shape.nodes if new and not record.process(node.name)]
    if down:
        why = f"{down[0]} is down; run lab.fault {down[0]} node-down --undo first"
        raise host.LabError(f"lab: could not add nodes: {why}")
    if not new:
        _hand_over(record)
        return record
    _refuse_what_is_used(grown.shape, record.directory)
    _remove(grown, new)  # of a growth that was killed
    names = hosts_text(grown.shape).removeprefix(hosts_text(record.shape))
    try:
        _build(grown, surroundings, beside=before)
        for node in record.shape.nodes:
            Lab(record).exec(node.name, ["tee", "-a", "/etc/hosts"], input=names.encode())
    except BaseException:
        with suppress(host.LabError):
            _remove(grown, new)
            _hand_over(record)
        raise
    grown.save()
    return grown


def down(lab_id: str) -> None:
    """Remove a lab or what is left of it, if anything; LabError if a part could not be removed."""
    with records.locked():
        _take_down(lab_id)


def remains(lab_id: str) -> bool:
    """Whether anything is left of a lab, with or without a record."""
    return (records.ROOT / lab_id).exists() or bool(links.existing(prefix_of(lab_id)))


def _free_one(shape: Shape, instead: Sequence[Shape], directory: Path) -> Shape:
    try:
        _refuse_what_is_used(shape, directory)
    except host.RangeInUseError:
        for other in instead:
            with suppress(host.RangeInUseError):
                _refuse_what_is_used(other, directory)
                return other
        raise
    return shape


def _refuse_what_is_used(shape: Shape, directory: Path) -> None:
    labs = records.recorded()
    known = any(record.shape.lab_id == shape.lab_id for record in labs)
    if not known and links.existing(shape.prefix):
        raise host.RangeInUseError(
            f"lab: could not bring up {shape.described()}: {shape.prefix}* is there, and"
            f" {records.ROOT} has no record of its lab, which may run in another container or mount"
            " namespace; take other ranges with --network MANAGEMENT,NPU"
        )
    interfaces = [record.shape.prefix for record in labs]
    problems = records.conflicts(shape, records.used_ranges(interfaces))
    problems += [
        f"{shape.management} or {shape.npu} is used by the lab {record.shape.lab_id} of"
        f" {record.directory} ({record.shape.described()})"
        for record in labs
        if record.directory != directory and records.labs_collide(record.shape, shape)
    ]
    if problems:
        words = f"lab: could not bring up {shape.described()}: {'; '.join(problems)}"
        raise host.RangeInUseError(f"{words}; take other ranges with --network MANAGEMENT,NPU")


def _build(record: Record, surroundings: nodes.Surroundings, *, beside: int = 0) -> None:
    """Start the nodes of a lab, after the first `beside`, which run."""
    public = (record.folder / f"{_KEY}.pub").read_text()
    links.build(record.shape, beside=beside)
    new = record.shape.nodes[beside:]
    for node in new:
        nodes.mount_disk(record, node)
        disk = record.disk(node.name)
        nodes.stage(disk, record.shape, node, operator_key=public, surroundings=surroundings)
    _hand_over(record)  # before the boot: a node hides this folder if it sees the directory
    for node in new:
        nodes.boot(record, node)
    for node in new:
        nodes.wait_until_up(record, node)
        links.wait_for_links(record.shape, node)


def _hand_over(record: Record) -> None:
    """Write the operator's inventory, private key and known host keys, owned by the operator."""
    lab, shape = Lab(record), record.shape
    keys = {node.name: nodes.host_keys(record.disk(node.name)) for node in shape.nodes}
    try:
        _put(record, lab.identity, (record.folder / _KEY).read_text(), mode=0o600)
        _put(record, lab.known_hosts, known_hosts_text(shape, keys))
        _put(record, lab.inventory, inventory_text(shape, lab.identity, keys))
    except OSError as error:
        why = f"{error.strerror}: {error.filename}; make room for it or work in another directory"
        raise host.LabError(f"lab: could not write {lab.inventory.parent}: {why}") from error


def _put(record: Record, path: Path, text: str, *, mode: int = 0o644) -> None:
    for folder in reversed([p for p in path.parents if not p.exists()]):
        folder.mkdir(mode=0o755)
        os.chown(folder, record.uid, record.gid)
    write_atomically(path, text.encode(), mode=mode)
    os.chown(path, record.uid, record.gid, follow_symlinks=False)


def _take_down(lab_id: str) -> None:
    record = records.of_id(lab_id)
    if record:
        # A growth that was killed leaves nodes that the record does not have.
        started = max(record.shape.node_count, len([*record.folder.glob("*.log")]))
        _remove(record, replace(record.shape, node_count=started).nodes)
    links.take_down(prefix_of(lab_id))
    if record:
        for path in (INVENTORY, _IDENTITY, _KNOWN_HOSTS):
            with suppress(NotADirectoryError):  # a file called .ascendboot
                (record.directory / path).unlink(missing_ok=True)
        for folder in (_IDENTITY.parent, _KNOWN_HOSTS.parent, _KNOWN_HOSTS.parent.parent, _FOLDER):
            with suppress(OSError):  # others have files there
                (record.directory / folder).rmdir()
    records.forget(records.ROOT / lab_id)


def _remove(record: Record, gone: Sequence[LabNode]) -> None:
    """Remove everything of these nodes from the machine."""
    processes = (record.process(node.name) for node in gone)
    host.kill_all([process for process in processes if process])
    namespaces = [node.namespace for node in gone]
    for node in gone:
        links.end_wire(record, node)
        nodes.remove_cgroups(record.disk(node.name))
        namespaces += (record.shape.device_namespace(node, device) for device in node.devices)
    links.remove(namespaces)
    for node in gone:
        records.forget(record.disk(node.name))
        record.log(node.name).unlink(missing_ok=True)


class NodeStatus(Value):
    """The state of one node."""

    node: LabNode
    up: bool
    ssh: bool
    links: dict[int, bool]
    faults: tuple[Fault, ...]
    container: str | None = None
    """The state of its container as the engine reports it; None if nodes have none."""

    def to_json(self) -> dict[str, Any]:
        """The node as `lab.status --json` shows it."""
        return {
            "name": self.node.name,
            "address": str(self.node.address),
            "state": "up" if self.up else "down",
            "ssh": self.ssh,
            "container": self.container,
            "devices": [
                {
                    "device_id": device.device_id,
                    "device_ip": device.device_ip,
                    "link": "UP" if self.links[device.device_id] else "DOWN",
                }
                for device in self.node.devices
            ],
            "faults": as_json(self.faults),
        }


def status_of(lab: Lab) -> tuple[NodeStatus, ...]:
    """The current state of each node."""
    return tuple(
        NodeStatus(
            node=node,
            up=lab.process(node.name) is not None,
            ssh=lab.process(node.name) is not None and nodes.ssh_answers(node),
            links=links.links_up(lab.shape, node),
            faults=tuple(lab.faults(node.name)),
            container=container_state(lab, node) if lab.shape.containers else None,
        )
        for node in lab.nodes
    )


def container_state(lab: Lab, node: LabNode) -> str:
    """The state that the engine reports (`running`, `exited` …), or `absent`, or `node down`."""
    if lab.process(node.name) is None:
        return "node down"
    argv = ["podman", "container", "inspect", "--format", "{{.State.Status}}", nodes.NAME]
    done = lab.exec(node.name, argv, check=False)
    return done.stdout.decode().strip() if done.returncode == 0 else "absent"
