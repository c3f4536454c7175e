"""What the operating system says of itself: uname, names, ids, the clock."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import only_line_of

_EPOCH = re.compile(r"[0-9]{9,11}\.[0-9]{1,9}")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMESPACE = re.compile(r"net:\[[0-9]+\]")
_WORD = re.compile(r"\S+")
_PATH = re.compile(r"/.*")
_UID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, kw_only=True)
class System:
    """Who and what a node is, and as whom we are there."""

    hostname: str
    arch: str
    """As uname calls it: `aarch64`."""
    user: str
    uid: int
    home: str


def parse_uname(text: str) -> str:
    """The architecture in `uname -srm`.

    Raises:
        NotUnderstoodError: it is not Linux, or not three words.
    """
    expected = "Linux RELEASE MACHINE"
    line = only_line_of(text, "uname -srm", expected)
    match line.text.split():
        case ["Linux", _, arch]:
            return arch
        case _:
            raise line.not_understood("uname -srm", expected)


def parse_hostname(text: str) -> str:
    """The kernel's name of the node."""
    return _whole(_WORD, text, "hostname", "one word")


def parse_user(text: str) -> str:
    """The login name."""
    return _whole(_WORD, text, "id -un", "one word")


def parse_uid(text: str) -> int:
    """The user id."""
    return int(_whole(_UID, text, "id -u", "a number"))


def parse_home(text: str) -> str:
    """The home folder."""
    return parse_path(text, "$HOME")


def parse_path(text: str, what: str) -> str:
    """An absolute path, `what` says of what."""
    return _whole(_PATH, text, what, "an absolute path")


def parse_namespace(text: str) -> str:
    """The namespace that a link below /proc/self/ns names: `net:[4026531840]`."""
    return _whole(_NAMESPACE, text, "/proc/self/ns/net", "net:[NUMBER]")


def parse_boot_id(text: str) -> str:
    """The id that the kernel gave to this start of the machine."""
    return _whole(_BOOT_ID, text, "/proc/sys/kernel/random/boot_id", "a UUID")


def parse_epoch(text: str) -> float:
    """`date +%s.%N`: seconds since 1970."""
    return float(_whole(_EPOCH, text, "date +%s.%N", "SECONDS.NANOSECONDS"))


def _whole(form: re.Pattern[str], text: str, tool: str, expected: str) -> str:
    line = only_line_of(text, tool, expected)
    if not form.fullmatch(line.text.strip()):
        raise line.not_understood(tool, expected)
    return line.text.strip()
