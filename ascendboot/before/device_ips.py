"""What hccn_tool says now of the devices: addresses, links and TLS switches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ascendboot.facts.api import Answer, attempt
from ascendboot.facts.npus import hccn_tool_said
from ascendboot.parse import hccn_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.parse.sections import Section

T = TypeVar("T")


def addresses_now(sections: Mapping[str, Section]) -> dict[int, Answer[str | None]]:
    """The address of each device that was asked for, or why there is none."""
    if sections["hccn_tool"].exit_code:
        return {}
    return _each(sections, "ip", "read the IP", _ips)


def links_now(sections: Mapping[str, Section]) -> dict[int, Answer[bool]]:
    """Whether the link of each device that was asked for is up, or why that is not known."""
    return _each(sections, "link", "read the link", hccn_tool.parse_link)


def switches_now(sections: Mapping[str, Section]) -> dict[int, Answer[bool]]:
    """Whether TLS is on at each device that was asked for, or why that is not known."""
    return _each(sections, "tls", "read the TLS switch", hccn_tool.parse_tls)


def _each(
    sections: Mapping[str, Section], what: str, purpose: str, parse: Callable[[str, str], T]
) -> dict[int, Answer[T]]:
    names = [name for name in sections if name.endswith(f"/{what}")]
    asked = sorted(int(name.partition("/")[0]) for name in names)

    def said(device_id: int) -> T:
        tool = f"hccn_tool -i {device_id} -{what} -g"
        return parse(hccn_tool_said(sections.get(f"{device_id}/{what}"), tool), tool)

    return {id_: attempt(f"{purpose} of device {id_}", partial(said, id_)) for id_ in asked}


def _ips(text: str, tool: str) -> str | None:
    return ",".join(address.ip for address in hccn_tool.parse_ip(text, tool)) or None
