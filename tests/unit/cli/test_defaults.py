"""The operator's defaults: flag, then $ASCENDBOOT_*, then the user's file, then the program's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.unit.cli.calls import MAIN, ended

PROBE = """
import sys
from ascendboot.cli import setup
from ascendboot.cli.verbs import cluster_verb
from ascendboot.cli.program import main
@cluster_verb(bare="inventory", help={})
def check(call):
    print(call.forks, call.path)
setup.check = check
main()
"""


def probed(place: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    env = {**os.environ, "XDG_CONFIG_HOME": str(place), "PYTHONPATH": ":".join(sys.path)}
    done = ended(PROBE, "check", *words, cwd=place, env=env | environ)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "ascendboot/config.yaml"
    for name in ("x.yaml", "ascendboot/usual.yaml", ".ascendboot/current"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x.yaml")
    assert probed(tmp_path) == (0, f"32 {tmp_path}/x.yaml", "")
    file.write_text("forks: 7\ninventory: usual.yaml\n")
    assert probed(tmp_path) == (0, f"7 {tmp_path}/x.yaml", "")
    assert probed(tmp_path, "--forks", "32", ASCENDBOOT_FORKS="8")[1].startswith("32 ")
    (tmp_path / ".ascendboot/current").unlink()
    code, out, _ = probed(tmp_path, ASCENDBOOT_FORKS="8")
    assert (code, out) == (0, f"8 {tmp_path}/ascendboot/usual.yaml")
    assert probed(tmp_path, ASCENDBOOT_INVENTORY="x")[1] == f"7 {tmp_path}/x.yaml"
    wrong = probed(tmp_path, ASCENDBOOT_FORKS="many")
    assert wrong == (2, "", '$ASCENDBOOT_FORKS: "many" is not a whole number of at least 1')


def test_a_file_without_keys_states_nothing(tmp_path: Path) -> None:
    (tmp_path / "ascendboot").mkdir()
    (tmp_path / "ascendboot/config.yaml").write_text("# forks: 64\n")
    (tmp_path / "x.yaml").touch()
    assert probed(tmp_path, "x.yaml") == (0, f"32 {tmp_path}/x.yaml", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("forks: 8\nfork: 9\n", "2: fork: unknown key; there are inventory, forks"),
        ("\nforks: 0\n", '2: forks: "0" is not a whole number of at least 1'),
        ("forks: [1]\n", "1: forks: a list is not a single word"),
        ("- x\n", "1: a list is not a mapping of keys; begin with a key, such as `forks: 64`"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_key(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "ascendboot").mkdir()
    file = tmp_path / "ascendboot/config.yaml"
    file.write_text(text)
    assert probed(tmp_path, "x.yaml") == (2, "", f"{file}:{words}")


def helped(place: Path, **environ: str) -> str:
    env = {**os.environ, "XDG_CONFIG_HOME": str(place), "COLUMNS": "100"} | environ
    done = ended(MAIN, "exec", "--help", cwd=place, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def test_help_shows_the_defaults_that_hold_and_where_they_are_from(tmp_path: Path) -> None:
    (tmp_path / "ascendboot").mkdir()
    file = tmp_path / "ascendboot/config.yaml"
    built_in = "Number of nodes to work on in parallel. Default: 32 -j"
    usual = "or the practice cluster of this folder"
    assert f"{usual} --forks N {built_in}" in helped(tmp_path)
    file.write_text("inventory: usual.yaml\nforks: 7\n")
    text = helped(tmp_path)
    assert f"{usual}, otherwise {tmp_path}/ascendboot/usual.yaml, from {file}:1 --forks" in text
    assert f"in parallel. Default: 7, from {file}:2 -j" in text
    text = helped(tmp_path, ASCENDBOOT_FORKS="64")
    assert "in parallel. Default: 64, from $ASCENDBOOT_FORKS -j" in text
    for broken in ("forks: [", "fork: 9\n", "\0"):
        file.write_text(broken)
        assert f"{usual} --forks N {built_in}" in helped(tmp_path)
