"""Known error messages of HCCL, CANN, PyTorch and launchers, with their meaning and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from signal import SIGKILL
from typing import Annotated, Final, TypeAlias

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_CODE: Final = re.compile(r"\bEI00(?:0[1-9]|1\d|20)\b")
"""The code of an HCCL error."""

_ADDRESS: Final = r"[0-9A-Fa-f.:]{2,45}"
_ZONE: Final = r"(?:%[\w.-]{1,40})?"
_PARTS: Final = {
    "<IP>": f"(?P<ip>{_ADDRESS}){_ZONE}",
    "<ADDRESS>": f"{_ADDRESS}{_ZONE}",
    "<RANK>": r"(?P<ranks>\d{1,7})",
    "<RANKS>": r"(?P<ranks>\d[\d, ]{0,4000})",
    "<DEVICE>": r"(?P<device>\d{1,5})",
}
"""The expressions for the words in angle brackets of `error_codes.yaml`."""


def _expanded(form: str) -> str:
    for word, expression in _PARTS.items():
        form = form.replace(word, expression)
    return form


_Form: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_expanded)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Known(_Model):
    """The meaning of an error, and what to do."""

    meaning: str
    remedy: str
    of_a_peer: bool = False
    """The cause is probably another rank that is gone or slow."""


class _Words(Known):
    """An error that is recognized by its text."""

    find: Annotated[re.Pattern[str], BeforeValidator("|".join)]


class _Table(_Model):
    codes: dict[str, Known]
    words: tuple[_Words, ...]
    of_launcher: tuple[_Words, ...] = Field(alias="launcher")
    ends: dict[int, Known]
    out_of_memory: Known
    peers: tuple[_Form, ...]
    """Messages about a missing peer."""
    places: tuple[_Form, ...]
    """Messages that name the other end of a connection."""


@cache
def known_errors() -> _Table:
    """The content of `error_codes.yaml`."""
    text = (files("ascendboot.jobs") / "error_codes.yaml").read_bytes()
    return _Table.model_validate(yaml.safe_load(text))


def known_words(text: str) -> Known | None:
    """Return the meaning of an error text; None when it is unknown."""
    if code := _CODE.search(text):
        return known_errors().codes[code[0]]
    return next((w for w in known_errors().words if w.find.search(text)), None)


def names_a_peer(text: str) -> bool:
    """Whether a text is a message about a missing peer."""
    return any(form.search(text) for form in known_errors().peers)


def known_end(exit_code: int | None, *, out_of_memory: bool) -> Known | None:
    """Return the meaning of an exit code of a rank; None when it is unknown."""
    if out_of_memory and exit_code == 128 + SIGKILL:
        return known_errors().out_of_memory
    return None if exit_code is None else known_errors().ends.get(exit_code)


def known_of_launcher(lines: Sequence[str]) -> tuple[str, Known] | None:
    """Return the line that explains why a launcher failed, and its meaning; None if none does."""
    for words in known_errors().of_launcher:
        for line in lines:
            if words.find.search(line):
                return line.strip(), words
    for line in lines:
        known = known_words(line)
        if known is not None and not known.of_a_peer:
            return line.strip(), known
    return None
