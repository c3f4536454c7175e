"""The control folder: where it is, atomic writes, one setup at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

from ascendboot.cli.verbs import Call
from ascendboot.errors import AscendbootError
from ascendboot.setup.record import digest
from ascendboot.setup.sync import read_source
from ascendboot.state import State, write_text

Patch: TypeAlias = pytest.MonkeyPatch


def test_the_current_inventory_is_recorded_relative_to_its_folder(tmp_path: Path) -> None:
    state = State(tmp_path / ".ascendboot")
    state.remember_current(tmp_path / "inventories" / "lab.yaml")
    assert state.current.read_text() == "inventories/lab.yaml\n"


@pytest.mark.parametrize(
    ("folders", "environ", "root"),
    [
        (("a/.ascendboot", "a"), {}, "a/.ascendboot"),
        (("a/.ascendboot", "a/b/c"), {"ASCENDBOOT_HOME": "/x"}, "a/.ascendboot"),
        (("home/.ascendboot/atlas", "home"), {}, "home/.local/share/ascendboot"),  # of a node
        (("home/.ascendboot/clusters", "home/b"), {}, "home/.ascendboot"),
        (("", "a"), {"ASCENDBOOT_HOME": "/x"}, "/x"),
        (("", "a"), {"ASCENDBOOT_HOME": "~/x"}, "home/x"),
        (("", "a"), {"XDG_DATA_HOME": "/data"}, "/data/ascendboot"),
        (("", "a"), {}, "home/.local/share/ascendboot"),
    ],
)
def test_the_control_folder_is_searched_upward_then_it_is_that_of_the_user(
    folders: tuple[str, str], environ: dict[str, str], root: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    for name in folders:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name, value in {"HOME": f"{tmp_path}/home", "ASCENDBOOT_HOME": "", **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path / folders[1])
    assert State.here().root == tmp_path / root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_control_folder_of_another_user_above_is_not_used(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/.ascendboot").mkdir()
    monkeypatch.chdir(tmp_path / "a/b")
    assert State.here().root == tmp_path / "a/.ascendboot"
    os.chown(tmp_path / "a/.ascendboot", 12345, -1)
    assert State.here().root == tmp_path / "a/b/.ascendboot"
    (tmp_path / "a/.ascendboot").rename(tmp_path / "own")
    os.chown(tmp_path / "own", os.getuid(), -1)
    (tmp_path / "a/.ascendboot").symlink_to(tmp_path / "own")
    assert State.here().root == tmp_path / "a/.ascendboot"
    os.lchown(tmp_path / "a/.ascendboot", 12345, -1)
    assert State.here().root == tmp_path / "a/b/.ascendboot"
    monkeypatch.chdir(tmp_path / "a")
    assert State.here().root == tmp_path / "a/.ascendboot"
    (tmp_path / "a").chmod(0o1777)
    monkeypatch.setenv("ASCENDBOOT_HOME", "/data")
    assert State.here().root == Path("/data")


def test_an_inventory_is_the_last_one_and_its_paths_hold_in_every_folder(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    nodes, code = "{a: {address: 192.0.2.1, identity: key}}", "{source: src, path: /x}"
    write_text(tmp_path / "x.yaml", f"cluster: x\nnodes: {nodes}\ncode: {code}\n")
    (tmp_path / "key").touch()
    (tmp_path / "src/sub").mkdir(parents=True)
    for root in (tmp_path / ".ascendboot", tmp_path / "data/ascendboot"):
        monkeypatch.setenv("ASCENDBOOT_HOME", str(root))
        monkeypatch.chdir(tmp_path)
        State.here().remember_current(Path("x.yaml"))
        digests = set()
        for folder in (tmp_path, tmp_path / "src/sub"):
            monkeypatch.chdir(folder)
            cluster = Call().cluster()
            digests.add(digest(cluster))
            assert cluster.nodes[0].ssh.identity == str(tmp_path / "key")
            source = read_source(cluster)
            assert source is not None
            assert source.folder is not None
            assert source.folder.resolve() == tmp_path / "src"
        assert len(digests) == 1
        shutil.rmtree(root)


_IN_A_LOCALE = """
import os, sys
from pathlib import Path
from ascendboot.inventory.yaml import locate
from ascendboot.state import State
root = Path(sys.argv[1])
inventory = root / os.fsdecode(b"\\xe4.yaml")
inventory.touch()
state = State(root / ".ascendboot")
run = state.new_run("train")
words = {"words": "\\u2713 \\udce4"}
run.write_json("report.json", words)
run.log_command("n-1", 1, str(words))
state.remember("lab", "applied", words)
assert state.recall("lab", "applied") == words
state.remember_current(inventory)
assert locate(None, cwd=root, environ={}, current=state.current) == inventory
assert state.current in state.setup_left_here("lab", inventory)
"""


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_invalid_text_and_text_outside_the_locale_are_kept(tmp_path: Path, locale: str) -> None:
    as_it_is = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    argv = [sys.executable, "-c", _IN_A_LOCALE, str(tmp_path)]
    subprocess.run(argv, check=True, env={**os.environ, **as_it_is})
    [report] = (tmp_path / ".ascendboot/runs").glob("*/report.json")
    assert json.loads(report.read_text(encoding="utf-8")) == {"words": "\u2713 \udce4"}


def test_the_record_of_a_setup_is_read_back(tmp_path: Path) -> None:
    state = State(tmp_path)
    assert state.recall("lab", "applied") is None
    state.remember("lab", "applied", {"port": 12345})
    assert state.recall("lab", "applied") == {"port": 12345}
    write_text(state.cluster("lab") / "applied.json", "{")
    with pytest.raises(AscendbootError, match=r"applied\.json: could not be read: .*; run setup"):
        state.recall("lab", "applied")


def test_a_second_setup_names_the_one_that_runs(tmp_path: Path) -> None:
    state = State(tmp_path)
    message = r"lab: could not start: another setup or reset runs \(run one, .*\)"
    with (
        state.locked("lab", "one"),
        pytest.raises(AscendbootError, match=message),
        state.locked("lab", "two"),
    ):
        pass
    with state.locked("lab", "three"):
        pass


def test_each_run_has_its_own_folder(tmp_path: Path) -> None:
    state = State(tmp_path)
    runs = [state.new_run("setup") for _ in range(3)]
    assert len({run.folder for run in runs}) == 3
    runs[0].log_command("lab-1", 3, "text")
    assert (runs[0].folder / "lab-1" / "03.txt").read_text() == "text"


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_text(path, "new")
    assert list(tmp_path.rglob("*")) == [path, path / "in the way"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("folder", "Is a directory"),
        ("file/new", "Not a directory"),
        ("/proc/new", "No such file or directory"),  # takes no files, not even those of root
        ("/proc/none/new", "No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_and_not_the_temporary_one(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=why) as raised:
        write_text(tmp_path / name, "new")
    assert str(raised.value) == f"[Errno {raised.value.errno}] {why}: '{tmp_path / name}'"


_FULL = """\
import resource, sys
from pathlib import Path
from ascendboot.state import State, write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
state = State(Path(sys.argv[1]))
for write in (
    lambda: write_text(state.root / "file", "new"),
    state.locked("lab", "one").__enter__,
):
    try:
        write()
    except OSError as error:
        print(f"{error.filename}: {error.strerror}")
"""


def test_a_file_without_disk_space_is_named(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _FULL, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/file: File too large",
        f"{tmp_path}/clusters/lab/lock: File too large",
    ]
    assert not (tmp_path / "file").exists()


def test_forgetting_a_cluster_keeps_only_the_runs(tmp_path: Path) -> None:
    state, inventory = State(tmp_path / ".ascendboot"), tmp_path / ".ascendboot/lab.yaml"
    state.remember("lab", "applied", {})
    state.remember("atlas", "applied", {})
    state.remember_current(inventory)
    for name in ("user_ca", "host_ca.pub", ".gitignore"):
        write_text(state.authority("lab") / name, "")
    with state.locked("lab", "one"):
        pass
    run = state.new_run("setup")
    state.forget_setup("lab", inventory)
    left = {str(path.relative_to(state.root)) for path in state.root.rglob("*")}
    of_another = {"clusters", "clusters/atlas", "clusters/atlas/applied.json"}
    assert left == of_another | {"runs", f"runs/{run.run_id}"}
    state.forget_setup("lab", inventory)


def test_forgetting_a_cluster_keeps_files_of_others(tmp_path: Path) -> None:
    state = State(tmp_path / ".ascendboot")
    state.remember("lab", "applied", {})
    write_text(state.cluster("lab") / "notes", "mine")
    state.remember_current(tmp_path / "other.yaml")
    state.forget_setup("lab", tmp_path / ".ascendboot/lab.yaml")
    assert (state.cluster("lab") / "notes").read_text() == "mine"
    assert state.current.exists()
