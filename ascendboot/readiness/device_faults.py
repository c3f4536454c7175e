"""Queries the NPUs of a running job, and returns the faults that supervision decides about."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.device_states import ILL, DeviceState, device_state_queries
from ascendboot.facts.query import Answer, Unanswered, query, value_of
from ascendboot.readiness.queries import JobRequirements
from ascendboot.supervise.policy import CARD_DROPPED, TOOL_HANGS, Fault, FaultKind, level_of
from ascendboot.transport.api import Transport
from ascendboot.transport.pool import on_each
from ascendboot.value import Struct, field

LINK_DOWN_S = 20.0
"""Shorter interruptions of a link are ignored, as MindCluster does."""
WITHIN_S = 30
"""For one look at a node: hccn_tool takes up to a second for each device."""
_NET_IS_WELL = ("Success", "Init")
"""As MindCluster (22bb3d98, devmanager/common/constants.go) has it; Init: nothing is pinged."""


class DeviceFaults(Struct, kw_only=True, eq=False):
    """What is wrong with the devices of a job, look by look."""

    needs: JobRequirements
    hosts: Mapping[str, Transport]
    """The host of each node; nodes come and go."""
    forks: int
    _down: dict[str, dict[int, float]] = field(default_factory=dict)
    """By node: the devices whose link is down, and since when."""
    _last: dict[str, Sequence[Fault]] = field(default_factory=dict)
    """By node: what was wrong when it last answered."""

    def of(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        """What is wrong on these nodes now; without an answer of a node, what was wrong before."""
        found = on_each(nodes, lambda name: self._of_node(name, at), forks=self.forks)
        self._last |= {n: each for n, each in found.items() if not isinstance(each, NodeError)}
        return [fault for name in nodes for fault in self._last.get(name, ())]

    def _of_node(self, node: str, at: float) -> Sequence[Fault]:
        host = self.hosts.get(node)
        if host is None:
            raise UnreachableError(node, "is being connected again")
        used, linked = self.needs.devices[node], self.needs.linked[node]
        questions = (ILL, "link", "net_health") if linked else (ILL,)
        facts = device_state_queries(tuple(used), questions, within_s=WITHIN_S)
        answers = query(host, facts)
        found: Mapping[int, DeviceState] = value_of(answers["device_states"]) or {}
        states = {id_: found.get(id_, DeviceState()) for id_ in used}
        ports = {id_: states[id_] for id_ in linked}
        down = [id_ for id_, state in ports.items() if value_of(state.link_up) is False]
        before = self._down.get(node, {})
        self._down[node] = {id_: before.get(id_, at) for id_ in down}
        down_s = {id_: at - since for id_, since in self._down[node].items()}
        words: Answer[Mapping[int, str]] = answers["words"]
        return [
            *npu_faults(node, at, words, states),
            *net_faults(node, at, ports, down_s),
            *tool_faults(node, at, [words, *(state.link_up for state in ports.values())]),
        ]


def npu_faults(
    node: str, at: float, words: Answer[Mapping[int, str]], states: Mapping[int, DeviceState]
) -> Iterator[Fault]:
    """The devices that are not OK, each at the level of its codes, and those that are gone.

    `words` is the health of all devices as `npu-smi info` shows it; empty if it shows no ids.
    """
    shown = value_of(words)
    for id_, state in states.items() if shown else ():
        word, health = (shown or {}).get(id_, ""), value_of(state.health)
        word, codes = (health.state, health.codes) if health else (word, ())
        if word == "OK":
            continue
        what = f"device {id_} is {word}"
        if not word:
            codes, what = (CARD_DROPPED,), f"npu-smi info does not list device {id_}"
        level = level_of(codes, word)
        kind = FaultKind.NPU_FAULT
        yield Fault(kind=kind, at=at, node=node, codes=codes, level=level, words=what)


def net_faults(
    node: str, at: float, ports: Mapping[int, DeviceState], down_s: Mapping[int, float]
) -> Iterator[Fault]:
    """Links that have been down for too long, and devices whose pings fail.

    `down_s` has the seconds for which a link has been down: there pings fail in any case.
    """
    for id_, state in ports.items():
        word = value_of(state.net_health)
        if id_ in down_s:
            if down_s[id_] >= LINK_DOWN_S:
                words = f"the link of device {id_} is down"
                yield Fault(kind=FaultKind.LINK_DOWN, at=at, node=node, words=words)
        elif word is not None and word not in _NET_IS_WELL:
            words = f"the network health of device {id_} is {word}"
            yield Fault(kind=FaultKind.NET_FAULT, at=at, node=node, words=words)


def tool_faults(node: str, at: float, answers: Sequence[Answer[object]]) -> Iterator[Fault]:
    """One fault if a vendor tool gave no answer in its time."""
    for answer in answers:
        if isinstance(answer, Unanswered) and answer.kind == "silent":
            words, codes = answer.message, (TOOL_HANGS,)
            yield Fault(kind=FaultKind.NPU_FAULT, at=at, node=node, codes=codes, words=words)
            return
