"""Values of one name, held against each other and against what is stated: who differs, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LISTS = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
_SHOWN = 12
_LONG = 60


def differences(
    name: str, values: Mapping[int, Any], *, absent: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The ranks that have another value than most, or than rank 0 where no value leads, in words.

    None stands for a rank that has none; `absent` says so.
    """
    groups: dict[str, list[int]] = {}
    for rank in sorted(values):
        groups.setdefault(repr(values[rank]), []).append(rank)
    if len(groups) < 2:  # noqa: PLR2004  two are needed to differ
        return
    # The first of equals is the group with the lowest rank.
    most = max(groups.values(), key=len)
    rest = f"the other {len(most)}" if len(groups) == 2 else f"{len(most)} others"  # noqa: PLR2004
    for ranks in groups.values():
        if ranks is not most:
            value, usual = values[ranks[0]], values[most[0]]
            yield tuple(ranks), _told(name, value, usual, rest, absent)


def unlike_stated(
    name: str, values: Mapping[int, Any], should: Mapping[int, Any], *, absent: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The ranks that have something else than the inventory states for their node, in words."""
    groups: dict[str, list[int]] = {}
    for rank in should:
        if values[rank] != should[rank]:
            words = _told(name, values[rank], should[rank], "its node in the inventory", absent)
            groups.setdefault(words, []).append(rank)
    yield from ((tuple(ranks), words) for words, ranks in groups.items())


def meant(name: str, value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    """A list of paths without what counts for nothing: mpirun puts its own before it twice."""
    if name not in _LISTS or not isinstance(value, str):
        return value
    return ":".join(dict.fromkeys(part for part in value.split(":") if part)) or None


def _told(name: str, value: Any, usual: Any, rest: str, absent: str) -> str:  # noqa: ANN401
    if isinstance(value, dict) or isinstance(usual, dict):
        return f"{name} is not that of {rest} (it may be a secret, and is not shown)"
    if value is None:
        return f"{name} is {absent}, {_shown(usual)} on {rest}"
    if usual is None:
        return f"{name} is {_shown(value)}, {absent} on {rest}"
    parts, usual_parts = value.split(":"), usual.split(":")
    if max(len(value), len(usual)) <= _LONG or max(len(parts), len(usual_parts)) < 2:  # noqa: PLR2004
        return f"{name} is {_shown(value)}, {_shown(usual)} on {rest}"
    more = [part for part in parts if part not in usual_parts]
    less = [part for part in usual_parts if part not in parts]
    words = [f"has {_listed(more)}"] if more else []
    words += [f"lacks {_listed(less)}"] if less else []
    return f"{name} {' and '.join(words) or 'has another order'}, unlike {rest}"


def _shown(value: str) -> str:
    """A value of any process's environment, as one that a terminal takes."""
    printable = value.encode(errors="backslashreplace").decode()
    words = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in printable)
    words = words if len(words) <= 2 * _LONG else f"{words[: 2 * _LONG]}…"
    return words if words and " " not in words else f'"{words}"'


def _listed(parts: Sequence[str]) -> str:
    more = [f"{len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []
    return ", ".join([*map(_shown, parts[:_SHOWN]), *more])
