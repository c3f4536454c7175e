"""The base of all values, how values become JSON and are read from it, and our data files."""

from __future__ import annotations

import json
from ipaddress import IPv4Network
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

import yaml
from msgspec import Struct, ValidationError, convert, field, to_builtins
from msgspec.structs import asdict, astuple, fields, force_setattr, replace
from typing_extensions import dataclass_transform

import ascendboot

__all__ = [
    "YAML_LOADER",
    "Struct",
    "Value",
    "as_json",
    "asdict",
    "astuple",
    "data_file",
    "field",
    "fields",
    "force_setattr",
    "from_json",
    "replace",
]

T = TypeVar("T")
YAML_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The reader in C, ten times as fast, where PyYAML was built with it."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(Struct, frozen=True):
    """A frozen record with named fields, equal to another one of its class with equal fields."""


def data_file(name: str, kind: type[T]) -> T:
    """Return the contents of a YAML file of ours; `name` is its path below this package."""
    content = Path(*ascendboot.__path__, name).read_bytes()
    return from_json(yaml.load(content, YAML_LOADER), kind)  # noqa: S506 - the loader is safe


def as_json(value: object) -> Any:  # noqa: ANN401 (a part of a JSON document)
    """Return a value as it is in a JSON document, with its fields as members."""
    return json.loads(json.dumps(to_builtins(value, enc_hook=_text)))


def from_json(document: object, kind: type[T], *, strict: bool = True) -> T:
    """Read what `as_json` returned, without unknown members; ValueError if it has another form.

    Unless `strict`, a text that shows a number can stand for it.
    """
    try:
        return convert(document, kind, strict=strict, str_keys=True, dec_hook=_of_text)
    except ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        raise ValueError(": ".join(filter(None, (where.strip(".`"), why)))) from error


def _text(value: object) -> str:
    if isinstance(value, PurePath | IPv4Network):
        return str(value)
    raise NotImplementedError


def _of_text(kind: type[T], text: Any) -> T:  # noqa: ANN401 (any part of a JSON document)
    if issubclass(kind, PurePath | IPv4Network):
        return kind(text)
    raise NotImplementedError
