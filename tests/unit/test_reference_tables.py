"""Reference pages and the schema for editors say what the code says."""

from __future__ import annotations

import pytest

from tests.reference_pages import ROOT, SCHEMA, page_tables, schema_text, with_tables

REGENERATE = "it is made from the code; write it: python -m tests.reference_pages"


@pytest.mark.parametrize("name", page_tables())
def test_the_tables_of_the_page_are_those_of_the_code(name: str) -> None:
    page = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert page == with_tables(page, page_tables()[name]), REGENERATE


def test_the_schema_for_editors_is_the_one_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), REGENERATE


def test_a_row_that_is_not_of_the_code_is_replaced() -> None:
    page = "# Title\n\n| a | b |\n|---|---|\n| old | row |\n\nThe end.\n"
    expected = page.replace("| old | row |", "| new | row |")
    assert with_tables(page, ["| new | row |\n"]) == expected
