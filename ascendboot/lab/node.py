"""Booting a practice node, running programs in it, ending it."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import TYPE_CHECKING

from ascendboot.errors import CommandError, NodeError
from ascendboot.lab.files import ours
from ascendboot.lab.processes import kill_all
from ascendboot.lab.programs import LabError, environment, run
from ascendboot.lab.wiring import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ascendboot.lab.processes import ProcessId
    from ascendboot.lab.records import Record
    from ascendboot.lab.shape import LabNode

# A node's root is root: without these it could set the machine's clock or load modules into it.
_LESS_POWER = ("setpriv", "--bounding-set", "-sys_time,-sys_module")
DISK_OPTIONS = "size=50%,nr_inodes=1m"
"""How much fits on a node's disk, and in its /tmp."""

_BOOT_TIMEOUT_S = 30.0
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.02
_SSH_TIMEOUT_S = 3.0  # the slowest of slow links takes two seconds to answer


def boot(record: Record, node: LabNode) -> None:
    """Start the node's first process; it goes on by itself, `wait_until_up` tells when it is up."""
    script = record.folder / "boot.sh"
    if not script.exists():
        script.write_text(ours("boot.sh"))
    disk = record.disk(node.name)
    (record.folder / f"{node.name}.pid").unlink(missing_ok=True)
    (disk / "lab/booted").unlink(missing_ok=True)
    argv = [
        *("setsid", "--fork", "nsenter", f"--net={NAMESPACES / node.namespace}", *_LESS_POWER),
        *("unshare", "--mount", "--uts", "--pid", "--ipc", "--fork", "--kill-child"),
        *("--propagation", "private", "bash", str(script), str(disk)),
    ]
    with record.log(node.name).open("w") as log:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
            cwd="/",
            env={"PATH": environment()["PATH"]},
        )


def wait_until_up(
    record: Record,
    node: LabNode,
    *,
    ssh: bool = True,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> ProcessId:
    """The node's PID 1, once the node is whole and, with `ssh`, its sshd answers.

    Raises:
        NodeError: it ended while booting, or was not up in time.
    """
    deadline = clock() + _BOOT_TIMEOUT_S
    while clock() < deadline:
        process = record.process(node.name)
        booted = (record.disk(node.name) / "lab/booted").exists()
        if process and booted and (not ssh or ssh_answers(node)):
            return process
        if not process and _last_words(record, node):
            break
        pause(_POLL_S)
    said = _last_words(record, node) or f"no answer on port 22 within {_BOOT_TIMEOUT_S:g} s"
    raise NodeError(node.name, f"could not boot: {said}; try invoke lab.down, then invoke lab.up")


def ssh_answers(node: LabNode) -> bool:
    """Whether an SSH server greets us on port 22 of the node."""
    try:
        with socket.create_connection(
            (str(node.address), 22), timeout=_SSH_TIMEOUT_S
        ) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def entry(process: ProcessId, argv: Sequence[str]) -> list[str]:
    """The argv that runs `argv` inside the node, as its root, with a clean environment."""
    return [
        *("nsenter", "-t", str(process.pid)),
        *("--mount", "--uts", "--ipc", "--net", "--pid", "--root"),
        *_LESS_POWER,
        *("env", "-i", "-C", "/root", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"),
        *(f"{key}={value}" for key, value in environment().items() if key != "HOME"),
        *argv,
    ]


def execute(
    node: LabNode, process: ProcessId, argv: Sequence[str], *, stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program inside the node; any exit code is returned.

    Raises:
        CommandError: it did not end within `timeout_s`.
    """
    try:
        return subprocess.run(
            entry(process, argv),
            input=stdin,
            capture_output=True,
            check=False,
            cwd="/",
            env=environment(),
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            node.name, f"could not run {argv[0]}: no end within {timeout_s:g} s"
        ) from error


def end_all(processes: Sequence[ProcessId]) -> None:
    """End the first processes of nodes, and with them all others there.

    Raises:
        LabError: one lives on.
    """
    left = kill_all(processes, timeout_s=_KILL_TIMEOUT_S)
    if left:
        raise LabError(
            f"lab: could not end process {left[0].pid}: it lives {_KILL_TIMEOUT_S:g} s after"
            " SIGKILL; say invoke lab.down again"
        )


def mount_disk(record: Record, node: LabNode) -> None:
    """Give the node an empty disk, in memory."""
    disk = record.disk(node.name)
    disk.mkdir(mode=0o755)
    _mount_tmpfs(disk, f"mode=755,{DISK_OPTIONS}")
    # What the lab notes about the node has a place of its own: a node's disk can be full.
    (disk / "lab").mkdir(mode=0o755)
    _mount_tmpfs(disk / "lab", "mode=755,size=16m")


def _mount_tmpfs(place: Path, options: str) -> None:
    argv = ["mount", "-n", "-t", "tmpfs", "-o", options, "ascendboot-lab", str(place)]
    run(argv, purpose=f"mount {place}")


def _last_words(record: Record, node: LabNode) -> str:
    log = record.log(node.name)
    lines = log.read_text().strip().splitlines() if log.exists() else []
    return lines[-1] if lines else ""
