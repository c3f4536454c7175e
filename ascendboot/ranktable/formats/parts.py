"""What all generations share: parts that keep unknown members, rows, and members to write."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import msgspec

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import Members, number
from ascendboot.ranktable.rules import Product
from ascendboot.value import Value, field, fields, from_json

_FIRST = ("device_port", "device_vnic_port", "backup_device_ip", "backup_device_port", "host_port")
"""Unknown members that are written before the others, which follow by name."""

_CALLED = {"str": "text", "array": "list", "object": "object", "int": "number"}
"""What msgspec expected, as messages call it."""

Number = Annotated[int, msgspec.Meta(ge=0)]
"""A number, in the file as text or not: `validate` reports the wrong form."""


class Part(Value, kw_only=True):
    """An object of a rank table; its fields have the names of the members in the file."""

    numbers_are_text: ClassVar[bool] = True
    last: ClassVar[str] = ""
    """The member that is written after the unknown ones."""
    derived: ClassVar[frozenset[str]] = frozenset()
    """Members such as counts: computed when the part is written, and ignored when it is read."""

    unknown: Mapping[str, Any] | None = None
    """None, where there are none: a large table has 131,072 devices, and a mapping each is slow."""

    @property
    def others(self) -> Mapping[str, Any]:
        """The members that no field names, in the order in which they are written."""
        return self.unknown or {}

    def document(self) -> dict[str, object]:
        """The object as HCCL reads it."""
        members: dict[str, Any] = {}
        for name in _kinds(type(self)):
            value = getattr(self, name)
            if isinstance(value, tuple):
                members[name] = [v if isinstance(v, str) else v.document() for v in value]
            elif isinstance(value, int) and self.numbers_are_text:
                members[name] = str(value)
            elif value is not None:
                members[name] = value
        members |= self.others
        if self.last:
            members[self.last] = members.pop(self.last)
        return members


P = TypeVar("P", bound=Part)


def understood(part: type[P], document: object, name: str, advice: str = "") -> P:
    """The part that a document states; RankTableError only if it cannot be understood at all."""
    try:
        return from_json(_sorted_in(document, part), part)
    except ValueError as error:
        where, _, why = str(error).rpartition(": ")
        what = why.split("`")[1]
        is_missing = why.startswith("Object missing required field")
        problem = f".{what} is missing" if is_missing else f" is no {_CALLED[what.split()[0]]}"
        raise RankTableError(f"{name}: could not be understood: {where}{problem}{advice}") from None


def _sorted_in(value: object, kind: object) -> object:
    """A value of a document with its unknown members in `others` and its numbers as numbers."""
    if isinstance(value, list):
        # ports that are no texts: `validate` reports them
        return [str(one) if kind is str else _sorted_in(one, kind) for one in value]
    if kind is int and (found := number(value)) is not None:
        return found
    if not (isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Part)):
        return value
    kinds = _kinds(kind)
    known = {name: _sorted_in(value[name], kinds[name]) for name in kinds if name in value}
    others = value.keys() - kinds.keys() - kind.derived
    if not others:
        return known
    in_writing_order = (*(name for name in _FIRST if name in others), *sorted(others - {*_FIRST}))
    return {**known, "unknown": {name: value[name] for name in in_writing_order}}


@cache
def _kinds(part: type[Part]) -> Mapping[str, object]:
    """What the fields hold: a field of the type `tuple[SuperPod, ...] | None` holds a SuperPod."""
    return {one.name: _innermost(one.type) for one in fields(part) if one.name != "unknown"}


def _innermost(kind: object) -> object:
    inner = get_args(kind)
    return _innermost(inner[0]) if inner else kind


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


class Table(Part, kw_only=True):
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
    def other_members(self) -> Mapping[str, Mapping[str, object]]:
        """What `diff` compares besides rows: members by server, super pod, instance or layer."""

    @abstractmethod
    def to_servers(self) -> Table:
        """The ranks as a `RankTable`, to convert them; LackingError if no servers are stated."""

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
