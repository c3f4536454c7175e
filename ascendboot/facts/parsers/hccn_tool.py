"""Output of hccn_tool, and /etc/hccn.conf."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ascendboot.errors import ToolError
from ascendboot.facts.parsers.base import (
    Line,
    ToolBusyError,
    around,
    lines_of,
    nothing_printed,
    only_line,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# Grammar from hicann/driver `hccn_tool/cfg.c`: `name_ID=value`, the first of equal keys counts,
# lines that begin with # or are shorter than three characters are skipped.

FILE = "/etc/hccn.conf"
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)_([0-9]{1,2})=(.*)")
_EXPECTED = "NAME_ID=VALUE"
_SHORTEST = 3


@dataclass(frozen=True)
class HccnConf:
    """The address that the file gives to each device, by physical id."""

    addresses: Mapping[int, str] = field(default_factory=dict)


def parse_conf(text: str) -> HccnConf:
    """The addresses in the file.

    Raises:
        NotUnderstoodError: a line is not `NAME_ID=VALUE`, or an address is none.
    """
    addresses: dict[int, str] = {}
    for line in lines_of(text):
        if line.text.startswith("#") or len(line.text) < _SHORTEST:
            continue
        match = _ENTRY.fullmatch(line.text.rstrip())
        if match is None:
            raise line.not_understood(FILE, _EXPECTED)
        if match[1] == "address":
            addresses.setdefault(int(match[2]), _address(line, match[3]))
    return HccnConf(addresses)


def _address(line: Line, value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise line.not_understood(FILE, "an IP address") from None


# Exit codes of this tool are ambiguous and some errors go to stdout (hicann/driver `tool_ops.c`),
# so what it says is classified by the text of both streams together.

Failure = Literal[
    "busy", "no-ip", "not-supported", "no-such-device", "not-permitted", "timeout", "failed"
]

_FAILURES: tuple[tuple[str, Failure], ...] = (
    ("hccn_tool is busy, please try again.", "busy"),
    ("Get ipconf failed, because no ip was preset there!", "no-ip"),
    ("The command is not supported on this product.", "not-supported"),
    ("The VM does not support this command.", "not-supported"),
    ("This device does not support IPV6!", "not-supported"),
    ("Get invalid device id.", "no-such-device"),
    ("The device is not exist!", "no-such-device"),
    ("permission denied: pls check this cmd run permission.", "not-permitted"),
    ("The cmd line execute timeout!", "timeout"),
    ("Command execute failed!", "failed"),
    ("Cmd execute failed!", "failed"),
    ("Control link unreachable.", "failed"),
    ("Execute failed: Link status is down.", "failed"),
    ("Get device health status failed!", "failed"),
    ("Optical module is not present.", "failed"),
    ("Read file failed, cmd execute failed! pls check cmd run permission.", "failed"),
    ("The hccn.conf can't access, cmd execute failed!", "failed"),
    ("The ip address you configured is invalid!", "failed"),
    ("Get invalid ", "failed"),
    ("Get unknown option!", "failed"),
    ("The total count of input parameters is wrong!", "failed"),
)
_LOADER = re.compile(r"/?\S+: error while loading shared libraries: ")
_TLS = re.compile(r"dev_id:\s*([0-9]+), tls switch\[([01])\]\(0:disable, 1:enable\)(,.*)?")
_CERTIFICATE = re.compile(r"dev_id:\s*[0-9]+, \[.*\] info:|\s+[a-z_ ]+\[.*\](\(.*\))?\s*")
KNOWN_LINES = {
    "ip": re.compile(r"\s*[a-z_]+:\S"),
    "link": re.compile(r"\s*link status:"),
    "vnic": re.compile(r"\s*vnic "),
    "tls": re.compile(r"\s*dev_id:"),
}
"""How the lines of an answer begin, by what is asked."""
_EXPECTED_IP = "ipaddr:ADDRESS and netmask:MASK"
_VNIC = re.compile(r"vnic (link status|ipaddr|netmask):\s*(\S+)")
_EXPECTED_VNIC = "vnic link status:, vnic ipaddr:ADDRESS and vnic netmask:"
_EXPECTED_TLS = "dev_id:N, tls switch[0|1](0:disable, 1:enable)"


class HccnToolError(ToolError):
    """hccn_tool said, in words that we know, that it could not do it."""

    def __init__(self, tool: str, failure: Failure, line: str) -> None:
        super().__init__(f"{tool}: {line}")
        self.failure = failure


@dataclass(frozen=True)
class DeviceAddress:
    """One address of a device's network."""

    ip: str
    netmask: str


def parse_ip(text: str, tool: str = "hccn_tool -ip -g") -> tuple[DeviceAddress, ...]:
    """The addresses of a device, one per port; none when none is set.

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not tell.
        NotUnderstoodError: a line is not in a known form.
    """
    try:
        refuse_failure(text, tool)
    except HccnToolError as error:
        if error.failure == "no-ip":
            return ()
        raise
    lines = within(
        lines_of(text), KNOWN_LINES["ip"]
    )  # older versions print nothing at all where no address is set
    addresses = []
    for first, second in zip(lines[::2], (*lines[1::2], None), strict=False):
        ip = _value(first, "ipaddr", tool)
        if second is None:
            raise first.not_understood(tool, _EXPECTED_IP)
        addresses.append(DeviceAddress(ip, _value(second, "netmask", tool)))
    return tuple(addresses)


def parse_link(text: str, tool: str = "hccn_tool -link -g") -> bool:
    """Whether the link is up.

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not tell.
        NotUnderstoodError: the answer is not in a known form.
    """
    refuse_failure(text, tool)
    expected = "link status: UP or DOWN"
    lines = within(lines_of(text), KNOWN_LINES["link"])
    line = only_line(lines, tool, expected)
    match = re.fullmatch(r"link status:\s*(UP|DOWN)", line.text.strip())
    if match is None:
        raise line.not_understood(tool, expected)
    return match[1] == "UP"


def parse_vnic(text: str, tool: str = "hccn_tool -vnic -g") -> str:
    """The address of a device inside its super pod (A3).

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not tell.
        NotUnderstoodError: a line is not in a known form.
    """
    refuse_failure(text, tool)
    address = None
    for line in within(lines_of(text), KNOWN_LINES["vnic"]):
        match = _VNIC.fullmatch(line.text.strip())
        if match is None:
            raise line.not_understood(tool, _EXPECTED_VNIC)
        if match[1] == "ipaddr":
            try:
                address = str(ipaddress.IPv4Address(match[2]))
            except ValueError:
                raise line.not_understood(tool, _EXPECTED_VNIC) from None
    if address is None:
        raise nothing_printed(tool, _EXPECTED_VNIC)
    return address


def parse_tls(text: str, tool: str = "hccn_tool -tls -g") -> bool:
    """Whether TLS is switched on.

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not tell.
        NotUnderstoodError: a line is not in a known form.
    """
    refuse_failure(text, tool)
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(tool, _EXPECTED_TLS)
    lines = lines[
        lines.index(within(lines, KNOWN_LINES["tls"])[0]) :
    ]  # a certificate's end as well
    match = _TLS.fullmatch(lines[0].text.strip())
    if match is None:
        raise lines[0].not_understood(tool, _EXPECTED_TLS)
    for line in lines[1:]:
        if not _CERTIFICATE.fullmatch(line.text):
            raise line.not_understood(tool, "the description of a certificate")
    return match[2] == "1"


def refuse_failure(text: str, tool: str) -> None:
    """Raise what the tool itself says of its failure; say nothing of text without one.

    Raises:
        ToolBusyError: another caller uses the tool.
        HccnToolError: any other failure that the tool is known to print.
    """
    for line in lines_of(text):
        said = line.text.strip()
        failure = _failure(said)
        if failure == "busy":
            raise ToolBusyError(f"{tool}: {said}")
        if failure is not None:
            raise HccnToolError(tool, failure, said)


def _failure(said: str) -> Failure | None:
    if _LOADER.match(said):
        return "failed"
    return next((kind for words, kind in _FAILURES if said.startswith(words)), None)


def _value(line: Line, key: str, tool: str) -> str:
    # split at the FIRST colon: an IPv6 address has more of them
    name, colon, value = line.text.strip().partition(":")
    try:
        if name == key and colon:
            return str(ipaddress.ip_address(value.strip()))
    except ValueError:
        pass
    raise line.not_understood(tool, _EXPECTED_IP)


# Texts as in hicann/driver `ds_net_ext.c` (910, A2, A3). The tool ends with an error whenever a
# packet is lost, and then says "Command execute failed!" behind what it printed of the packets.

_HEAD = re.compile(r"device [0-9]{1,2} PING6? \S+")
_ANSWER = re.compile(r"recv seq=[0-9]+,\s*time=[0-9.]+ms|This pkt ping success!")
_LATE = re.compile(r"recv time out seq\b.*")
_REFUSED = re.compile(
    r"(?:From \S+ (?:icmp_seq=[0-9]+ )?)?(Destination Host Unreachable|Message too long)"
    r"|(This pkt (?:send fail|check recv msg fail|ping not start to send)!)"
)
_SUM = re.compile(
    r"([0-9]+) packets transmitted, ([0-9]+) received, ([0-9]+\.[0-9]{2})% packets? loss"
)
_NO_LOSS = "0.00"
KNOWN = re.compile(
    r"\s*(?:device |recv |From |Destination |Message too long|This pkt |[0-9]+ packets "
    r"|Command execute failed|Cmd execute failed)"
)
"""How the lines of an answer begin."""
_AFTERWARDS = ("Command execute failed!", "Cmd execute failed!")
_PING_EXPECTED = "N packets transmitted, N received, X.XX% packet loss"


@dataclass(frozen=True)
class Ping:
    """How many packets came back, and the tool's own word for what hindered them."""

    sent: int
    received: int
    hindrance: str = ""

    @property
    def is_well(self) -> bool:
        """Every packet came back."""
        return self.sent > 0 and self.received == self.sent and not self.hindrance

    @property
    def summary(self) -> str:
        """What came back, in words."""
        counts = f"{self.sent} packets transmitted, {self.received} received"
        return f"{counts}: {self.hindrance}" if self.hindrance else counts


def parse_ping(text: str, tool: str = "hccn_tool -ping -g") -> Ping:
    """What became of the packets.

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not send any.
        NotUnderstoodError: a line is not in a known form, or the counts are missing.
    """
    lines = _answer(text, tool)
    sums: list[re.Match[str]] = []
    hindrances: list[str] = []
    failures: list[Line] = []
    for line in lines:
        said = line.text.strip()
        if match := _SUM.fullmatch(said):
            sums.append(match)
        elif match := _REFUSED.fullmatch(said):
            hindrances.append(match[1] or match[2])
        elif said in _AFTERWARDS:
            failures.append(line)
        elif not (_HEAD.fullmatch(said) or _ANSWER.fullmatch(said) or _LATE.fullmatch(said)):
            refuse_failure(said, tool)
            raise line.not_understood(tool, "the answer to a packet, or a failure that is known")
    if len(sums) == 1:
        return _counted(sums[0], hindrances, has_failed=bool(failures))
    if failures:
        raise HccnToolError(tool, "failed", failures[0].text.strip())
    if hindrances:
        raise ToolError(f"{tool}: {hindrances[0]}")
    raise lines[-1].not_understood(tool, _PING_EXPECTED)


def _answer(text: str, tool: str) -> tuple[Line, ...]:
    """The lines of the answer, where the tool says around them nothing of a failure."""
    for line in around(text, KNOWN):
        refuse_failure(line.text.strip(), tool)
    lines = within(lines_of(text), KNOWN)
    if not lines:
        raise nothing_printed(tool, _PING_EXPECTED)
    return lines


def _counted(match: re.Match[str], hindrances: list[str], *, has_failed: bool) -> Ping:
    sent, received = int(match[1]), int(match[2])
    if not hindrances and sent == received and (has_failed or match[3] != _NO_LOSS):
        hindrances = ["the tool calls it a failure all the same"]
    return Ping(sent, received, hindrances[0] if hindrances else "")
