"""What an inventory cannot set: `reserved.yaml` lists what ascendboot and its launchers set."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from ascendboot.inventory.values import ENV_NAME, is_match
from ascendboot.model.cluster import LAUNCHER_NAMES
from ascendboot.model.files import FOLDER
from ascendboot.model.secrets import is_secret_name, is_secret_value

OPEN = "every user of a node can read the launcher's command line"
_OF_MPI = "OMPI_MCA_"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Pattern(BaseModel):
    """Names that cannot be set, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: re.Pattern[str]
    reason: str


class _Reserved(BaseModel):
    """The file; its comments describe the members."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    variables: tuple[_Pattern, ...]
    meeting: re.Pattern[str]
    torchrun: re.Pattern[str]
    parameters: tuple[_Pattern, ...]
    options: dict[str, str]
    parameters_set: frozenset[str]
    options_set: frozenset[str]
    folders: frozenset[str]
    folders_below: frozenset[str]


@cache
def listed() -> _Reserved:
    """The contents of `reserved.yaml`."""
    text = files("ascendboot.inventory").joinpath("reserved.yaml").read_text(encoding="utf-8")
    return _Reserved.model_validate(yaml.load(text, _LOADER))  # noqa: S506 - safe


def why_not_env(name: str) -> str | None:
    """Why a variable of this name cannot stand in `env`; None when it can."""
    if not is_match(ENV_NAME, name):
        return "is not the name of an environment variable; use letters, digits and _"
    if reason := _reason(listed().variables, name):
        return reason
    return why_not_parameter(name.removeprefix(_OF_MPI)) if name.startswith(_OF_MPI) else None


def why_not_parameter(name: str) -> str | None:
    """Why a parameter of Open MPI cannot be set, wherever it stands; None when it can."""
    return _reason(listed().parameters, name)


def _reason(patterns: Collection[_Pattern], name: str) -> str | None:
    return next((known.reason for known in patterns if known.pattern.fullmatch(name)), None)


def why_not_option(option: str) -> str | None:
    """Why an option of mpirun, without its dashes, cannot be given; None when it can."""
    reason = listed().options.get(option)
    return f"--{option}: {reason}" if reason else None


def why_not_shown(name: str, value: str, marked: Collection[str]) -> str | None:
    """Why a variable cannot hold a secret: it stands on the launcher's command line."""
    is_for_launcher = name.startswith(_OF_MPI) or name in LAUNCHER_NAMES
    if is_for_launcher and (name in marked or is_secret_name(name) or is_secret_value(value)):
        return f"holds a secret, and {OPEN}: remove it"
    return None


def why_not_of_one_node(name: str) -> str | None:
    """Why one node cannot have a separate value for a variable; None when it can."""
    if listed().meeting.fullmatch(name):
        return "all ranks meet at one place: state it under `env` of the inventory"
    return None


def why_not_with_torch(name: str, *, by_torchrun: bool) -> str | None:
    """Why a variable cannot stand in `env` where PyTorch's ranks meet; None when it can."""
    if listed().meeting.fullmatch(name):
        return "the ranks meet on the primary, at resources.chief_port: remove it"
    if by_torchrun and listed().torchrun.fullmatch(name):
        return "torchrun sets this variable, or reads it as one of its options: remove it"
    return None


def is_system_folder(path: str) -> bool:
    """Whether a folder belongs to the system or to ascendboot, and cannot hold the code."""
    plain = f"/{posixpath.normpath(path).strip('/')}"
    if plain in listed().folders or plain.split("/")[1] in listed().folders_below:
        return True
    return plain == FOLDER or plain.startswith(f"{FOLDER}/")
