"""Secrets planted in an inventory, and all that a full run leaves, shows and lists of them."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.operating import BASE, Operator
from tests.needs import with_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ascendboot.lab import Lab

pytestmark = pytest.mark.cluster

SECRETS = {
    "WANDB_API_KEY": "pl4nted-one",
    "HF_TOKEN": "it's $pl4nted \"two",
    "MARKED": "pl4nted three",
    "INDEX_URL": "https://me:pl4nted4@pypi.example/simple",
}
SCRIPT = """\
import os, sys, time
names = "WANDB_API_KEY HF_TOKEN MARKED INDEX_URL DB_PASSWORD PLAIN".split()
print("has", *(len(os.environ.get(name, "")) for name in names), flush=True)
time.sleep(1.5)
if "fail" in sys.argv:
    raise SystemExit("refused: " + os.environ["WANDB_API_KEY"])
"""
RANK_LINE = re.compile(r"^lab-\d:\d+ \| .*$", re.MULTILINE)
PLACES = "/var/lib/ascendboot /tmp /var/log /root/.ssh /root/.bash*"
HOLDING = f"grep -rls pl4nted {PLACES} | sort"
AS_NOBODY = f"setpriv --reuid 65534 --regid 65534 --clear-groups bash -c '{HOLDING}'"


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    operator = Operator(bring_up_once(nodes=2, devices=1))
    (operator.lab.directory / "job.py").write_text(SCRIPT)
    return operator


class Listed:
    """What command lines of all processes, those of the nodes too, say of planted secrets."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.looks = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Listed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.2):
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = line.read_bytes()
                except OSError:  # it ended as it was looked at
                    continue
                self.looks += b"rank-exec" in words
                if b"pl4nted" in words and b"grep" not in words:
                    self.seen.add(words.decode(errors="replace"))


def inventory(operator: Operator, launcher: str, python: str) -> Path:
    document = yaml.safe_load(operator.lab.inventory.read_text())
    document["env"] = {**document.get("env", {}), **SECRETS, "PLAIN": "seen"}
    document["nodes"]["lab-2"]["env"] = {"DB_PASSWORD": "pl4nted-five"}
    document["secret_env"] = ["MARKED"]
    document["launcher"] = {"kind": launcher}
    document["code"] = {"python": python}
    path = operator.lab.directory / "secret.yaml"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("launcher", ["mpirun", "torchrun"])
def test_no_secret_of_a_full_run_can_be_read_by_others(
    operator: Operator, launcher: str, pytestconfig: pytest.Config
) -> None:
    python = str(with_torch(pytestconfig)) if launcher == "torchrun" else "python3"
    path = inventory(operator, launcher, python)
    said = []

    def call(code: int, *words: str) -> str:
        for more in ((), ("--json",)):
            if words[0] != "setup":
                flags = (*words[:2], *more, *words[2:]) if words[0] == "train" else (*words, *more)
            else:
                flags = (*words, "--inventory", str(path), *more)
            ended = operator.call(*flags)
            assert ended.code == code, ended.err + ended.out
            said.append(ended.out + ended.err)
        return said[-2]

    with Listed() as listed:
        assert "+export PLAIN=seen" in call(0, "setup", "--plan")
        call(0, "setup")
        call(0, "check")
        assert "lab-2:1 | has 11 18 13 39 12 4" in call(0, "train", "job.py")
        call(1, "train", "job.py", "--", "fail")
        call(0, "train", "job.py", "--plan")
        call(0, "status")
        call(0, "logs")
    assert listed.looks > 10
    assert listed.seen == set()
    shown = [RANK_LINE.sub("", text) for text in said]
    assert [text for text in shown if "pl4nted" in text] == []
    assert sum("refused: ***" in text for text in shown) >= 2
    for node in ("lab-1", "lab-2"):
        held = operator.sh(node, HOLDING).split()
        # The script wrote one of its own accord; the folders of jobs are closed.
        left = [file for file in held if not re.fullmatch(rf"{BASE}/jobs/\S+/rank\.\d\.log", file)]
        assert left == [f"{BASE}/env/secrets.env"]
        assert operator.sh(node, AS_NOBODY) == ""
    here = operator.lab.directory
    found = [file for file in here.rglob("*") if file.is_file() and b"pl4nted" in file.read_bytes()]
    kept = [file for file in found if not re.fullmatch(r"rank\.\d\.log", file.name)]
    assert kept == [path]
    folders = [folder for folder in (here / ".ascendboot/runs").iterdir() if folder.is_dir()]
    assert {oct(folder.stat().st_mode & 0o777) for folder in folders} == {"0o700"}
    reset = operator.call("reset", "--yes", "--json")
    assert (reset.code, "pl4nted" in reset.out + reset.err) == (0, False)
    assert [operator.sh(node, f"ls {BASE} 2>/dev/null; true") for node in ("lab-1", "lab-2")] == [
        "",
        "",
    ]
