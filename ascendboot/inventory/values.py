"""Types of inventory values: addresses, ranges, durations, sizes."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, get_args

import pydantic
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import CoreSchema, PydanticCustomError

from ascendboot.hccl.variables import hccl_ports
from ascendboot.inventory.yaml import Raw, described
from ascendboot.model.cluster import CHIEF_PORT, Product
from ascendboot.model.names import expand
from ascendboot.value import Value, field

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_LONGEST_NAME = 253
_TOO_MANY_NUMBERS = 3
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@lru_cache(maxsize=100_000)
def ip_of(text: str) -> IpAddress | None:
    """The IP address that `text` is, or None."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else ip


def why_not_ip(text: str) -> str | None:
    """Completes `"…" `: why `text` is not the IP address of a machine; None when it is one."""
    ip = ip_of(text)
    if ip is None:
        return f"is not an IP address{_slip(text)}"
    if ip.is_unspecified or ip.is_multicast or text == "255.255.255.255":
        return "is not the address of one machine"
    return None


NO_IPV6 = "is IPv6, which mpirun's -H does not take (Open MPI 4.1)"


def why_not_cluster_ip(text: str) -> str | None:
    """As `why_not_ip`, for an address at which nodes reach each other."""
    ip = ip_of(text)
    if ip is not None and ip.version != 4:  # noqa: PLR2004 - the version of IP
        return f"{NO_IPV6}; state an IPv4 address"
    return why_not_ip(text)


def why_not_address(text: str) -> str | None:
    """As `why_not_ip`, but a host name is an address too."""
    parts = text.split(".")
    numbers = [part for part in parts if part.isascii() and part.isdigit()]
    # No host name has a colon or ends in a number; `192.0.2.1o` has three numbers too many.
    if ":" in text or parts[-1] in numbers or len(numbers) >= _TOO_MANY_NUMBERS:
        return why_not_ip(text)
    labels = text.removesuffix(".").split(".")
    if len(text) <= _LONGEST_NAME and all(_LABEL.fullmatch(label) for label in labels):
        return None
    return f"is neither an IP address nor a host name{_slip(text)}"


def _slip(text: str) -> str:
    """A hint at the likely mistake, as the end of a sentence."""
    if "@" in text:
        return "; the login name has a key of its own, `user`"
    if "/" in text:
        return "; write the address alone, without a prefix length or path"
    if re.fullmatch(r"[^:]*:[0-9]+", text):
        return "; the port has a key of its own, `port`"
    if "%" in text:
        return "; an address with a zone means something else on every machine"
    if re.fullmatch(r"[0-9.]*\.0[0-9]+(\.[0-9]+)*|0[0-9]+\.[0-9.]+", text):
        return "; write its numbers without leading zeros"
    return ""


SENTENCE = "sentence"
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


class Kind(Value, eq=False):
    """Describes a valid value: completes "… is not " in messages, and fills the reference."""

    words: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Overrides what pydantic says of the type in the JSON schema."""
    example: object = None

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Pydantic's schema of the type, with the words beside it."""
        examples = {} if self.example is None else {"examples": [self.example]}
        return {**handler(core), **self.schema, **examples, "x-kind": self.words}


def custom_error(sentence: str) -> PydanticCustomError:
    """An error that says itself what was seen and what to do."""
    return PydanticCustomError(SENTENCE, "{sentence}", {"sentence": sentence})


def _each(why_not: Callable[[str], str | None]) -> AfterValidator:
    """Every address of a range passes `why_not`."""

    def check(text: str) -> str:
        if ip_of(text.strip("[]")) and ("[" in text or "]" in text):
            raise custom_error(f"{described(text)}: write an IPv6 address without brackets")
        try:
            single = expand(text)
        except ValueError as error:
            raise custom_error(f"{described(text)}: {error}") from error
        for one in single:
            reason = why_not(one)
            if reason:
                whole = f"{described(text)}: " if one != text else ""
                raise custom_error(f"{whole}{described(one)} {reason}")
        return text

    return AfterValidator(check)


def _without_password(value: object) -> object:
    if isinstance(value, str) and ":" in value:
        raise custom_error("a login name has no colon; write the name alone, never a password")
    return value


def _outside_hccl(port: int) -> int:
    if port in HCCL_PORTS:
        where = f"{HCCL_PORTS.start}-{HCCL_PORTS.stop - 1}, which HCCL takes for itself"
        raise custom_error(f"{port} lies in {where}; write {CHIEF_PORT}")
    return port


def size_of(text: str) -> int:
    """The bytes that a `LogSize` means; 0 for unlimited."""
    match = re.fullmatch(r"([0-9]+) ?([MGT]iB)", text)
    return int(match[1]) << {"MiB": 20, "GiB": 30, "TiB": 40}[match[2]] if match else 0


def _enough(text: str) -> str:
    if 0 < size_of(text) < _LEAST_LOG:
        raise custom_error(
            f"{text} is too little to keep the beginning and the end; write 16 MiB or more"
        )
    return text


def _resume_words(text: str) -> str:
    names = re.findall(r"\{([^{}]*)\}", text)
    if not names or not {"path", "step"}.issuperset(names):
        why = "only {path} and {step} are filled in, and one of the two must be there"
        raise custom_error(f"{described(text)}: {why}; write for example --load {{path}}")
    try:
        shlex.split(text)
    except ValueError as error:
        what = f"{described(text)}: a quotation mark has no partner; close it"
        raise custom_error(what) from error
    return text


def _as_written(value: object) -> object:
    """What YAML takes for a number, a date or a yes is what its text is, in an environment."""
    if isinstance(value, Raw):
        return value.text
    return str(value) if type(value) is int else value


def _truth(value: object) -> object:
    words = {"true": True, "false": False}
    return words.get(value.text, value) if isinstance(value, Raw) else value


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
Mtu = Annotated[int, Field(ge=68, le=9702), Kind("a whole number from 68 to 9702")]
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
LLDP = "lldp"
"""In place of a file of leaf switches: read them from the NPUs."""
FileOrLldp = Annotated[str, Field(pattern=ONE_LINE), Kind("the path of a file, or the word lldp")]
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
Image = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$"),
    Kind("the name of an image, such as swr.example/rec-sdk:7.3.0"),
]
Mount = Annotated[
    str,
    Field(pattern=r'^/[^\r\n\t:,"]*:/[^\r\n\t:,"]+(:ro)?$'),
    Kind("SOURCE:TARGET or SOURCE:TARGET:ro, absolute paths without a comma"),
]
SharedMemory = Annotated[
    str, Field(pattern=r"^[1-9][0-9]{0,5} ?(MiB|GiB)$"), Kind("a size such as 64 GiB")
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
LossForm = Annotated[
    str,
    Field(pattern=r"^[^\r\n<>]{3,100}<NUMBER>[^\r\n<>]{0,100}$"),
    Kind("a text of one line with 3 characters or more before `<NUMBER>`"),
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
Environment = Annotated[
    dict[str, EnvValue],
    Kind("a mapping of environment variables to values", {"propertyNames": {"pattern": ENV_NAME}}),
]
ResumeWords = Annotated[
    str,
    Field(pattern=r"^[^\r\n]+$"),
    AfterValidator(_resume_words),
    Kind("words of a command line with {path} or {step}"),
]
Truth = Annotated[bool, BeforeValidator(_truth), Kind("the word true or false")]
Size = Annotated[int, Field(ge=1), Kind("a whole number: 1 or more")]
_PRODUCTS = get_args(Product)
ProductName = Annotated[
    Product,
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    Kind(choice(*_PRODUCTS), {"enum": [*_PRODUCTS, 910], "type": ["string", "integer"]}),
]
DeviceId = Annotated[int, Field(ge=0), Kind("a device id: 0 or more")]

_IDS = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")


def ids_of(text: str) -> tuple[int, ...]:
    """The device ids in a text such as `0-1,6-7`; else a ValueError that completes `"…" `."""
    ids: list[int] = []
    for part in text.split(","):
        match = _IDS.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError("does not name device ids; write for example 0-1,6-7")
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(ids)


def _each_once(leaves: Mapping[str, str]) -> Mapping[str, str]:
    seen: set[int] = set()
    for text in leaves:
        try:
            ids = ids_of(text)
        except ValueError as error:
            raise custom_error(f"{described(text)} {error}") from error
        for device_id in ids:
            if device_id in seen:
                raise custom_error(f"device id {device_id} is stated twice; keep one")
            seen.add(device_id)
    return leaves


Leaves = Annotated[
    Annotated[Line, Tag(f"{TAG}text")]
    | Annotated[
        dict[str, Line], Field(min_length=1), AfterValidator(_each_once), Tag(f"{TAG}devices")
    ],
    by_type(text=str, devices=dict),
    Kind("a text of one line, or a mapping of device ids to such texts"),
]
