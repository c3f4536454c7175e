"""Sections of a script's output: any content is kept, another frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers import base
from tests.fake_transport import framed

NAMES = st.from_regex(r"[a-z0-9_./-]{1,9}", fullmatch=True).filter(lambda name: name != "end")
SECTIONS = st.dictionaries(NAMES, st.tuples(st.integers(0, 255), st.binary()))


@settings(deadline=None)  # the machine may be busy
@given(parts=SECTIONS)
def test_sections_keep_any_content(parts: dict[str, tuple[int, bytes]]) -> None:
    expected = {name: base.Section(code, content) for name, (code, content) in parts.items()}
    assert base.split(framed(parts), "script") == expected


@settings(deadline=None)  # the machine may be busy
@given(parts=SECTIONS, data=st.data())
def test_truncated_sections_are_refused(
    parts: dict[str, tuple[int, bytes]], data: st.DataObject
) -> None:
    whole = framed(parts)
    with pytest.raises(NotUnderstoodError):
        base.split(whole[: data.draw(st.integers(0, len(whole) - 1))], "script")


@settings(deadline=None)  # the machine may be busy
@given(parts=SECTIONS, more=st.binary(min_size=1))
def test_output_after_the_last_section_is_refused(
    parts: dict[str, tuple[int, bytes]], more: bytes
) -> None:
    with pytest.raises(NotUnderstoodError):
        base.split(framed(parts) + more, "script")


def test_a_repeated_section_is_refused() -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        base.split(b"@@ uid 0 1\n0\n@@ uid 0 1\n0\n@@ end 0 0\n\n", "the script")
    assert str(refused.value) == (
        'the script: line 3 not understood: "@@ uid 0 1"; '
        "expected @@ NAME EXIT_CODE BYTES and as many bytes"
    )


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert base.Section(0, b"a\xff").text == "a�"
