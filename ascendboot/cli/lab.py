"""The practice cluster: `lab.up`, `.down`, `.fault`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.context import Context  # noqa: TC002 - Invoke reads the signature

from ascendboot.cli.common import JSON_HELP, end, whole_number
from ascendboot.cli.verbs import verb
from ascendboot.console.screen import Screen
from ascendboot.errors import UsageError
from ascendboot.lab import client
from ascendboot.lab.cluster import CLUSTER, INVENTORY
from ascendboot.lab.faults import DEFAULT_MILLISECONDS, DEFAULT_SECONDS, KINDS, OF_A_DEVICE
from ascendboot.lab.node import DEMO, NAME
from ascendboot.lab.shape import DEFAULT_NETWORKS, PRODUCTS
from ascendboot.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def lines_of_up(reply: dict[str, Any]) -> Iterator[str]:
    """What is there now, and what to do with it."""
    inside = f"  container {NAME}" if reply["containers"] else ""
    for node in reply["nodes"]:
        yield f"{node['name']}  {node['address']}  {reply['device_count']} NPUs{inside}"
    if reply["note"]:
        yield reply["note"]
    words = "runs already" if reply["already_running"] else "is up"
    inventory = _short(reply["inventory"])
    yield f"The practice cluster {words}. Next: invoke setup --inventory {inventory}"


def lines_of_down(reply: dict[str, Any], lab: str | None) -> Iterator[str]:
    """What was taken down, and what runs elsewhere."""
    yield "The practice cluster is down." if reply["lab"] else _none_runs(lab)
    yield from _others(reply)


def lines_of_status(reply: dict[str, Any], lab: str | None) -> Iterator[str]:
    """A line for each node, and what runs elsewhere."""
    for node in reply["nodes"]:
        yield _node_line(node)
    if reply["lab"] is None:
        yield f"{_none_runs(lab)} Bring one up with invoke lab.up"
    yield from _others(reply)


def lines_of_fault(reply: dict[str, Any], node: str, *, undone: str | None) -> Iterator[str]:
    """What is broken now; `undone` is the kind that no longer is."""
    where = node if reply["device"] is None else f"{node} device {reply['device']}"
    yield f"{where}: {f'no more {undone}' if undone else _fault_words(reply | {'device': None})}"
    if reply["note"]:
        yield reply["note"]


def _short(path: str) -> str:
    place = Path(path)
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


def _node_line(node: dict[str, Any]) -> str:
    links = sum(device["link"] == "UP" for device in node["devices"])
    words = [
        f"{node['name']}  {node['address']}  {node['state']:<4}",
        "ssh answers" if node["ssh"] else "no ssh",
        f"{links} of {len(node['devices'])} NPU links up",
    ]
    if node["container"] is not None:
        words.append(f"container {node['container']}")
    line = "  ".join(words)
    faults = ", ".join(_fault_words(fault) for fault in node["faults"])
    return f"{line}  faults: {faults}" if faults else line


def _fault_words(fault: dict[str, Any]) -> str:
    words: str = fault["kind"]
    if fault["device"] is not None:
        words += f" (device {fault['device']})"
    if fault["times"] is not None:
        words += f" for {fault['times']} more calls"
    if fault["milliseconds"] is not None:
        words += f" of {fault['milliseconds']} ms each way"
    if fault["seconds"] is not None:
        words += f" by {fault['seconds']:+d} s"
    return words


def _none_runs(lab: str | None) -> str:
    return f"No practice cluster {lab} runs." if lab else "No practice cluster runs here."


def _others(reply: dict[str, Any]) -> Iterator[str]:
    for other in reply["others"]:
        yield f"Another practice cluster, {other['lab']}, belongs to {other['directory']}."


_MOST_DIGITS = 18
_LAB_HELP = "The lab's id, for one of another working directory; lab.status lists them"


@verb(
    help={
        "nodes": "How many servers, lab-1, lab-2 and so on. Default: 2",
        "devices": "How many NPUs each has. Default: 8",
        "containers": f"A podman container {NAME} in each node, where ranks run; refused where"
        " that cannot be. Default: where it can",
        "no-containers": "No containers: ranks run on the nodes themselves",
        "product": f"What the NPUs say that they are: {', '.join(PRODUCTS)} (a5 is 950). Default:"
        " a2",
        "network": f"Management and NPU network. Default: {DEFAULT_NETWORKS}, or where another"
        " lab has those a free part of them",
        "json": JSON_HELP,
    }
)
def up(
    c: Context,
    *,
    nodes: str = "2",
    devices: str = "8",
    containers: bool = False,
    no_containers: bool = False,
    product: str = "a2",
    network: str | None = None,
    json: bool = False,
) -> None:
    """Bring up a practice cluster: real SSH servers and networks, stand-in NPUs; needs root.

    Writes its inventory to .ascendboot/lab.yaml. Said again, it keeps what runs.

    Examples:
      invoke lab.up                               two servers of eight NPUs
      invoke lab.up --nodes 4 --devices 2         four small ones
      invoke lab.up --no-containers               ranks on the servers themselves
      invoke lab.up --product a3                  a super pod of A3: a rank table of version 1.2
      invoke setup --inventory .ascendboot/lab.yaml

    Exit codes: 0 it runs, 1 it could not be brought up, 2 wrong use.
    """
    if containers and no_containers:
        raise UsageError("lab.up: --containers and --no-containers contradict; leave one out")
    request = {
        "nodes": whole_number("--nodes", nodes, at_least=0),
        "devices": whole_number("--devices", devices, at_least=0),
        "network": network,
        "product": product,
        "containers": containers or (False if no_containers else None),
        **_who(None),
        **_project(Path.cwd()),
        **_owner(),
    }
    reply = client.send_request("up", request)
    _tell(reply, lines_of_up(reply), json=json)


@verb(help={"lab": _LAB_HELP, "json": JSON_HELP})
def down(c: Context, *, lab: str | None = None, json: bool = False) -> None:
    """Take the practice cluster of this directory down; but for .ascendboot/runs nothing is left.

    Examples:
      invoke lab.down                             the lab of this directory; none is fine
      invoke lab.down --lab c6120000              the one with this id, whole or in parts

    Exit codes: 0 none is left, 1 something of it would not go, 2 wrong use.
    """
    was_here = INVENTORY.exists()
    reply = client.send_request("down", _who(lab))
    if was_here and not INVENTORY.exists():
        State.here().forget_setup(CLUSTER, INVENTORY)
    _tell(reply, lines_of_down(reply, lab), json=json)


@verb(help={"lab": _LAB_HELP, "json": JSON_HELP})
def status(c: Context, *, lab: str | None = None, json: bool = False) -> None:
    """Show what really answers in the practice cluster, and which faults were made.

    Examples:
      invoke lab.status
      invoke lab.status --json | jq '.nodes[].state'

    Exit codes: 0 told, 2 wrong use.
    """
    reply = client.send_request("status", _who(lab))
    _tell(reply, lines_of_status(reply, lab), json=json)


@verb(
    help={
        "node": "Which node, for example lab-1",
        "container": "In its container, where ranks run",
        "lab": _LAB_HELP,
    }
)
def shell(c: Context, *, node: str, container: bool = False, lab: str | None = None) -> None:
    """Open a root shell in a node, past its SSH server, or in its container.

    Examples:
      invoke lab.shell lab-1
      invoke lab.shell lab-1 --container

    Exit codes: the shell's own, 1 there is no way in, 2 no such node.
    """
    client.enter({**_who(lab), "node": node, "container": container})


@verb(
    help={
        "node": "Which node, for example lab-1",
        "kind": f"What breaks: {', '.join(KINDS)}",
        "device": f"Which NPU, for {', '.join(OF_A_DEVICE)}; default: all of the node",
        "times": "For busy: refuse only this many calls; default: all",
        "milliseconds": f"For delay: how long, each way; default {DEFAULT_MILLISECONDS}",
        "seconds": "For clock: how far ahead, with a minus behind (--seconds=-90);"
        f" default {DEFAULT_SECONDS}",
        "undo": "Take the fault back",
        "lab": _LAB_HELP,
        "json": JSON_HELP,
    }
)
def fault(
    c: Context,
    *,
    node: str,
    kind: str,
    device: str | None = None,
    times: str | None = None,
    milliseconds: str | None = None,
    seconds: str | None = None,
    undo: bool = False,
    lab: str | None = None,
    json: bool = False,
) -> None:
    """Break something in a node, or mend it with --undo.

    node-down: it loses power. link-down: an NPU's network port is off. npu-missing: an NPU is
    gone. npu-alarm: npu-smi calls it ill. tls: an NPU's TLS switch is on. stale-hccn-conf:
    /etc/hccn.conf has another address than the NPU. busy: hccn_tool says that it is. no-sshd:
    nothing answers on port 22. disk-full: nothing more fits on the node's disk and into /tmp.
    delay: all that comes and goes on the management network is late. clock: `date` is off, and
    so is the node's sshd where libfaketime is installed. container-stopped, container-gone: the
    node's container, which starts again, or is made anew, with --undo. no-container-sshd: the
    container has no OpenSSH server, as official images.

    Examples:
      invoke lab.fault lab-2 node-down
      invoke lab.fault lab-2 node-down --undo     it boots again, with its files and host keys
      invoke lab.fault lab-1 link-down --device 3
      invoke lab.fault lab-1 busy --times 2       the next two calls are refused
      invoke lab.fault lab-2 delay --milliseconds 100

    Exit codes: 0 done, 1 this machine cannot do it, 2 wrong use.
    """
    request = {
        **_who(lab),
        "node": node,
        "kind": kind,
        "device": _number("--device", device),
        "times": _number("--times", times),
        "milliseconds": _number("--milliseconds", milliseconds),
        "seconds": _number("--seconds", seconds, negative=True),
        "undo": undo,
    }
    reply = client.send_request("fault", request)
    _tell(reply, lines_of_fault(reply, node, undone=kind if undo else None), json=json)


collection = Collection("lab", up, down, status, shell, fault)


def _tell(reply: dict[str, Any], lines: Iterable[str], *, json: bool) -> None:
    screen = Screen(json_mode=json)
    for line in lines:
        screen.say(line)
    end(screen, 0, reply if json else None)


def _who(lab: str | None) -> dict[str, Any]:
    return {"directory": str(Path.cwd()), "lab": lab}


def _owner() -> dict[str, int]:
    """Whose the files in the working directory are to be: those of who said sudo."""
    behind = (os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", ""))
    if os.geteuid() == 0 and all(word.isdecimal() for word in behind):
        return {"uid": int(behind[0]), "gid": int(behind[1])}
    return {"uid": os.getuid(), "gid": os.getgid()}


def _project(directory: Path) -> dict[str, str | None]:
    """The checkout that `directory` lies in."""
    for place in (directory, *directory.parents):
        if (place / "pyproject.toml").is_file() and (place / DEMO).is_dir():
            return {"project": str(place)}
    return {"project": None}


def _number(option: str, word: str | None, *, negative: bool = False) -> int | None:
    if word is None:
        return None
    digits = word[1:] if negative and word[:1] in ("-", "+") else word
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MOST_DIGITS):
        raise UsageError(
            f'{option}: "{word[:_MOST_DIGITS]}" is not a number of at most {_MOST_DIGITS} digits'
        )
    return int(word)
