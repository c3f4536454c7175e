"""What the operating system says of itself: uname, os-release, names, ids, the clock."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from ascendboot.errors import NotUnderstoodError
from ascendboot.parse.reading import only_line_of

OS_RELEASE = "/etc/os-release"
_ENTRY = re.compile(r"([A-Z][A-Z0-9_]*)=(.*)")
_EPOCH = re.compile(r"[0-9]{9,11}\.[0-9]{1,9}")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMESPACE = re.compile(r"net:\[[0-9]+\]")
_WORD = re.compile(r"\S+")
_PATH = re.compile(r"/.*")
_UID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True)
class Kernel:
    """Release and machine as uname gives them: `5.10.0-216`, `aarch64`."""

    release: str
    arch: str


@dataclass(frozen=True)
class OsRelease:
    """The distribution: its id, version and full name; version is empty where not told."""

    os_id: str
    version: str
    name: str


@dataclass(frozen=True, kw_only=True)
class System:
    """Who and what a node is, and as whom we are there."""

    hostname: str
    os: OsRelease
    kernel: Kernel
    user: str
    uid: int
    home: str


def parse_uname(text: str) -> Kernel:
    """`uname -srm`.

    Raises:
        NotUnderstoodError: it is not Linux, or not three words.
    """
    expected = "Linux RELEASE MACHINE"
    line = only_line_of(text, "uname -srm", expected)
    match line.text.split():
        case ["Linux", release, arch]:
            return Kernel(release, arch)
        case _:
            raise line.not_understood("uname -srm", expected)


def parse_os_release(text: str) -> OsRelease:
    """The distribution as os-release(5) describes the file.

    Raises:
        NotUnderstoodError: a line is not NAME=VALUE with the quotes of a shell.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ENTRY.fullmatch(line.strip())
        words = _unquoted(match[2]) if match else None
        if match is None or words is None:
            raise NotUnderstoodError(OS_RELEASE, number, line, "NAME=VALUE")
        values[match[1]] = words
    return OsRelease(
        os_id=values.get("ID", "linux"),
        version=values.get("VERSION_ID", ""),
        name=values.get("PRETTY_NAME", values.get("ID", "Linux")),
    )


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


def _unquoted(value: str) -> str | None:
    try:
        words = shlex.split(value)
    except ValueError:
        return None
    return " ".join(words) if len(words) <= 1 else None
