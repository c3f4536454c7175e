"""Output of hccn_tool, and /etc/hccn.conf."""

from __future__ import annotations

import ipaddress
import re
from calendar import timegm
from collections.abc import Mapping
from time import strptime

from ascendboot.errors import NotUnderstoodError, ToolError
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
    for line in base.lines_of(text):
        if line.text.startswith("#") or len(line.text) < _SHORTEST:
            continue
        match = _ENTRY.fullmatch(line.text.rstrip())
        if match is None:
            raise line.not_understood(FILE, "NAME_ID=VALUE")
        value = match[3]
        if match[1] == "address":
            value = _address(value, line, FILE, "an IP address")
        devices.setdefault(int(match[2]), {}).setdefault(match[1], value)
    return devices


def _address(value: str, line: base.Line, tool: str, expected: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise line.not_understood(tool, expected) from None


# Exit codes of this tool are ambiguous and some errors go to stdout (hicann/driver `tool_ops.c`),
# so failures are recognized by the text of both streams together.

_BUSY = "hccn_tool is busy, please try again."
_NO_IP = "Get ipconf failed, because no ip was preset there!"
_NO_GATEWAY = "Get gateway failed, because no gateway was preset there!"
_FAILURES = (
    _BUSY,
    _NO_IP,
    _NO_GATEWAY,
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


class HccnToolError(ToolError):
    """hccn_tool reported a failure in a known form."""


def refuse_failure(text: str, tool: str) -> None:
    """Raises the failure that the tool reports, if any: ToolBusyError or HccnToolError."""
    failure = _failure_in(text)
    if failure:
        kind = base.ToolBusyError if failure.startswith(_BUSY) else HccnToolError
        raise kind(f"{tool}: {failure}")


def _failure_in(text: str) -> str:
    """The first line that reports a failure; empty without one."""
    lines = (line.text.strip() for line in base.lines_of(text))
    return next((x for x in lines if x.startswith(_FAILURES) or _LOADER.match(x)), "")


KNOWN_LINES = {
    "ip": re.compile(r"\s*[a-z_]+:\S"),
    "link": re.compile(r"\s*link status:"),
    "vnic": re.compile(r"\s*vnic "),
    "tls": re.compile(r"\s*dev_id:"),
    "net_health": re.compile(r"\s*net health status:"),
    "link_stat": re.compile(r"\s*\[dev(?:id|ice) [0-9]"),
    "stat": re.compile(r"\s*(?:packet statistics:|[a-z][a-z0-9_]*:)"),
    "gateway": re.compile(r"\s*(?:default )?gateway:"),
    "netdetect": re.compile(r"\s*netdetect addr"),
    "mtu": re.compile(r"\s*mtu:"),
}
"""The beginnings of an answer's lines, by query."""
_IP_EXPECTED = "ipaddr:ADDRESS and netmask:MASK"
_LINK = re.compile(r"link status:\s*(UP|DOWN)")
_VNIC = re.compile(r"vnic (link status|ipaddr|netmask):\s*([^\s:]+)")
_VNIC_EXPECTED = "vnic link status:, vnic ipaddr:ADDRESS and vnic netmask:"
_TLS = re.compile(r"dev_id:\s*([0-9]+), tls switch\[([01])\]\(0:disable, 1:enable\)(,.*)?")
_TLS_EXPECTED = "dev_id:N, tls switch[0|1](0:disable, 1:enable)"
_CERTIFICATE = re.compile(r"dev_id:\s*[0-9]+, \[.*\] info:|\s+[a-z_ ]+\[.*\](\(.*\))?\s*")


class DeviceAddress(Value):
    """One address of a device's network."""

    ip: str
    netmask: str


def parse_ip(text: str, tool: str = "hccn_tool -ip -g") -> tuple[DeviceAddress, ...]:
    """The addresses of a device, one per port; older versions print nothing if none is set."""
    if _failure_in(text).startswith(_NO_IP):
        return ()
    refuse_failure(text, tool)
    lines = base.within(base.lines_of(text), KNOWN_LINES["ip"])
    addresses = []
    for first, second in zip(lines[::2], (*lines[1::2], None), strict=False):
        ip = _value(first, "ipaddr", tool)
        if second is None:
            raise first.not_understood(tool, _IP_EXPECTED)
        addresses.append(DeviceAddress(ip, _value(second, "netmask", tool)))
    return tuple(addresses)


def _value(line: base.Line, key: str, tool: str) -> str:
    # Split at the first colon: an IPv6 address has more of them.
    name, _, value = line.text.strip().partition(":")
    if name != key:
        raise line.not_understood(tool, _IP_EXPECTED)
    return _address(value.strip(), line, tool, _IP_EXPECTED)


def parse_link(text: str, tool: str = "hccn_tool -link -g") -> bool:
    """Whether the link is up."""
    refuse_failure(text, tool)
    expected = "link status: UP or DOWN"
    line = base.only_line(text, tool, expected, KNOWN_LINES["link"])
    return line.match(_LINK, tool, expected)[1] == "UP"


def parse_vnic(text: str, tool: str = "hccn_tool -vnic -g") -> str:
    """The address of a device inside its super pod (A3)."""
    refuse_failure(text, tool)
    address = None
    for line in base.within(base.lines_of(text), KNOWN_LINES["vnic"]):
        match = line.match(_VNIC, tool, _VNIC_EXPECTED)
        if match[1] == "ipaddr":
            address = _address(match[2], line, tool, _VNIC_EXPECTED)
    if address is None:
        raise NotUnderstoodError(tool, 1, "", _VNIC_EXPECTED)
    return address


def parse_tls(text: str, tool: str = "hccn_tool -tls -g") -> bool:
    """Whether TLS is switched on."""
    refuse_failure(text, tool)
    lines = base.some_lines(text, tool, _TLS_EXPECTED)
    # The description of a certificate may follow, so `within` finds only the begin.
    first = lines.index(base.within(lines, KNOWN_LINES["tls"])[0])
    switch = lines[first].match(_TLS, tool, _TLS_EXPECTED)
    for line in lines[first + 1 :]:
        if not _CERTIFICATE.fullmatch(line.text):
            raise line.not_understood(tool, "the description of a certificate")
    return switch[2] == "1"


# What the ports of devices counted and noticed: formats of hicann/driver `tool_ops.c`, samples of
# mind-cluster (910A, 23.0.5) and of HCCL's guide to faults (with `link down count`).

NET_HEALTH = (
    *("Success", "Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault", "Init"),
    *("Thread error", "Detect ip set", "Unknown"),
)
"""How a device sees its pings to the address that `-netdetect` shows; Init: none is set."""
NET_BROKEN = ("Socket fail", "Receive timeout", "Unreachable")
"""Those that mean a broken network; Success and Init are fine, the others prove nothing."""
_NET_HEALTH = re.compile(rf"net health status:\s*({'|'.join(NET_HEALTH)})")
_OLDER = re.compile("(Socket fail)ed$", re.MULTILINE)
_OF_DEVICE = re.compile(r"\[dev(?:id|ice) ([0-9]{1,2})\]\s*(\S.*)")
_CHANGE = re.compile(r"(\S.*\S)\s+LINK (UP|DOWN)")
_TIME = "%a %b %d %H:%M:%S %Y"
_LINK_COUNT = re.compile(r"link (up|down) count\s*:\s*([0-9]{1,9})")
_LINK_STAT_EXPECTED = "[devid N] with current time, link up count, link change records, and these"
_COUNTER = re.compile(r"([a-z][a-z0-9_]{0,63}):\s*([0-9]{1,20})")
_STAT_EXPECTED = "packet statistics:, then NAME:NUMBER, each name once"
_GATEWAY = re.compile(r"(?:default gateway:\s*([^\s,]+), Iface:\s*\S+|gateway:\s*(\S+))")
_MTU = re.compile(r"mtu:\s*([0-9]{1,5})")
_NETDETECT = re.compile(r"netdetect addr(?:ess)?:\s*(\S*)")


def parse_net_health(text: str, tool: str = "hccn_tool -net_health -g") -> str:
    """The word of `NET_HEALTH` that the device reports; older drivers print `Socket failed`."""
    refuse_failure(text, tool)
    expected = f"net health status: {', '.join(NET_HEALTH)}"
    line = base.only_line(_OLDER.sub(r"\1", text), tool, expected, KNOWN_LINES["net_health"])
    return line.match(_NET_HEALTH, tool, expected)[1]


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


def parse_link_stat(text: str, tool: str = "hccn_tool -link_stat -g") -> LinkHistory:
    """The history of a link."""
    refuse_failure(text, tool)
    lines = base.some_lines(text, tool, _LINK_STAT_EXPECTED, KNOWN_LINES["link_stat"])
    found = [line.match(_OF_DEVICE, tool, _LINK_STAT_EXPECTED) for line in lines]
    words = [match[2].rstrip() for match in found]
    heads = [re.sub(r"\s*:$", "", each) for each in words]
    at = heads.index("link change records") if "link change records" in heads else len(heads)
    counts = {m[1]: int(m[2]) for each in words[1:at] if (m := _LINK_COUNT.fullmatch(each))}
    name, _, time = words[0].partition(":")
    is_whole = at < len(heads) and name.strip() == "current time" and "up" in counts
    if other := next((n for n, match in enumerate(found) if match[1] != found[0][1]), 0):
        raise lines[other].not_understood(tool, f"the history of device {found[0][1]} alone")
    if not is_whole or len(counts) != at - 1:
        raise lines[min(at, len(lines) - 1)].not_understood(tool, _LINK_STAT_EXPECTED)
    now = _seconds(time, lines[0], tool)
    changes = []
    for line, each in zip(lines[at + 1 :], words[at + 1 :], strict=True):
        change = _CHANGE.fullmatch(each)
        if change is None:
            raise line.not_understood(tool, "a time and LINK UP or LINK DOWN")
        changes.append(LinkChange(now - _seconds(change[1], line, tool), change[2] == "UP"))
    return LinkHistory(counts["up"], counts.get("down"), tuple(changes))


def _seconds(text: str, line: base.Line, tool: str) -> int:
    try:
        return timegm(strptime(text.strip(), _TIME))
    except ValueError:
        raise line.not_understood(tool, "a time such as Tue Aug  1 14:43:40 2023") from None


def parse_stat(text: str, tool: str = "hccn_tool -stat -g") -> Mapping[str, int]:
    """The packet counters of a device by the tool's names, which depend on the driver."""
    refuse_failure(text, tool)
    heading, *lines = base.some_lines(text, tool, _STAT_EXPECTED, KNOWN_LINES["stat"])
    if heading.text.strip() != "packet statistics:":
        raise heading.not_understood(tool, _STAT_EXPECTED)
    counters: dict[str, int] = {}
    for line in lines:
        name, value = line.match(_COUNTER, tool, _STAT_EXPECTED).groups()
        if name in counters:
            raise line.not_understood(tool, _STAT_EXPECTED)
        counters[name] = int(value)
    if not counters:
        raise heading.not_understood(tool, _STAT_EXPECTED)
    return counters


def parse_gateway(text: str, tool: str = "hccn_tool -gateway -g") -> str | None:
    """The address of the gateway, IPv4 or IPv6; None: none is set."""
    if _failure_in(text).startswith(_NO_GATEWAY):
        return None
    refuse_failure(text, tool)
    expected = "default gateway:ADDRESS, Iface:NAME"
    line = base.only_line(text, tool, expected, KNOWN_LINES["gateway"])
    match = line.match(_GATEWAY, tool, expected)
    return _address(match[1] or match[2], line, tool, expected)


def parse_netdetect(text: str, tool: str = "hccn_tool -netdetect -g") -> str | None:
    """The address that the device pings to find its network health; None: none is set."""
    refuse_failure(text, tool)
    expected = "netdetect addr: ADDRESS"
    line = base.only_line(text, tool, expected, KNOWN_LINES["netdetect"])
    value = line.match(_NETDETECT, tool, expected)[1]
    address = _address(value, line, tool, expected) if value else ""
    return None if address in ("", "0.0.0.0", "::") else address  # noqa: S104 - no interface


def parse_mtu(text: str, tool: str = "hccn_tool -mtu -g") -> int:
    """The MTU of the port."""
    refuse_failure(text, tool)
    expected = "mtu:BYTES"
    line = base.only_line(text, tool, expected, KNOWN_LINES["mtu"])
    return int(line.match(_MTU, tool, expected)[1])


# The form is that of lldptool (open-lldp): a heading per TLV, its values indented below.

_TLV = re.compile(r"([A-Z].*) TLV\s*")
_END = "End of LLDPDU"
_FREE_TEXT = {"System Description", "Port Description"}
"""Their values may have lines that are not indented."""
_LLDP_VALUES = {
    "Chassis ID": re.compile(r"(?:MAC|IPv4|IPv6|Ifname|Local): *([!-~]{1,255})"),
    "Port ID": re.compile(r"(?:MAC|IPv4|IPv6|Ifname|Local): *(\S.*)"),
    "System Name": re.compile(r"([!-~][ -~]{0,254})"),
    "Management Address": re.compile(r"IPv4: *([0-9.]+)|(?:IPv6|MAC|Ifindex|OID): *\S+"),
}
_LLDP_EXPECTED = "Chassis ID TLV, its value, other TLVs, and End of LLDPDU TLV"


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


def parse_lldp(text: str, tool: str = "hccn_tool -lldp -g") -> LldpNeighbour:
    """The neighbour of a device's port; a missing chassis, port or end is an error.

    The vendor documents no form; a sample is `tests/data/hccn_tool-lldp/910B/usual.txt`.
    """
    refuse_failure(text, tool)
    lines = base.within(base.some_lines(text, tool, _LLDP_EXPECTED), _TLV)
    found: dict[str, str] = {}
    heading = ""
    for line in lines:
        if match := _TLV.fullmatch(line.text):
            heading = match[1]
        elif heading not in _FREE_TEXT and (not heading or not line.text[0].isspace()):
            raise line.not_understood(tool, _LLDP_EXPECTED)
        elif form := _LLDP_VALUES.get(heading):
            value = line.match(form, tool, f"the value of {heading} TLV")[1]
            if value and heading == "Management Address":
                value = _address(value, line, tool, "an IP address")
            if value:
                found.setdefault(heading, value)
    if heading != _END or not {"Chassis ID", "Port ID"} <= found.keys():
        raise lines[-1].not_understood(tool, _LLDP_EXPECTED)
    return LldpNeighbour(
        chassis=found["Chassis ID"],
        port=found["Port ID"],
        system_name=found.get("System Name"),
        management_ip=found.get("Management Address"),
    )


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
    refuse_failure("\n".join(line.text for line in base.around(text, _PING_LINE)), tool)
    lines = base.some_lines(text, tool, _PING_EXPECTED, _PING_LINE)
    counts: list[re.Match[str]] = []
    hindrances: list[str] = []
    failures: list[str] = []
    for line in lines:
        words = line.text.strip()
        if match := _COUNTS.fullmatch(words):
            counts.append(match)
        elif match := _LOST.fullmatch(words):
            hindrances.append(match[1] or match[2])
        elif words in _AFTERWARDS:
            failures.append(words)
        elif not _PACKET.fullmatch(words):
            refuse_failure(words, tool)
            raise line.not_understood(tool, "the answer to a packet, or a failure that is known")
    if len(counts) == 1:
        sent, received = int(counts[0][1]), int(counts[0][2])
        if sent == received and (failures or counts[0][3] != _NO_LOSS):
            hindrances.append("the tool reports a failure nevertheless")
        return Ping(sent, received, hindrances[0] if hindrances else "")
    if failures:
        raise HccnToolError(f"{tool}: {failures[0]}")
    if hindrances:
        raise ToolError(f"{tool}: {hindrances[0]}")
    raise lines[-1].not_understood(tool, _PING_EXPECTED)
