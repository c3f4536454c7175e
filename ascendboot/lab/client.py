"""Requests to the lab: handled directly as root, through sudo as another user.

A request and its reply are JSON objects, so that both ways are the same to the caller.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendboot.errors import AscendbootError, NodeError, UsageError
from ascendboot.lab import faults
from ascendboot.lab.cluster import (
    Lab,
    container_state,
    down,
    find,
    lab_json,
    remains,
    status_of,
    up,
)
from ascendboot.lab.host import LabError
from ascendboot.lab.node import NAME, entry, hindrance
from ascendboot.lab.records import recorded
from ascendboot.lab.shape import DEFAULT_NETWORKS, Shape, lab_called

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Json = dict[str, Any]

_ME = ("-B", "-m", "ascendboot.lab")  # -B: leaves no files of root's in the user's checkout

_TIDY_TIMEOUT_S = 30.0


def send_request(verb: str, request: Json) -> Json:
    """The reply to a request; `verb` is one of `VERBS`.

    Raises:
        AscendbootError: what the verb raises, or that we could not become root.
    """
    if os.geteuid() == 0:
        return VERBS[verb](request)
    return send_request_through(_sudo(), verb, request)


def enter(request: Json) -> None:
    """Become a shell in a node; does not return.

    Raises:
        AscendbootError: there is no such node, or it is down.
    """
    if os.geteuid() != 0:
        argv = [*_sudo(), sys.executable, *_ME, "shell", json.dumps(request)]
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is involved
    lab = _wanted(request)
    name = str(request["node"])
    process = lab.process(lab.node(name).name)
    if process is None:
        raise NodeError(name, "could not open a shell: the node is down; try invoke lab.status")
    inside = _container_exec(lab, name) if request["container"] else []
    argv = entry(process, [*inside, "bash", "-l"])
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is involved


def _container_exec(lab: Lab, name: str) -> list[str]:
    """The command that runs another one in the container of a node."""
    could_not = "could not open a shell in its container"
    if not lab.shape.containers:
        raise NodeError(name, f"{could_not}: it has none; say invoke lab.shell {name}")
    state = container_state(lab, lab.node(name))
    if state != "running":
        raise NodeError(
            name,
            f"{could_not}: {NAME} is {state}; say /usr/local/Ascend/lab/start-container in"
            f" invoke lab.shell {name}",
        )
    terminal = ["--tty"] if sys.stdin.isatty() else []
    return ["podman", "exec", "--interactive", *terminal, NAME]


def send_request_through(sudo: Sequence[str], verb: str, request: Json) -> Json:
    """The reply to a request that another process of ours answers, as root.

    Raises:
        AscendbootError: what the verb raised there, or that there was no reply.
    """
    argv = [*sudo, sys.executable, *_ME, verb, json.dumps(request)]
    code, text = _output(argv)
    try:
        reply: Json = json.loads(text)
    except ValueError as error:
        raise LabError(
            f"lab.{verb}: could not be done as root: sudo exited {code} and printed no more than"
            " the lines above; run it as root"
        ) from error
    if "error" in reply:
        raise _ERRORS.get(reply["exit_code"], LabError)(reply["error"])
    return reply


def answer(verb: str, text: str) -> str:
    """The reply to the request in `text`, errors included; for the process behind sudo."""
    try:
        reply = VERBS[verb](json.loads(text))
    except AscendbootError as error:
        reply = {"error": str(error), "exit_code": error.exit_code}
    return json.dumps(reply)


def _output(argv: Sequence[str]) -> tuple[int, str]:
    """Exit code and output; on Ctrl-C, which the process gets too, it may still tidy up."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        try:
            text, _ = child.communicate()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_TIDY_TIMEOUT_S)
            raise
        return child.returncode, text


def _up(request: Json) -> Json:
    shape = Shape.requested(
        request["nodes"],
        request["devices"],
        request["network"] or DEFAULT_NETWORKS,
        product=request.get("product", "a2"),
    )
    directory = Path(request["directory"])
    before = find(directory)
    wanted, why_none = _containers_wanted(before, asked=request["containers"])

    def bring_up(*, containers: bool) -> Lab:
        project = Path(request["project"]) if request["project"] else None
        owner = (request["uid"], request["gid"])
        requested = replace(shape, containers=containers)
        instead = () if request["network"] else requested.elsewhere()
        return up(requested, directory=directory, project=project, owner=owner, instead=instead)

    try:
        lab = bring_up(containers=wanted)
    except NodeError as error:
        if before or not wanted or request["containers"] is not None:
            raise
        # All that shows from outside was well, and still podman may not work here.
        why_none = str(error).partition("; try ")[0]
        lab = bring_up(containers=False)
    notes = [f"No containers: {why_none}; ranks run on the servers themselves."] if why_none else []
    if lab.shape.management != shape.management and not before:
        ranges = f"{lab.shape.management} and {lab.shape.npu}"
        notes.append(f"The default ranges are in use: this lab has {ranges}.")
    nodes = [{"name": node.name, "address": str(node.address)} for node in lab.nodes]
    return {
        **lab_json(lab),
        "already_running": before is not None,
        "nodes": nodes,
        "note": "\n".join(notes) or None,
    }


def _containers_wanted(before: Lab | None, *, asked: bool | None) -> tuple[bool, str | None]:
    """Whether nodes are to have containers, and why not where they would but cannot."""
    if asked is not None:
        return asked, None
    if before:
        return before.shape.containers, None
    why_none = hindrance(Path("/proc/self/mounts").read_text())
    return why_none is None, why_none


def _down(request: Json) -> Json:
    lab, lab_id = _requested(request)
    others = [r for r in recorded() if lab is None or r.shape.lab_id != lab.lab_id]
    if gone := lab.lab_id if lab else lab_id if lab_id and remains(lab_id) else None:
        down(gone)
    return {"lab": gone, "others": _listed(others)}


def _status(request: Json) -> Json:
    lab, _ = _requested(request)
    if lab is None:
        return {"lab": None, "nodes": [], "others": _listed(recorded())}
    others = [record for record in recorded() if record.shape.lab_id != lab.lab_id]
    nodes = [node.to_json() for node in status_of(lab)]
    return {**lab_json(lab), "nodes": nodes, "others": _listed(others)}


def _fault(request: Json) -> Json:
    lab = _wanted(request)
    node, kind, device = request["node"], request["kind"], request["device"]
    if request["undo"]:
        fault = lab.undo(node, kind, device=device)
    else:
        amounts = {key: request[key] for key in ("times", "milliseconds", "seconds")}
        fault = lab.fault(node, kind, device=device, **amounts)
    return {
        "lab": lab.lab_id,
        "node": node,
        **asdict(fault),
        "undone": request["undo"],
        "note": None if request["undo"] else faults.note(fault),
    }


VERBS: dict[str, Callable[[Json], Json]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "fault": _fault,
}

_ERRORS: dict[int, type[AscendbootError]] = {UsageError.exit_code: UsageError}


def _wanted(request: Json) -> Lab:
    lab, lab_id = _requested(request)
    if lab is not None:
        return lab
    if lab_id is not None:
        raise LabError(f"lab: could not find the lab {lab_id}: lab.status lists those that run")
    raise LabError(
        f"lab: could not find a lab: none runs for {request['directory']}; say invoke lab.up"
    )


def _requested(request: Json) -> tuple[Lab | None, str | None]:
    """The lab that a request is about, and the id in the request."""
    word = request["lab"]
    lab_id = None if word is None else lab_called(word)
    return find(Path(request["directory"]), lab_id), lab_id


def _listed(others: Sequence[Any]) -> list[Json]:
    return [{"lab": record.shape.lab_id, "directory": str(record.directory)} for record in others]


def _sudo() -> list[str]:
    if not shutil.which("sudo"):
        raise LabError(
            "lab: could not become root: namespaces need it, and sudo is not installed; run as root"
        )
    quiet = ["sudo", "-n", "--"]
    if subprocess.run([*quiet, "true"], capture_output=True, check=False).returncode == 0:
        return quiet
    if not sys.stdin.isatty():
        raise LabError(
            "lab: could not become root: sudo wants a password and there is no terminal to ask on;"
            " run sudo -v first, or run as root"
        )
    return ["sudo", "--"]
