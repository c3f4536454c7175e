"""Queries NPUs and the network port of each device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ascendboot.errors import NotUnderstoodError, ToolError, excerpt
from ascendboot.facts.parsers import hccn_tool, npu_smi
from ascendboot.facts.parsers.base import Section, ToolBusyError, around
from ascendboot.facts.query import (
    ENDED_BY_TIMEOUT,
    NOT_ASKED,
    Answer,
    Fact,
    Sections,
    attempt,
    value_of,
)
from ascendboot.templates import script
from ascendboot.transport.api import HANGS, Command, Effect, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.facts.parsers.hccn_tool import DeviceAddress
    from ascendboot.facts.parsers.npu_smi import NpuList, NpuMap, SuperPodPlace

T = TypeVar("T")

_FORMS = {
    "mapping": ("npu-smi info -m", npu_smi.OF_MAPPING),
    "list": ("npu-smi info -l", npu_smi.OF_LIST),
    "spod": ("npu-smi info -t spod-info", npu_smi.OF_LIST),
    **{what: (f"hccn_tool -{what} -g", known) for what, known in hccn_tool.KNOWN_LINES.items()},
}
"""Maps a section, or the part of its name after the device id, to the call and its known lines."""

CALL_TIMEOUT_S = 10
_RETRIES_FOR_S = 10
_ENOUGH_S = 150
COMMAND = Command(
    argv=(
        *("bash", "-c"),
        script("facts-npus.sh", left=10 * _RETRIES_FOR_S, enough=_ENOUGH_S, call_s=CALL_TIMEOUT_S),
    ),
    purpose="query the NPUs",
    effect=Effect.READ,
    timeout_s=200.0,
)
_SCRIPT = "the script that queries the NPUs"
ROOT_INFO = "/etc/hccl_rootinfo.json"


@dataclass(frozen=True, kw_only=True)
class DeviceNetwork:
    """The network port of one device; each query has its own answer."""

    device_id: int
    addresses: Answer[tuple[DeviceAddress, ...]]
    """One per port; empty: no address is set."""
    link_up: Answer[bool]
    tls_enabled: Answer[bool]
    vnic: Answer[str] = NOT_ASKED
    """Its address inside a super pod, on A3 only."""

    @property
    def device_ip(self) -> str | None:
        """The addresses in the form of the rank table (a comma between two ports), or None."""
        return ",".join(address.ip for address in value_of(self.addresses) or ()) or None


@dataclass(frozen=True)
class RootInfo:
    """The file from which HCCL reads the network places of devices, on a 950."""

    text: str
    missing_topology: str | None = None
    """The topology file that it names, if that file is missing."""


def npu_queries() -> dict[str, Fact[Any]]:
    """The questions about NPUs, by name; they share one run of one script."""
    return {
        "npus": Fact(COMMAND, _npus, "list the NPUs"),
        "npu_list": Fact(COMMAND, _npu_list, "count the NPUs"),
        "health": Fact(COMMAND, _health, "see how the NPUs are"),
        "super_pods": Fact(COMMAND, _super_pods, "tell the super pods"),
        "unknown_lines": Fact(COMMAND, _unknown_lines, "read the tools' lines"),
        "root_info": Fact(COMMAND, _root_info, f"read {ROOT_INFO}"),
        "device_networks": Fact(COMMAND, _device_networks, "read the network of the devices"),
    }


def _npus(result: Result) -> NpuMap:
    return npu_smi.parse_mapping(
        npu_smi_output(Sections(result, _SCRIPT), "mapping", npu_smi.MAPPING)
    )


def _npu_list(result: Result) -> NpuList:
    return npu_smi.parse_list(npu_smi_output(Sections(result, _SCRIPT), "list", npu_smi.LIST))


def _health(result: Result) -> Mapping[int, str]:
    table = npu_smi_output(Sections(result, _SCRIPT), "table", npu_smi.TOOL)
    return npu_smi.parse_health(table, _npus(result).device_ids)


def npu_smi_output(sections: Sections, name: str, tool: str) -> str:
    """The output of one call of npu-smi.

    Raises:
        ToolError: npu-smi reported a failure, or did not run.
        NotUnderstoodError: the section is missing.
    """
    if name in sections:
        npu_smi.refuse_failure(sections[name].text, tool)
    return sections.text(name)


def _unknown_lines(result: Result) -> tuple[str, ...]:
    """Lines around the answers of the tools, each once."""
    found: dict[str, None] = {}
    for name, section in Sections(result, _SCRIPT).items():
        call, known = _FORMS.get(name.rpartition("/")[2], ("", None))
        if section.exit_code == 0 and known and any(map(known.match, section.text.split("\n"))):
            for line in around(section.text, known):
                found.setdefault(f'{call}: "{excerpt(line.text)}"')
    return tuple(found)


def _super_pods(result: Result) -> Mapping[int, Answer[SuperPodPlace | None]]:
    sections = Sections(result, _SCRIPT)
    chips = (name.partition("/") for name in sections if name.endswith("/spod"))
    return {int(word): _place(int(word), sections[f"{word}/spod"]) for word, *_ in chips}


def _place(device_id: int, section: Section) -> Answer[SuperPodPlace | None]:
    def place() -> SuperPodPlace | None:
        npu_smi.refuse_failure(section.text, npu_smi.SPOD_TOOL)
        if section.exit_code in ENDED_BY_TIMEOUT:
            message = section.text.strip() or f"no answer within {CALL_TIMEOUT_S} s; {HANGS}"
            raise ToolError(f"{npu_smi.SPOD_TOOL}: {message}")
        # an unsupported query has an exit code of its own
        return npu_smi.parse_spod_info(section.text)

    return attempt(f"tell the super pod of device {device_id}", place)


def _root_info(result: Result) -> RootInfo | None:
    sections = Sections(result, _SCRIPT)
    if "root_info" not in sections:
        return None
    missing = sections.get("topology")
    text = sections.text("root_info")
    return RootInfo(text, missing.text.strip() if missing else None)


def _device_networks(result: Result) -> tuple[DeviceNetwork, ...]:
    sections = Sections(result, _SCRIPT)
    sections.text("hccn_tool")
    if "root_info" in sections:
        return ()  # on 950 the script does not run hccn_tool
    device_ids = sorted({int(word) for word in sections.text("ids").split()})
    return tuple(_device_network(device_id, sections) for device_id in device_ids)


def _device_network(device_id: int, sections: Sections) -> DeviceNetwork:
    def answer(what: str, purpose: str, parse: Callable[[str, str], T]) -> Answer[T]:
        tool = f"hccn_tool -i {device_id} -{what} -g"
        section = sections.get(f"{device_id}/{what}")
        purpose = f"{purpose} of device {device_id}"
        return attempt(purpose, lambda: parse(hccn_tool_output(section, tool), tool))

    return DeviceNetwork(
        device_id=device_id,
        addresses=answer("ip", "read the IP", hccn_tool.parse_ip),
        link_up=answer("link", "read the link", hccn_tool.parse_link),
        tls_enabled=answer("tls", "read the TLS switch", hccn_tool.parse_tls),
        vnic=answer("vnic", "read the address in the super pod", hccn_tool.parse_vnic)
        if f"{device_id}/vnic" in sections
        else NOT_ASKED,
    )


def hccn_tool_output(section: Section | None, tool: str) -> str:
    """The output of one call of hccn_tool, including failures that its parser knows.

    Raises:
        ToolError: there was no answer.
        ToolBusyError: it was busy all the time.
        NotUnderstoodError: the script did not call it.
    """
    if section is None:
        raise NotUnderstoodError(_SCRIPT, 1, "", f"what {tool} said")
    if section.exit_code in ENDED_BY_TIMEOUT:
        message = section.text.strip() or f"no answer within {CALL_TIMEOUT_S} s; {HANGS}"
        raise ToolError(f"{tool}: {message}")
    if section.exit_code and not section.content.strip():
        raise ToolError(f"{tool} exited {section.exit_code} and said nothing")
    try:
        hccn_tool.refuse_failure(section.text, tool)
    except ToolBusyError as error:
        raise ToolBusyError(f"{error} (asked again for {_RETRIES_FOR_S} s)") from None
    except hccn_tool.HccnToolError:
        pass  # the parser knows what it means
    return section.text
