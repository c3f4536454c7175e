"""Queries NPUs and the network port of each device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ascendboot.errors import ToolError, excerpt
from ascendboot.facts import query
from ascendboot.facts.parsers import hccn_tool, npu_smi
from ascendboot.facts.parsers.base import Section, ToolBusyError, ToolSilentError, around
from ascendboot.model.cluster import Node
from ascendboot.templates import script
from ascendboot.transport.api import HANGS, read_script
from ascendboot.value import Value

T = TypeVar("T")

_FORMS = {
    "mapping": ("npu-smi info -m", npu_smi.OF_MAPPING),
    "spod": ("npu-smi info -t spod-info", npu_smi.OF_SPOD),
    **{what: (f"hccn_tool -{what} -g", q.known) for what, q in hccn_tool.QUERIES.items()},
}
"""Maps a section, or the part of its name after the device id, to the call and its known lines."""

PORT_SETTINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ip": ("address {} netmask {}", ("address", "netmask")),
    "gateway": ("gateway {}", ("gateway",)),
    "netdetect": ("address {}", ("netdetect",)),
    "mtu": ("size {}", ("mtu",)),
    "tls": ("enable {}", ("tls_enable",)),
}
"""What hccn_tool sets, with the words after -s (`cmd.c` of hicann/driver) and its names in the file
from which the driver sets the port after a reboot."""

CALL_TIMEOUT_S = 10
_RETRIES_FOR_S = 10
_ENOUGH_S = 150
_TEXT = script("facts-npus.sh", left=10 * _RETRIES_FOR_S, enough=_ENOUGH_S, call_s=CALL_TIMEOUT_S)

ROOT_INFO = "/etc/hccl_rootinfo.json"


class DeviceNetwork(Value, kw_only=True):
    """The network port of one device; each query has its own answer."""

    device_id: int
    addresses: query.Answer[tuple[hccn_tool.DeviceAddress, ...]]
    """One per port; empty: no address is set."""
    link_up: query.Answer[bool] = query.NOT_QUERIED
    tls_enabled: query.Answer[bool] = query.NOT_QUERIED
    vnic: query.Answer[str] = query.NOT_QUERIED
    """Its address inside a super pod, on A3 only."""

    @property
    def device_ip(self) -> str | None:
        """The addresses in the form of the rank table (a comma between two ports), or None."""
        return ",".join(address.ip for address in query.value_of(self.addresses) or ()) or None


class NpuPort(Value):
    """How the network port of a device is set, by the words of `PORT_SETTINGS`."""

    now: Mapping[str, str]
    at_boot: Mapping[str, str]

    def wrong(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """What is not as `wanted`, now or after a reboot, with the reason."""
        found = {}
        for what, value in wanted.items():
            now, later = self.now.get(what, "none"), self.at_boot.get(what, "none")
            # Not every driver writes these two to the file.
            is_unwritten = later == "none" and what in ("mtu", "tls")
            if now != value:
                found[what] = f"{what} {value} instead of {now}"
            elif later != value and not is_unwritten:
                found[what] = f"{what} {value}, but {hccn_tool.FILE} has {later} for the next boot"
            elif what == "gateway" and "ip" in found:
                found[what] = "gateway again, which a new address can remove"
        return found


class RootInfo(Value):
    """The file from which HCCL reads the network places of devices, on a 950."""

    text: str
    missing_topology: str | None = None
    """The topology file that it names, if that file is missing."""


def npu_queries(node: Node | None = None, *, with_lldp: bool = False) -> dict[str, query.Fact[Any]]:
    """The queries about NPUs, by name: one script, with the ports and LLDP neighbours of `node`."""
    used = tuple(str(device.device_id) for device in node.devices) if node else ()
    ports = node.npu_ports if node else {}
    words = (*(("ports",) if ports else ()), *(("lldp", *used) if with_lldp else ()))
    command = read_script(_TEXT, *words, purpose="query the NPUs", timeout_s=200.0)

    def of_table(part: Callable[[npu_smi.NpuTable], Any]) -> Callable[[query.Sections], Any]:
        return lambda sections: part(npu_smi_table(sections, "table"))

    free_memory = of_table(lambda table: table.free_memory)
    processes = of_table(lambda table: table.processes)
    parts: dict[str, Any] = {
        "npus": ("list the NPUs", _npus),
        "health": ("read the health of the NPUs", of_table(lambda table: table.health)),
        "free_memory": ("read the free memory of the NPUs", free_memory),
        "npu_processes": ("list the processes on the NPUs", processes),
        "super_pods": ("read the super pods", _super_pods),
        "unknown_lines": ("read the tools' lines", _unknown_lines),
        "root_info": (f"read {ROOT_INFO}", _root_info),
        "device_networks": ("read the network of the devices", _device_networks),
    }
    if with_lldp:
        parts["neighbours"] = ("read the LLDP neighbours of the NPUs", _neighbours)
    if ports:
        parts["ports"] = ("read the network ports of the NPUs", partial(_ports, ports))
    return query.queries_of(command, parts)


def npu_smi_output(sections: query.Sections, name: str, tool: str) -> str:
    """The output of one call of npu-smi; a ToolError if it reported a failure or did not run."""
    if name in sections:
        npu_smi.refuse_failure(sections[name].text, tool)
    return sections.text(name)


def hccn_tool_output(section: Section, tool: str, call_s: int = CALL_TIMEOUT_S) -> str:
    """The output of one call of hccn_tool, also a failure that its parser knows; or a ToolError."""
    _refuse_timeout(section, tool, call_s)
    if section.exit_code and not section.content.strip():
        raise ToolError(f"{tool} exited {section.exit_code} and printed nothing")
    failure = hccn_tool.failure_in(section.text)
    if failure.startswith(hccn_tool.BUSY):
        raise ToolBusyError(f"{tool}: {failure} (retried for {_RETRIES_FOR_S} s)")
    return section.text


def npu_smi_table(sections: query.Sections, name: str) -> npu_smi.NpuTable:
    """The table of NPUs, with their physical ids if the script queried them; raises as above."""
    table = npu_smi_output(sections, name, npu_smi.TOOL)
    return npu_smi.parse_table(table, _npus(sections).device_ids if "mapping" in sections else {})


def hccn_tool_answer(
    sections: query.Sections, device_id: int, what: str, *, call_s: int = CALL_TIMEOUT_S
) -> query.Answer[Any]:
    """The answer in the section `ID/WHAT`: of `hccn_tool -i ID -WHAT -g`, ended after `call_s`."""
    purpose = hccn_tool.QUERIES[what].purpose
    tool = f"hccn_tool -i {device_id} -{what} -g"
    name = f"{device_id}/{what}"

    def answer() -> Any:  # noqa: ANN401 - whatever the parser returns
        if name not in sections and "hccn_tool" in sections:
            sections.text("hccn_tool")  # It raises the error if the tool is missing.
        return hccn_tool.parse(what, hccn_tool_output(sections[name], tool, call_s), tool)

    return query.attempt(f"{purpose} of device {device_id}", answer)


def hccn_tool_answers(sections: query.Sections, what: str) -> dict[int, query.Answer[Any]]:
    """The answers to one query by the ids of the devices that were queried."""
    ids = sorted(int(name.partition("/")[0]) for name in sections if name.endswith(f"/{what}"))
    return {id_: hccn_tool_answer(sections, id_, what) for id_ in ids}


def _refuse_timeout(section: Section, tool: str, call_s: int = CALL_TIMEOUT_S) -> None:
    if section.exit_code in query.ENDED_BY_TIMEOUT:
        if message := section.text.strip():
            raise ToolError(f"{tool}: {message}")
        raise ToolSilentError(f"{tool}: no answer within {call_s} s; {HANGS}")


def _npus(sections: query.Sections) -> npu_smi.NpuMap:
    return npu_smi.parse_mapping(npu_smi_output(sections, "mapping", npu_smi.MAPPING))


def _unknown_lines(sections: query.Sections) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name, section in sections.items():
        call, known = _FORMS.get(name.rpartition("/")[2], ("", None))
        if section.exit_code == 0 and known and any(map(known.match, section.text.split("\n"))):
            for line in around(section.text, known):
                found.setdefault(f'{call}: "{excerpt(line.text)}"')
    return tuple(found)


def _super_pods(
    sections: query.Sections,
) -> Mapping[int, query.Answer[npu_smi.SuperPodPlace | None]]:
    def place(section: Section) -> npu_smi.SuperPodPlace | None:
        _refuse_timeout(section, npu_smi.SPOD_TOOL)
        # npu-smi exits with an error if it does not support the query.
        return npu_smi.parse_spod_info(section.text)

    sections_of = {n.partition("/")[0]: s for n, s in sections.items() if n.endswith("/spod")}
    return {
        int(id_): query.attempt(f"read the super pod of device {id_}", partial(place, section))
        for id_, section in sections_of.items()
    }


def _root_info(sections: query.Sections) -> RootInfo | None:
    if "root_info" not in sections:
        return None
    missing = sections.get("topology")
    return RootInfo(sections.text("root_info"), missing.text.strip() if missing else None)


def _neighbours(sections: query.Sections) -> Mapping[int, query.Answer[hccn_tool.LldpNeighbour]]:
    sections.text("hccn_tool")  # It raises the error if the tool is missing.
    if "root_info" in sections:
        raise ToolError("that is not known of the hccn_tool of a 950")
    return hccn_tool_answers(sections, "lldp")


def _ports(
    stated: Mapping[int, Mapping[str, str]], sections: query.Sections
) -> Mapping[int, NpuPort]:
    sections.text("hccn_tool")  # It raises the error if the tool is missing.
    if "root_info" in sections:
        raise ToolError("hccn_tool of a 950 sets no addresses")
    conf = hccn_tool.parse_settings(sections.text("hccn_conf")) if "hccn_conf" in sections else {}
    ports = {}
    for device_id, wanted in stated.items():
        now, written = dict[str, str](), conf.get(device_id, {})
        for what in dict.fromkeys(("ip", "gateway", *wanted)):
            answer = hccn_tool_answer(sections, device_id, what)
            if isinstance(answer, query.Unanswered):
                raise ToolError(answer.why)
            if text := _as_set(answer.value):
                now[what] = text
        at_boot = {
            what: "/".join(written.get(name, "") for name in names)
            for what, (_, names) in PORT_SETTINGS.items()
            if names[0] in written
        }
        ports[device_id] = NpuPort(now, at_boot)
    return ports


def _as_set(answer: Any) -> str:  # noqa: ANN401 - whatever a parser returns
    """An answer in the form in which the inventory states the value; empty: none is set."""
    if isinstance(answer, tuple):
        return ",".join(f"{address.ip}/{address.netmask}" for address in answer)
    return "" if answer is None else str(int(answer) if isinstance(answer, bool) else answer)


def _device_networks(sections: query.Sections) -> tuple[DeviceNetwork, ...]:
    sections.text("hccn_tool")  # It raises the error if the tool is missing.
    if "root_info" in sections:
        return ()  # on 950 the script does not run hccn_tool
    networks = []
    for id_ in sorted({int(word) for word in sections.text("ids").split()}):
        asked = {"addresses": "ip", "link_up": "link", "tls_enabled": "tls"}
        if f"{id_}/vnic" in sections:
            asked["vnic"] = "vnic"
        answers = {name: hccn_tool_answer(sections, id_, what) for name, what in asked.items()}
        networks.append(DeviceNetwork(device_id=id_, **answers))
    return tuple(networks)
