"""The fault `delay`: a node's management link on which everything arrives later, both ways."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from ascendboot.lab import wiring
from ascendboot.lab.processes import ProcessId, kill_all
from ascendboot.lab.programs import SEARCH_PATH, LabError, environment, run
from ascendboot.lab.wiring import NAMESPACES

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.lab.records import Record
    from ascendboot.lab.shape import LabNode

_NETEM = "netem"
_START_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 10.0


def begin(record: Record, node: LabNode, milliseconds: int) -> None:
    """Make the link slow: by netem where the kernel has it, else by a wire of our own.

    Raises:
        LabError: neither can be.
    """
    end(record, node)
    note = _note(record, node)
    if _netem(record, node, milliseconds):
        note.write_text(_NETEM)
        return
    process = _start_wire(record, node, milliseconds)
    note.write_text(f"{process.pid} {process.started}")
    wiring.insert_wire(record.shape, node)


def end(record: Record, node: LabNode) -> None:
    """Make the link quick again; one that was not slow stays as it is."""
    note = _note(record, node)
    if not note.exists():
        return
    if note.read_text() == _NETEM:
        for namespace, interface in _ends(record, node):
            _tc(namespace, f"qdisc del dev {interface} root")
    else:
        wiring.remove_wire(record.shape, node)
        end_wire(record, node)
    note.unlink()


def end_wire(record: Record, node: LabNode) -> None:
    """End the process that is the node's wire, if there is one: it keeps a namespace alive."""
    note = _note(record, node)
    process = ProcessId.parsed(note.read_text()) if note.exists() else None
    if process and kill_all([process], timeout_s=_END_TIMEOUT_S):
        raise LabError(
            f"{node.name}: could not end its slow wire: process {process.pid} lives"
            f" {_END_TIMEOUT_S:g} s after SIGKILL; say invoke lab.down again"
        )


def netem_line(interface: str, milliseconds: int) -> str:
    """What tc does to the sending side of a link."""
    return f"qdisc replace dev {interface} root netem delay {milliseconds}ms limit 100000"


def _netem(record: Record, node: LabNode, milliseconds: int) -> bool:
    if not shutil.which("tc", path=SEARCH_PATH):
        return False
    try:
        for namespace, interface in _ends(record, node):
            _tc(namespace, netem_line(interface, milliseconds))
    except LabError:  # the kernel lacks it
        return False
    return True


def _ends(record: Record, node: LabNode) -> tuple[tuple[str, str], ...]:
    return (record.shape.management_switch, wiring.node_port(node)), (node.namespace, "eth0")


def _tc(namespace: str, line: str) -> None:
    argv = ["nsenter", f"--net={NAMESPACES / namespace}", "tc", "-batch", "-"]
    run(argv, purpose=f"delay what leaves {namespace}", text=f"{line}\n")


def _start_wire(record: Record, node: LabNode, milliseconds: int) -> ProcessId:
    near, far = wiring.wire_ends(node)
    argv = [
        *("setsid", "--fork"),
        *("nsenter", f"--net={NAMESPACES / record.shape.management_switch}"),
        *(sys.executable, "-B", "-m", "ascendboot.lab.tapwire", near, far, str(milliseconds)),
    ]
    # It lets go of its output once it runs, so that this returns and it goes on.
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=_START_TIMEOUT_S,
    )
    process = ProcessId.parsed(done.stdout)
    if process is None:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise LabError(
            f"{node.name}: could not delay its link: {words[-1]}; the kernel needs netem or TUN/TAP"
            " (modprobe sch_netem, or modprobe tun)"
        )
    return process


def _note(record: Record, node: LabNode) -> Path:
    return record.folder / f"{node.name}.delay"
