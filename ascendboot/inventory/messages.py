"""Error messages of the inventory: file, line, what was found, what is allowed."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ascendboot.inventory.schema import InventoryKeys, NodeKeys, resolve, shape_at
from ascendboot.inventory.values import SENTENCE, TAG
from ascendboot.inventory.yaml import Location, Raw, Sheet, YamlValue, described

SECRETS = "secrets never stand in an inventory"
_SECRET = re.compile(
    r"(.*[_-])?(pass|passwd|password|passphrase|secret|credentials?)([_-].*)?", re.IGNORECASE
)
_SHOWN = 60
_MOST_COMPARED = 50_000


def validate(sheet: Sheet) -> InventoryKeys:
    """The keys of the sheet; a key that is wrong is reported and then left out.

    So the checks that follow see everything else, and no problem hides another.
    """
    is_reported = False
    while True:
        try:
            return InventoryKeys.model_validate(sheet.data)
        except ValidationError as error:
            problems = error.errors(include_url=False)
        locations = [_location(problem) for problem in problems]
        for problem, location in zip(problems, locations, strict=True):
            if not is_reported:
                sheet.report(sheet.mark.at(*location), _sentence(problem, location, sheet))
        # the inner ones first, and the last items of a list first
        for location in sorted({_existing(sheet.data, x) for x in locations}, reverse=True):
            _remove(sheet, location)
        is_reported = True  # a list that lost all its items follows from what was reported


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
    if kind == SENTENCE:
        return str(problem["ctx"]["sentence"])
    if kind == "extra_forbidden":
        return _unknown(location, sheet)
    if kind == "missing":
        return f"{location[-1]} is missing; {_example(location)}"
    return _wrong(problem["input"], location)


def _unknown(location: Location, sheet: Sheet) -> str:
    key, shape = str(location[-1]), shape_at(location[:-1])
    forms = (shape, *map(resolve, shape.get("oneOf", ())))
    known = {name: inner for form in forms for name, inner in form.get("properties", {}).items()}
    if _SECRET.fullmatch(key):
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
    wanted = shape_at(location)
    *most, last = wanted.get("properties", [""])
    listed = f"{', '.join(most)} and {last}" if most else last
    kind = wanted.get("x-kind") or f"a mapping with {listed}"
    if isinstance(value, Raw):
        shown, digits = value.text, value.text.lstrip("0")
        if len(shown) > _SHOWN:
            shown, repair = f"{shown[:_SHOWN]}…", _example(location)
        elif wanted.get("type") == "integer":
            repair = f"write {digits}" if digits.isdecimal() else "write its digits alone"
        elif wanted.get("type") == "boolean":
            repair = "write true or false"
        else:
            repair = f'put it in quotes if it is meant: "{shown}"'
        return f"{shown} is {value.reading} in YAML, not {kind}; {repair}"
    if isinstance(value, int) and wanted.get("type") == "string":
        return f'{value} is a number, not {kind}; put it in quotes: "{value}"'
    return f"{described(value)} is not {kind}; {_example(location)}"


def _example(location: Location) -> str:
    """`write for example `port: 22``."""
    ways = (location[:end] for end in range(len(location), 0, -1))
    keys = ((str(way[-1]), shape_at(way)) for way in ways if isinstance(way[-1], str))
    key, shape = next((key, shape) for key, shape in keys if "examples" in shape)
    text = _written(key, json.dumps(shape["examples"][0]))
    return f"write for example `{text[1:-1]}`"


@cache
def _written(key: str, value: str) -> str:
    """A key with this JSON value as YAML writes it; thousands of problems may show the same."""
    return yaml.safe_dump({key: json.loads(value)}, default_flow_style=True, width=1000).strip()


def _existing(data: YamlValue, location: Location) -> Location:
    """`location`, or the last one on the way there that has a value."""
    value: Any = data
    for depth, step in enumerate(location):
        inside = step in value if isinstance(value, dict) else isinstance(value, list)
        if not inside:
            return location[:depth]
        value = value[step]
    return location


def _remove(sheet: Sheet, location: Location) -> None:
    """Remove a value; the positions of a list keep step with its values."""
    *way, last = location
    holder: Any = sheet.data
    for step in way:
        holder = holder[step]
    del holder[last]
    if isinstance(last, int):
        del sheet.mark.at(*way).items[last]
