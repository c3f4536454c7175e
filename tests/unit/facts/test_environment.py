"""What ranks are given, asked by bash on this machine and understood."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.node_facts import (
    CONFINEMENT,
    SINGLE_COPY,
    SURROUNDINGS,
    Confinement,
    NodeEnvironment,
    confinement_query,
    environment_query,
    granted_devices,
)
from ascendboot.facts.query import Answered, Fact, Unanswered, answer_to
from ascendboot.transport.api import Result
from tests.unit.checks import well

NODE = well.node(1, container="rec-sdk")
REFUSED = "print('refused Operation not permitted')"
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"


def understood(stdout: bytes, *, host: bool = False) -> Any:
    facts: Mapping[str, Fact[Any]] = environment_query(NODE)
    (fact,) = (confinement_query(NODE) if host else facts).values()
    result = {"exit_code": 0, "stdout": stdout, "stderr": b"", "duration_s": 0.1}
    return answer_to(fact, Result(node="lab-1", command=fact.command, **result))  # type: ignore[arg-type]


def run(script: str, *words: str, path: str = SEARCHED) -> bytes:
    argv = ("bash", "-c", script, "ascendboot", *words)
    return subprocess.run(argv, check=True, capture_output=True, env={"PATH": path}).stdout


def with_filter(script: str) -> str:
    """As on a node where seccomp filters."""
    return script.replace("</proc/self/status", "< <(echo 'Seccomp: 2')")


def test_a_machine_without_a_filter_answers() -> None:
    answer = understood(run(SURROUNDINGS, sys.executable, SINGLE_COPY))
    assert isinstance(answer, Answered)
    assert answer.value.memlock_kib is None or answer.value.memlock_kib > 0


def test_the_program_says_what_the_kernel_says() -> None:
    argv = (sys.executable, "-c", SINGLE_COPY)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] in ("allowed", "refused")
    closed = SINGLE_COPY.replace("child, ctypes.byref(ours)", "1 << 22, ctypes.byref(ours)")
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
def test_single_copy_is_tried_where_a_filter_is(
    words: tuple[str, str], mark: str, why: str
) -> None:
    answer = understood(run(with_filter(SURROUNDINGS).replace("/.dockerenv", mark), *words))
    assert isinstance(answer, Answered)
    assert answer.value.single_copy == why


def sections(**texts: str) -> bytes:
    plain = {"single_copy": "allowed", "device_nodes": "", "visible": "", "memlock": "64"}
    both = {**plain, "label": "", **texts, "end": ""}
    frames = (f"@@ {name} 0 {len(text)}\n{text}\n" for name, text in both.items())
    return "".join(frames).encode()


def test_all_of_it_is_read() -> None:
    answer = understood(
        sections(
            device_nodes="davinci5 davinci10 davinci_manager ",
            visible="ASCEND_VISIBLE_DEVICES=5,10",
            memlock="unlimited",
            label="docker-default (enforce)",
        )
    )
    assert answer == Answered(
        NodeEnvironment(
            device_nodes=frozenset({"davinci5", "davinci10", "davinci_manager"}),
            visible="5,10",
            label="docker-default (enforce)",
        )
    )
    assert isinstance(answer, Answered)
    assert answer.value.device_ids == (5, 10)


@pytest.mark.parametrize("memlock", ["", "much", "9" * 5000])
def test_a_limit_that_is_no_number_is_refused(memlock: str) -> None:
    assert isinstance(understood(sections(memlock=memlock)), Unanswered)


def test_denials_are_those_of_the_kernels_log(tmp_path: Path) -> None:
    line = '[ 9.1] audit: type=1400 apparmor="DENIED" operation="mount" profile="docker-default"'
    (tmp_path / "dmesg").write_text(f"#!/bin/bash\necho other\necho '{line}'\n")
    (tmp_path / "dmesg").chmod(0o755)
    enforce = tmp_path / "enforce"
    enforce.write_text("1")
    script = CONFINEMENT.replace("/sys/fs/selinux/enforce", str(enforce))
    answer = understood(run(script, path=f"{tmp_path}:{SEARCHED}"), host=True)
    assert answer == Answered(Confinement(enforcing=True, denials=(line,)))
    (tmp_path / "dmesg").write_text("#!/bin/bash\necho 'read kernel buffer failed' >&2; exit 1\n")
    enforce.unlink()
    assert understood(run(script, path=f"{tmp_path}:{SEARCHED}"), host=True) == Answered(
        Confinement()
    )


# ascend-docker-runtime (mind-cluster@22bb3d98, runtime/process/process.go)
@pytest.mark.parametrize(
    ("value", "ids"),
    [
        *(("void", ()), ("", ()), ("0", (0,)), ("1,3", (1, 3)), ("0-2,4", (0, 1, 2, 4))),
        *(("npu-1,npu-3", (1, 3)), ("Ascend910-1", (1,)), (" 7 , 5", (5, 7))),
    ],
)
def test_what_the_runtime_grants(value: str, ids: tuple[int, ...]) -> None:
    assert granted_devices(value) == ids


@pytest.mark.parametrize("value", ["all", "1,", "3-1", "-1", "1-2-3", "9" * 5000, "٣"])
def test_what_the_runtime_cannot_read(value: str) -> None:
    with pytest.raises(NotUnderstoodError):
        granted_devices(value)
