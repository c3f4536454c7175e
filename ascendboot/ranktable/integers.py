"""Members of a table of version 2.0, in which numbers are integers and strings are strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.ranktable.fields import MOST_U32, cut, kind, placeholder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.problem import Judging


def integer_of(
    judging: Judging,
    members: Mapping[str, object],
    name: str,
    path: Path,
    *,
    least: int = 0,
    most: int = MOST_U32,
) -> int | None:
    """A whole number in its range; None after a problem was noted."""
    if name not in members:
        judging.say("missing", path, f"{name} is missing", name=name)
        return None
    value = members[name]
    if type(value) is not int or value < 0:
        words = f"{name} is {kind(value)}, not a whole number without quotes, 0 or more"
        judging.say("not-an-integer", (*path, name), words, name=name)
        return None
    if least <= value <= most:
        return value
    words = f"{name} {value} is not from {least} to {most}"
    judging.say(
        "out-of-range", (*path, name), words, name=name, value=value, least=least, most=most
    )
    return None


def string_of(
    judging: Judging,
    members: Mapping[str, object],
    name: str,
    path: Path,
    *,
    least: int = 0,
    most: int | None = None,
) -> str | None:
    """A string of a fitting length in bytes; None after a problem was noted."""
    if name not in members:
        judging.say("missing", path, f"{name} is missing", name=name)
        return None
    value = members[name]
    where = (*path, name)
    if not isinstance(value, str):
        words = f"{name} is {kind(value)}, not a string"
        judging.say("wrong-type", where, words, name=name)
        return None
    if placeholder(judging, value, name, path):
        return None
    length = len(value.encode())
    if length < least or (most is not None and length > most):
        words = f'{name} "{cut(value)}" has {length} bytes, and {least} to {most} are taken'
        judging.say(
            "out-of-range",
            where,
            words,
            name=f"{name} length",
            value=length,
            least=least,
            most=most,
        )
        return None
    return value
