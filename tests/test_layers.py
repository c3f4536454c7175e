"""Imports point down: who may import whom, as in the table of the house."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "ascendboot"

_BELOW = {
    "value": "",
    "errors": "",
    "templates": "",
    "hccl": "value",
    "model": "value errors",
    "ranktable": "value errors",
    "console": "value errors model",
    "lab": "value templates errors model",
    "state": "value errors model",
    "transport": "value templates errors model",
    "inventory": "value errors hccl model ranktable",
    "facts": "value templates errors hccl model transport",
    "launch": "value errors model templates transport",
    "jobs": "value errors model templates transport launch supervise",
    "doctor": "value errors model launch jobs ranktable",
    "checks": "value templates errors hccl model ranktable transport facts launch jobs",
    "setup": "value templates errors hccl model transport facts launch jobs checks",
    "readiness": "value templates errors hccl model transport facts launch checks setup supervise",
    "supervise": "value errors model templates transport facts",
    "export": "value errors inventory model templates",
}
BELOW = {name: set(below.split()) for name, below in _BELOW.items()}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Modules, and what is taken from them by name."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return set(names)


def imported_rooms(path: Path) -> set[str]:
    parts = [name.split(".") for name in imported(path)]
    return {p[1] for p in parts if p[0] == "ascendboot" and len(p) > 1 and not p[1].startswith("_")}


EVERY_MODULE = sorted(ROOT.rglob("*.py"))
MODULES = [path for path in EVERY_MODULE if room(path) not in ("__init__", "cli")]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_room_imports_only_from_rooms_below_it(path: Path) -> None:
    assert imported_rooms(path) - {room(path)} <= BELOW[room(path)]


@pytest.mark.parametrize("path", EVERY_MODULE, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_ssh_knows_fabric_and_only_console_prints(path: Path) -> None:
    tree = ast.parse(path.read_text())
    libraries = {
        a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
    }
    libraries |= {
        (n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)
    }
    if path not in (ROOT / "transport/connection.py", ROOT / "transport/login.py"):
        assert not libraries & {"fabric", "paramiko"}
    if room(path) != "console":
        assert "rich" not in libraries
        assert not [
            n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "print"
        ]
    assert "__file__" not in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {path: ".".join(("ascendboot", *path.relative_to(ROOT).parts)) for path in EVERY_MODULE}
    modules = {name.removesuffix(".py").removesuffix(".__init__"): p for p, name in names.items()}
    TopologicalSorter(
        {
            name: [m for m in modules.keys() & imported(path) if not f"{name}.".startswith(f"{m}.")]
            for name, path in modules.items()
        }
    ).prepare()


def test_no_room_may_import_what_it_does_not_and_imports_run_one_way() -> None:
    TopologicalSorter(BELOW).prepare()
    used: dict[str, set[str]] = {name: set() for name in BELOW}
    for path in MODULES:
        used[room(path)] |= imported_rooms(path) - {room(path)}
    assert {name: may - used[name] for name, may in BELOW.items() if may - used[name]} == {}
