"""scripts/demo in a checkout whose verbs only say who calls them."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).parents[2] / "scripts"
NOBODY = pwd.getpwnam("nobody")
SETUP, TRAIN = "setup --inventory .ascendboot/lab.yaml", "train main.py"

INVOKE = """\
#!/bin/sh
echo "$(id -u):$(id -g) $HOME $*" >>called
case $1 in lab.status) echo '{"lab": null}' ;; esac
"""
PYTHON = f"""\
#!/bin/sh
case $1 in -m) exit 0 ;; esac
exec {sys.executable} "$@"
"""


@pytest.fixture
def checkout() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to other users
        root = Path(place).resolve()
        root.chmod(0o755)
        shutil.copytree(SCRIPTS, root / "scripts")
        programs = root / ".venv/bin"
        programs.mkdir(parents=True)
        (root / "pyproject.toml").touch()
        (programs / "activate").write_text(f"{root}/.venv\n")
        stamp = hashlib.sha256(b"").hexdigest()
        (root / ".venv/.installed-mpi").write_text(f"{stamp}  -\n")
        for name, text in {"invoke": INVOKE, "python": PYTHON, "apt-get": "exit 1"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (root / "called").touch()
        (root / "called").chmod(0o666)
        yield root


def calls(checkout: Path, **environ: str) -> list[str]:
    """Who called which verb, but for the question whether a cluster runs."""
    path = f"{checkout}/.venv/bin:{os.environ['PATH']}"  # no apt-get of this machine
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    done = subprocess.run(
        [checkout / "scripts/demo"],
        env={**kept, "PATH": path, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in (checkout / "called").read_text().splitlines() if "status" not in line]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_what_sudo_demo_leaves_belongs_to_who_said_it(checkout: Path) -> None:
    root, caller = "0:0 /root", f"{NOBODY.pw_uid}:{NOBODY.pw_gid} {NOBODY.pw_dir}"
    sudo = {"SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid)}
    assert calls(checkout, HOME="/root", **sudo) == [
        f"{root} lab.up",
        f"{caller} {SETUP}",
        f"{caller} {TRAIN}",
        f"{root} lab.down",
    ]


@pytest.mark.parametrize("sudo", [{}, {"SUDO_UID": "0", "SUDO_GID": "0"}], ids=["user", "root"])
def test_without_sudo_all_is_done_by_one(checkout: Path, sudo: dict[str, str]) -> None:
    me = f"{os.getuid()}:{os.getgid()} /home/me"
    verbs = ["lab.up", SETUP, TRAIN, "lab.down"]
    assert calls(checkout, HOME="/home/me", **sudo) == [f"{me} {verb}" for verb in verbs]
