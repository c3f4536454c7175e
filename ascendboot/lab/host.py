"""Programs and processes of the machine that runs the practice cluster."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from ascendboot.errors import AscendbootError
from ascendboot.value import Value

_STATE, _STARTED = 0, 19
"""Positions in /proc/PID/stat after the command's name."""
_KILL_TIMEOUT_S = 10.0
_POLL_S = 0.01


class ProcessId(Value):
    """One process of this machine; pid and start time identify it."""

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


def kill_all(processes: Iterable[ProcessId], *, timeout_s: float = _KILL_TIMEOUT_S) -> None:
    """Kill the processes and wait for their end; LabError if one does not end."""
    waiting = [process for process in processes if process.alive]
    for process in waiting:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + timeout_s
    while left := [process for process in waiting if process.alive]:
        if time.monotonic() > deadline:
            why = f"it lives {timeout_s:g} s after SIGKILL; run lab.down again"
            raise LabError(f"lab: could not end process {left[0].pid}: {why}")
        time.sleep(_POLL_S)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PACKAGES = {
    "openssh-server": ("sshd",),
    "openssh-client": ("ssh-keygen",),
    "iproute2": ("ip",),
    "iputils-ping": ("ping",),
    "mount": ("mount", "umount"),
    "hostname": ("hostname",),
    "util-linux": ("flock", "nsenter", "pivot_root", "setpriv", "setsid", "unshare"),
}
_TIMEOUT_S = 60.0
_REMEDY = "try lab.down, then lab.up"


class LabError(AscendbootError):
    """The practice cluster could not be created, changed or removed."""


class RangeInUseError(LabError):
    """Addresses of the lab are in use on this machine."""


def become_root() -> None:
    """Return as root; else run this command again behind sudo; LabError if that is impossible."""
    if os.geteuid() == 0:
        return
    could_not = "lab: could not become root: namespaces need it, and"
    if not shutil.which("sudo"):
        raise LabError(f"{could_not} sudo is not installed; run it as root")
    sudo = ["sudo", "-n", "--"]
    if subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode:
        if not sys.stdin.isatty():
            why = "sudo requires a password and there is no terminal to request it on"
            raise LabError(f"{could_not} {why}; run sudo -v first, or run it as root")
        sudo = ["sudo", "--"]
    # -B: leaves no files of root in the user's checkout
    argv = [*sudo, sys.executable, "-B", *sys.orig_argv[1:]]
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is involved


def need_programs(search_path: str = SEARCH_PATH) -> None:
    """Raises LabError if a program is missing; names it and its Debian package."""
    if missing := missing_packages(_PACKAGES, search_path):
        remedy = "scripts/demo installs them without starting a service"
        raise LabError(f"lab: could not start: {missing}. {remedy}")


def missing_packages(packages: Mapping[str, Sequence[str]], search_path: str) -> str:
    """The programs that are not installed and their Debian packages; "" if all are."""
    missing = {
        program: package
        for package, programs in packages.items()
        for program in programs
        if not shutil.which(program, path=search_path)
    }
    if not missing:
        return ""
    names = " ".join(sorted(set(missing.values())))
    return f"not installed: {', '.join(missing)}; the Debian packages are {names}"


def run(argv: Sequence[str], *, purpose: str, text: str = "") -> str:
    """Run a program and return its output; LabError if it failed or took more than a minute."""
    try:
        done = call(argv, stdin=text.encode(), timeout_s=_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        why = f"{argv[0]} did not end within {_TIMEOUT_S:g} s"
        raise LabError(f"lab: could not {purpose}: {why}; {_REMEDY}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode().strip().splitlines() or ["no message"]
        why = f"{argv[0]} exited {done.returncode}: {lines[0]}"
        raise LabError(f"lab: could not {purpose}: {why}; {_REMEDY}")
    return done.stdout.decode()


def call(
    argv: Sequence[str], *, stdin: bytes, timeout_s: float, cwd: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program and return how it ended; TimeoutExpired if it did not."""
    return subprocess.run(
        argv,
        input=stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env=environment(),
        timeout=timeout_s,
    )


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a message, with the known word that is almost this one; else nothing."""
    near = get_close_matches(word, known, 1, cutoff=0.81)  # lab-3 is no slip for lab-2
    return f"; did you mean {near[0]}?" if near else ""


def last_line(output: bytes) -> str:
    """The last line that a program printed, for messages."""
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def environment() -> dict[str, str]:
    """The environment of all programs that the lab starts."""
    kept = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", "HOME": "/root", **kept}


def ours(name: str) -> str:
    """The text of a file in the folder `node`."""
    return resources.files("ascendboot.lab").joinpath("node", name).read_text()


def put(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a file, and create its directories."""
    directory(path.parent)
    path.write_text(text)
    path.chmod(mode)


def directory(path: Path, *, mode: int = 0o755) -> None:
    """Create the directory and its missing parents."""
    for place in reversed([p for p in (path, *path.parents) if not p.exists()]):
        place.mkdir()
        place.chmod(mode if place == path else 0o755)
