"""`hccn_tool -i N -ip|-link|-tls -g` (910, A2, A3): a device's network port as the device has it.

Exit codes of this tool are ambiguous and some errors go to stdout (hicann/driver `tool_ops.c`), so
what it says is classified by the text of both streams together.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal

from ascendboot.errors import ToolError
from ascendboot.parse.reading import (
    Line,
    ToolBusyError,
    lines_of,
    nothing_printed,
    only_line,
    within,
)

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
KNOWN = {
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
        lines_of(text), KNOWN["ip"]
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
    lines = within(lines_of(text), KNOWN["link"])
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
    for line in within(lines_of(text), KNOWN["vnic"]):
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
    lines = lines[lines.index(within(lines, KNOWN["tls"])[0]) :]  # a certificate's end as well
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
