"""Reads an inventory file into a sheet, and notes what YAML may say and an inventory may not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml

from ascendboot.errors import InventoryError
from ascendboot.inventory.find import LIMIT
from ascendboot.inventory.sheet import Problem, Raw, Sheet, Spot, seen
from ascendboot.model.secrets import is_secret_name

if TYPE_CHECKING:
    from pathlib import Path

    from ascendboot.inventory.sheet import Value

_DEEPEST = 20
"""No key of an inventory stands deeper; composing a deeper one would exhaust the C stack."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
"""What no YAML may hold and UTF-8 may; named one by one, which is compiled in no time."""
_CORE = "tag:yaml.org,2002:"
_NUL = "has the character U+0000, which no name, path or variable can have; remove it"


def read(path: Path, *, file: str) -> Sheet:
    """The file at `path`, called `file` in messages.

    Raises:
        InventoryError: it cannot be read, or not one mapping can be made of it.
    """
    text = _text(path, file)
    problems: list[Problem] = []
    root = _compose(text, file, problems)
    if root is None:
        raise InventoryError(
            [f"{file}: states nothing; it begins with `cluster: NAME` and `nodes:`"]
        )
    reader = _Reader(problems)
    spot = Spot(1)
    data = reader.value(root, spot)
    if data is None:
        raise InventoryError([p.shown(file) for p in sorted(reader.problems)])
    if not isinstance(data, dict):
        what = f"{seen(data)} is not a mapping of keys; begin with `cluster: NAME` and `nodes:`"
        raise _refused(file, root.start_mark.line + 1, what)
    return Sheet(file, data, spot, reader.problems)


def _text(path: Path, file: str) -> str:
    content = _content(path, file)
    if len(content) > LIMIT:
        raise InventoryError(
            [f"{file}: is larger than {LIMIT // 1024**2} MiB; write many nodes as one range"]
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        what = f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        raise _refused(file, line, what) from error
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        what = f"the control character U+{ord(bad[0]):04X} stands here; remove it"
        raise _refused(file, line, what)
    return text


def _content(path: Path, file: str) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(LIMIT + 1)
    except IsADirectoryError as error:
        raise InventoryError([f"{file}: is a folder; name the YAML file in it"]) from error
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        what = f"{file}: could not be read: {why.lower()}; name another with --inventory"
        raise InventoryError([what]) from error


def _compose(text: str, file: str, problems: list[Problem]) -> yaml.Node | None:
    """The graph of nodes; aliases go into `problems`: they could make a small file endless.

    Raises:
        InventoryError: the text is not one YAML document, or is nested too deep.
    """
    depth, documents = 0, 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            line = event.start_mark.line + 1 if event.start_mark else 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _refused(file, line, "a second document (---) begins here; write one only")
            if depth > _DEEPEST:
                what = f"nested more than {_DEEPEST} deep; does a bracket miss its partner?"
                raise _refused(file, line, what)
            if isinstance(event, yaml.AliasEvent):
                what = f"*{event.anchor} is an alias; write it out, or use `groups`"
                problems.append(Problem(line, "", what))
        return yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise InventoryError([_syntax(error, text).shown(file)]) from error


def _refused(file: str, line: int, what: str) -> InventoryError:
    return InventoryError([Problem(line, "", what).shown(file)])


def _syntax(error: yaml.YAMLError, text: str) -> Problem:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    row, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines() or [""]
    line = lines[min(row, len(lines) - 1)]
    if re.match(r"\s*\t", line):
        what = "a tab stands in the indentation; use spaces"
    elif "{" in line and re.search(r"""[^\s"'\[,]\[""", line):
        what = "not YAML; between { and } put a range in quotes"
    else:
        why = getattr(error, "problem", None) or "it cannot be read"
        what = f"not YAML: {why}; check indentation, colons and quotes here and above"
    return Problem(row + 1, "", what, column=column + 1)


class _Reader:
    """Turns YAML nodes into values and spots, and notes what an inventory does not allow."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self._visited: set[int] = set()

    def value(self, node: yaml.Node, spot: Spot) -> Value | None:
        """The value of `node`, or None where a problem was noted; fills in `spot`."""
        if id(node) in self._visited:
            return None
        self._visited.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, spot)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
            return self._list(node, spot)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, spot)
        self._problem(spot, f"{_tag(node.tag, spot)} means nothing here; remove it")
        return None

    def _mapping(self, node: yaml.MappingNode, spot: Spot) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(line, spot.path, "a key must be a single word"))
                continue
            key = key_node.value
            if "\0" in key:
                self.problems.append(Problem(line, spot.path, f"the key {seen(key)} {_NUL}"))
                continue
            inner = spot.of_key(key, line)
            if key_node.tag == f"{_CORE}merge":
                self._problem(inner, "merge keys are not supported; use `groups` or `defaults`")
                continue
            if key in spot.keys:
                first = spot.keys[key].line
                self._problem(inner, f"stated twice: in lines {first} and {line}; keep one")
                continue
            spot.keys[key] = inner
            value = self.value(value_node, inner)
            if value is not None:
                values[key] = value
        return values

    def _list(self, node: yaml.SequenceNode, spot: Spot) -> list[Value]:
        values: list[Value] = []
        for index, item_node in enumerate(node.value):
            item = Spot(item_node.start_mark.line + 1, f"{spot.path}[{index}]")
            value = self.value(item_node, item)
            if value is not None:
                values.append(value)
                spot.items.append(item)
        return values

    def _scalar(self, node: yaml.ScalarNode, spot: Spot) -> Value | None:
        kind = node.tag.removeprefix(_CORE)
        text: str = node.value
        if "\0" in text:
            self._problem(spot, f"{seen(text)} {_NUL}")
            return None
        if kind == "null":
            self._problem(spot, "has no value; give it one, or remove it")
            return None
        if kind not in ("str", "int", "bool", "float", "timestamp", "value"):
            self._problem(spot, f"{_tag(node.tag, spot)} means nothing here; remove it")
            return None
        if kind in ("str", "value"):
            return text
        if kind == "int" and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
            return int(text)
        return Raw(text, _reading(kind, text))

    def _problem(self, spot: Spot, text: str) -> None:
        self.problems.append(Problem(spot.line, spot.path, text))


def _reading(kind: str, text: str) -> str:
    if kind == "bool":
        word = "true" if text.lower() in ("yes", "on", "true", "y") else "false"
        return word if text.lower() != word else "a yes-or-no value"
    if kind == "int" and re.fullmatch(r"[-+]?0[0-7_]{1,20}", text):
        return f"the octal number {int(text.replace('_', ''), 8)}"
    if kind == "int" and ":" in text:
        return "a number to the base of 60"
    return {"timestamp": "a date", "float": "a fraction"}.get(kind, "a number in a special form")


def _tag(tag: str, spot: Spot) -> str:
    """A secret that begins with `!` reads as a tag."""
    is_secret = is_secret_name(spot.path.rpartition(".")[2])
    return "what begins with ! here" if is_secret else f"the tag {tag.replace(_CORE, '!!')}"
