"""Output of hccn_tool, and /etc/hccn.conf."""

from __future__ import annotations

import ipaddress
import re
from calendar import timegm
from collections.abc import Callable, Mapping, Sequence
from time import strptime
from typing import Any

from ascendboot.errors import ToolError
from ascendboot.facts.parsers import base
from ascendboot.value import Value

# Grammar from hicann/driver `hccn_tool/cfg.c`: `name_ID=value`; the first of equal keys counts;
# lines that begin with # or are shorter than three characters are skipped.

FILE = "/etc/hccn.conf"
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)_([0-9]{1,2})=(.*)")
_SHORTEST = 3


def parse_conf(text: str) -> dict[int, str]:
    """The address that the file gives to each device, by physical id."""
    return {id_: each["address"] for id_, each in parse_settings(text).items() if "address" in each}


def parse_settings(text: str) -> dict[int, dict[str, str]]:
    """What the file gives to each device, by physical id and name."""
    devices: dict[int, dict[str, str]] = {}
    for line in base.lines_of(text, FILE, "NAME_ID=VALUE"):
        if line.text.startswith("#") or len(line.text) < _SHORTEST:
            continue
        match = _ENTRY.fullmatch(line.text.rstrip())
        if match is None:
            raise line.not_understood()
        value = match[3]
        if match[1] == "address":
            value = _address(value, line, "an IP address")
        devices.setdefault(int(match[2]), {}).setdefault(match[1], value)
    return devices


def _address(value: str, line: base.Line, expected: str = "") -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise line.not_understood(expected) from None


# Exit codes of this tool are ambiguous and some errors go to stdout (hicann/driver `tool_ops.c`),
# so failures are recognized by the text of both streams together.

BUSY = "hccn_tool is busy, please try again."
_FAILURES = (
    BUSY,
    "Get ipconf failed",
    "Get gateway failed",
    "The command is not supported on this product.",
    "The VM does not support this command.",
    "This device does not support IPV6!",
    "Get invalid ",
    "The device is not exist!",
    "permission denied: pls check this cmd run permission.",
    "The cmd line execute timeout!",
    "Command execute failed!",
    "Cmd execute failed!",
    "Control link unreachable.",
    "Execute failed: Link status is down.",
    "Get device health status failed!",
    "Optical module is not present.",
    "Read file failed, cmd execute failed! pls check cmd run permission.",
    "The hccn.conf can't access, cmd execute failed!",
    "The ip address you configured is invalid!",
    "Get unknown option!",
    "The total count of input parameters is wrong!",
)
_LOADER = re.compile(r"/?\S+: error while loading shared libraries: ")


def failure_in(text: str) -> str:
    """The first line that reports a failure; empty without one."""
    lines = (line.text.strip() for line in base.lines_of(text))
    return next((x for x in lines if x.startswith(_FAILURES) or _LOADER.match(x)), "")


def _refuse_failure(text: str, tool: str) -> None:
    if failure := failure_in(text):
        kind = base.ToolBusyError if failure.startswith(BUSY) else ToolError
        raise kind(f"{tool}: {failure}")


_IP_EXPECTED = "ipaddr:ADDRESS and netmask:MASK"
_NO_IP = "(Get ipconf failed, because no ip was preset there!.*)?"
"""Older versions print nothing."""


class DeviceAddress(Value):
    """One address of a device's network."""

    ip: str
    netmask: str


def _addresses(lines: Sequence[base.Line]) -> tuple[DeviceAddress, ...]:
    """The addresses of a device, one per port."""
    if len(lines) % 2:
        raise lines[-1].not_understood()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return tuple(DeviceAddress(_value(ip, "ipaddr"), _value(mask, "netmask")) for ip, mask in pairs)


def _value(line: base.Line, key: str) -> str:
    return _address(line.match(rf"{key}:\s*(\S*)")[1], line)


def _link(lines: Sequence[base.Line]) -> bool:
    return base.only(lines).match(r"link status:\s*(UP|DOWN)")[1] == "UP"


_VNIC_EXPECTED = "vnic link status:, vnic ipaddr:ADDRESS and vnic netmask:"


def _vnic(lines: Sequence[base.Line]) -> str:
    """The address of a device inside its super pod (A3)."""
    address = ""
    for line in lines:
        match = line.match(r"vnic (link status|ipaddr|netmask):\s*([^\s:]+)")
        if match[1] == "ipaddr":
            address = _address(match[2], line)
    if not address:
        raise lines[-1].not_understood()
    return address


_TLS_EXPECTED = "dev_id:N, tls switch[0|1](0:disable, 1:enable)"
_CERTIFICATE = re.compile(r"dev_id:\s*[0-9]+, \[.*\] info:|\s+[a-z_ ]+\[.*\](\(.*\))?\s*")
_TLS_LINES = rf"dev_id:|{_CERTIFICATE.pattern}"


def _tls(lines: Sequence[base.Line]) -> bool:
    """Whether TLS is switched on; the description of certificates may follow."""
    switch = lines[0].match(r"dev_id:\s*[0-9]+, tls switch\[([01])\]\(0:disable, 1:enable\)(,.*)?")
    for line in lines[1:]:
        if not _CERTIFICATE.fullmatch(line.text):
            raise line.not_understood("the description of a certificate")
    return switch[1] == "1"


# What the ports of devices counted and noticed: formats of hicann/driver `tool_ops.c`, samples of
# mind-cluster (910A, 23.0.5) and of HCCL's guide to faults (with `link down count`).

NET_HEALTH = (
    *("Success", "Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault", "Init"),
    *("Thread error", "Detect ip set", "Unknown"),
)
"""How a device sees its pings to the address that `-netdetect` shows; Init: none is set."""
NET_BROKEN = ("Socket fail", "Receive timeout", "Unreachable")
"""Those that mean a broken network; Success and Init are fine, the others prove nothing."""
_NET_EXPECTED = f"net health status: {', '.join(NET_HEALTH)}"
_LINK_LINES = r"\[dev(?:id|ice) [0-9]"
_LINK_EXPECTED = "[devid N] with current time, link up count, link change records, and these"
_OF_DEVICE = re.compile(r"\[dev(?:id|ice) ([0-9]{1,2})\]\s*(\S.*)")
_CHANGE = re.compile(r"(\S.*\S)\s+LINK (UP|DOWN)")
_LINK_COUNT = re.compile(r"link (up|down) count\s*:\s*([0-9]{1,9})")


class LinkChange(Value):
    """A change of a link, by the device's own clock."""

    seconds_ago: int
    is_up: bool


class LinkHistory(Value):
    """How often a link came up and went down since the start of the driver."""

    ups: int
    downs: int | None
    """None: older drivers do not print it."""
    changes: tuple[LinkChange, ...] = ()
    """The newest first; the tool shows some of them only."""


def _net_health(lines: Sequence[base.Line]) -> str:
    """The word of `NET_HEALTH` that the device reports; older drivers print `Socket failed`."""
    form = rf"net health status:\s*({'|'.join(NET_HEALTH)})(?:(?<=Socket fail)ed)?"
    return base.only(lines).match(form)[1]


def _link_stat(lines: Sequence[base.Line]) -> LinkHistory:
    found = [line.match(_OF_DEVICE) for line in lines]
    words = [match[2].rstrip() for match in found]
    heads = [re.sub(r"\s*:$", "", each) for each in words]
    at = heads.index("link change records") if "link change records" in heads else len(heads)
    counts = {m[1]: int(m[2]) for each in words[1:at] if (m := _LINK_COUNT.fullmatch(each))}
    name, _, time = words[0].partition(":")
    is_whole = at < len(heads) and name.strip() == "current time" and "up" in counts
    if other := next((n for n, match in enumerate(found) if match[1] != found[0][1]), 0):
        raise lines[other].not_understood(f"the history of device {found[0][1]} alone")
    if not is_whole or len(counts) != at - 1:
        raise lines[min(at, len(lines) - 1)].not_understood()
    now = _seconds(time, lines[0])
    changes = []
    for line, each in zip(lines[at + 1 :], words[at + 1 :], strict=True):
        change = _CHANGE.fullmatch(each)
        if change is None:
            raise line.not_understood("a time and LINK UP or LINK DOWN")
        changes.append(LinkChange(now - _seconds(change[1], line), change[2] == "UP"))
    return LinkHistory(counts["up"], counts.get("down"), tuple(changes))


def _seconds(text: str, line: base.Line) -> int:
    try:
        return timegm(strptime(text.strip(), "%a %b %d %H:%M:%S %Y"))
    except ValueError:
        raise line.not_understood("a time such as Tue Aug  1 14:43:40 2023") from None


_STAT_LINES = "packet statistics:|[a-z][a-z0-9_]*:"
_STAT_EXPECTED = "packet statistics:, then NAME:NUMBER, each name once"


def _stat(lines: Sequence[base.Line]) -> Mapping[str, int]:
    """The packet counters of a device by the tool's names, which depend on the driver."""
    heading, *rows = lines
    counters = base.cells_of(rows, {"[a-z][a-z0-9_]{0,63}": "[0-9]{1,20}"})
    if heading.text.strip() != "packet statistics:" or not counters:
        raise heading.not_understood()
    return {name: int(value) for name, value in counters.items()}


_GATEWAY_LINE = "(?:default )?gateway:"
_GATEWAY_EXPECTED = "default gateway:ADDRESS, Iface:NAME"
_NO_GATEWAY = "Get gateway failed, because no gateway was preset there!.*"


def _gateway(lines: Sequence[base.Line]) -> str | None:
    if not lines:
        return None
    line = base.only(lines)
    match = line.match(r"default gateway:\s*([^\s,]+), Iface:\s*\S+|gateway:\s*(\S+)")
    return _address(match[1] or match[2], line)


_NETDETECT = "read the address for the network health"


def _netdetect(lines: Sequence[base.Line]) -> str | None:
    """The address that the device pings to find its network health; None: none is set."""
    line = base.only(lines)
    value = line.match(r"netdetect addr(?:ess)?:\s*(\S*)")[1]
    address = _address(value, line) if value else ""
    return None if address in ("", "0.0.0.0", "::") else address  # noqa: S104 - no interface


def _mtu(lines: Sequence[base.Line]) -> int:
    return int(base.only(lines).match(r"mtu:\s*([0-9]{1,5})")[1])


# The form is that of lldptool (open-lldp): a heading per TLV, its values indented below. The vendor
# documents none; a sample is `tests/data/hccn_tool-lldp/910B/usual.txt`.

_LLDP_EXPECTED = "Chassis ID TLV, its value, other TLVs, and End of LLDPDU TLV"
_TLV = re.compile(r"([A-Z].*) TLV\s*")
_FREE_TEXT = {"System Description", "Port Description"}
"""Their values may have lines that are not indented."""
_LLDP_VALUES = {
    "Chassis ID": r"(?:MAC|IPv4|IPv6|Ifname|Local): *([!-~]{1,255})",
    "Port ID": r"(?:MAC|IPv4|IPv6|Ifname|Local): *(\S.*)",
    "System Name": r"([!-~][ -~]{0,254})",
    "Management Address": r"IPv4: *([0-9.]+)|(?:IPv6|MAC|Ifindex|OID): *\S+",
}


class LldpNeighbour(Value):
    """The switch and the port of it that a device's network port is connected to."""

    chassis: str
    port: str
    system_name: str | None = None
    management_ip: str | None = None

    @property
    def leaf(self) -> str:
        """A name of the switch: its management address, else its system name or chassis id."""
        return self.management_ip or self.system_name or self.chassis


def _lldp(lines: Sequence[base.Line]) -> LldpNeighbour:
    found: dict[str, str] = {}
    heading = ""
    for line in lines:
        if match := _TLV.fullmatch(line.text):
            heading = match[1]
        elif heading not in _FREE_TEXT and (not heading or not line.text[0].isspace()):
            raise line.not_understood()
        elif form := _LLDP_VALUES.get(heading):
            value = line.match(form, f"the value of {heading} TLV")[1]
            if value and heading == "Management Address":
                value = _address(value, line, "an IP address")
            if value:
                found.setdefault(heading, value)
    if heading != "End of LLDPDU" or not {"Chassis ID", "Port ID"} <= found.keys():
        raise lines[-1].not_understood()
    return LldpNeighbour(
        chassis=found["Chassis ID"],
        port=found["Port ID"],
        system_name=found.get("System Name"),
        management_ip=found.get("Management Address"),
    )


class Query(Value):
    """What `hccn_tool -i ID -WHAT -g` is called for, and how its answer is read."""

    purpose: str
    begin: str
    expected: str
    parse: Callable[[Sequence[base.Line]], Any]
    unset: str | None = None
    """The output that means that nothing is set: an answer without lines."""

    @property
    def known(self) -> re.Pattern[str]:
        """The beginning of a line of an answer."""
        return re.compile(rf"\s*(?:{self.begin})")


QUERIES: Mapping[str, Query] = {
    "ip": Query("read the IP", r"[a-z_]+:\S", _IP_EXPECTED, _addresses, _NO_IP),
    "link": Query("read the link", "link status:", "link status: UP or DOWN", _link),
    "vnic": Query("read the address in the super pod", "vnic ", _VNIC_EXPECTED, _vnic),
    "tls": Query("read the TLS switch", _TLS_LINES, _TLS_EXPECTED, _tls),
    "net_health": Query(
        "read the network health", "net health status:", _NET_EXPECTED, _net_health
    ),
    "link_stat": Query("read the history of the link", _LINK_LINES, _LINK_EXPECTED, _link_stat),
    "stat": Query("read the packet counters", _STAT_LINES, _STAT_EXPECTED, _stat),
    "gateway": Query("read the gateway", _GATEWAY_LINE, _GATEWAY_EXPECTED, _gateway, _NO_GATEWAY),
    "netdetect": Query(_NETDETECT, "netdetect addr", "netdetect addr: ADDRESS", _netdetect),
    "mtu": Query("read the MTU", "mtu:", "mtu:BYTES", _mtu),
    "lldp": Query("read the LLDP neighbour", _TLV.pattern, _LLDP_EXPECTED, _lldp),
}
"""By the word for WHAT."""


def parse(what: str, text: str, tool: str = "") -> Any:  # noqa: ANN401 - whatever is asked for
    """What the output of a query says; `tool` is the whole call, for messages."""
    query, tool = QUERIES[what], tool or f"hccn_tool -{what} -g"
    failure = failure_in(text)
    if query.unset is not None and re.fullmatch(query.unset, failure or text.strip()):
        return query.parse(())
    _refuse_failure(text, tool)
    return query.parse(base.some_lines(text, tool, query.expected, query.known))


# Texts as in hicann/driver `ds_net_ext.c` (910, A2, A3). The tool fails whenever a packet is lost,
# and then prints "Command execute failed!" after the packets.

_PACKET = re.compile(
    r"device [0-9]{1,2} PING6? \S+"
    r"|recv seq=[0-9]+,\s*time=[0-9.]+ms|This pkt ping success!|recv time out seq\b.*"
)
_LOST = re.compile(
    r"(?:From \S+ (?:icmp_seq=[0-9]+ )?)?(Destination Host Unreachable|Message too long)"
    r"|(This pkt (?:send fail|check recv msg fail|ping not start to send)!)"
)
_COUNTS = re.compile(
    r"([0-9]+) packets transmitted, ([0-9]+) received, ([0-9]+\.[0-9]{2})% packets? loss"
)
_NO_LOSS = "0.00"
_PING_LINE = re.compile(
    r"\s*(?:device |recv |From |Destination |Message too long|This pkt |[0-9]+ packets "
    r"|Command execute failed|Cmd execute failed)"
)
_AFTERWARDS = ("Command execute failed!", "Cmd execute failed!")
_PING_EXPECTED = "N packets transmitted, N received, X.XX% packet loss"


class Ping(Value):
    """How many packets came back, and the first problem that the tool reports."""

    sent: int
    received: int
    hindrance: str = ""

    @property
    def is_well(self) -> bool:
        """Whether every packet came back."""
        return self.sent > 0 and self.received == self.sent and not self.hindrance

    @property
    def summary(self) -> str:
        """The counts and the problem, for messages."""
        counts = f"{self.sent} packets transmitted, {self.received} received"
        return f"{counts}: {self.hindrance}" if self.hindrance else counts


def parse_ping(text: str, tool: str = "hccn_tool -ping -g") -> Ping:
    """The counts of packets; lost ones are no error, but a tool that sent none is."""
    _refuse_failure("\n".join(line.text for line in base.around(text, _PING_LINE)), tool)
    lines = base.some_lines(text, tool, _PING_EXPECTED, _PING_LINE)
    counts, hindrances, failures = list[re.Match[str]](), list[str](), list[str]()
    for line in lines:
        words = line.text.strip()
        if match := _COUNTS.fullmatch(words):
            counts.append(match)
        elif match := _LOST.fullmatch(words):
            hindrances.append(match[1] or match[2])
        elif words in _AFTERWARDS:
            failures.append(words)
        elif not _PACKET.fullmatch(words):
            _refuse_failure(words, tool)
            raise line.not_understood("the answer to a packet, or a failure that is known")
    if len(counts) == 1:
        sent, received = int(counts[0][1]), int(counts[0][2])
        if sent == received and (failures or counts[0][3] != _NO_LOSS):
            hindrances.append("the tool reports a failure nevertheless")
        return Ping(sent, received, hindrances[0] if hindrances else "")
    if failures or hindrances:
        raise ToolError(f"{tool}: {[*failures, *hindrances][0]}")
    raise lines[-1].not_understood()
