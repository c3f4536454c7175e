"""How the network ports of NPUs are set, on the device and in /etc/hccn.conf, and who uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.npus import CALL_TIMEOUT_S, hccn_tool_answer, npu_smi_output
from ascendboot.facts.parsers import hccn_tool, npu_smi
from ascendboot.facts.query import (
    Answer,
    Answered,
    Fact,
    Sections,
    Unanswered,
    attempt,
    value_of,
)
from ascendboot.model.cluster import Node, NpuPort
from ascendboot.templates import script
from ascendboot.transport.api import Result, read_script
from ascendboot.value import Value

_SCRIPT = "the script that looks at the ports of the NPUs"
_BUSY_TENTHS = 100
_ENOUGH_S = 150
KEYWORDS = {
    "ip": ("address", "netmask"),
    "gateway": ("gateway",),
    "netdetect": ("address",),
    "mtu": ("size",),
    "tls": ("enable",),
}
"""The words before the values when hccn_tool sets them (`cmd.c` of hicann/driver)."""
_IN_CONF = {
    "ip": ("address", "netmask"),
    "gateway": ("gateway",),
    "netdetect": ("netdetect",),
    "mtu": ("mtu",),
    "tls": ("tls_enable",),
}
_ALWAYS_IN_CONF = ("ip", "gateway", "netdetect")
"""Not every driver writes the others there."""


class PortState(Value, kw_only=True):
    """How one port is set."""

    values: Mapping[str, tuple[str, ...]]
    """By what hccn_tool sets; without what is not set, or was not queried."""
    conf: Mapping[str, str]
    """The entries of /etc/hccn.conf, from which the driver sets the port after a reboot."""
    is_used: bool = False
    """Whether HCCL's process on the device runs."""

    def shown(self, kind: str) -> str:
        """`10.0.0.1/255.255.0.0`, or `none`."""
        return "/".join(self.values.get(kind, ())) or "none"

    def wrong(self, port: NpuPort) -> dict[str, str]:
        """What is not as in `port`, with the reason."""
        found = {}
        for kind, wanted in port.settings:
            text, written = "/".join(wanted), tuple(self.conf.get(k, "") for k in _IN_CONF[kind])
            if self.values.get(kind) != wanted:
                found[kind] = f"{kind} {text} instead of {self.shown(kind)}"
            elif written != wanted and (any(written) or kind in _ALWAYS_IN_CONF):
                has = "/".join(written) if any(written) else "none"
                found[kind] = f"{kind} {text}, but {hccn_tool.FILE} has {has} for the next boot"
        if "ip" in found and "gateway" in dict(port.settings):
            found.setdefault("gateway", "gateway again, which a new address can remove")
        return found


class PortUser(Value):
    """A process that uses a device, as npu-smi shows it."""

    device_id: int
    pid: int
    job_id: str = ""
    command: str = ""


class NpuPorts(Value):
    """The ports of a node that the inventory states."""

    states: Mapping[int, Answer[PortState]]
    users: Answer[tuple[PortUser, ...]]
    is_root: bool


def in_order(
    ports: Sequence[NpuPort], states: Mapping[int, PortState]
) -> tuple[NpuPort, ...] | None:
    """The ports in an order in which hccn_tool can set them; None: there is none.

    It refuses an address that another device of the server still has.
    """
    held = {i: state.values.get("ip", ("",))[0] for i, state in states.items()}
    left, ordered = list(ports), list[NpuPort]()
    while left:
        for port in left:
            ip = dict(port.settings)["ip"][0]
            if all(other == port.device_id or has != ip for other, has in held.items()):
                break
        else:
            return None
        held[port.device_id] = ip
        ordered.append(port)
        left.remove(port)
    return tuple(ordered)


def ports_fact(node: Node) -> Fact[NpuPorts]:
    """The query for the ports that the inventory states; on the host side."""
    words = [f"{p.device_id}:{','.join(dict(p.settings))}" for p in node.npu_ports]
    text = script("facts-npu-ports.sh", left=_BUSY_TENTHS, enough=_ENOUGH_S, call_s=CALL_TIMEOUT_S)
    purpose = "look at the ports of the NPUs"
    command = read_script(text, *words, purpose=purpose, timeout_s=_ENOUGH_S + 60.0)
    return Fact(command, partial(_read, node))


def _read(node: Node, result: Result) -> NpuPorts:
    sections = Sections(result, _SCRIPT)
    sections.text("hccn_tool")  # It raises the error if the tool is missing.
    conf: Answer[Mapping[int, Mapping[str, str]]] = Answered({})
    if sections["hccn_conf"].exit_code != 127:  # noqa: PLR2004 - there is no file yet
        read = partial(sections.text, "hccn_conf")
        conf = attempt(f"read {hccn_tool.FILE}", lambda: hccn_tool.parse_settings(read()))
    states = {p.device_id: _state(p, sections, conf) for p in node.npu_ports}
    users = attempt("list the processes on the NPUs", lambda: _users(sections))
    return NpuPorts(states, users, sections.text("uid").strip() == "0")


def _state(
    port: NpuPort, sections: Sections, conf: Answer[Mapping[int, Mapping[str, str]]]
) -> Answer[PortState]:
    """The state of one port, or the first answer that is missing."""
    device_id, values = port.device_id, dict[str, tuple[str, ...]]()
    if isinstance(conf, Unanswered):
        return conf
    for kind in dict.fromkeys(("ip", "gateway", *dict(port.settings))):
        answer = hccn_tool_answer(sections, device_id, kind, f"read the {kind}", _PARSERS[kind])
        if isinstance(answer, Unanswered):
            return answer
        if answer.value:
            values[kind] = answer.value
    process = hccn_tool_answer(
        sections, device_id, "process", "read the process", hccn_tool.parse_process
    )
    if isinstance(process, Unanswered) and process.kind != "failed":
        return process  # "failed": this driver has no such query
    return Answered(
        PortState(
            values=values,
            conf=conf.value.get(device_id, {}),
            is_used=value_of(process) or False,
        )
    )


def _ip(text: str, tool: str) -> tuple[str, ...]:
    found = hccn_tool.parse_ip(text, tool)
    if len(found) > 1:
        raise ToolError(f"{tool}: the device has {len(found)} ports; set them with hccn_tool")
    return (found[0].ip, found[0].netmask) if found else ()


def _one(parse: Callable[[str, str], Any]) -> Callable[[str, str], tuple[str, ...]]:
    def parsed(text: str, tool: str) -> tuple[str, ...]:
        value = parse(text, tool)
        return () if value is None else (str(int(value) if isinstance(value, bool) else value),)

    return parsed


_PARSERS: Mapping[str, Callable[[str, str], tuple[str, ...]]] = {
    "ip": _ip,
    "gateway": _one(hccn_tool.parse_gateway),
    "netdetect": _one(hccn_tool.parse_netdetect),
    "mtu": _one(hccn_tool.parse_mtu),
    "tls": _one(hccn_tool.parse_tls),
}


def _users(sections: Sections) -> tuple[PortUser, ...]:
    ids: npu_smi.DeviceIds = {}
    if "mapping" in sections:
        mapping = npu_smi_output(sections, "mapping", npu_smi.MAPPING)
        ids = npu_smi.parse_mapping(mapping).device_ids
    table = npu_smi.parse_table(npu_smi_output(sections, "processes", npu_smi.TOOL), ids)
    if table.processes is None:
        raise ToolError(f"{npu_smi.TOOL} prints no table of processes")
    seen: dict[str, list[str]] = {}
    for number, line in enumerate(filter(None, sections.text("holders").split("\n")), 1):
        pid, *words = line.split(" ", 2)
        if len(words) != 2:  # noqa: PLR2004 - the job and the command
            raise NotUnderstoodError(_SCRIPT, number, line, "pid, job and command")
        seen[pid] = words
    return tuple(
        PortUser(each.device_id, each.pid, *(word.removeprefix("-") for word in words))
        for each in table.processes
        for words in [seen.get(str(each.pid), [])]
    )
