"""Programs and processes of the machine that runs the practice cluster."""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat, counted behind the command's name."""


@dataclass(frozen=True)
class ProcessId:
    """One process of this machine, for as long as the machine runs."""

    pid: int
    started: int
    """Clock ticks from the machine's boot to the start of the process."""

    @classmethod
    def parsed(cls, text: str) -> ProcessId | None:
        """The process in a text `PID STARTED`; None for any other text."""
        words = text.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004
            return None
        return cls(int(words[0]), int(words[1]))

    @classmethod
    def own(cls) -> ProcessId:
        """This process."""
        return cls(os.getpid(), int(_stat(os.getpid())[_STARTED]))

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        fields = _stat(self.pid)
        return bool(fields) and int(fields[_STARTED]) == self.started and fields[_STATE] not in "ZX"


def kill_all(processes: Iterable[ProcessId], *, timeout_s: float) -> tuple[ProcessId, ...]:
    """Kill the processes, wait for their end, and return those that are still there."""
    with ExitStack() as stack:
        waiting: dict[int, ProcessId] = {}
        for process in processes:
            handle = _handle(process)
            if handle is None:
                continue
            stack.callback(os.close, handle)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            waiting[handle] = process
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        for handle in waiting:
            poll.register(handle, select.POLLIN)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                del waiting[handle]
        return tuple(waiting.values())


def _handle(process: ProcessId) -> int | None:
    """A pidfd of the process, or None when it is gone; what it names cannot change any more."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    if process.alive:
        return handle
    os.close(handle)
    return None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PACKAGES = {
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "ping": "iputils-ping",
    "mount": "mount",
    "umount": "mount",
    "hostname": "hostname",
    "flock": "util-linux",
    "nsenter": "util-linux",
    "pivot_root": "util-linux",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "unshare": "util-linux",
}
_TIMEOUT_S = 60.0


class LabError(AscendbootError):
    """The practice cluster could not be made, changed or taken down."""


class RangeInUseError(LabError):
    """Something on this machine uses addresses that the lab would take."""


def become_root() -> None:
    """Return as root; as another user, run this command again behind sudo instead.

    Raises:
        LabError: sudo is not installed, or cannot request the password.
    """
    if os.geteuid() == 0:
        return
    could_not = "lab: could not become root: namespaces need it, and"
    if not shutil.which("sudo"):
        raise LabError(f"{could_not} sudo is not installed; run it as root")
    sudo = ["sudo", "-n", "--"]
    if subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode:
        if not sys.stdin.isatty():
            raise LabError(
                f"{could_not} sudo requires a password and there is no terminal to request it on;"
                " run sudo -v first, or run it as root"
            )
        sudo = ["sudo", "--"]
    # -B: leaves no files of root in the user's checkout
    argv = [*sudo, sys.executable, "-B", *sys.orig_argv[1:]]
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is involved


def need_programs(search_path: str = SEARCH_PATH) -> None:
    """Return when everything that a lab needs is installed.

    Raises:
        LabError: something is not; names it and its Debian package.
    """
    missing = missing_packages(_PACKAGES, search_path)
    if missing:
        raise LabError(
            f"lab: could not start: {missing}."
            " scripts/demo installs them without starting a service"
        )


def missing_packages(packages: Mapping[str, str], search_path: str) -> str:
    """Which programs are not installed and which Debian packages have them; "" when all are."""
    missing = [program for program in packages if not shutil.which(program, path=search_path)]
    if not missing:
        return ""
    names = " ".join(sorted({packages[program] for program in missing}))
    return f"not installed: {', '.join(missing)}; the Debian packages are {names}"


def run(argv: Sequence[str], *, purpose: str, text: str = "", timeout_s: float = _TIMEOUT_S) -> str:
    """Run a program and return its output.

    Raises:
        LabError: it failed, or took longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(
            f"lab: could not {purpose}: {argv[0]} did not end within {timeout_s:g} s;"
            " try invoke lab.down, then invoke lab.up"
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise LabError(
            f"lab: could not {purpose}: {argv[0]} exited {done.returncode}: {lines[0]};"
            " try invoke lab.down, then invoke lab.up"
        )
    return done.stdout


def last_line(output: bytes) -> str:
    """The last line that a program printed, for messages."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def environment() -> dict[str, str]:
    """The environment of everything that the lab starts; the operator's is not passed on."""
    kept = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", "HOME": "/root", **kept}


def ours(name: str) -> str:
    """The text of one of the files that go onto nodes as they are."""
    return resources.files("ascendboot.lab").joinpath("node", name).read_text()


def put(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file, and the directories that it lies in."""
    directory(path.parent)
    path.write_text(text)
    path.chmod(mode)


def directory(path: Path, *, mode: int = 0o755) -> None:
    """Make the directory and its missing parents."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for place in reversed(missing):
        place.mkdir()
        place.chmod(0o755)
    if stat.S_IMODE(path.stat().st_mode) != mode and path in missing:
        path.chmod(mode)
