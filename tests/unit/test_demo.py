"""scripts/demo in a checkout whose verbs only say who calls them."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
NOBODY = pwd.getpwnam("nobody")
SUDO = {"SUDO_UID": str(NOBODY.pw_uid), "SUDO_GID": str(NOBODY.pw_gid)}
SETUP, TRAIN = "setup --inventory .ascendboot/lab.yaml", "train main.py"
STAMP = ".installed-mpi"
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")

INVOKE = """\
#!/bin/sh
echo "$(id -u):$(id -g) $HOME $*" >>called
case $1 in lab.status) echo '{"lab": null}' ;; esac
"""
PYTHON = f"""\
#!/bin/sh
case $* in *" install "*) touch "${{0%/bin/python}}/installed" ;; esac
case $1 in -m) exit 0 ;; esac
exec {sys.executable} "$@"
"""
PYTHON3 = f"""\
#!/bin/sh
case "$1 $2" in "-m venv") exec cp -r "${{0%/*}}/venv" "$4" ;; esac
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
        (root / ".venv" / STAMP).write_text(f"{stamp}  -\n")
        (root / "bin").mkdir()
        for name, text in {
            ".venv/bin/ascendboot": INVOKE,
            ".venv/bin/python": PYTHON,
            "bin/python3": PYTHON3,
            "bin/apt-get": "exit 1",  # not that of this machine
        }.items():
            (root / name).write_text(text)
            (root / name).chmod(0o755)
        (root / "called").touch()
        (root / "called").chmod(0o666)
        yield root


def demo(checkout: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout}/bin:{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SUDO_")}
    return subprocess.run(
        [checkout / "scripts/demo", *words],
        env={**kept, "PATH": path, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def calls(checkout: Path, **environ: str) -> list[str]:
    """Who called which verb, but for the question whether a cluster runs."""
    done = demo(checkout, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in (checkout / "called").read_text().splitlines() if "status" not in line]


@AS_ROOT
def test_files_of_a_demo_with_sudo_belong_to_its_caller(checkout: Path) -> None:
    root, caller = "0:0 /root", f"{NOBODY.pw_uid}:{NOBODY.pw_gid} {NOBODY.pw_dir}"
    assert calls(checkout, HOME="/root", **SUDO) == [
        f"{root} lab.up",
        f"{caller} {SETUP}",
        f"{caller} {TRAIN}",
        f"{root} lab.down",
    ]


@AS_ROOT
@pytest.mark.parametrize("owner", [NOBODY.pw_uid, 0])
def test_the_venv_that_sudo_demo_makes_belongs_to_the_owner_of_the_checkout(
    checkout: Path, owner: int
) -> None:
    venv = checkout / ".venv"
    (venv / STAMP).unlink()
    venv.rename(checkout / "bin/venv")
    os.chown(checkout, owner, -1)
    assert demo(checkout, **SUDO).returncode == 0
    owners = {str(path.relative_to(venv)): path.stat().st_uid for path in venv.rglob("*")}
    assert {"bin/python", "installed", STAMP} <= set(owners)
    assert {venv.stat().st_uid, *owners.values()} == {owner}


@AS_ROOT
def test_a_venv_of_root_in_the_checkout_of_the_caller_is_named(checkout: Path) -> None:
    (checkout / ".venv" / STAMP).unlink()
    os.chown(checkout, NOBODY.pw_uid, -1)
    ended = demo(checkout, **SUDO)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"demo: could not install into {checkout}/.venv: it belongs to root; run as that user, or "
        "have it deleted\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--help"], 0, "Usage: scripts/demo\n"),
        (["-h"], 0, "Usage: scripts/demo\n"),
        (["--nodes", "3"], 2, 'demo: could not take "--nodes 3": '),
    ],
)
def test_the_demo_has_a_help_and_no_other_arguments(
    checkout: Path, words: list[str], code: int, said: str
) -> None:
    ended = demo(checkout, *words)
    assert ended.returncode == code
    assert (ended.stderr if code else ended.stdout).startswith(said)
    assert (checkout / "called").read_text() == ""


def test_the_demo_leaves_a_cluster_that_runs_here_alone(checkout: Path) -> None:
    program = checkout / ".venv/bin/ascendboot"
    program.write_text(program.read_text().replace("null", '"c6120000"'))
    ended = demo(checkout)
    assert ended.returncode == 1
    assert "a practice cluster of" in ended.stderr
    assert "lab.down" not in ended.stderr
    calls = (checkout / "called").read_text().splitlines()
    assert [line.split()[2:] for line in calls] == [["lab.status", "--json"]]


@pytest.mark.parametrize("sudo", [{}, {"SUDO_UID": "0", "SUDO_GID": "0"}], ids=["user", "root"])
def test_without_sudo_one_user_runs_all_verbs(checkout: Path, sudo: dict[str, str]) -> None:
    me = f"{os.getuid()}:{os.getgid()} /home/me"
    verbs = ["lab.up", SETUP, TRAIN, "lab.down"]
    assert calls(checkout, HOME="/home/me", **sudo) == [f"{me} {verb}" for verb in verbs]
