"""The types of an inventory's values: what each must be, and how that is said in words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field
from pydantic_core import PydanticCustomError

from ascendboot.hccl import hccl_ports
from ascendboot.inventory import ranges
from ascendboot.inventory.addresses import (
    ip_of,
    why_not_address,
    why_not_cluster_ip,
    why_not_ip,
)
from ascendboot.inventory.sheet import Raw, seen
from ascendboot.model.cluster import CHIEF_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

SAID = "said"
"""The pydantic error type whose text is already a whole sentence."""

[HCCL_PORTS] = hccl_ports({})
"""What HCCL listens on itself, where nothing else is stated."""

_LEAST_LOG = 16 << 20

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
NAME_OR_RANGE = r"^[A-Za-z0-9\[][A-Za-z0-9_.,\[\]-]*$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
ONE_LINE = r"^[^\r\n\t]+$"


def is_match(pattern: str, text: str) -> bool:
    """Whether the whole of `text` matches `pattern` (`$` alone forgives a final newline)."""
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), text) is not None


@dataclass(frozen=True, eq=False)
class Kind:
    """What a value must be, in words: completes "… is not " in messages and fills the reference."""

    words: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Replaces what pydantic would say of the type in the JSON schema."""
    example: object = None

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Pydantic's schema of the type, with the words beside it."""
        own = dict(self.schema) or handler(core)
        examples = {} if self.example is None else {"examples": [self.example]}
        return {**own, **examples, "x-kind": self.words}


def said(sentence: str) -> PydanticCustomError:
    """An error that says itself what was seen and what to do."""
    return PydanticCustomError(SAID, "{sentence}", {"sentence": sentence})


def _each(why_not: Callable[[str], str | None]) -> AfterValidator:
    """Every address of a range passes `why_not`."""

    def check(text: str) -> str:
        if ip_of(text.strip("[]")) and ranges.has_range(text):
            raise said(f"{seen(text)}: write an IPv6 address without brackets")
        try:
            single = ranges.expand(text)
        except ValueError as error:
            raise said(f"{seen(text)}: {error}") from error
        for one in single:
            reason = why_not(one)
            if reason:
                whole = f"{seen(text)}: " if one != text else ""
                raise said(f"{whole}{seen(one)} {reason}")
        return text

    return AfterValidator(check)


def _without_password(value: object) -> object:
    if isinstance(value, str) and ":" in value:
        raise said("a login name has no colon; write the name alone, never a password")
    return value


def _outside_hccl(port: int) -> int:
    if port in HCCL_PORTS:
        raise said(
            f"{port} lies in {HCCL_PORTS.start}-{HCCL_PORTS.stop - 1}, which HCCL takes for "
            f"itself; write {CHIEF_PORT}"
        )
    return port


def size_of(text: str) -> int:
    """The bytes that a `LogSize` means; 0 for unlimited."""
    match = re.fullmatch(r"([0-9]+) ?([MGT]iB)", text)
    return int(match[1]) << {"MiB": 20, "GiB": 30, "TiB": 40}[match[2]] if match else 0


def _enough(text: str) -> str:
    if 0 < size_of(text) < _LEAST_LOG:
        raise said(f"{text} is too little to keep the beginning and the end; write 16 MiB or more")
    return text


def _as_written(value: object) -> object:
    """What YAML takes for a number, a date or a yes is what its text is, in an environment."""
    if isinstance(value, Raw):
        return value.text
    return str(value) if type(value) is int else value


def by_type(**tags: type) -> Discriminator:
    """Chooses between the forms of a value by its Python type, so that errors name one form."""

    def choose(value: object) -> str | None:
        return next((TAG + tag for tag, kind in tags.items() if type(value) is kind), None)

    return Discriminator(choose)


TAG = "\0"
"""Begins what pydantic puts into an error's location for a chosen form; no YAML text has it."""


def choice(*values: str) -> str:
    """`one of a, b`, as the words of a Kind."""
    return "one of " + ", ".join(values) if len(values) > 1 else values[0]


Name = Annotated[
    str, Field(pattern=NAME), Kind("a name: letters, digits, - _ . and at most 64 of them")
]
Address = Annotated[str, _each(why_not_address), Kind("an IP address or host name")]
Ip = Annotated[str, _each(why_not_ip), Kind("an IP address")]
ClusterIp = Annotated[str, _each(why_not_cluster_ip), Kind("an IPv4 address")]
Port = Annotated[int, Field(ge=1, le=65535), Kind("a whole number from 1 to 65535")]
ChiefPort = Annotated[
    int,
    Field(ge=1024, le=65520),
    AfterValidator(_outside_hccl),
    Kind("a whole number from 1024 to 65520"),
]
ServerId = Annotated[
    str, Field(pattern=ONE_LINE), _each(lambda _: None), Kind("a text of one line")
]
Word = Annotated[str, Field(pattern=r"^[^\r\n]+$"), Kind("a text of one line")]
Line = Annotated[str, Field(pattern=ONE_LINE), Kind("a text of one line")]
User = Annotated[
    str,
    BeforeValidator(_without_password),
    Field(pattern=r"^[^\s:@-][^\s:]*$"),
    Kind("a login name"),
]
PathHere = Annotated[str, Field(pattern=ONE_LINE), Kind("the path of a file")]
FolderOrPrimary = Annotated[
    str, Field(pattern=ONE_LINE), Kind("the path of a folder, or the word primary")
]
Pattern = Annotated[
    str,
    Field(pattern=r"^[^\r\n\t\\/]([^\r\n\t\\]*[^\r\n\t\\/])?$"),
    Kind("a name or a relative path, with *, ? and [...] but no backslash or final /"),
]
Jump = Annotated[
    str,
    Field(pattern=r"^([^\s@,:]+@)?[A-Za-z0-9_.:\[\]-]+$"),
    Kind("a node's name or USER@HOST[:PORT]"),
]
Fingerprint = Annotated[
    str,
    Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$"),
    Kind("a fingerprint: SHA256: and 43 characters, as ssh-keygen -l prints it"),
]
Container = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"), Kind("the name of a container")
]
Interface = Annotated[
    str, Field(pattern=r"^[^\s/:]{1,15}$"), Kind("the name of a network interface")
]
AbsolutePath = Annotated[
    str, Field(pattern=r"^/[^\r\n\t]*$"), Kind("an absolute path on the nodes")
]
Program = Annotated[
    str,
    Field(pattern=r"^(/[^\r\n\t]+|[^\s/-][^\s/]*)$"),
    Kind("the name of a program or an absolute path"),
]
LogSize = Annotated[
    str,
    Field(pattern=r"^([1-9][0-9]{0,5} ?(MiB|GiB|TiB)|unlimited)$"),
    AfterValidator(_enough),
    Kind("a size such as 512 MiB or 2 GiB, or unlimited"),
]
EnvValue = Annotated[
    str,
    BeforeValidator(_as_written),
    Field(pattern=r"^[^\r\n]*$"),
    Kind(
        "a text of one line, a number, or true or false",
        {"type": ["string", "number", "boolean"], "pattern": r"^[^\r\n]*$"},
    ),
]
EnvName = Annotated[
    str, Field(pattern=ENV_NAME), Kind("the name of an environment variable: letters, digits and _")
]
Environment = Annotated[dict[str, EnvValue], Kind("a mapping of environment variables to values")]
_PRODUCTS = ("auto", "910", "a2", "a3", "a5")
ProductName = Annotated[
    Literal["auto", "910", "a2", "a3", "a5"],
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Kind(choice(*_PRODUCTS), {"enum": [*_PRODUCTS, 910]}),
]
DeviceId = Annotated[int, Field(ge=0), Kind("a device id: 0 or more")]
