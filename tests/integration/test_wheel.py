"""The wheel contains everything that a machine without the checkout needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ascendboot.lab.cluster import down, find
from tests.needs import LONG, missing

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("templates", "inventories", "examples")
USE_ALL = """\
import importlib, pkgutil, sys
import ascendboot
from ascendboot.inventory.load import load
from ascendboot.jobs.error_codes import known_errors
from ascendboot.setup.cluster_plan import rendered
from ascendboot.templates import installed
for module in pkgutil.walk_packages(ascendboot.__path__, "ascendboot."):
    importlib.import_module(module.name)
print("%d.%d" % sys.version_info[:2], load(installed("inventories") / "two-node.yaml").name)
print(rendered("env/ssh.j2", ssh="/bin/ssh", config="C"))
print(*(entry.id for entry in known_errors().entries))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--wheel-dir", str(folder))
    run(sys.executable, "-m", "pip", "wheel", *options, str(ROOT))
    [built] = folder.glob("ascendboot-*.whl")
    return built


def run(*argv: str, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, check=False, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def environment_with(version: str, wheel: Path, folder: Path, *, extra: str = "") -> Path:
    """The programs of a new environment of this Python, with nothing but the wheel."""
    beside = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    for python in (f"python{version}", *map(str, beside)):
        answer = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            found = subprocess.run([python, "-c", answer], check=False, capture_output=True)
        except FileNotFoundError:
            continue
        if found.stdout.decode().strip() == version:
            break
    else:
        missing(f"there is no Python {version} here")
    run(python, "-m", "venv", "--without-pip", str(folder))
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "bin/python"))
    run(*pip, "install", "--quiet", "--no-compile", f"{wheel}{extra}")
    return folder / "bin"


def test_the_wheel_holds_its_folders_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert [n for n in names if n.endswith(".data/data/share/man/man1/ascendboot.1")]
        [metadata] = [archive.read(n).decode() for n in names if n.endswith(".dist-info/METADATA")]
        [licence] = [archive.read(n) for n in names if n.endswith("/licenses/LICENSE")]
    assert licence == (ROOT / "LICENSE").read_bytes()
    assert {"License-Expression: Apache-2.0", "Provides-Extra: horovod"} <= {*metadata.split("\n")}
    of_folders = tuple(f"ascendboot/{folder}/" for folder in FOLDERS)
    assert {name for name in names if name.startswith(of_folders)} == {
        f"ascendboot/{path.relative_to(ROOT)}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_every_module_and_folder_works_from_the_wheel(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    programs = environment_with(version, wheel, tmp_path / "venv")
    first, *others = run(str(programs / "python"), "-c", USE_ALL, cwd=tmp_path).splitlines()
    assert first == f"{version} two-node"
    assert any("/bin/ssh -F C" in line for line in others)
    assert "EI0020" in others[-1]
    assert run(str(programs / "ascendboot"), "--version").startswith("ascendboot ")


@LONG
def test_horovod_is_built_as_the_page_says(wheel: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/install.md").read_text()
    [script] = re.findall(r"```sh\n(pip install torch.*?)```", page, re.DOTALL)
    python = environment_with("3.11", wheel, tmp_path / "venv") / "python"
    run(str(python), "-m", "ensurepip")
    script = script.replace("~/", "$VIRTUAL_ENV/").replace("./ascendboot[", f"{wheel}[")
    activated = f'set -e\n. venv/bin/activate\npip() {{ python -m pip -q "$@"; }}\n{script}'
    built = run("bash", "-c", activated, cwd=tmp_path)
    assert "[X] PyTorch" in built
    assert "[X] MPI" in built


@pytest.mark.cluster
def test_the_wheel_alone_brings_a_practice_cluster_up_and_trains(
    wheel: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        missing("the practice cluster needs root")
    version = "{}.{}".format(*sys.version_info)
    programs = environment_with(version, wheel, tmp_path / "venv", extra="[mpi]")
    program = str(programs / "ascendboot")
    try:
        run(program, *["lab.up", "--devices", "1", "--no-containers"], cwd=tmp_path)
        run(program, "setup", "--inventory", ".ascendboot/lab.yaml", cwd=tmp_path)
        assert "Demo done!" in run(program, "train", "main.py", cwd=tmp_path)
    finally:
        lab = find(tmp_path)
        if lab:
            down(lab.lab_id)
