"""Output of Linux tools: ip, ss, df, /proc."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers.base import Line, lines_of, nothing_printed, only_line_of

if TYPE_CHECKING:
    from collections.abc import Mapping

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


# Or `ip addr` where there is no `-j`: busybox, and iproute2 before 4.14 (CentOS 7).

IP_TOOL = "ip -j addr"
PLAIN = "ip addr"
_HEAD = re.compile(r"[0-9]+: ([^\s@:]+)(?:@\S+)?: <([A-Z0-9_,-]*)> .*")
_INET = re.compile(r"\s+inet6? (\S+?)(?: peer \S+?)?(?:/([0-9]{1,3}))?(?: .*)? scope (\S+)(?: .*)?")
_OTHER = re.compile(r"\s+(?!inet)\S.*")
_LONGEST_SHOWN = 120


@dataclass(frozen=True)
class InterfaceAddress:
    """One address of an interface, with the length of its network's prefix."""

    address: str
    prefix_length: int
    scope: str = "global"

    @property
    def network(self) -> str:
        """The network in CIDR form, `198.18.0.0/16`."""
        return str(ipaddress.ip_interface(f"{self.address}/{self.prefix_length}").network)


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface; `is_up` is its administrator's wish, `has_carrier` the cable's state."""

    name: str
    is_up: bool
    has_carrier: bool
    addresses: tuple[InterfaceAddress, ...] = ()


def parse_ip(text: str) -> tuple[Interface, ...]:
    """The interfaces, in the kernel's order.

    Raises:
        NotUnderstoodError: this is neither the JSON that iproute2 prints nor its plain form.
    """
    if re.match(r"[0-9]+: ", text):
        return _plain(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = text.strip().split("\n")[0]
        raise NotUnderstoodError(IP_TOOL, 1, line[:_LONGEST_SHOWN], "JSON") from error
    if not isinstance(found, list):
        raise _not_understood(found, "a list of interfaces")
    return tuple(_interface(item) for item in found)


def _plain(text: str) -> tuple[Interface, ...]:
    found: list[Interface] = []
    addresses: list[list[InterfaceAddress]] = []
    for line in lines_of(text):
        expected = "NUMBER: NAME: <FLAGS>, inet ADDRESS/LENGTH, or an indented line"
        if head := _HEAD.fullmatch(line.text):
            flags = head[2].split(",")
            found.append(
                Interface(name=head[1], is_up="UP" in flags, has_carrier="LOWER_UP" in flags)
            )
            addresses.append([])
        elif found and (inet := _INET.fullmatch(line.text)):
            try:
                length = ipaddress.ip_interface(f"{inet[1]}/{inet[2]}" if inet[2] else inet[1])
            except ValueError:
                raise line.not_understood(PLAIN, expected) from None
            addresses[-1].append(InterfaceAddress(inet[1], length.network.prefixlen, inet[3]))
        elif not (found and _OTHER.fullmatch(line.text)):
            raise line.not_understood(PLAIN, expected)
    return tuple(
        replace(one, addresses=tuple(of)) for one, of in zip(found, addresses, strict=True)
    )


def _interface(item: object) -> Interface:
    match item:
        case {"ifname": str(name), "flags": list(flags), "addr_info": list(addresses)}:
            return Interface(
                name=name,
                is_up="UP" in flags,
                has_carrier="LOWER_UP" in flags,
                addresses=tuple(_address(address) for address in addresses),
            )
        case _:
            raise _not_understood(item, "an interface with ifname, flags and addr_info")


def _address(item: object) -> InterfaceAddress:
    match item:
        case {"local": str(local), "prefixlen": int(length), "scope": str(scope)}:
            try:
                ipaddress.ip_interface(f"{local}/{length}")
            except ValueError:
                raise _not_understood(item, "an IP address and a prefix length") from None
            return InterfaceAddress(local, length, scope)
        case _:
            raise _not_understood(item, "an address with local, prefixlen and scope")


def _not_understood(item: object, expected: str) -> NotUnderstoodError:
    return NotUnderstoodError(IP_TOOL, 1, json.dumps(item)[:_LONGEST_SHOWN], expected)


SS_TOOL = "ss -Hltnp"
_LINE = re.compile(r"LISTEN\s+[0-9]+\s+[0-9]+\s+(\S+):([0-9]+)\s+\S+:\*(?:\s+users:\((.*)\))?\s*")
_USER = re.compile(r'\("(.*?)",pid=([0-9]+),fd=[0-9]+\)')
_EXPECTED = "LISTEN RECV-Q SEND-Q ADDRESS:PORT PEER:* [users:((PROGRAM,pid=N,fd=N))]"
_HIGHEST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Listener:
    """One listening TCP socket; program and pid are None where we may not see them."""

    address: str
    """`*` where it listens on all addresses of both families."""
    port: int
    pid: int | None = None
    program: str | None = None

    @property
    def holder(self) -> str:
        """Who has the port, for messages: `nginx (pid 9)`."""
        pid = f" (pid {self.pid})" if self.pid else ""
        return f"{self.program or 'a program of another user'}{pid}"


def parse_ss(text: str) -> tuple[Listener, ...]:
    """The listeners in the tool's order; none is a good answer.

    Raises:
        NotUnderstoodError: a line is not in the known form.
    """
    return tuple(_listener(line) for line in lines_of(text))


def _listener(line: Line) -> Listener:
    match = _LINE.fullmatch(line.text)
    if match is None or int(match[2]) > _HIGHEST_PORT:
        raise line.not_understood(SS_TOOL, _EXPECTED)
    user = _USER.match(match[3]) if match[3] else None
    if match[3] and user is None:
        raise line.not_understood(SS_TOOL, _EXPECTED)
    return Listener(
        address=_socket_address(line, match[1]),
        port=int(match[2]),
        pid=int(user[2]) if user else None,
        program=user[1] if user else None,
    )


def _socket_address(line: Line, text: str) -> str:
    if text == "*":
        return text
    # 127.0.0.53%lo and [fe80::1]%eth0: bound to one interface
    bare = text.partition("%")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        raise line.not_understood(SS_TOOL, _EXPECTED) from None


DISK_TOOL = "df -B1 --output=avail,itotal,iavail,target"
_HEADER = re.compile(r"\s*Avail\s+Inodes\s+IFree\s+Mounted on\s*")
_ROW = re.compile(r"\s*(-?[0-9]+)\s+(-|[0-9]+)\s+(-|[0-9]+)\s+(/.*)")


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """What is free on the file system that holds a path."""

    mount_point: str
    free_bytes: int
    free_inodes: int | None
    """None: this kind of file system has no fixed number of them."""


def parse_disk(text: str) -> tuple[FileSystem, ...]:
    """One entry per path asked for, in that order.

    Raises:
        NotUnderstoodError: a line is not in the known form, or there is no row.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(DISK_TOOL, "a header")
    if not _HEADER.fullmatch(lines[0].text):
        raise lines[0].not_understood(DISK_TOOL, "Avail, Inodes, IFree, Mounted on")
    found = []
    for line in lines[1:]:
        match = _ROW.fullmatch(line.text)
        if match is None:
            raise line.not_understood(DISK_TOOL, "free bytes, inodes, free inodes, mount point")
        has_inodes = match[2] not in ("-", "0") and match[3] != "-"
        found.append(
            FileSystem(
                mount_point=match[4],
                free_bytes=int(match[1]),
                free_inodes=int(match[3]) if has_inodes else None,
            )
        )
    if not found:
        raise lines[0].not_understood(DISK_TOOL, "a row below the header")
    return tuple(found)


RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
RESERVED = "/proc/sys/net/ipv4/ip_local_reserved_ports"
_RANGE = re.compile(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*")
_RESERVED = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True)
class KernelPorts:
    """`first` to `last` go to outgoing connections, except those in `reserved` (from, to)."""

    first: int
    last: int
    reserved: tuple[tuple[int, int], ...] = ()

    def may_take(self, port: int) -> bool:
        """Whether any outgoing connection may happen to get `port`."""
        is_reserved = any(first <= port <= last for first, last in self.reserved)
        return self.first <= port <= self.last and not is_reserved


def parse_kernel_ports(port_range: str, reserved: str) -> KernelPorts:
    """From the content of both files.

    Raises:
        NotUnderstoodError: one of them has another form.
    """
    line = only_line_of(port_range, RANGE, "two numbers")
    ends = _RANGE.fullmatch(line.text)
    if ends is None:
        raise line.not_understood(RANGE, "two numbers")
    kept = []
    for row in lines_of(reserved)[:1]:
        for word in row.text.strip().split(","):
            match = _RESERVED.fullmatch(word)
            if match is None:
                raise row.not_understood(RESERVED, "ports and ranges of ports with commas")
            kept.append((int(match[1]), int(match[2] or match[1])))
    return KernelPorts(int(ends[1]), int(ends[2]), tuple(kept))


FORMAT = "{{.Id}} {{.State.Status}} {{.Config.Image}}"
CONTAINER_TOOL = "docker inspect"
RUNNING = "running"

_MOUNT_LINE = re.compile(r"([0-9a-f]{64}) ([a-z]+) ?(\S*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class Container:
    """The container that was asked for, as an engine knows it."""

    engine: str
    """Absolute path of the program that knows it."""
    id: str
    status: str
    """As the engine calls it: running, exited, paused …"""
    image: str = ""
    """Empty where it was made from a directory."""
    obstacle: str = ""
    """Why no bash can be run in it, in the engine's words; empty when one can."""
    lacks: tuple[str, ...] = ()
    """Programs that our scripts need and that are not on its PATH."""
    lacks_capabilities: bool = False
    """We are root in it without what an sshd of root needs."""

    @property
    def is_ready(self) -> bool:
        """Whether something can be run in it."""
        return self.status == RUNNING and not self.obstacle and not self.lacks


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What the engines of a node know of the container that was asked for."""

    container: Container | None = None
    names: tuple[str, ...] = ()
    """Of the containers that there are, where the one asked for is not."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What an engine said that would not answer, by its path."""


def parse_inspect(text: str, engine: str) -> Container:
    """The line that `FORMAT` makes.

    Raises:
        NotUnderstoodError: it has another form.
    """
    match = _MOUNT_LINE.fullmatch(text.strip())
    if match is None:
        raise NotUnderstoodError(CONTAINER_TOOL, 1, text.strip(), "an id, a state and an image")
    identity, status, image = match.groups()
    return Container(engine=engine, id=identity, status=status, image=image)


def parse_names(text: str) -> tuple[str, ...]:
    """The names that `ps -a --format {{.Names}}` lists, sorted.

    Raises:
        NotUnderstoodError: a line is no name.
    """
    lines = text.split()
    for number, line in enumerate(lines, 1):
        for name in line.split(","):  # docker joins links to other containers with a comma
            if not _NAME.fullmatch(name.rpartition("/")[2]):
                raise NotUnderstoodError("docker ps", number, line, "the name of a container")
    return tuple(sorted(line.split(",")[0] for line in lines))
