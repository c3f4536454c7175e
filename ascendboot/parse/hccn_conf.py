"""`/etc/hccn.conf`: what the devices' network is set to at boot; the device itself may differ.

Grammar from hicann/driver `hccn_tool/cfg.c`: `name_ID=value`, the first of equal keys counts, lines
that begin with # or are shorter than three characters are skipped.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.parse.reading import Line, lines_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "/etc/hccn.conf"
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)_([0-9]{1,2})=(.*)")
_EXPECTED = "NAME_ID=VALUE"
_SHORTEST = 3


@dataclass(frozen=True)
class HccnConf:
    """The address that the file gives to each device, by physical id."""

    addresses: Mapping[int, str] = field(default_factory=dict)


def parse(text: str) -> HccnConf:
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
