"""Tables of reference pages that the code knows; the prose around them is written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.hccl.profiles import profile_rows
from ascendboot.hccl.variables import variable_rows
from ascendboot.ranktable.rules import rule_rows

PAGES = Path(__file__).parents[2] / "docs/reference"


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        ("hccl.md", variable_rows),
        ("rec-sdk-tf.md", profile_rows),
        ("rank-table-rules.md", rule_rows),
    ],
)
def test_the_first_table_of_the_page_is_that_of_the_code(
    page: str, rows: Callable[[], str]
) -> None:
    text = (PAGES / page).read_text(encoding="utf-8")
    _, _, after_head = text.partition("\n|---")
    listed = after_head.partition("\n\n")[0].partition("\n")[2] + "\n"
    assert listed == rows(), f"write these rows into docs/reference/{page}:\n{rows()}"
