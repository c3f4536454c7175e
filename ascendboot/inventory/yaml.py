"""YAML with the position of every value, and where the inventory file is found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

import yaml

from ascendboot.errors import InventoryError, UsageError
from ascendboot.model.secrets import is_secret_name, without_secrets
from ascendboot.value import YAML_LOADER, Struct, Value, field

LIMIT = 1024 * 1024
"""The largest inventory, in bytes; ranges keep thousands of nodes far below it."""

FOLDER = "inventories"
VARIABLE = "ASCENDBOOT_INVENTORY"


def locate(
    name: str | None,
    *,
    cwd: Path,
    environ: Mapping[str, str],
    current: Path,
    usual: Path | None = None,
) -> Path:
    """The inventory called `name`; without a name the one in the environment, last set up, `usual`.

    The file `current` holds the path of the one last set up. UsageError: what was tried instead.
    """
    if name is None and not environ.get(VARIABLE):
        return _last_set_up(cwd, current, usual)
    source = f"${VARIABLE}: " if name is None else ""
    name = environ[VARIABLE] if name is None else name
    if not name.strip() or "\0" in name:
        raise UsageError(f'{source}"{name.strip()}" names no inventory; name a YAML file')
    names = [name] if name.endswith((".yaml", ".yml")) else [name, f"{name}.yaml"]
    tried = [*map(Path, names), *(Path(FOLDER, n) for n in names if not Path(n).is_absolute())]
    for path in tried:
        if _is_file(cwd / path):
            return cwd / path
    if (cwd / name).is_dir():
        raise UsageError(f"{source}{name} is a folder; name the YAML file in it")
    words = f"{source}could not find the inventory {name}: tried {', '.join(map(str, tried))}; "
    raise UsageError(words + (_known(cwd) or "name a YAML file"))


def _last_set_up(cwd: Path, current: Path, usual: Path | None) -> Path:
    beside = current.parent.parent
    shown = current.relative_to(cwd) if current.is_relative_to(cwd) else current
    try:
        recorded = os.fsdecode(current.read_bytes()).strip()
    except FileNotFoundError as error:
        if (lab := current.with_name("lab.yaml")).is_file():
            return lab  # the practice cluster here, which is not set up yet
        if usual is not None:
            return usual
        known = f"{known}: use --inventory NAME" if (known := _known(cwd)) else ""
        raise UsageError(
            f"no inventory is named: --inventory is not given, ${VARIABLE} is not set, and no "
            f"cluster was set up from here ({shown} is not there); "
            + (known or "use --inventory FILE")
        ) from error
    except OSError as error:
        raise UsageError(f"{shown}: could not be read: {error}; use --inventory") from error
    if not recorded or not _is_file(beside / recorded):
        words = f"{shown}: names the inventory {recorded or '(nothing)'}, which is not there"
        raise UsageError(f"{words}; use --inventory, or run setup again")
    return beside / recorded


def _is_file(path: Path) -> bool:
    """Whether a file of any kind is there, readable or not: `load` reports why it is not."""
    return os.path.lexists(path) and not path.is_dir()


def _known(cwd: Path) -> str:
    names = ", ".join(sorted(path.stem for path in (cwd / FOLDER).glob("*.yaml")))
    return f"{FOLDER}/ holds {names}" if names else ""


_SHOWN = 60
"""Messages show at most so many characters of a value."""

_PASSWORD = re.compile(r":[^@]*@")
"""As in root:PASSWORD@host; messages do not repeat it."""


class Raw(Value):
    """A value that YAML reads as something other than a text or a plain whole number."""

    text: str
    """As written in the file."""
    reading: str
    """What YAML makes of it: "the octal number 10"."""


YamlValue: TypeAlias = "str | int | Raw | list[YamlValue] | dict[str, YamlValue]"
Location: TypeAlias = "tuple[str | int, ...]"


class Mark(Struct):
    """Where a value stands, and where the values inside it stand."""

    line: int
    path: str = ""
    keys: dict[str, Mark] = field(default_factory=dict)
    items: list[Mark] = field(default_factory=list)

    def at(self, *location: str | int) -> Mark:
        """The mark of the value at `location`, or of the last one on the way that exists."""
        mark = self
        for step in location:
            if isinstance(step, int) and step < len(mark.items):
                mark = mark.items[step]
            elif isinstance(step, str) and step in mark.keys:
                mark = mark.keys[step]
            else:
                break
        return mark


WHOLE = 0
"""The line of a problem that concerns the whole file."""


class Problem(Value, order=True):
    """Something to be put right in the inventory."""

    line: int
    path: str
    text: str
    column: int = 0

    def shown(self, file: str) -> str:
        """`file:line: key.path: what was seen; what to do`."""
        place = ":".join(str(p) for p in (file, self.line, self.column) if p)
        message = ": ".join(part for part in (place, self.path, self.text) if part)
        return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in message)


class Sheet(Struct):
    """A file that was read: its values, their marks, and the problems seen so far."""

    file: str
    data: dict[str, YamlValue]
    mark: Mark
    problems: list[Problem]
    compared: int = 0
    """How many words were compared to find hints; limits the time."""

    def report(self, mark: Mark, text: str) -> None:
        """Note a problem with the value at `mark`."""
        self.problems.append(Problem(mark.line, mark.path, text))

    def refuse_if_problems(self) -> None:
        """Raise an InventoryError with all problems by line, if there are any."""
        if self.problems:
            by_line = sorted(set(self.problems), key=attrgetter("line", "path", "text"))
            raise InventoryError([problem.shown(self.file) for problem in by_line])


def described(value: object) -> str:
    """A value as it is called in messages: `"abc"`, `12`, `a list`."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, Raw):
        return value.text
    if not isinstance(value, str):
        return str(value)
    lines = value.splitlines()
    if lines[1:]:
        return f"a text of {len(lines)} lines"
    shown = _PASSWORD.sub(":***@", without_secrets(value))
    return f'"{shown}"' if len(shown) <= _SHOWN else f'"{shown[: _SHOWN - 1]}…"'


_DEEPEST = 20
_TOO_DEEP = f"nested more than {_DEEPEST} deep; does a bracket miss its partner?"
"""No key of an inventory stands deeper; composing a deeper one would exhaust the C stack."""

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
"""Characters of UTF-8 that YAML forbids; listed one by one, because that compiles fast."""
_CORE = "tag:yaml.org,2002:"
_NUL = "has the character U+0000, which no name, path or variable can have; remove it"


def read(
    path: Path,
    *,
    file: str,
    begins: str = "`cluster: NAME` and `nodes:`",
    has_nulls: bool = False,
    may_be_empty: bool = False,
    text: str | None = None,
) -> Sheet:
    """The file at `path`, called `file` in messages; InventoryError if it is not one mapping.

    `has_nulls`: a key may have no value. `text`: what was read of it already, as of a pipe.
    """
    text = read_text(path, file) if text is None else text
    problems: list[Problem] = []
    root = _compose(text, file, problems)
    if root is None and may_be_empty and not problems:
        return Sheet(file, {}, Mark(1), problems)
    if root is None:
        raise _refused(file, WHOLE, f"states nothing; it begins with {begins}")
    mark = Mark(1)
    data = _Reader(problems, has_nulls=has_nulls).value(root, mark)
    if data is None:
        raise InventoryError([problem.shown(file) for problem in sorted(problems)])
    if not isinstance(data, dict):
        what = f"{described(data)} is not a mapping of keys; begin with {begins}"
        raise _refused(file, root.start_mark.line + 1, what)
    return Sheet(file, data, mark, problems)


def read_text(path: Path, file: str) -> str:
    """The text of a file, called `file` in messages; InventoryError if it is none."""
    try:
        with path.open("rb") as stream:
            content = stream.read(LIMIT + 1)
    except IsADirectoryError as error:
        raise _refused(file, WHOLE, "is a folder; name the YAML file in it") from error
    except (OSError, ValueError) as error:
        why = ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
        raise _refused(file, WHOLE, f"could not be read: {why}; name another file") from error
    if len(content) > LIMIT:
        what = f"is larger than {LIMIT // 1024**2} MiB; write many nodes as one range"
        raise _refused(file, WHOLE, what)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _refused(file, line, what) from error
    if bad := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        what = f"the control character U+{ord(bad[0]):04X} stands here; remove it"
        raise _refused(file, line, what)
    return text


def _refused(file: str, line: int, what: str) -> InventoryError:
    return InventoryError([Problem(line, "", what).shown(file)])


def _compose(text: str, file: str, problems: list[Problem]) -> yaml.Node | None:
    """The graph of nodes; aliases go into `problems`: they could make a small file endless."""
    depth, documents = 0, 0
    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            line = event.start_mark.line + 1 if event.start_mark else 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise _refused(file, line, "a second document (---) begins here; write one only")
            if depth > _DEEPEST:
                raise _refused(file, line, _TOO_DEEP)
            if isinstance(event, yaml.AliasEvent):
                what = f"*{event.anchor} is an alias; write it out, or use `groups`"
                problems.append(Problem(line, "", what))
        return yaml.compose(text, Loader=YAML_LOADER)
    except yaml.YAMLError as error:
        problem = _syntax(error, text)
        if "nesting depth" in problem.text:  # PyYAML has a limit, too, since 6.0.4
            raise _refused(file, problem.line, _TOO_DEEP) from error
        raise InventoryError([problem.shown(file)]) from error


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
    """Turns YAML nodes into values and marks, and notes what an inventory does not allow."""

    def __init__(self, problems: list[Problem], *, has_nulls: bool = False) -> None:
        self.problems, self.has_nulls = problems, has_nulls
        self._visited: set[int] = set()

    def value(self, node: yaml.Node, mark: Mark) -> YamlValue | None:
        """The value of `node`, or None where a problem was noted; fills in `mark`."""
        if id(node) in self._visited:
            return None
        self._visited.add(id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, mark)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
            return self._list(node, mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, mark)
        self._problem(mark, f"{_tag(node.tag, mark)} means nothing here; remove it")
        return None

    def _mapping(self, node: yaml.MappingNode, mark: Mark) -> dict[str, YamlValue]:
        values: dict[str, YamlValue] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(line, mark.path, "a key must be a single word"))
                continue
            key = key_node.value
            if "\0" in key:
                self.problems.append(Problem(line, mark.path, f"the key {described(key)} {_NUL}"))
                continue
            shown = key if key.isprintable() and key.strip() == key != "" else json.dumps(key)
            inner = Mark(line, f"{mark.path}.{shown}" if mark.path else shown)
            if key_node.tag == f"{_CORE}merge":
                self._problem(inner, "merge keys are not supported; use `groups` or `defaults`")
                continue
            if key in mark.keys:
                first = mark.keys[key].line
                self._problem(inner, f"stated twice: in lines {first} and {line}; keep one")
                continue
            mark.keys[key] = inner
            value = self.value(value_node, inner)
            if value is not None:
                values[key] = value
        return values

    def _list(self, node: yaml.SequenceNode, mark: Mark) -> list[YamlValue]:
        values: list[YamlValue] = []
        for index, item_node in enumerate(node.value):
            item = Mark(item_node.start_mark.line + 1, f"{mark.path}[{index}]")
            value = self.value(item_node, item)
            if value is not None:
                values.append(value)
                mark.items.append(item)
        return values

    def _scalar(self, node: yaml.ScalarNode, mark: Mark) -> YamlValue | None:
        kind = node.tag.removeprefix(_CORE)
        text: str = node.value
        if "\0" in text:
            self._problem(mark, f"{described(text)} {_NUL}")
            return None
        if kind == "null":
            if not self.has_nulls:
                self._problem(mark, "has no value; give it one, or remove it")
            return None
        if kind not in ("str", "int", "bool", "float", "timestamp", "value"):
            self._problem(mark, f"{_tag(node.tag, mark)} means nothing here; remove it")
            return None
        if kind in ("str", "value"):
            return text
        if kind == "int" and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
            return int(text)
        return Raw(text, _reading(kind, text))

    def _problem(self, mark: Mark, text: str) -> None:
        self.problems.append(Problem(mark.line, mark.path, text))


def _reading(kind: str, text: str) -> str:
    if kind == "bool":
        word = "true" if text.lower() in ("yes", "on", "true", "y") else "false"
        return word if text.lower() != word else "a yes-or-no value"
    if kind == "int" and re.fullmatch(r"[-+]?0[0-7_]{1,20}", text):
        return f"the octal number {int(text.replace('_', ''), 8)}"
    if kind == "int" and ":" in text:
        return "a number to the base of 60"
    return {"timestamp": "a date", "float": "a fraction"}.get(kind, "a number in a special form")


def _tag(tag: str, mark: Mark) -> str:
    """A secret that begins with `!` reads as a tag."""
    is_secret = is_secret_name(mark.path.rpartition(".")[2])
    return "what begins with ! here" if is_secret else f"the tag {tag.replace(_CORE, '!!')}"
