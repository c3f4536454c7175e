"""What all generations share: parts that keep unknown members, rows, and members to write."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import Members, number
from ascendboot.ranktable.rules import Product
from ascendboot.ranktable.text import shown
from ascendboot.value import Value, field

_FIRST = ("device_port", "device_vnic_port", "backup_device_ip", "backup_device_port", "host_port")
"""Unknown members that are written before the others, which follow by name."""

_PROBLEMS = {
    "missing": "missing",
    "string_type": "no text",
    "tuple_type": "no list",
    "model_type": "no object",
    "dataclass_type": "no object",
}
"""By the types of pydantic's errors; the rest concerns numbers."""


def _whole(value: object) -> int:
    found = value if type(value) is int else number(value)
    if found is None or found < 0:
        raise ValueError("no number")
    return found


Number = Annotated[int, BeforeValidator(_whole)]
"""A number, as text or not: `validate` reports the wrong form."""
OptionalText = Annotated[str | None, AfterValidator(lambda text: text or None)]


def in_writing_order(others: Mapping[str, object]) -> dict[str, object]:
    """Unknown members in the order in which they are written."""
    place = {name: index for index, name in enumerate(_FIRST)}
    return dict(sorted(others.items(), key=lambda m: (place.get(m[0], len(_FIRST)), m[0])))


class Part(BaseModel):
    """An object of a rank table; its fields have the names of the members in the file."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    numbers_are_text: ClassVar[bool] = True
    last: ClassVar[str] = ""
    """The member that is written after the unknown ones."""

    @property
    def others(self) -> dict[str, object]:
        """The members that no field names, in the order in which they are written."""
        return in_writing_order(self.model_extra or {})

    def document(self) -> dict[str, object]:
        """The object as HCCL reads it."""
        members: dict[str, object] = {}
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                members[name] = [v if isinstance(v, str) else v.document() for v in value]
            elif isinstance(value, int) and self.numbers_are_text:
                members[name] = str(value)
            elif value is not None:
                members[name] = value
        last = {self.last: members.pop(self.last)} if self.last else {}
        return {**members, **(self.others if self.model_extra else {}), **last}


class CountedPart(Part):
    """A part that also states counts and the like, which follow from its members."""

    derived: ClassVar[frozenset[str]]
    """These members: computed when the table is written, and ignored when it is read."""

    @model_validator(mode="before")
    @classmethod
    def _without_derived(cls, value: object) -> object:
        if isinstance(value, dict):
            return {name: member for name, member in value.items() if name not in cls.derived}
        return value


P = TypeVar("P", bound=Part)


def understood(part: type[P], document: object, name: str, advice: str = "") -> P:
    """The part that a document states; `name` names the file in messages.

    Raises:
        RankTableError: it cannot be understood at all; anything less is left to `validate`.
    """
    try:
        return part.model_validate(document)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False, include_input=False)[0]
        problem = f"{shown(error['loc'])} is {_PROBLEMS.get(error['type'], 'no number')}"
        raise RankTableError(f"{name}: could not be understood: {problem}{advice}") from None


class Row(Value, kw_only=True):
    """One rank of a table."""

    rank: int
    server: str
    """Its server; in version 2.0 its net instance of the lowest layer."""
    device_id: int
    addresses: tuple[str, ...] = ()
    super_pod: str = ""
    super_device_id: int | None = None
    local_id: int | None = None
    others: Mapping[str, object] = field(default_factory=dict)


class Table(CountedPart, ABC):
    """A rank table of any generation."""

    called: ClassVar[str] = ""

    @property
    def generation(self) -> str:
        """The generation, as `FORMATS` names it."""
        return self.called

    @property
    @abstractmethod
    def rows(self) -> tuple[Row, ...]:
        """All ranks in their order."""

    @property
    @abstractmethod
    def other_members(self) -> dict[str, dict[str, object]]:
        """What `diff` compares besides rows: members by server, super pod, instance or layer."""

    @abstractmethod
    def to_servers(self) -> Table:
        """The same ranks as a `RankTable`, by way of which generations are converted.

        Raises:
            LackingError: the table does not state the servers.
        """

    @abstractmethod
    def only(self, ranks: Sequence[int]) -> Table:
        """These ranks in this order, renumbered from 0; all of them must be there."""

    @classmethod
    def merged(cls, tables: Sequence[Table]) -> Table | None:  # noqa: ARG003 - of subclasses
        """One table with the ranks of all, renumbered from 0; None where that is impossible."""
        return None

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    def to_json(self) -> str:
        """The file as HCCL reads it; byte-stable."""
        document = {"status": "completed", **self.document()}
        # json.dumps with an indent is five times as slow
        return msgspec.json.format(json.dumps(document), indent=2) + "\n"


class LackingError(Exception):
    """What a table of another generation must state, and this one does not."""


class Converted(Value):
    """A table, and the members of the original that it cannot hold."""

    table: Table
    left_out: tuple[str, ...] = ()


class MemberDevice(Value):
    """A device that takes part."""

    device_id: int
    device_ip: str | None = None
    super_device_id: int | None = None
    """Where its server is in a super pod of A3."""
    place: Part | None = None
    """Of 950: its entry in the root info, a `LevelRank`; the rank in it is not used."""


class Member(Value):
    """A server that takes part, with its devices in rank order."""

    server_id: str
    devices: tuple[MemberDevice, ...]
    super_pod_id: str | None = None
    """None: in none, or not known."""


class Format(Value, kw_only=True):
    """A generation: how it is recognised, checked, read and made."""

    called: str
    products: tuple[Product, ...]
    """The products whose HCCL reads it."""
    list_name: str
    """The member by which it is recognised."""
    device_lists: tuple[str, ...] = ()
    """The names of the lists from the document down to the devices of a server; none: it has no
    servers."""
    table: type[Table]
    check: Callable[[Members], None]
    """Reports everything that is wrong with the document."""
    from_servers: Callable[[Any], Converted]
    """Makes this generation from a `RankTable`, or raises a LackingError."""
    from_members: Callable[[Sequence[Member]], Table] | None = None
    """None: by way of a `RankTable`."""
    is_v2: bool = False
    """Whether HCCL's reader of version 2.0 reads it."""
