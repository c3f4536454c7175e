"""The question where A3's chips are in their super pod, run by bash against a stand-in."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from ascendboot.facts.api import Answer, Answered, Unanswered, answer_to
from ascendboot.facts.super_pods import super_pod_question
from ascendboot.parse.npu_smi import Npu, NpuMap
from ascendboot.parse.spod_info import SuperPodPlace
from ascendboot.transport.api import Result
from tests.unit.facts.test_npu_script import Stage

if TYPE_CHECKING:
    from pathlib import Path

ROWS = r"""
[ "$1 $2 $3 $4 $6" = "info -t spod-info -i -c" ] || exit 9
id=$(($5 * 2 + $7))
printf '\tSDID : %s\n\tSuper Pod Size : 384\n' $((40 << 22 | $5 << 18 | $7 << 16 | id))
printf '\tSuper Pod ID : 7\n\tServer Index : 40\n'
"""


def chips(count: int) -> NpuMap:
    return NpuMap(
        tuple(
            Npu(
                npu_id=i // 2,
                chip_id=i % 2,
                device_id=i,
                device_id_assumed=False,
                logic_id=i,
                chip_name="Ascend910",
            )
            for i in range(count)
        )
    )


@pytest.fixture(name="stage")
def _stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def asked(stage: Stage, npus: NpuMap) -> Answer[object]:
    fact = super_pod_question(npus)
    done = subprocess.run(
        fact.command.argv,
        env={"PATH": str(stage.folder), "HOME": "/nonexistent"},
        executable=stage.folder / "bash",
        capture_output=True,
        check=False,
    )
    result = Result(
        node="n1",
        command=fact.command,
        exit_code=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        duration_s=0.0,
    )
    return answer_to(fact, result)


def test_each_chip_is_asked_by_card_and_chip(stage: Stage) -> None:
    stage.put("npu-smi", ROWS)
    assert asked(stage, chips(4)) == Answered(
        {
            device: SuperPodPlace(
                super_device_id=40 << 22 | device // 2 << 18 | device % 2 << 16 | device,
                super_pod_id=7,
                size=384,
                server_index=40,
            )
            for device in range(4)
        }
    )


def test_a_server_in_no_super_pod_and_a_missing_tool_are_two_answers(stage: Stage) -> None:
    answer = asked(stage, chips(1))
    assert isinstance(answer, Unanswered)
    assert answer.kind == "missing"
    stage.put("npu-smi", "echo 'This device does not support querying spod-info.'; exit 247\n")
    answer = asked(stage, chips(1))
    assert answer == Unanswered(
        "failed",
        "could not ask for the super pod of the NPUs: npu-smi info -t spod-info: This device does "
        "not support querying spod-info.",
    )


def test_what_is_not_understood_is_no_place(stage: Stage) -> None:
    stage.put("npu-smi", "echo hello\n")
    answer = asked(stage, chips(1))
    assert isinstance(answer, Unanswered)
    assert answer.kind == "not-understood"
