"""What hccn_tool says now of the devices whose file says something else than the rank table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ascendboot.facts.api import Answer, attempt
from ascendboot.facts.npus import hccn_tool_said
from ascendboot.parse import hccn_tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.parse.sections import Section


def addresses_now(sections: Mapping[str, Section]) -> dict[int, Answer[str | None]]:
    """The address of each device that was asked for, or why there is none."""
    if sections["hccn_tool"].exit_code:
        return {}
    asked = sorted(int(name.removesuffix("/ip")) for name in sections if name.endswith("/ip"))
    return {
        device_id: attempt(f"read the IP of device {device_id}", partial(_ip, sections, device_id))
        for device_id in asked
    }


def _ip(sections: Mapping[str, Section], device_id: int) -> str | None:
    tool = f"hccn_tool -i {device_id} -ip -g"
    said = hccn_tool_said(sections.get(f"{device_id}/ip"), tool)
    return ",".join(address.ip for address in hccn_tool.parse_ip(said, tool)) or None
