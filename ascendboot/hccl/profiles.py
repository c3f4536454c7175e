"""The profiles of training stacks: their variables, limits and paths."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath

from ascendboot.hccl.variables import Whole
from ascendboot.value import Value, data_file


class Variable(Value, forbid_unknown_fields=True):
    """A variable of Rec SDK's run.sh with its default there."""

    name: str
    default: str
    meaning: str = "read by main.py and its configuration"
    limits: Whole | None = None
    """None: nothing checks it, or HCCL does."""


@cache
def rec_sdk_tf() -> dict[str, Variable]:
    """The variables of the profile rec-sdk-tf by name, in the order of the reference page."""
    return {each.name: each for each in data_file("hccl/rec_sdk_tf.yaml", list[Variable])}


def profile_env(profile: str) -> dict[str, str]:
    """The variables of a profile with their defaults; none for `none`."""
    wanted = rec_sdk_tf() if profile == "rec-sdk-tf" else {}
    return {name: variable.default for name, variable in wanted.items()}


def packages_of(python: str, version: str) -> str:
    """The packages folder of the interpreter at this path, of version X.Y[.Z]."""
    series = ".".join(version.split(".")[:2])
    return str(PurePosixPath(python).parent.parent / "lib" / f"python{series}" / "site-packages")


def profile_paths(profile: str, packages: str) -> dict[str, str]:
    """The search paths of a profile within the packages of the job's Python."""
    if profile != "rec-sdk-tf":
        return {}
    libasc = f"{packages}/mx_rec/libasc"
    return {
        "PYTHONPATH": libasc,
        "LD_LIBRARY_PATH": f"{libasc}:{packages}/rec_sdk_common/lib:/usr/local/lib",
    }


def why_not_value(name: str, value: str) -> str | None:
    """Why the software would refuse this value of a variable; None where nothing is known."""
    known = rec_sdk_tf().get(name)
    return known.limits.why_not(value) if known and known.limits else None
