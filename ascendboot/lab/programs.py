"""Running the programs that a lab is made with, and naming the ones that are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """The practice cluster could not be made, changed or taken down as asked."""


class RangeInUseError(LabError):
    """Something on this machine uses addresses that the lab would take."""


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
    """What the program printed.

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
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise LabError(
            f"lab: could not {purpose}: {argv[0]} exited {done.returncode}: {said[0]};"
            " try invoke lab.down, then invoke lab.up"
        )
    return done.stdout


def environment() -> dict[str, str]:
    """The environment of everything that the lab starts: nothing of the operator's own."""
    kept = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", "HOME": "/root", **kept}
