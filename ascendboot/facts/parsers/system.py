"""Output of Linux tools and of container engines: ip, ss, df, /proc, docker."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers.base import Line, lines_of, only, some_lines
from ascendboot.value import Value, field, replace

_BOOT_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class System(Value, kw_only=True):
    """The names of a node, and our user on it."""

    hostname: str
    arch: str
    """As uname prints it: `aarch64`."""
    user: str
    uid: int
    home: str


def parse_system(hostname: str, uname: str, user: str, uid: str, home: str) -> System:
    """Each text is the output of one program."""
    return System(
        hostname=_one(hostname, r"\S+", "hostname", "one word"),
        arch=parse_uname(uname),
        user=_one(user, r"\S+", "id -un", "one word"),
        uid=int(_one(uid, r"[0-9]{1,10}", "id -u", "a number")),
        home=parse_path(home, "$HOME"),
    )


def parse_uname(text: str) -> str:
    """The architecture in `uname -srm`."""
    return _one(text, r"Linux\s+\S+\s+\S+", "uname -srm", "Linux RELEASE MACHINE").split()[-1]


def parse_path(text: str, what: str) -> str:
    """An absolute path; `what` stands for it in messages."""
    return _one(text, r"/.*", what, "an absolute path")


def parse_machine(boot_id: str, namespace: str) -> str:
    """The boot id of the kernel and the network namespace, `net:[4026531840]`."""
    boot_id = _one(boot_id, _BOOT_ID, "/proc/sys/kernel/random/boot_id", "a UUID")
    namespace = _one(namespace, r"net:\[[0-9]+\]", "/proc/self/ns/net", "net:[NUMBER]")
    return f"{boot_id} {namespace}"


def parse_epoch(text: str) -> float:
    """`date +%s.%N`: seconds since 1970."""
    form = r"[0-9]{9,11}\.[0-9]{1,9}"
    return float(_one(text, form, "date +%s.%N", "SECONDS.NANOSECONDS"))


def _one(text: str, form: str, tool: str, expected: str) -> str:
    return only(some_lines(text, tool, expected)).match(form)[0]


# Not its JSON: busybox, and iproute2 before 4.14 (CentOS 7), have no -j.
_HEAD = re.compile(r"[0-9]+: ([^\s@:]+)(?:@\S+)?: <([A-Z0-9_,-]*)> .*")
_INET = re.compile(r"\s+inet6? (\S+?)(?: peer \S+?)?(?:/([0-9]{1,3}))?(?: .*)? scope (\S+)(?: .*)?")
_OTHER = re.compile(r"\s+(?!inet)\S.*")
_IP_EXPECTED = "NUMBER: NAME: <FLAGS>, inet ADDRESS/LENGTH, or an indented line"


class InterfaceAddress(Value):
    """One address of an interface, with the length of its network's prefix."""

    address: str
    prefix_length: int
    scope: str = "global"

    @property
    def network(self) -> str:
        """The network in CIDR form, `198.18.0.0/16`."""
        return str(ipaddress.ip_interface(f"{self.address}/{self.prefix_length}").network)


class Interface(Value, kw_only=True):
    """A network interface; `is_up` is its configured state, `has_carrier` the state of its link."""

    name: str
    is_up: bool
    has_carrier: bool
    addresses: tuple[InterfaceAddress, ...] = ()


def parse_ip(text: str) -> tuple[Interface, ...]:
    """The interfaces in the output of `ip addr`, in the kernel's order."""
    found: list[tuple[Interface, list[InterfaceAddress]]] = []
    for line in some_lines(text, "ip addr", _IP_EXPECTED):
        if head := _HEAD.fullmatch(line.text):
            flags = head[2].split(",")
            is_up, has_carrier = "UP" in flags, "LOWER_UP" in flags
            found.append((Interface(name=head[1], is_up=is_up, has_carrier=has_carrier), []))
        elif found and (inet := _INET.fullmatch(line.text)):
            try:
                interface = ipaddress.ip_interface(f"{inet[1]}/{inet[2]}" if inet[2] else inet[1])
            except ValueError:
                raise line.not_understood() from None
            length = interface.network.prefixlen
            found[-1][1].append(InterfaceAddress(inet[1], length, inet[3]))
        elif not (found and _OTHER.fullmatch(line.text)):
            raise line.not_understood()
    return tuple(replace(each, addresses=tuple(its)) for each, its in found)


_SOCKET = re.compile(r"LISTEN\s+[0-9]+\s+[0-9]+\s+(\S+):([0-9]+)\s+\S+:\*(?:\s+users:\((.*)\))?")
_USER = re.compile(r'\("(.*?)",pid=([0-9]+),fd=[0-9]+\)')
_SS_EXPECTED = "LISTEN RECV-Q SEND-Q ADDRESS:PORT PEER:* [users:((PROGRAM,pid=N,fd=N))]"
_HIGHEST_PORT = 65535


class Listener(Value, kw_only=True):
    """A listening TCP socket; program and pid are None where our user may not see them."""

    address: str
    """`*` where it listens on all addresses of both families."""
    port: int
    pid: int | None = None
    program: str | None = None

    @property
    def holder(self) -> str:
        """The program that has the port, for messages: `nginx (pid 9)`."""
        pid = f" (pid {self.pid})" if self.pid else ""
        return f"{self.program or 'a program of another user'}{pid}"


def parse_ss(text: str) -> tuple[Listener, ...]:
    """The listeners in the tool's order; there may be none."""
    return tuple(map(_listener, lines_of(text, "ss -Hltnp", _SS_EXPECTED)))


def _listener(line: Line) -> Listener:
    socket = line.match(_SOCKET)
    user = _USER.match(socket[3] or "")
    # An address with an interface: 127.0.0.53%lo, [fe80::1]%eth0.
    address = socket[1].partition("%")[0].strip("[]")
    try:
        address = "*" if socket[1] == "*" else str(ipaddress.ip_address(address))
    except ValueError:
        raise line.not_understood() from None
    if int(socket[2]) > _HIGHEST_PORT or (socket[3] and user is None):
        raise line.not_understood()
    return Listener(
        address=address,
        port=int(socket[2]),
        pid=int(user[2]) if user else None,
        program=user[1] if user else None,
    )


DISK_TOOL = "df -B1 --output=avail,itotal,iavail,target"
_ROW = re.compile(r"(-?[0-9]+)\s+(-|[0-9]+)\s+(-|[0-9]+)\s+(/.*)")


class FileSystem(Value, kw_only=True):
    """The free space of the file system that holds a path."""

    mount_point: str
    free_bytes: int
    free_inodes: int | None
    """None: file systems of this kind have no fixed number of inodes."""


def parse_disk(text: str) -> tuple[FileSystem, ...]:
    """One entry for each path of the query, in its order."""
    header, *rows = some_lines(text, DISK_TOOL, "a header")
    header.match(r"Avail\s+Inodes\s+IFree\s+Mounted on", "Avail, Inodes, IFree, Mounted on")
    if not rows:
        raise header.not_understood("a row below the header")
    matches = [row.match(_ROW, "free bytes, inodes, free inodes, mount point") for row in rows]
    return tuple(
        FileSystem(
            mount_point=match[4],
            free_bytes=int(match[1]),
            free_inodes=None if match[2] in ("-", "0") or match[3] == "-" else int(match[3]),
        )
        for match in matches
    )


_PORTS = "/proc/sys/net/ipv4/ip_local_"
_RESERVED = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class KernelPorts(Value):
    """The kernel's ports for outgoing connections: `first` to `last` without `reserved` ranges."""

    first: int
    last: int
    reserved: tuple[tuple[int, int], ...] = ()

    def may_take(self, port: int) -> bool:
        """Whether any outgoing connection may happen to get `port`."""
        is_reserved = any(first <= port <= last for first, last in self.reserved)
        return self.first <= port <= self.last and not is_reserved


def parse_kernel_ports(port_range: str, reserved: str) -> KernelPorts:
    """Parses the content of both files."""
    ends = only(some_lines(port_range, f"{_PORTS}port_range", "two numbers"))
    numbers = ends.match(r"([0-9]{1,5})\s+([0-9]{1,5})")
    expected = "ports and ranges of ports with commas"
    kept = []
    for row in lines_of(reserved, f"{_PORTS}reserved_ports", expected)[:1]:
        for word in row.text.strip().split(","):
            match = _RESERVED.fullmatch(word)
            if match is None:
                raise row.not_understood()
            kept.append((int(match[1]), int(match[2] or match[1])))
    return KernelPorts(int(numbers[1]), int(numbers[2]), tuple(kept))


LABELS = ("ascendboot.cluster", "ascendboot.description")
FORMAT = "{{.Id}} {{.State.Status}} {{.Config.Image}}" + "".join(
    f'\n{{{{index .Config.Labels "{label}"}}}}' for label in LABELS
)
RUNNING = "running"
_CONTAINER = re.compile(r"([0-9a-f]{64}) ([a-z]+) ?(\S*)(?:\n(.*)\n(.*))?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Container(Value, kw_only=True):
    """The node's container as its engine reports it."""

    engine: str
    id: str
    status: str
    """As the engine prints it: running, exited, paused …"""
    image: str = ""
    """Empty where it was created from a directory."""
    cluster: str = ""
    """The cluster for which setup created it; empty: setup did not."""
    description: str = ""
    """The digests by which setup recognizes a changed description."""
    processes: tuple[str, ...] = ()
    """What runs in it besides ascendboot; queried only if the inventory states its image."""
    obstacle: str = ""
    """The engine's message if it cannot run bash in it; else empty."""
    lacks: tuple[str, ...] = ()
    """Programs that our scripts need and that are not on its PATH."""
    lacks_capabilities: bool = False
    """We are root in it without the capabilities that an sshd of root needs."""

    @property
    def is_ready(self) -> bool:
        """Whether our scripts can run in it."""
        return self.status == RUNNING and not self.obstacle and not self.lacks


class Engines(Value, kw_only=True):
    """The answers of a node's container engines about its container."""

    container: Container | None = None
    names: tuple[str, ...] = ()
    """The containers that exist, if the node's does not."""
    paths: tuple[str, ...] = ()
    """The programs of the engines that have no such container."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Maps the path of an engine that gave no answer to its message."""


def parse_inspect(text: str, engine: str) -> Container:
    """Parses the lines that `FORMAT` prints."""
    match = _CONTAINER.fullmatch(text.strip())
    if match is None:
        raise NotUnderstoodError("docker inspect", 1, text.strip(), "an id, a state and an image")
    found = Container(engine=engine, id=match[1], status=match[2], image=match[3])
    return replace(found, cluster=match[4] or "", description=match[5] or "")


def parse_names(text: str) -> tuple[str, ...]:
    """The names that `ps -a --format {{.Names}}` lists, sorted."""
    lines = text.split()
    for number, line in enumerate(lines, 1):
        for name in line.split(","):  # docker joins links to other containers with a comma
            if not _NAME.fullmatch(name.rpartition("/")[2]):
                raise NotUnderstoodError("docker ps", number, line, "the name of a container")
    return tuple(sorted(line.split(",")[0] for line in lines))
