"""What counts as an address: an IP address, or a host name that is not a mistyped IP address."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

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
    if _tries_to_be_ip(text):
        return why_not_ip(text)
    labels = text.removesuffix(".").split(".")
    if len(text) <= _LONGEST_NAME and all(_LABEL.fullmatch(label) for label in labels):
        return None
    return f"is neither an IP address nor a host name{_slip(text)}"


def _tries_to_be_ip(text: str) -> bool:
    """No host name has a colon or ends in a number; `192.0.2.1o` has three numbers too many."""
    labels = text.split(".")
    numbers = [label for label in labels if label.isascii() and label.isdigit()]
    return ":" in text or labels[-1] in numbers or len(numbers) >= _TOO_MANY_NUMBERS


def _slip(text: str) -> str:
    """What the operator probably meant, as the end of a sentence."""
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
