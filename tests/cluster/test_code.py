"""The training code on the practice cluster: compared, sent from the control machine, removed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Ended, Operator

pytestmark = pytest.mark.cluster

NODES = ("lab-1", "lab-2")
PATH = "/srv/ascendboot-test/little_demo"
MAIN_2 = "print('hello')\n"
MAIN = "import os, helper\nprint(helper.WORD, os.getcwd())\n"
ALL_FILES = f"cd {PATH} 2>/dev/null && find . -type f | sort | xargs sha256sum"


@pytest.fixture(scope="module")
def operator(practice_cluster: Lab) -> Iterator[Operator]:
    operator = Operator(practice_cluster)
    operator.wipe()
    yield operator
    operator.on_all("rm -rf /srv/ascendboot-test")
    operator.wipe()


@pytest.fixture
def source(operator: Operator) -> Path:
    folder = operator.lab.directory / "little_demo"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(MAIN)
    (folder / "helper.py").write_text("WORD = 'first'\n")
    (folder / "run.sh").write_text("#!/bin/bash\n")
    (folder / "run.sh").chmod(0o750)
    (folder / "data/big").write_bytes(bytes(range(256)) * 12_345)
    return folder


@pytest.fixture
def never_sent(operator: Operator, source: Path) -> Path:
    """An inventory that states the source; lab-2 already has another file there."""
    operator.wipe()
    operator.on_all(f"rm -rf {PATH}")
    operator.put("lab-2", f"{PATH}/run.sh", "older\n")
    return stated(operator, source=str(source))


@pytest.fixture
def sent(operator: Operator, source: Path) -> Path:
    """An inventory that states the source; the nodes have exactly that code."""
    inventory = stated(operator, source=str(source))
    operator.setup("--delete-code", inventory=inventory, exits=0)
    return inventory


def stated(operator: Operator, **keys: object) -> Path:
    document = operator.document()
    return operator.inventory("code.yaml", code={**document["code"], "path": PATH, **keys})


def code_results(ended: Ended) -> list[tuple[str, str, str]]:
    results = ended.json["results"]
    return [(r["node"], r["outcome"], r["detail"]) for r in results if r["phase"] == "code"]


def collective(operator: Operator, inventory: Path) -> list[str]:
    """The results of the collective check."""
    checked = operator.call("check", "--collective", "--json", inventory=inventory)
    results = checked.json["results"]
    return list({r["detail"]: None for r in results if r["phase"] == "collective"})


def test_code_is_sent_once_and_is_then_equal_everywhere(
    operator: Operator, never_sent: Path, source: Path
) -> None:
    planned = operator.setup("--plan", inventory=never_sent)
    told = "would send 4 files, 3.2 MB: data/big, helper.py, main.py, run.sh"
    assert code_results(planned) == [(node, "would_change", told) for node in NODES]
    assert operator.sh("lab-2", ALL_FILES).split()[1:] == ["./run.sh"]
    first = operator.setup(inventory=never_sent, exits=0)
    assert {outcome for _, outcome, _ in code_results(first)} == {"changed"}
    here = operator.sh("lab-1", ALL_FILES)
    digests = {line.split()[1]: line.split()[0] for line in here.splitlines()}
    assert digests == {
        f"./{path.relative_to(source)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in source.rglob("*")
        if path.is_file()
    }
    assert operator.sh("lab-2", ALL_FILES) == here
    assert operator.sh("lab-2", f"stat -c %a {PATH}/run.sh {PATH}/main.py") == "750\n644\n"
    operator.put("lab-1", f"{PATH}/checkpoint", "weights")
    second = operator.setup(inventory=never_sent)
    assert (second.code, second.outcomes("changed")) == (0, [])
    third = operator.setup("--delete-code", inventory=never_sent)
    assert third.outcomes("changed") == [("lab-1", "files", "changed")]
    assert operator.sh("lab-1", ALL_FILES) == here


def test_one_byte_that_differs_on_a_node_or_here_is_named_before_each_job(
    operator: Operator, sent: Path, source: Path
) -> None:
    operator.put("lab-2", f"{PATH}/helper.py", "WORD = 'First'\n", mode="644")
    refused = operator.call("train", "main.py", exits=125)
    assert f"lab-2: not ready: helper.py is not as in {source}; run setup" in refused.err
    (source / "helper.py").write_text("WORD = 'second'\n")
    refused = operator.call("train", "main.py")
    assert f"lab-[1-2]: not ready: helper.py is not as in {source}; run setup" in refused.err
    checked = operator.call("check", "--json", inventory=sent)
    words = "setup would send 1 file, 16 bytes: helper.py. Run setup."
    assert [r["detail"] for r in checked.json["results"] if r["phase"] == "code"] == [
        f"warning: {node}: the code is not that of the source: {words}" for node in NODES
    ]
    [met] = collective(operator, sent)
    assert met.endswith(f"lab-[1-2]: not ready: helper.py is not as in {source}; run setup.")


def test_code_that_lies_on_the_nodes_must_be_equal(operator: Operator) -> None:
    inventory = stated(operator, exclude=["*.log"])
    for node in ("lab-1", "lab-2"):
        operator.sh(node, f"rm -rf {PATH}")
        operator.put(node, f"{PATH}/main.py", MAIN_2)
        operator.put(node, f"{PATH}/{node}.log", node)
    operator.setup(inventory=inventory, exits=0)
    operator.call("train", "main.py", "--plan", exits=0)
    operator.put("lab-2", f"{PATH}/main.py", "print('hellp')\n")
    refused = operator.call("train", "main.py", exits=125)
    assert "lab-2: not ready: main.py differs from lab-1; make the folders equal" in refused.err
    blocked = operator.setup(inventory=inventory, exits=1)
    [detail] = blocked.details("blocked")
    assert detail.startswith("lab-2: main.py differs from lab-1. Make the folders equal")

    # or have the primary send its own
    inventory = stated(operator, exclude=["*.log"], source="primary")
    operator.put("lab-1", f'"{PATH}/pkg/it\'s new.py"', "x = 1\n", mode="640")
    words = f"2 files, {len(MAIN_2) + 6} bytes: main.py, pkg/it's new.py"
    has = f"{PATH} has the 2 files of lab-1"
    sent = operator.setup(inventory=inventory, exits=0)
    assert code_results(sent) == [("lab-1", "ok", has), ("lab-2", "changed", f"sent {words}")]
    assert operator.sh("lab-2", f"cd {PATH} && stat -c '%a %n' */* && cat main.py") == (
        f"640 pkg/it's new.py\n{MAIN_2}"
    )
    operator.put("lab-1", f"{PATH}/checkpoint", "weights", mode="644")
    operator.call("train", "main.py", "--plan", exits=0)
    [met] = collective(operator, inventory)
    assert met.startswith("16 ranks met by Open MPI v4.1")
    operator.put("lab-2", f"{PATH}/main.py", MAIN_2.upper())
    refused = operator.call("train", "main.py", "--plan")
    assert "lab-2: not ready: main.py is not as in lab-1; run setup" in refused.err
    [met] = collective(operator, inventory)
    assert met.endswith("lab-2: not ready: main.py is not as in lab-1; run setup.")


def test_code_goes_into_containers_and_out_again(bring_up: Callable[..., Lab]) -> None:
    operator = Operator(bring_up(nodes=2, devices=1, containers=True))
    folder = operator.lab.directory / "little_demo"
    folder.mkdir()
    (folder / "main.py").write_text(MAIN)
    (folder / "helper.py").write_text("WORD = 'inside'\n")
    inventory = stated(operator, source=str(folder))
    done = operator.setup(inventory=inventory, exits=0)
    assert {outcome for _, outcome, _ in code_results(done)} == {"changed"}
    assert operator.sh("lab-2", "ls /srv") == ""
    job = operator.call("train", "main.py")
    assert sorted(job.out.splitlines()) == [f"lab-{n}:{n - 1} | inside {PATH}" for n in (1, 2)]
    reset = operator.call("reset", "--yes", "--json", inventory=inventory)
    told = [r["detail"] for r in reset.json["results"] if r["step"] == "code"]
    assert told == ["removed 2 files of the code that setup sent in the container rec-sdk"] * 2
