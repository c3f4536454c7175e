"""Queries the devices of a failed job once, and finds what changed since its start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.device_states import DeviceState, Killed, device_state_queries
from ascendboot.facts.parsers.hccn_tool import NET_BROKEN
from ascendboot.facts.parsers.npu_smi import DeviceHealth
from ascendboot.facts.query import NOT_QUERIED, Answer, Answered, Unanswered, query, value_of
from ascendboot.model.job import DeviceChange
from ascendboot.readiness.queries import JobRequirements, NodeProbe
from ascendboot.transport.api import Transport
from ascendboot.transport.pool import on_each
from ascendboot.value import astuple

States: TypeAlias = Mapping[int, DeviceState]
"""By the ids of devices."""
WITHIN_S: Final = 12
"""After this long a node makes no further call of a vendor tool."""
_OF_PORTS: Final = ("link", "link_stat", "net_health")
_LATE_S: Final = 5.0
"""The query itself takes a while: what is this much older than the job counts, too."""
_SEVERE: Final = ("Alarm", "Critical")
_UNREAD: Final = ("busy", "silent", "not-understood")
_MOST_COUNTERS: Final = 4
_BAD_MEMORY: Final = ("Double Bit Error Count",)
_BAD_PACKETS: Final = ("err", "bad", "out_of_order")


def at_start(
    job: JobRequirements, probes: Mapping[str, NodeProbe]
) -> dict[str, dict[int, DeviceState]]:
    """The state of each device that a job uses, as far as the checks before its start read it."""
    found = {}
    for node, probe in probes.items():
        health, ports = value_of(probe.health) or {}, value_of(probe.ports)
        links = ports.link if ports else {}
        found[node] = {
            id_: DeviceState(
                health=Answered(DeviceHealth(health[id_])) if id_ in health else NOT_QUERIED,
                link_up=links.get(id_, NOT_QUERIED),
            )
            for id_ in job.devices[node]
        }
    return found


def device_changes(
    before: Mapping[str, States], hosts: Mapping[str, Transport], *, during_s: float, forks: int
) -> tuple[list[DeviceChange], list[str]]:
    """What changed on the devices of these nodes, and a note for each node without an answer.

    `during_s` is how long the job ran. Nodes are queried in parallel, each for 20 s at most.
    """
    answers = on_each(before, lambda node: _ask(node, hosts, before[node]), forks=forks)
    found: list[DeviceChange] = []
    notes = []
    for node, answer in answers.items():
        failed = answer if isinstance(answer, NodeError) else answer["device_states"]
        if isinstance(failed, (NodeError, Unanswered)):
            notes.append(f"{node}: its devices were not queried: {failed.message}")
        elif not isinstance(answer, NodeError):
            found += _of_node(node, before[node], answer, during_s + _LATE_S)
            notes += _unread(node, failed.value)
    return sorted(found, key=lambda change: not change.is_severe), notes


def _ask(node: str, hosts: Mapping[str, Transport], devices: States) -> dict[str, Answer[Any]]:
    """Network ports are queried only where the checks before the start queried them."""
    if node not in hosts:
        raise UnreachableError(node, "there is no connection to it")
    linked = any(state.link_up != NOT_QUERIED for state in devices.values())
    questions = ("health", *(_OF_PORTS if linked else ()), "ecc", *(("stat",) if linked else ()))
    facts = device_state_queries(tuple(devices), questions, with_killed=True, within_s=WITHIN_S)
    return query(hosts[node], facts)


def _of_node(
    node: str, before: States, answers: Mapping[str, Answer[Any]], during_s: float
) -> Iterator[DeviceChange]:
    states: States = value_of(answers["device_states"]) or {}
    for id_, state in states.items():
        for severe, text in changes_of(before[id_], state, during_s=during_s):
            yield DeviceChange(node, id_, text, severe)
    killed: tuple[Killed, ...] = value_of(answers["killed"]) or ()
    for one in killed:
        if one.seconds_ago <= during_s:
            text = f"the kernel killed {one.command} (pid {one.pid}): out of memory"
            yield DeviceChange(node, None, text)


def _unread(node: str, states: States) -> Iterator[str]:
    """A note about answers that are lacking although a tool should have given them."""
    answers = [answer for state in states.values() for answer in astuple(state)]
    lacking = [a for a in answers if isinstance(a, Unanswered) and a.kind in _UNREAD]
    if lacking:
        more = f"; {len(lacking) - 1} more answers are lacking" if lacking[1:] else ""
        yield f"{node}: {lacking[0].message}{more}"


def changes_of(
    before: DeviceState, now: DeviceState, *, during_s: float
) -> Iterator[tuple[bool, str]]:
    """What changed on one device, in words, and whether no job can run with it."""
    if now.is_gone:
        yield True, "npu-smi does not list it any more"
    health, earlier = value_of(now.health), value_of(before.health)
    if health and health.state != "OK" and (earlier is None or earlier.state != health.state):
        codes = f" ({' '.join(health.codes)})" if health.codes else ""
        was = f"; at the start it was {earlier.state}" if earlier else ""
        yield health.state in _SEVERE, f"its health is {health.state}{codes}{was}"
    if value_of(now.link_up) is False and value_of(before.link_up) is not False:
        yield True, "its link is down"
    if history := value_of(now.link_history):
        downs = [e for e in history.changes if not e.is_up and e.seconds_ago <= during_s]
        if downs and history.changes[0].is_up:
            times = "once" if len(downs) == 1 else f"{len(downs)} times"
            last = f"last {downs[0].seconds_ago} s ago"
            yield False, f"its link went down {times} during the job, {last}"
    if (net := value_of(now.net_health)) in NET_BROKEN:
        yield False, f"hccn_tool reports its network health as {net}"
    yield from _counted(value_of(now.memory_errors) or {}, _BAD_MEMORY)
    yield from _counted(value_of(now.packets) or {}, _BAD_PACKETS)


def _counted(counts: Mapping[str, int], parts: Collection[str]) -> Iterator[tuple[bool, str]]:
    """Errors since the driver started: no start of a job reads these counters."""
    found = [f"{k} {n}" for k, n in counts.items() if n and any(part in k for part in parts)]
    if found:
        more = f" and {len(found) - _MOST_COUNTERS} more" if found[_MOST_COUNTERS:] else ""
        shown = ", ".join(found[:_MOST_COUNTERS])
        yield False, f"errors since its driver started: {shown}{more}"
