"""The verbs: where each of them is, and what a shell completes, without importing any."""

from __future__ import annotations

import ast
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import yaml

import ascendboot
from ascendboot.errors import AscendbootError
from ascendboot.inventory.yaml import FOLDER, locate
from ascendboot.model.names import MOST, expand
from ascendboot.state import State
from ascendboot.value import YAML_LOADER, Value

VERBS: Final[Mapping[str, Mapping[str, str]]] = {
    "Set up a cluster": {
        "init": "init",
        **dict.fromkeys(("setup", "check", "adopt"), "setup"),
        "reset": "reset",
        "remove": "reset",
    },
    "Run jobs": {
        "train": "train",
        "jobs": "status",
        "status": "status",
        "logs": "logs",
        "stop": "stop",
    },
    "Work on nodes": dict.fromkeys(("exec", "shell", "copy", "fetch"), "exec"),
    "Change a supervised job": dict.fromkeys(
        ("events", "quarantine", "release", "resize"), "operate"
    ),
    "Find what failed": {"doctor": "doctor", "report": "report_file"},
    "Rank tables, leaf switches, other tools": {
        "ranktable": "ranktable.collection",
        "topology": "topology.collection",
        "export": "export.collection",
        "import": "export.imports",
    },
    "Practice without NPUs": {"lab": "lab.collection"},
}
"""Under their headings the verbs and groups of verbs: the module, and the object in it unless it
has the name of the verb."""
PLACES: Final = {name: place for verbs in VERBS.values() for name, place in verbs.items()}
SHORT: Final[Mapping[str, str]] = {
    "detach": "d",
    "follow": "f",
    "inventory": "i",
    "json": "j",
    "lines": "l",
    "node": "n",
    "plan": "p",
    "rank": "r",
    "yes": "y",
}
"""Flags with a short form. By default Invoke gives one to every flag, from the letters that are
free: `-j` would be `--json` for one verb and `--job` for the next."""
_ALONE: Final = ("--help", "--list", "--version", "--print-completion-script")
_WORDS: Final = {"level": ("quick", "full"), "on-hang": ("tell", "stop")}


class Outline(Value):
    """What the source of a verb tells about its arguments, without importing it."""

    flags: Mapping[str, bool]
    """Whether each takes a value."""
    bare: tuple[str, ...]
    """The names of values that stand without a flag."""

    @classmethod
    def read(cls, definition: ast.FunctionDef) -> Outline:
        """Read it from the function with its decorator."""
        options = _options(definition)
        spec = definition.args
        defaults = [*spec.defaults, *spec.kw_defaults]
        own = [*spec.args[1:], *spec.kwonlyargs]
        needed = [a.arg for a, d in zip(reversed(own), reversed(defaults), strict=False) if not d]
        lists = options.get("iterable", ())
        bare = options.get("positional", [n for n in reversed(needed) if n not in lists])
        takes = {
            a.arg.strip("_").replace("_", "-"): ast.unparse(a.annotation or a) != "bool"
            for a in own
        }
        takes |= {name: name != "json" for name in options["shared"]}
        if rest := options.get("bare"):
            bare = [*bare, rest]
        return cls({n: t for n, t in takes.items() if n == rest or n not in bare}, tuple(bare))


def verbs_in(place: str) -> dict[str, ast.FunctionDef]:
    """Return the source of the verb at this place, or of all verbs of the group there."""
    module, _, collection = PLACES[place].partition(".")
    tree = _source(f"cli/{module}.py")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if not collection:
        return {place: functions[place]}
    made = {
        node.targets[0].id: [arg.id for arg in node.value.args if isinstance(arg, ast.Name)]
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
    }
    listed = [functions[name] for name in made[collection]]
    return {f"{place}.{_options(verb).get('name', verb.name)}": verb for verb in listed}


def _source(name: str) -> ast.Module:
    return ast.parse(Path(*ascendboot.__path__, name).read_text(encoding="utf-8"))


def _options(definition: ast.FunctionDef) -> dict[str, Any]:
    """Return what the decorator of a verb says, as far as it matters here."""
    (decorator,) = (node for node in definition.decorator_list if isinstance(node, ast.Call))
    of_cluster = ast.unparse(decorator.func) == "cluster_verb"
    return {"shared": ("inventory", "forks", "json") if of_cluster else ("json",)} | {
        keyword.arg: ast.literal_eval(keyword.value)
        for keyword in decorator.keywords
        if keyword.arg in ("bare", "iterable", "name", "positional", "shared")
    }


def candidates(words: Sequence[str]) -> list[str]:
    """Return what the last of `words`, of which the first is the program, may become."""
    whole = [""]
    for part in words:
        # bash splits words before and behind @, and inserts what begins with the last one
        if whole[-1].endswith("@") or (part == "@" and whole[-1].endswith(",")):
            whole[-1] += part
        else:
            whole.append("@" if part == "=@" else part)
    start = 0 if whole[-1] == words[-1] else whole[-1].rfind("@")
    return [found[start:] for found in _candidates(whole[1:])]


def _candidates(words: Sequence[str]) -> list[str]:
    *before, word = [w for w in words[1:] if w != "="] or [""]  # bash splits words at =
    if words[-1] == "=":
        before, word = [*before, word], ""
    if not before or before == ["help"]:
        found = _ALONE if word.startswith("-") else [*_names(word), "help"]
        return [name for name in found if name.startswith(word)]
    place = before[0].partition(".")[0]
    if "--" in before or place not in PLACES or before[0] not in (known := verbs_in(place)):
        return []
    outline = Outline.read(known[before[0]])
    flags = {f"--{n}": n for n in outline.flags}
    flags |= {f"-{short}": n for n, short in SHORT.items() if n in outline.flags}
    given, waits, bare = dict[str, str](), "", [*outline.bare]
    for said in before[1:]:
        if waits:
            given[waits], waits = said, ""
        elif said.startswith("-"):
            waits = flags[said] if outline.flags.get(flags.get(said, "")) else ""
        elif bare:
            given[bare[0]] = said
            bare = bare[1:] or bare
    flag, is_joined, start = word.partition("=") if word.startswith("-") else ("", "", word)
    if flag and not is_joined and not waits:
        long = [f"--{name}" for name in (*outline.flags, "help")]
        return [name for name in long if name.startswith(word)]
    name = flags.get(flag) or waits or (bare[0] if bare else "")
    listed, comma, start = start.rpartition(",") if name in ("node", "nodes") else ("", "", start)
    with suppress(AscendbootError, OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        known_here = islice(_values(name, before[0], given), MOST)
        # A shell inserts it as it is, and a file in this folder may be another user's.
        found = [v for v in known_here if v.startswith(start) and shlex.quote(v) == v]
        left = [value for value in found if value not in listed.split(",")]
        return [f"{flag}{is_joined}{listed}{comma}{value}" for value in left]
    return []


def _names(start: str) -> Iterator[str]:
    for place, module in PLACES.items():
        if place.startswith(start) or start.startswith(f"{place}."):
            yield from verbs_in(place) if "." in module else [place]


def _values(name: str, verb: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield the values that a flag may have here, as far as this machine knows them."""
    if name == "job" and verb.startswith("ranktable."):
        yield from _literals("ranktable/rules.py", "JOBS")
    elif name in ("job", "resume"):
        runs = State.here().runs
        if name == "resume" or PLACES[verb] == "operate":
            paths = runs.glob("*/supervise/state.json")
            # All but `events` refuse a job that has ended.
            found = [p for p in paths if verb == "events" or b'"end": null' in p.read_bytes()]
        else:
            found = [*runs.glob("*/plan.json"), *runs.glob("*/g[0-9]*/plan.json")]
        yield from sorted({path.relative_to(runs).parts[0] for path in found}, reverse=True)
    elif name in ("node", "nodes"):
        lab = ".ascendboot/lab.yaml" if verb.startswith("lab.") else None
        named, last = given.get("inventory", lab), State.here().current
        path = locate(named, cwd=Path.cwd(), environ=os.environ, current=last)
        document = yaml.load(path.read_bytes(), YAML_LOADER)  # noqa: S506 - the loader is safe
        for names in document["nodes"]:
            yield from expand(names)
        if not verb.endswith("shell"):  # of one node
            yield from (f"@{group}" for group in document.get("groups") or ())
    elif name == "inventory":
        yield from (str(path) for path in sorted(Path().glob("*.y*ml")))
        yield from (path.stem for path in sorted(Path(FOLDER).glob("*.yaml")))
    elif name == "kind":
        yield from _literals("lab/faults.py", "KINDS")
    yield from _WORDS.get(name, ())


def _literals(file: str, name: str) -> Iterator[str]:
    for node in _source(file).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            names = [part.id for part in ast.iter_child_nodes(node) if isinstance(part, ast.Name)]
            values = ast.walk(node.value) if name in names else ()
            yield from (str(part.value) for part in values if isinstance(part, ast.Constant))


def print_candidates(argv: Sequence[str]) -> None:
    """Answer `PROGRAM --complete -- WORDS`: one candidate per line."""
    sys.stdout.write("".join(f"{word}\n" for word in candidates(argv[3:] or [""])))
