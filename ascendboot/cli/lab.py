"""The practice cluster: `lab.up`, `.down`, `.fault`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from invoke.collection import Collection

from ascendboot.cli.common import whole_number
from ascendboot.cli.verbs import Call, verb
from ascendboot.errors import NodeError, UsageError
from ascendboot.lab import cluster as labs
from ascendboot.lab import faults
from ascendboot.lab.host import LabError, become_root
from ascendboot.lab.node import DEMO, NAME, hindrance
from ascendboot.lab.records import recorded
from ascendboot.lab.shape import DEFAULT_NETWORKS, PRODUCTS, Shape, lab_called
from ascendboot.model.names import counted, fold, names_among
from ascendboot.state import FOLDER, State
from ascendboot.value import as_json, replace

_LAB_HELP = "The id of a lab; lab.status lists them. Default: that of this working directory"


@verb(
    help={
        "nodes": "Number of servers, named lab-1, lab-2 and so on; those that do not run yet are"
        " added. Default: 2",
        "devices": "Number of NPUs per server. Default: 8",
        "containers": f"Run ranks in a podman container {NAME} on each node; refused if not"
        " possible. Default: if possible",
        "no-containers": "Run ranks on the nodes, without containers",
        "product": f"The product that the NPUs report: {', '.join(PRODUCTS)} (a5 is 950). Default:"
        " a2",
        "network": f"Management and NPU network. Default: {DEFAULT_NETWORKS}, or a free part of"
        " them if another lab uses these",
    }
)
def up(
    call: Call,
    *,
    nodes: str | None = None,
    devices: str | None = None,
    containers: bool = False,
    no_containers: bool = False,
    product: str | None = None,
    network: str | None = None,
) -> None:
    """Start a practice cluster with real SSH and stand-in NPUs. Needs root.

    Writes its inventory to .ascendboot/lab.yaml. A second call keeps the
    running cluster, and adds nodes with a larger --nodes. Options that you
    leave out then stay as they are.

    Examples:
      invoke lab.up                        two servers with eight NPUs
      invoke lab.up --nodes 4              two more, if two run
      invoke lab.up --nodes 4 --devices 2  four small servers
      invoke lab.up --no-containers        ranks run on the servers
      invoke lab.up --product a3           an A3 super pod, rank table 1.2
      invoke setup --inventory .ascendboot/lab.yaml

    Exit codes: 0 it runs, 1 it could not be started, 2 wrong usage.
    """
    if containers and no_containers:
        raise UsageError("lab.up: --containers and --no-containers contradict; leave one out")
    node_count = whole_number("--nodes", nodes, at_least=0) if nodes is not None else None
    device_count = whole_number("--devices", devices, at_least=0) if devices is not None else None
    become_root()
    found = labs.find(Path.cwd())
    before = found if found and found.runs else None
    kept = before.shape if before else Shape.requested(2, 8, DEFAULT_NETWORKS)
    shape = Shape.requested(
        kept.node_count if node_count is None else node_count,
        kept.device_count if device_count is None else device_count,
        network or f"{kept.management},{kept.npu}",
        product=product or kept.product,
    )
    asked = containers or (False if no_containers else None)
    lab, why_none = _started(shape, before, asked=asked, elsewhere=not (network or before))
    notes = [f"No containers: {why_none}; ranks run on the servers themselves."] if why_none else []
    if lab.shape.management != shape.management and not before:
        ranges = f"{lab.shape.management} and {lab.shape.npu}"
        notes.append(f"The default ranges are in use: this lab has {ranges}.")
    reply = {
        **lab.to_json(),
        "already_running": before is not None,
        "added": [node.name for node in lab.nodes[kept.node_count :]] if before else [],
        "nodes": [{"name": node.name, "address": str(node.address)} for node in lab.nodes],
        "note": "\n".join(notes) or None,
    }
    each = counted(lab.shape.device_count, "NPU")
    each += f"  container {NAME}" if lab.shape.containers else ""
    lines = [f"{node.name}  {node.address}  {each}" for node in lab.nodes]
    added = f"has new nodes: {fold(reply['added'])}" if reply["added"] else ""
    words = added or ("already runs" if before else "is up")
    next_one = f"Next: ascendboot setup {os.path.relpath(lab.inventory)}"
    _end(call, reply, [*lines, *notes, f"The practice cluster {words}. {next_one}"])


def _started(
    shape: Shape, before: labs.Lab | None, *, asked: bool | None, elsewhere: bool
) -> tuple[labs.Lab, str | None]:
    """Bring the lab up, and return why it has no containers where they were possible otherwise."""
    here, (found, _), why_none = Path.cwd(), _requested(None), None
    if found and found.directory != here.resolve():
        raise UsageError(
            f"lab.up: the practice cluster of {found.directory} is that of this folder, too: run"
            " lab.up there to add nodes, or outside of it to start another"
        )
    if asked is not None:
        containers = asked
    elif before:
        containers = before.shape.containers
    else:
        why_none = hindrance(Path("/proc/self/mounts").read_text())
        containers = why_none is None

    around = (place for place in (here, *here.parents) if (place / "pyproject.toml").is_file())
    project = next((place for place in around if (place / DEMO).is_dir()), None)
    caller = (os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", ""))
    is_sudo = all(word.isdecimal() for word in caller)
    owner = (int(caller[0]), int(caller[1])) if is_sudo else (os.getuid(), os.getgid())

    def bring_up(requested: Shape) -> labs.Lab:
        instead = requested.elsewhere() if elsewhere else ()
        return labs.up(requested, directory=here, project=project, owner=owner, instead=instead)

    try:
        return bring_up(replace(shape, containers=containers)), why_none
    except NodeError as error:
        if before or not containers or asked is not None:
            raise
        # Everything visible from outside was fine, and still podman may not work here.
        return bring_up(replace(shape, containers=False)), str(error).partition("; try ")[0]


@verb(help={"lab": _LAB_HELP})
def down(call: Call, *, lab: str | None = None) -> None:
    """Remove the practice cluster of this directory; only .ascendboot/runs is kept.

    Examples:
      invoke lab.down                 the lab of this directory, if any
      invoke lab.down --lab c6120000  the lab with this id

    Exit codes: 0 removed, 1 a part could not be removed, 2 wrong usage.
    """
    become_root()
    state, inventory = State.here(), _folder() / labs.INVENTORY
    was_here = inventory.exists()
    found, lab_id = _requested(lab)
    others, lines = _others(found)
    gone = found.lab_id if found else lab_id if lab_id and labs.remains(lab_id) else None
    if gone:
        labs.down(gone)
    if was_here and not inventory.exists():
        state.forget_setup(labs.CLUSTER, inventory)
    first = "The practice cluster is down." if gone else _none_runs(lab)
    _end(call, {"lab": gone, "others": others}, [first, *lines])


@verb(help={"lab": _LAB_HELP})
def status(call: Call, *, lab: str | None = None) -> None:
    """Show the state of the practice cluster and its faults.

    Examples:
      invoke lab.status
      invoke lab.status --json | jq '.nodes[].state'

    Exit codes: 0 done, 2 wrong usage.
    """
    become_root()
    found, _ = _requested(lab)
    nodes = [node.to_json() for node in labs.status_of(found)] if found else []
    fixed, (others, last) = found.to_json() if found else {"lab": None}, _others(found)
    none_runs = [] if found else [f"{_none_runs(lab)} Bring one up with lab.up"]
    reply = {**fixed, "nodes": nodes, "others": others}
    _end(call, reply, [*map(_node_line, nodes), *none_runs, *last])


@verb(
    shared=(),
    help={
        "node": "The node, for example lab-1",
        "container": "Open the shell in its container",
        "lab": _LAB_HELP,
    },
)
def shell(_: Call, *, node: str, container: bool = False, lab: str | None = None) -> None:
    """Open a root shell on a node or in its container, without SSH.

    Examples:
      invoke lab.shell lab-1
      invoke lab.shell lab-1 --container

    Exit codes: the shell's own, 1 the shell could not be opened, 2 no such
    node.
    """
    become_root()
    _running(lab).enter(node, container=container)


@verb(
    help={
        "node": "The nodes, for example lab-[2-3]",
        "kind": f"The fault: {', '.join(faults.KINDS)}",
        "device": f"The NPU, for {', '.join(faults.OF_A_DEVICE)}; default: all of the node",
        "times": "For busy: refuse only this many calls; default: all. For "
        f"{', '.join(faults.COUNTED)}: how many; default 1",
        "milliseconds": f"For delay: in each direction; default {faults.DEFAULT_MILLISECONDS}",
        "seconds": "For clock: seconds ahead, or behind with a minus (--seconds=-90);"
        f" default {faults.DEFAULT_SECONDS}",
        "undo": "Remove the fault",
        "lab": _LAB_HELP,
    }
)
def fault(
    call: Call,
    *,
    node: str,
    kind: str,
    device: str | None = None,
    times: str | None = None,
    milliseconds: str | None = None,
    seconds: str | None = None,
    undo: bool = False,
    lab: str | None = None,
) -> None:
    """Cause a fault on nodes, or remove it with --undo.

    node-down: it loses power. link-down: an NPU's network port is off.
    npu-missing: an NPU is gone. npu-alarm: npu-smi reports an alarm. tls: an
    NPU's TLS switch is on. stale-hccn-conf: /etc/hccn.conf has another address
    than the NPU. busy: hccn_tool is busy. link-flaps: links were down for a
    moment. net-health: an NPU's gateway does not answer. packet-errors,
    ecc-errors: the tools count errors. npu-slow, npu-broken: an NPU is slow, or
    does not compute, for check --level full and --hccl-test. no-sshd: nothing
    answers on port 22. disk-full: the node's disk and /tmp are full. delay:
    packets on the management network are delayed. clock: `date` is wrong, and
    so is the node's sshd if libfaketime is installed. container-stopped,
    container-gone: the node's container; --undo starts or re-creates it.
    container-restart: it was stopped and started once: its processes are gone,
    its files are not. no-container-sshd: it has no OpenSSH server, like
    official images.

    Examples:
      invoke lab.fault lab-2 node-down
      invoke lab.fault lab-2 node-down --undo  same files and host keys
      invoke lab.fault lab-1 link-down --device 3
      invoke lab.fault lab-1 busy --times 2    the next two calls are refused
      invoke lab.fault lab-2 delay --milliseconds 100

    Exit codes: 0 done, 1 not possible on this machine, 2 wrong usage.
    """
    given = {"device": device, "times": times, "milliseconds": milliseconds, "seconds": seconds}
    numbers = {
        name: whole_number(f"--{name}", word, at_least=None if name == "seconds" else 0)
        for name, word in given.items()
        if word is not None
    }
    become_root()
    running = _running(lab)
    names = names_among("lab.fault", node, [each.name for each in running.nodes])
    change = partial(running.undo, device=numbers.get("device")) if undo else running.fault
    fault, *_ = [change(each, kind, **({} if undo else numbers)) for each in names]
    note, words = None if undo else faults.note(fault), as_json(fault)
    reply = {"lab": running.lab_id, "node": fold(names), **words, "undone": undo, "note": note}
    where = fold(names) if fault.device is None else f"{fold(names)} device {fault.device}"
    what = f"no more {kind}" if undo else _fault_words(words | {"device": None})
    _end(call, reply, [f"{where}: {what}", *filter(None, [note])])


collection = Collection("lab", up, down, status, shell, fault)


def _end(call: Call, reply: dict[str, Any], lines: Sequence[str]) -> None:
    for line in lines:  # with --json on standard error
        call.screen.say(line)
    call.end(0, reply)


def _node_line(node: dict[str, Any]) -> str:
    links = sum(device["link"] == "UP" for device in node["devices"])
    words = [
        f"{node['name']}  {node['address']}  {node['state']:<4}",
        "ssh answers" if node["ssh"] else "no ssh",
        f"{links} of {len(node['devices'])} NPU links up",
    ]
    if node["container"] is not None:
        words.append(f"container {node['container']}")
    if node["faults"]:
        words.append(f"faults: {', '.join(map(_fault_words, node['faults']))}")
    return "  ".join(words)


def _fault_words(fault: dict[str, Any]) -> str:
    words: str = fault["kind"]
    if fault["device"] is not None:
        words += f" (device {fault['device']})"
    if fault["times"] is not None:
        is_busy = fault["kind"] == "busy"
        words += f" for {fault['times']} more calls" if is_busy else f": {fault['times']}"
    if fault["milliseconds"] is not None:
        words += f" of {fault['milliseconds']} ms each way"
    if fault["seconds"] is not None:
        words += f" by {fault['seconds']:+d} s"
    return words


def _none_runs(lab: str | None) -> str:
    return f"No practice cluster {lab} runs." if lab else "No practice cluster runs here."


def _requested(word: str | None) -> tuple[labs.Lab | None, str | None]:
    """The lab with the id in --lab, else that of the working or control folder; and the id."""
    lab_id = None if word is None else lab_called(word)
    return labs.find(Path.cwd(), lab_id) or labs.find(_folder(), lab_id), lab_id


def _folder() -> Path:
    """The folder whose control folder every verb uses here, or the working directory."""
    root = State.here().root
    return root.parent if root.name == FOLDER else Path.cwd()


def _running(word: str | None) -> labs.Lab:
    lab, lab_id = _requested(word)
    if lab is not None:
        return lab
    if lab_id is not None:
        raise LabError(f"lab: could not find the lab {lab_id}: lab.status lists those that run")
    raise LabError(f"lab: could not find a lab: none runs for {Path.cwd()}; run lab.up")


def _others(lab: labs.Lab | None) -> tuple[list[dict[str, str]], list[str]]:
    """Labs of other working directories, and lines about them."""
    others = [
        {"lab": record.shape.lab_id, "directory": str(record.directory)}
        for record in recorded()
        if lab is None or record.shape.lab_id != lab.lab_id
    ]
    words = "Another practice cluster, {lab}, belongs to {directory}."
    return others, [words.format(**other) for other in others]
