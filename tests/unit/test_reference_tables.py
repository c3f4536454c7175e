"""Reference pages and the schema for editors say what the code says."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.man_page import man_page
from tests.needs import missing
from tests.reference_pages import MAN_PAGE, ROOT, SCHEMA, page_tables, schema_text, with_tables

REGENERATE = "it is made from the code; write it: python -m tests.reference_pages"


@pytest.mark.parametrize("name", page_tables())
def test_the_tables_of_the_page_are_those_of_the_code(name: str) -> None:
    page = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    assert page == with_tables(page, page_tables()[name]), REGENERATE


def test_the_schema_for_editors_is_the_one_of_the_code() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), REGENERATE


def test_the_man_page_is_the_help_of_all_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCENDBOOT_FORKS", "64")  # the page has the built-in default
    page = MAN_PAGE.read_text(encoding="utf-8")
    assert page == man_page(), REGENERATE
    assert ".SH TRAIN\n" in page
    assert ".TP\n.B \\-p, \\-\\-plan\n" in page


def test_the_man_page_renders_without_warnings() -> None:
    if not shutil.which("mandoc"):
        missing("there is no mandoc here")
    lint = ["mandoc", "-T", "lint", "-W", "warning", str(MAN_PAGE)]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_a_row_that_is_not_of_the_code_is_replaced() -> None:
    page = "# Title\n\n| a | b |\n|---|---|\n| old | row |\n\nThe end.\n"
    expected = page.replace("| old | row |", "| new | row |")
    assert with_tables(page, ["| new | row |\n"]) == expected
