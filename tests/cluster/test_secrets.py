"""Secrets in an inventory appear in no file, output or process list that others can read."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import BASE, Operator
from tests.needs import LONG, with_torch

pytestmark = pytest.mark.cluster

SECRETS = {
    "WANDB_API_KEY": "pl4nted-one",
    "HF_TOKEN": "it's $pl4nted \"two",
    "MARKED": "pl4nted three",
    "INDEX_URL": "https://me:pl4nted4@pypi.example/simple",
}
BY_NAME = {
    "WANDB_API_KEY": "pl4nted-one",
    "HF_TOKEN": SECRETS["HF_TOKEN"],
    "DB_PASSWORD": "pl4nted-five",
}
PLACES = "/var/lib/ascendboot /var/lib/containers /tmp /var/tmp /var/log /dev/shm /run /root"
# Containers mount the whole machine below some of them, this file too.
HOLDING = f"find {PLACES} -xdev -type f -exec grep -ls pl[4]nted {{}} + 2>/dev/null | sort"
AS_NOBODY = f"setpriv --reuid 65534 --regid 65534 --clear-groups bash -c '{HOLDING}'"
SCRIPT = f"""\
import os, subprocess, sys, time
names = "WANDB_API_KEY HF_TOKEN MARKED INDEX_URL DB_PASSWORD PLAIN".split()
print("has", *(len(os.environ.get(name, "")) for name in names), flush=True)
print("open", subprocess.getoutput({AS_NOBODY!r}).split())
time.sleep(1)
if "fail" in sys.argv:
    raise SystemExit("refused: " + os.environ["WANDB_API_KEY"])
"""
RANK_LINE = re.compile(r"^lab-\d:\d+ \| .*$", re.MULTILINE)


@pytest.fixture
def operator(container_cluster: Lab) -> Operator:
    operator = Operator(container_cluster)
    operator.script("job.py", SCRIPT)
    return operator


class Listed:
    """Watches the command lines of all processes, including the nodes', for planted secrets."""

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
                if b"pl4nted" in words:
                    self.seen.add(words.decode(errors="replace"))


def inventory(
    operator: Operator, launcher: str, side: str, python: str, *, by_name_alone: bool
) -> Path:
    document = operator.document()
    secrets = BY_NAME if by_name_alone else SECRETS
    document["env"] = {**document.get("env", {}), **secrets, "PLAIN": "seen"}
    if not by_name_alone:
        document["nodes"]["lab-2"]["env"] = {"DB_PASSWORD": "pl4nted-five"}
        document["secret_env"] = ["MARKED"]
    document["launcher"] = {"kind": launcher}
    document["code"] = {"python": python}
    if side == "host":
        del document["defaults"]["container"]
    else:
        document["ssh"] = {"via": side}
    path = operator.inventory("secret.yaml", document)
    path.chmod(0o600)
    return path


# `side` is the host, or how the ranks' containers are reached.
@pytest.mark.parametrize(
    ("launcher", "side", "forms", "by_name_alone"),
    [
        ("mpirun", "host", [(), ("--json",)], False),
        ("torchrun", "sshd", [()], False),
        ("horovod", "engine", [()], False),
        pytest.param("torchrun", "engine", [()], False, marks=LONG),
        ("mpirun", "host", [()], True),
        ("torchrun", "host", [()], True),
        ("horovod", "host", [()], True),
    ],
)
def test_item_05_no_secret_of_a_full_run_can_be_read_by_others(
    operator: Operator,
    launcher: str,
    side: str,
    forms: list[tuple[str, ...]],
    pytestconfig: pytest.Config,
    *,
    by_name_alone: bool,
) -> None:
    python = "python3" if launcher == "mpirun" else str(with_torch(pytestconfig))
    path = inventory(operator, launcher, side, python, by_name_alone=by_name_alone)
    said = []

    def call(code: int, *words: str, options: tuple[str, ...] = ()) -> str:
        for form in forms:
            ended = operator.call(words[0], *options, *form, *words[1:])
            assert ended.code == code, ended.err + ended.out
            said.append(ended.out + ended.err)
        return said[-len(forms)]

    of_it = ("--inventory", str(path))
    with Listed() as listed:
        assert "+export PLAIN=seen" in call(0, "setup", "--plan", "--diff", options=of_it)
        call(0, "setup", options=of_it)
        call(0, "check")
        done = call(0, "train", "job.py")
        call(1, "train", "job.py", "--", "fail")
        call(0, "train", "job.py", "--plan")
        call(0, "status")
        call(0, "logs")
    lengths = "11 18 0 0 12 4" if by_name_alone else "11 18 13 39 12 4"
    assert f"lab-2:2 | has {lengths}" in done
    assert done.count(" | open []") == 4, done
    assert listed.looks > 10
    assert listed.seen == set()
    shown = [RANK_LINE.sub("", text) for text in said]
    assert [text for text in shown if "pl4nted" in text] == []
    assert sum("refused: ***" in text for text in shown) >= len(forms)
    sides = (operator.sh,) if side == "host" else (operator.sh, operator.inside)
    for node in ("lab-1", "lab-2"):
        for where in sides:
            held = where(node, HOLDING).split()
            # The script wrote one of its own accord; the folders of jobs are closed.
            expected = rf".*{BASE}/(jobs/\S+/rank\.\d\.log|env/secrets\.env)"
            assert [file for file in held if not re.fullmatch(expected, file)] == []
            assert (f"{BASE}/env/secrets.env" in held) == (where is sides[-1])
            assert where(node, AS_NOBODY) == ""
    here = operator.lab.directory
    found = [file for file in here.rglob("*") if file.is_file() and b"pl4nted" in file.read_bytes()]
    kept = [file for file in found if not re.fullmatch(r"rank\.\d\.log", file.name)]
    assert kept == [path]
    folders = [folder for folder in (here / ".ascendboot/runs").iterdir() if folder.is_dir()]
    assert {oct(folder.stat().st_mode & 0o777) for folder in folders} == {"0o700"}
    reset = operator.call("reset", "--yes", *forms[-1])
    assert (reset.code, "pl4nted" in reset.out + reset.err) == (0, False)
    for node in ("lab-1", "lab-2"):
        assert operator.sh(node, f"{HOLDING}; ls {BASE} 2>/dev/null; true") == ""
