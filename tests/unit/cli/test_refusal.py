"""Messages and exit codes of verbs that fail; with --json also in the document."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.calls import MAIN, ended, without_inventory

ANSWERS = {
    **dict.fromkeys(("setup", "check", "reset --plan", "status", "logs", "stop"), 2),
    **dict.fromkeys(("train main.py", "train main.py --plan"), 125),
}
NO_INVENTORY = 'wrong.yaml:1: clustr: unknown key; did you mean "cluster"?'


@pytest.mark.parametrize("verb", ANSWERS)
def test_the_error_of_a_wrong_inventory_is_also_json(verb: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("clustr: x\nnodes: {n-1: {address: 192.0.2.1}}\n")
    done = ended(MAIN, *verb.split(), "--json", "--inventory", "wrong.yaml", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert (done.returncode, said["exit_code"]) == (ANSWERS[verb], ANSWERS[verb])
    assert NO_INVENTORY in said["message"]
    assert done.stderr == f"{said['message']}\n"
    assert (said.get("state") == "not_started") == (verb == "train main.py")
    assert set(said) == {"exit_code", "message"} or verb == "train main.py"


@pytest.mark.parametrize("verb", ["convert table.json --to 2.0", "show table.json", "diff a b"])
def test_the_error_of_a_wrong_rank_table_is_also_json(verb: str, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("{}")
    done = ended(MAIN, *f"ranktable.{verb} --json".split(), cwd=tmp_path)
    said = json.loads(done.stdout)
    assert (done.returncode, said["exit_code"]) == (2, 2)
    assert done.stderr == f"{said['message']}\n"


@pytest.mark.parametrize("verb", ["setup", "train main.py"])
def test_an_error_that_cannot_be_written_as_json_keeps_exit_code_and_message(
    verb: str, tmp_path: Path
) -> None:
    words = [*verb.split(), "--json", "--inventory", "nowhere"]
    with Path("/dev/full").open("w") as full:
        done = ended(MAIN, *words, stdout=full, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("could not find the inventory nowhere: ")
    assert "Traceback" not in done.stderr


NOBODY = "cluster: x\nnodes: {n-1: {address: 127.0.0.1, port: 1}}\n"


@pytest.mark.parametrize("verb", ["setup", "check", "exec -- true", "copy x.yaml /x --host"])
def test_a_missing_password_for_sudo_is_named_before_any_node_is_connected_to(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(NOBODY.replace("}}", ", user: me, sudo: ask}}"))
    env = {**without_inventory(), "ASCENDBOOT_INVENTORY": "x.yaml"}
    done = ended(MAIN, *verb.split(), cwd=tmp_path, env=env, stdin=subprocess.DEVNULL)
    words = "`sudo: ask`: no password was given; set $ASCENDBOOT_SUDO_PASSWORD, or enter it at a "
    assert (done.returncode, done.stderr.startswith(words)) == (2, True), done.stderr


@pytest.mark.parametrize("verb", ["setup", "check", "reset --plan"])
def test_a_report_that_cannot_be_written_keeps_exit_code_and_summary(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(NOBODY)
    with Path("/dev/full").open("w") as full:
        done = ended(MAIN, *verb.split(), "--json", "-i", "x.yaml", stdout=full, cwd=tmp_path)
    *lines, problem = done.stderr.splitlines()
    assert done.returncode == 4
    assert " Kept in .ascendboot/runs/" in " ".join(lines[-2:])  # "Stopped: …" may follow
    assert problem == "standard output: could not be written: No space left on device"


@pytest.mark.parametrize("verb", ["setup", "adopt", "check"])
def test_without_a_node_that_answers_no_key_is_made_and_the_folder_is_named(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(NOBODY)
    done = ended(MAIN, verb, "x.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 4
    [run] = (tmp_path / ".ascendboot/runs").iterdir()
    assert json.loads(done.stdout)["folder"] == str(run)
    kept = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    lock = {".ascendboot/clusters/x/lock"} if verb != "check" else set()
    assert kept == {"x.yaml", *lock, *(f"{run.relative_to(tmp_path)}/{n}" for n in FILES)}


FILES = ("report.json", "run.log")
