"""What the value of a variable may be: checked, said in words, and as a JSON schema."""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LAST_PORT = 65535


class Kind(Protocol):
    """A kind of value; `product` is one of the inventory's words, `auto` where it is not known."""

    @property
    def words(self) -> str:
        """Completes "… is not " in messages."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """What a JSON schema can say of it."""
        ...

    def why_not(self, value: str, product: str) -> str | None:
        """Why the value is none of this kind; None when it is."""
        ...


def _not(value: str, words: str) -> str:
    return f"{json.dumps(value, ensure_ascii=False)} is not {words}"


@dataclass(frozen=True)
class Whole:
    """A whole number within limits."""

    least: int
    most: int
    unit: str = ""
    multiple_of: int = 1

    @property
    def words(self) -> str:
        """`a whole number from 120 to 7200, in seconds`."""
        number = f"a multiple of {self.multiple_of}" if self.multiple_of > 1 else "a whole number"
        unit = f", in {self.unit}" if self.unit else ""
        return f"{number} from {self.least} to {self.most}{unit}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """As a number or as text: the inventory takes both."""
        multiple = {"multipleOf": self.multiple_of} if self.multiple_of > 1 else {}
        number = {"type": "integer", "minimum": self.least, "maximum": self.most, **multiple}
        return {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+$"}]}

    def why_not(self, value: str, product: str) -> str | None:
        """Also where it is a number outside."""
        if not _WHOLE.fullmatch(value):
            return _not(value, self.words)
        number = int(value)
        if self.least <= number <= self.most and number % self.multiple_of == 0:
            return None
        return _not(value, self.words)


@dataclass(frozen=True)
class Megabytes:
    """A size in MB; people take the unit for bytes."""

    least: int
    most: int

    @property
    def words(self) -> str:
        """`a whole number of MB from 1 to 65536`."""
        return f"a whole number of MB from {self.least} to {self.most}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """As of any whole number."""
        return Whole(self.least, self.most).schema

    def why_not(self, value: str, product: str) -> str | None:
        """With the number of MB where bytes were meant."""
        reason = Whole(self.least, self.most).why_not(value, product)
        if reason is None:
            return None
        meant, rest = divmod(int(value), 1024**2) if value.isdecimal() else (0, 1)
        hint = f": the unit is MB; write {meant}" if meant >= self.least and not rest else ""
        return _not(value, self.words) + hint


@dataclass(frozen=True)
class ByProduct:
    """Another range on each product; without a product all of them count together."""

    kinds: Mapping[str, Whole]

    @property
    def words(self) -> str:
        """All ranges, products with the same one together."""
        groups: dict[str, list[str]] = {}
        for product, kind in self.kinds.items():
            groups.setdefault(kind.words, []).append(PRODUCT_NAMES[product])
        return "; ".join(f"on {', '.join(names)} {words}" for words, names in groups.items())

    @property
    def schema(self) -> Mapping[str, Any]:
        """The widest range."""
        return self._widest.schema

    @property
    def _widest(self) -> Whole:
        kinds = self.kinds.values()
        return Whole(min(k.least for k in kinds), max(k.most for k in kinds))

    def why_not(self, value: str, product: str) -> str | None:
        """By the range of the product, or by all of them."""
        if product in self.kinds:
            reason = self.kinds[product].why_not(value, product)
            return f"{reason} on {PRODUCT_NAMES[product]}" if reason else None
        return _not(value, self.words) if self._widest.why_not(value, product) else None


PRODUCT_NAMES = {"910": "910", "a2": "A2", "a3": "A3", "a5": "950"}
"""The inventory's words for products, as HCCL's manual calls them."""

WITHOUT_CM = {word: PRODUCT_NAMES[word] for word in ("a3", "a5")}
"""Products whose HCCL reads no CM_ variables."""


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    values: tuple[str, ...]

    @property
    def words(self) -> str:
        """`one of TRUE, FALSE`."""
        return "one of " + ", ".join(self.values)

    @property
    def schema(self) -> Mapping[str, Any]:
        """Numbers may stand without quotes."""
        numbers = [int(value) for value in self.values if value.isdecimal()]
        return {"enum": [*self.values, *numbers]}

    def why_not(self, value: str, product: str) -> str | None:
        """Exactly as written: HCCL does not forgive another case."""
        return None if value in self.values else _not(value, self.words)


@dataclass(frozen=True)
class Text:
    """A text of a certain form."""

    words: str
    pattern: str
    schema: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", {"type": ["string", "integer"], "pattern": self.pattern})

    def why_not(self, value: str, product: str) -> str | None:
        """By the form alone."""
        return None if re.fullmatch(self.pattern, value) else _not(value, self.words)


@dataclass(frozen=True)
class Address:
    """An IP address of the node."""

    words: str = "an IP address"

    @property
    def schema(self) -> Mapping[str, Any]:
        """A text."""
        return {"type": "string"}

    def why_not(self, value: str, product: str) -> str | None:
        """IPv4 or IPv6, without anything around it."""
        try:
            ipaddress.ip_address(value)
        except ValueError:
            return _not(value, self.words)
        return None


@dataclass(frozen=True)
class Ports:
    """`auto`, or ports and ranges of ports that do not overlap."""

    words: str = "auto, or ports and ranges such as 60000,60050-60100 that do not overlap"

    @property
    def schema(self) -> Mapping[str, Any]:
        """The form alone."""
        pattern = r"^(auto|[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)$"
        return {"type": ["string", "integer"], "pattern": pattern}

    def why_not(self, value: str, product: str) -> str | None:
        """With the range that goes backwards or stands twice."""
        if value == "auto":
            return None
        ranges = self.ranges(value)
        if ranges is None:
            return _not(value, self.words)
        taken = sorted(ranges, key=lambda ports: ports.start)
        for one, other in itertools.pairwise(taken):
            if other.start < one.stop:
                return f"{json.dumps(value)}: port {other.start} stands twice"
        return None

    def ranges(self, value: str) -> list[range] | None:
        """The ranges that the text names; None where it is none of this kind."""
        found = []
        for part in value.split(","):
            match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
            if match is None:
                return None
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= _LAST_PORT:
                return None
            found.append(range(first, last + 1))
        return found
