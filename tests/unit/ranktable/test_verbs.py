"""The verbs: flags in, text or JSON out, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from ascendboot.tasks import ranktable

TABLES = Path(__file__).parent.parent.parent / "data/ranktables"
GOOD = str(TABLES / "hccl-doc_A2_v1.0.json")
BAD = str(TABLES / "NEG_version_unknown.json")
NONE = str(TABLES / "hccl-doc_A5_v2.0_TOPOFILE.json")


def test_validate_says_that_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    ranktable.validate(Context(), GOOD, product="a2")
    assert capfd.readouterr().out == f"{GOOD}: valid: version 1.0, judged for A2\n"


@pytest.mark.parametrize(("files", "code"), [([BAD], 1), ([BAD, NONE], 2), ([NONE], 2)])
def test_validate_exits_with_the_worst_of_all_files(
    files: list[str], code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exit) as caught:
        ranktable.validate(Context(), GOOD, file=files)
    assert caught.value.code == code
    told = [line.partition(":")[0] for line in capfd.readouterr().out.splitlines()]
    assert list(dict.fromkeys(told)) == [GOOD, *files]


def test_validate_as_json_has_nothing_else_on_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Exit):
        ranktable.validate(Context(), BAD, json=True)
    out, err = capfd.readouterr()
    document: dict[str, Any] = json.loads(out)
    assert (err, document["exit_code"]) == ("", 1)
    assert [problem["id"] for problem in document["files"][0]["problems"]] == ["version-unknown"]


@pytest.mark.parametrize("flag", ["product", "job"])
def test_unknown_words_are_wrong_use(flag: str) -> None:
    with pytest.raises(Exit, match=f'--{flag}: "x" is none of ') as caught:
        ranktable.validate(Context(), GOOD, **{flag: "x"})
    assert caught.value.code == 2
