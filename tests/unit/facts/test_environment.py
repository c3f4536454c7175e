"""The environment of ranks, queried by bash on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts import node_facts
from ascendboot.facts.query import Answered, Fact, Unanswered, answer_to
from ascendboot.transport.api import read_script
from tests.fake_transport import Answer, framed
from tests.here import Here
from tests.unit.checks import well

NODE = well.node(1, container="rec-sdk")
REFUSED = "print('refused Operation not permitted')"


def understood(answer: Answer, *, host: bool = False) -> Any:
    facts: Mapping[str, Fact[Any]] = node_facts.environment_query(NODE)
    (fact,) = (node_facts.confinement_query(NODE) if host else facts).values()
    return answer_to(fact, answer.to(fact.command))


def run(here: Here, script: str, *words: str) -> Answer:
    return here(read_script(script, *words, purpose="try", timeout_s=30.0))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def with_filter(script: str) -> str:
    """The script as on a node with a seccomp filter."""
    return script.replace("</proc/self/status", "< <(echo 'Seccomp: 2')")


def test_a_machine_without_seccomp_answers(here: Here) -> None:
    answer = understood(run(here, node_facts.SURROUNDINGS, sys.executable, node_facts.SINGLE_COPY))
    assert well.value(answer).memlock_kib != 0


def test_the_copy_reports_the_error_of_the_kernel() -> None:
    argv = (sys.executable, "-c", node_facts.SINGLE_COPY)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] in ("allowed", "refused")
    closed = node_facts.SINGLE_COPY.replace(
        "child, ctypes.byref(ours)", "1 << 22, ctypes.byref(ours)"
    )
    done = subprocess.run((*argv[:2], closed), check=True, capture_output=True, text=True)
    assert done.stdout == "refused No such process\n"


@pytest.mark.parametrize(
    ("words", "mark", "why"),
    [
        ((sys.executable, REFUSED), "/absent", "Operation not permitted"),
        ((sys.executable, "print('allowed')"), "/", ""),
        (("/no/python", REFUSED), "/absent", ""),
        (("/no/python", REFUSED), "/", "in Docker as a rule, and it could not be tried"),
        (("", ""), "/", ""),
    ],
)
def test_single_copy_is_tried_if_seccomp_is_active(
    here: Here, words: tuple[str, str], mark: str, why: str
) -> None:
    answer = understood(
        run(here, with_filter(node_facts.SURROUNDINGS).replace("/.dockerenv", mark), *words)
    )
    assert well.value(answer).single_copy == why


def sections(**texts: str) -> Answer:
    plain = {"single_copy": "allowed", "device_nodes": "", "visible": "", "memlock": "64"}
    return Answer(framed({**plain, "label": "", **texts}))


def test_every_section_is_parsed() -> None:
    answer = understood(
        sections(
            device_nodes="davinci5 davinci10 davinci_manager ",
            visible="ASCEND_VISIBLE_DEVICES=5,10",
            memlock="unlimited",
            label="docker-default (enforce)",
        )
    )
    assert answer == Answered(
        node_facts.NodeEnvironment(
            device_nodes=frozenset({"davinci5", "davinci10", "davinci_manager"}),
            visible="5,10",
            label="docker-default (enforce)",
        )
    )
    assert well.value(answer).device_ids == (5, 10)


def test_item_17_devices_grants_limits_and_label_are_those_of_the_process(here: Here) -> None:
    (here.folder / "davinci5").symlink_to("/dev/null")
    (here.folder / "environ").write_bytes(b"A=1\0ASCEND_VISIBLE_DEVICES=4-5\0B=2\0")
    (here.folder / "label").write_bytes(b"docker-default (enforce)\n\0")
    script = node_facts.SURROUNDINGS.replace("/dev/davinci[", f"{here.folder}/davinci[")
    script = script.replace("#/dev/", f"#{here.folder}/")
    for path, file in (("/proc/1/environ", "environ"), ("/proc/self/attr/current", "label")):
        script = script.replace(path, f"{here.folder}/{file}")
    seen = well.value(understood(run(here, f"ulimit -l 32\n{script}")))
    assert (seen.device_ids, seen.visible, seen.memlock_kib) == ((5,), "4-5", 32)
    assert seen.label == "docker-default (enforce)"


@pytest.mark.parametrize("memlock", ["", "much", "9" * 5000])
def test_a_limit_that_is_not_a_number_is_refused(memlock: str) -> None:
    assert isinstance(understood(sections(memlock=memlock)), Unanswered)


def test_denials_are_those_of_the_kernels_log(here: Here) -> None:
    line = '[ 9.1] audit: type=1400 apparmor="DENIED" operation="mount" profile="docker-default"'
    enforce = here.folder / "enforce"
    script = node_facts.CONFINEMENT.replace("/sys/fs/selinux/enforce", str(enforce))
    here.put("dmesg", "echo 'read kernel buffer failed' >&2; exit 1")
    assert understood(run(here, script), host=True) == Answered(node_facts.Confinement())
    here.put("dmesg", f"echo other\necho '{line}'")
    enforce.write_text("1")
    answer = understood(run(here, script), host=True)
    assert answer == Answered(node_facts.Confinement(enforcing=True, denials=(line,)))


# ascend-docker-runtime (mind-cluster@22bb3d98, runtime/process/process.go)
@pytest.mark.parametrize(
    ("value", "ids"),
    [
        *(("void", ()), ("", ()), ("0", (0,)), ("1,3", (1, 3)), ("0-2,4", (0, 1, 2, 4))),
        *(("npu-1,npu-3", (1, 3)), ("Ascend910-1", (1,)), (" 7 , 5", (5, 7))),
    ],
)
def test_granted_devices_are_parsed(value: str, ids: tuple[int, ...]) -> None:
    assert node_facts.granted_devices(value) == ids


@pytest.mark.parametrize("value", ["all", "1,", "3-1", "-1", "1-2-3", "9" * 5000, "٣"])
def test_unknown_forms_of_granted_devices_are_refused(value: str) -> None:
    with pytest.raises(NotUnderstoodError):
        node_facts.granted_devices(value)
