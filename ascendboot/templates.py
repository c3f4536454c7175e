"""Finds `templates/`: everything that lands on a node, its scripts, and the page of `report`."""

from __future__ import annotations

import re
import shlex
from functools import cache
from hashlib import sha256
from pathlib import Path

import ascendboot

_SCRIPTS = "scripts"
_NOT_INSTALLED = (_SCRIPTS, "completion", "inventory", "report", "slurm", "volcano")
_HEADER = re.compile(r"\A#!.*\n|^[ \t]*# shellcheck .*\n", re.MULTILINE)
_INCLUDE = re.compile(r"^\. (\S+\.sh)\n", re.MULTILINE)
"""Nothing is sourced on a node: the text of the file takes the place of this line."""


def installed(folder: str) -> Path:
    """A folder of the project: inside the installed package, else in the checkout around it."""
    package = Path(*ascendboot.__path__)
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def installed_templates() -> Path:
    """The folder of the templates."""
    return installed("templates")


def script(name: str, /, **values: object) -> str:
    """The text of `templates/scripts/NAME` with its includes, after `values` as shell variables."""
    assigned = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in values.items())
    return f"{assigned}\n{_text(name)}" if assigned else _text(name)


def digest() -> str:
    """Of all templates: in a clone they change, and the version does not.

    Scripts do not count, as they travel with each run, and pages do not go to a node.
    """
    folder, whole = installed_templates(), sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.relative_to(folder).parts[0] in _NOT_INSTALLED:
            continue
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)} {len(content)} ".encode() + content)
    return whole.hexdigest()


@cache
def _text(name: str) -> str:
    return _expanded(name, set())


def _expanded(name: str, included: set[str]) -> str:
    """The text of a script; a file that is included more than once counts the first time."""
    if name in included:
        return ""
    included.add(name)
    text = (installed_templates() / _SCRIPTS / name).read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda include: _expanded(include[1], included), _HEADER.sub("", text))
