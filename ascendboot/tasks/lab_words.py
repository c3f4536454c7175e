"""What the verbs of the practice cluster say of the replies that they get."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendboot.lab.containers import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


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
