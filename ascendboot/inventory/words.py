"""What pydantic has against an inventory, in the words of its keys."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from ascendboot.inventory import shape
from ascendboot.inventory.keys import InventoryKeys
from ascendboot.inventory.kinds import SAID, TAG
from ascendboot.inventory.node_keys import NodeKeys
from ascendboot.inventory.refused import SECRETS, is_secret
from ascendboot.inventory.sheet import Raw, seen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pydantic_core import ErrorDetails

    from ascendboot.inventory.sheet import Location, Sheet, Spot, Value


_SHOWN = 60
_MOST_COMPARED = 50_000


class _Gone:
    """Marks a refused value until the sweep."""


def validate(sheet: Sheet) -> InventoryKeys:
    """The keys of the sheet; what is wrong with one is reported and the key then left out.

    So the checks that follow see everything else, and no problem hides another.
    """
    reported = False
    while True:
        try:
            return InventoryKeys.model_validate(sheet.data)
        except ValidationError as error:
            problems = error.errors(include_url=False)
        for problem in problems:
            location = _location(problem)
            if not reported:
                sheet.report(sheet.spot.at(*location), _sentence(problem, location, sheet))
            _mark(sheet.data, location)
        _sweep(sheet.data, sheet.spot)
        reported = True  # a list that lost all its items follows from what was reported


def did_you_mean(word: str, known: Collection[str], sheet: Sheet) -> str:
    """`; did you mean "…"?` when one of `known` is close, else nothing.

    Comparing words takes its time: a sheet with more slips than anybody reads gets no more hints.
    """
    if sheet.compared > _MOST_COMPARED:
        return ""
    sheet.compared += len(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def no_such(what: str, word: str, known: Collection[str], sheet: Sheet) -> str:
    """The sentence that nothing of the kind `what` has the name `word`."""
    hint = did_you_mean(word, known, sheet)
    if not hint:
        hint = f"; write for example {next(iter(known))}" if known else f"; state a {what} first"
    return f'no {what} is called "{word}"{hint}'


def _location(problem: ErrorDetails) -> Location:
    return tuple(
        step for step in problem["loc"] if isinstance(step, int) or not step.startswith(TAG)
    )


def _sentence(problem: ErrorDetails, location: Location, sheet: Sheet) -> str:
    kind = problem["type"]
    if kind == SAID:
        return str(problem["ctx"]["sentence"])
    if kind == "extra_forbidden":
        return _unknown(location, sheet)
    if kind == "missing":
        return f"{location[-1]} is missing; {_example(location)}"
    return _wrong(problem["input"], location)


def _unknown(location: Location, sheet: Sheet) -> str:
    key, known = str(location[-1]), shape.at(location[:-1]).get("properties", {})
    if is_secret(key):
        return f"{SECRETS}; ssh uses your keys and your agent (`identity` names a key)"
    if len(location) == 1 and key in NodeKeys.model_fields:
        return "a node has this key; write it under `defaults` or under a node"
    hint = did_you_mean(key, known, sheet)
    if key == "hccl" and "env" in known:
        return "stands at the top level of an inventory; what nodes have by themselves, under `env`"
    if not hint and key in InventoryKeys.model_fields:
        return "stands at the top level of an inventory, not here"
    return f"unknown key{hint}" if hint else f"unknown key; known here: {', '.join(known)}"


def _wrong(value: Any, location: Location) -> str:  # noqa: ANN401 (whatever stood in the file)
    wanted = shape.at(location)
    kind = wanted.get("x-kind") or f"a mapping with {_listed(wanted['properties'])}"
    if isinstance(value, Raw) and len(value.text) > _SHOWN:
        shown = f"{value.text[:_SHOWN]}…"
        return f"{shown} is {value.reading} in YAML, not {kind}; {_example(location)}"
    if isinstance(value, Raw):
        return f"{value.text} is {value.reading} in YAML, not {kind}; {_repair(value, wanted)}"
    if isinstance(value, int) and wanted.get("type") == "string":
        return f'{value} is a number, not {kind}; put it in quotes: "{value}"'
    return f"{seen(value)} is not {kind}; {_example(location)}"


def _listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _repair(value: Raw, wanted: shape.Shape) -> str:
    if wanted.get("type") == "integer":
        digits = value.text.lstrip("0")
        return f"write {digits}" if digits.isdecimal() else "write its digits alone"
    return f'put it in quotes if it is meant: "{value.text}"'


def _example(location: Location) -> str:
    """`write for example `port: 22``."""
    example: object = None
    named: Location = location
    while named:
        examples = shape.at(named).get("examples")
        if isinstance(named[-1], str) and examples:
            example = examples[0]
            break
        named = named[:-1]
    text = yaml.safe_dump({named[-1]: example}, default_flow_style=True, width=1000).strip()
    return f"write for example `{text[1:-1]}`"


def _mark(data: Value, location: Location) -> None:
    """Put a mark where the value at `location`, or the last one on the way there, stands."""
    holder: Any = None
    value: Any = data
    key: str | int | None = None
    for step in location:
        if isinstance(value, _Gone):
            return
        inside = step in value if isinstance(value, dict) else isinstance(value, list)
        if not inside:
            break
        holder, key, value = value, step, value[step]
    if holder is not None:
        holder[key] = _Gone()


def _sweep(value: Value, spot: Spot) -> None:
    """Drop what is marked; a list's spots keep step with its values."""
    if isinstance(value, dict):
        for key in [k for k, v in value.items() if _is_gone(v)]:
            del value[key]
        for key, inner in value.items():
            _sweep(inner, spot.keys[key])
    elif isinstance(value, list):
        kept = [i for i, inner in enumerate(value) if not _is_gone(inner)]
        value[:] = [value[i] for i in kept]
        spot.items[:] = [spot.items[i] for i in kept]
        for inner, item in zip(value, spot.items, strict=True):
            _sweep(inner, item)


def _is_gone(value: object) -> bool:
    return isinstance(value, _Gone)
