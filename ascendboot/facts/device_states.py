"""Queries the state of devices: health with error codes, links, network health and counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.facts import query
from ascendboot.facts.npus import hccn_tool_answer, npu_smi_output, npu_smi_table
from ascendboot.facts.parsers import hccn_tool, npu_smi
from ascendboot.model.job import NpuUse
from ascendboot.templates import script
from ascendboot.transport.api import Transport, read_script
from ascendboot.transport.pool import on_each
from ascendboot.value import Value

CALL_S: Final = 5
_ABSENT: Final = "npu-smi info -m does not list this device"


class DeviceState(Value, kw_only=True):
    """What one device reports of itself; each query has its own answer."""

    health: query.Answer[npu_smi.DeviceHealth] = query.NOT_QUERIED
    link_up: query.Answer[bool] = query.NOT_QUERIED
    net_health: query.Answer[str] = query.NOT_QUERIED
    """A word of `hccn_tool.NET_HEALTH`."""
    link_history: query.Answer[hccn_tool.LinkHistory] = query.NOT_QUERIED
    packets: query.Answer[Mapping[str, int]] = query.NOT_QUERIED
    memory_errors: query.Answer[Mapping[str, int]] = query.NOT_QUERIED
    """Counts of ECC, by the names of npu-smi."""

    @property
    def is_gone(self) -> bool:
        """Whether npu-smi answers and does not list the device."""
        return isinstance(self.health, query.Unanswered) and self.health.message.endswith(_ABSENT)


class Killed(Value):
    """A process that the kernel ended because memory was short."""

    seconds_ago: float
    pid: int
    command: str


QUESTIONS: Final = ("health", "link", "net_health", "link_stat", "stat", "ecc")
"""What can be queried of a device, by the tools' names; a node answers the first ones first."""
ILL: Final = "ill"
"""Queries the words of all devices, and the health only of those that are not OK."""
_FIELDS: Final = {**dict(zip(QUESTIONS, DeviceState.__struct_fields__, strict=True)), ILL: "health"}
_OF_NPU_SMI: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "health": ("read the health", npu_smi.parse_device_health),
    "ecc": ("count the memory errors", npu_smi.parse_ecc),
}


def device_state_queries(
    device_ids: Sequence[int], questions: Sequence[str], *, with_killed: bool = False, within_s: int
) -> dict[str, query.Fact[Any]]:
    """The queries `device_states` (a DeviceState by physical id) and, if wanted, `killed`.

    The question `ILL` adds `words` and `uses`: health and use of all devices as `npu-smi info`
    shows them. A question that one script did not reach in `within_s` seconds has no answer.
    """
    words = ["killed", *questions] if with_killed else list(questions)
    command = read_script(
        script("facts-device-states.sh", left=10, enough=within_s, call_s=CALL_S, unlisted=_ABSENT),
        " ".join(words),
        *map(str, device_ids),
        purpose="query the state of the devices",
        timeout_s=within_s + CALL_S + 3.0,
        aside=True,
    )

    def states(sections: query.Sections) -> Mapping[int, DeviceState]:
        fields = {_FIELDS[question]: question for question in questions}
        return {
            id_: DeviceState(**{f: _answer(sections, id_, q) for f, q in fields.items()})
            for id_ in device_ids
        }

    parts: dict[str, Any] = {"device_states": ("", states)}
    if ILL in questions:
        parts["words"] = ("", lambda sections: npu_smi_table(sections, "table").health)
        parts["uses"] = ("", lambda sections: npu_smi_table(sections, "table").uses)
    if with_killed:
        parts["killed"] = ("", lambda sections: parse_killed(sections.text("killed")))
    return query.queries_of(command, parts)


def npu_uses(
    hosts: Mapping[str, Transport], *, forks: int
) -> dict[str, query.Answer[Mapping[int, NpuUse]] | NodeError]:
    """The use of all devices by node and physical id, of one call of npu-smi on each node."""
    facts = device_state_queries((), (ILL,), within_s=2 * CALL_S)
    return on_each(hosts, lambda name: query.query(hosts[name], facts)["uses"], forks=forks)


def _answer(sections: query.Sections, device_id: int, question: str) -> query.Answer[Any]:
    """One answer about a device; what the tools of its product cannot report is not queried."""
    if question == ILL:
        question = "health"
        if f"{device_id}/health" not in sections:
            return query.NOT_QUERIED
    name = f"{device_id}/{question}"
    if question not in _OF_NPU_SMI:
        if name not in sections and "hccn_tool" not in sections:
            return query.NOT_QUERIED
        return hccn_tool_answer(sections, device_id, question, call_s=CALL_S)
    purpose, parse_text = _OF_NPU_SMI[question]
    tool = f"npu-smi info -t {question}"
    return query.attempt(
        f"{purpose} of device {device_id}", lambda: parse_text(npu_smi_output(sections, name, tool))
    )


_LONGEST_COMMAND: Final = 32
_KILLED: Final = re.compile(
    r"\[ *([0-9]{1,12}\.[0-9]+)\] .*ut of memory: Kill(?:ed)? process ([0-9]{1,10}) \(([^)]*)\).*"
)


def parse_killed(text: str) -> tuple[Killed, ...]:
    """The processes in lines of dmesg, below the uptime in seconds; the newest last, each once."""
    uptime, *lines = text.rstrip("\n").split("\n")
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]+", uptime):
        raise NotUnderstoodError("dmesg", 1, uptime, "the uptime in seconds")
    found: dict[int, Killed] = {}
    for number, line in enumerate(filter(None, lines), 2):
        match = _KILLED.fullmatch(line)
        if match is None:
            raise NotUnderstoodError("dmesg", number, line, "a process that was killed")
        pid, command = int(match[2]), "".join(c if c.isprintable() else "?" for c in match[3])
        ago_s = round(float(uptime) - float(match[1]), 1)
        found[pid] = Killed(ago_s, pid, command[:_LONGEST_COMMAND])
    return tuple(found.values())
