"""Known error messages of HCCL, CANN, PyTorch and launchers, with their meaning and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from signal import SIGKILL
from typing import Annotated, Any, Final, TypeAlias

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from ascendboot.errors import AscendbootError, excerpt
from ascendboot.value import YAML_LOADER, data_file

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


_PeerForm: TypeAlias = Annotated[re.Pattern[str], BeforeValidator(_expanded)]
_Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=600)]
_Text: TypeAlias = Annotated[str, Field(min_length=2, max_length=400)]
_Form: TypeAlias = Annotated[
    tuple[_Text, ...],
    BeforeValidator(lambda form: (form,) if isinstance(form, str) else form),
    Field(min_length=1, max_length=8),
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Known(_Model):
    """The meaning of an error, and what to do."""

    meaning: _Words
    remedy: _Words
    of_a_peer: bool = False
    """The cause is probably another rank that is gone or slow."""


class KnownText(Known):
    """An error that is recognized by its text."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{1,60}$")]
    product: str = ""
    """What prints it; empty for several programs."""
    text: Annotated[tuple[_Form, ...], Field(min_length=1, max_length=64)]
    is_vague: bool = False
    """Whether the lines after it name the error."""
    is_root: bool = False
    """Whether no other rank can cause it."""
    source: _Words
    samples: Annotated[tuple[str, ...], Field(min_length=1, max_length=20)]
    """Lines that it explains."""
    others: Annotated[tuple[str, ...], Field(min_length=1, max_length=20)]
    """Similar lines that it does not explain."""

    def explains(self, line: str) -> bool:
        """Whether one of its texts is in a line."""
        return any(_follow(form, line) for form in self.text)


def _follow(form: Sequence[str], line: str) -> bool:
    """Whether the texts are in a line, one after the other."""
    for text in form:
        _, found, line = line.partition(text)
        if not found:
            return False
    return True


class _Table(_Model):
    entries: tuple[KnownText, ...]
    of_launcher: tuple[KnownText, ...] = Field(alias="launcher")
    ends: dict[int, Known]
    out_of_memory: Known
    peers: tuple[_PeerForm, ...]
    """Messages about a missing peer."""
    places: tuple[_PeerForm, ...]
    """Messages that name the other end of a connection."""
    marks: tuple[_Text, ...]
    """What else marks a line that `doctor` reads."""

    @cached_property
    def _firsts(self) -> list[tuple[str, int]]:
        """The first text of each form, with the place of its entry."""
        return [(form[0], at) for at, entry in enumerate(self.entries) for form in entry.text]

    @cached_property
    def _any_first(self) -> re.Pattern[str]:
        """Matches a line with a first text; most lines have none."""
        return re.compile(_alternatives([text for text, _ in self._firsts]))

    def first_in(self, text: str) -> KnownText | None:
        """Return the first entry that explains a line of `text`."""
        if self._any_first.search(text) is None:
            return None
        possible = dict.fromkeys(at for first, at in self._firsts if first in text)
        lines = text.splitlines() if possible else []
        found = (self.entries[at] for at in possible)
        return next((entry for entry in found if any(map(entry.explains, lines))), None)


def _alternatives(texts: Iterable[str]) -> str:
    """Return an expression for one of the texts that compares common beginnings once."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        if not text:
            return ""  # what follows need not be compared
        by_first.setdefault(text[0], []).append(text[1:])
    parts = [re.escape(first) + _alternatives(rest) for first, rest in by_first.items()]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


OWN_ENTRIES: Final = "known-errors.yaml"
"""The operator's own entries, in the working directory; they come before all others."""
_LARGEST: Final = 1 << 20
_DEEPEST: Final = 10


@cache
def known_errors() -> _Table:
    """The content of `error_codes.yaml`, and of the operator's own file."""
    table = _Table.model_validate(data_file("jobs/error_codes.yaml", dict[str, Any]))
    own = own_entries(Path(OWN_ENTRIES))
    return table.model_copy(update={"entries": (*own, *table.entries)}) if own else table


def own_entries(path: Path) -> tuple[KnownText, ...]:
    """Read an operator's file of entries; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST or not _is_plain(text):
            raise AscendbootError(
                f"{path}: is larger than 1 MiB, deeply nested, or uses YAML aliases; shorten it"
            )
        document = yaml.load(text, Loader=YAML_LOADER) or ()  # noqa: S506 - safe, too
        found = TypeAdapter(tuple[KnownText, ...]).validate_python(document)
    except FileNotFoundError:
        return ()
    except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise AscendbootError(f"{path}: not a list of entries: {_first_problem(error)}") from error
    for problem in contradicted_samples(found):
        raise AscendbootError(f"{path}: {problem}; correct text, samples or others")
    return found


def _is_plain(text: bytes) -> bool:
    """Whether YAML has no aliases and few levels, so that reading it takes little time."""
    depth = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            return False
    return True


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return (
            f"entry {excerpt(where)}: {excerpt(first['msg'])}; see docs/reference/known-errors.md"
        )
    return f"{excerpt(str(error))}; correct the YAML"


def contradicted_samples(entries: Sequence[KnownText]) -> Iterator[str]:
    """Yield a sentence for each sample that its entry does not explain, or should not."""
    for entry in entries:
        for line in entry.samples:
            if not entry.explains(line):
                yield f"entry {entry.id}: does not explain its sample: {excerpt(line)}"
        for line in entry.others:
            if entry.explains(line):
                yield f"entry {entry.id}: explains a line of its others: {excerpt(line)}"


def known_words(text: str) -> KnownText | None:
    """Return the meaning of an error text; None when it is unknown."""
    return known_errors().first_in(text)


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
            if words.explains(line):
                return line.strip(), words
    for line in lines:
        known = known_words(line)
        if known is not None and not known.of_a_peer:
            return line.strip(), known
    return None
