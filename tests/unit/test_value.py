"""Values are frozen, and are read from JSON as they were written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from ascendboot.value import Value, as_json, field, from_json


class Part(Value):
    numbers: tuple[int, ...]
    by_rank: Mapping[int, float] = field(default_factory=dict)


class Whole(Value, kw_only=True):
    folder: PurePosixPath
    parts: tuple[Part, ...] = ()
    note: str | None = field(default=None, name="remark")


WHOLE = Whole(folder=PurePosixPath("/a"), parts=(Part((1, 2), {3: 0.5}),), note="\udc80")


def test_a_value_is_read_as_it_was_written() -> None:
    document = {
        "folder": "/a",
        "parts": [{"numbers": [1, 2], "by_rank": {"3": 0.5}}],
        "remark": "\udc80",
    }
    assert as_json(WHOLE) == document
    assert from_json(json.loads(json.dumps({**document, "of later": 1})), Whole) == WHOLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folder": 3}, "folder: "),
        ({"parts": [{"numbers": ["x"]}]}, "parts[0].numbers[0]: Expected `int`, got `str`"),
        ({"parts": [{}]}, "parts[0]: Object missing required field `numbers`"),
    ],
)
def test_another_form_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its whole text is compared below
        from_json({**as_json(WHOLE), **change}, Whole)
    assert str(refused.value).startswith(message)


def test_what_is_no_json_is_no_part_of_a_document() -> None:
    with pytest.raises(NotImplementedError):
        as_json([object()])


def test_a_value_does_not_change() -> None:
    with pytest.raises(AttributeError):
        WHOLE.note = "else"  # type: ignore[misc]
    assert hash(Part((1,), ())) == hash(Part((1,), ()))  # type: ignore[arg-type]
