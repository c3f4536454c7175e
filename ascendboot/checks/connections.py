"""Findings from probes between nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ascendboot.checks.finding import Finding, devices, error, in_order, warning
from ascendboot.checks.probes import (
    TCP_TIMEOUT_S,
    NodeProbes,
    Npu,
    PingProbe,
    ProbeResults,
    TcpProbe,
    TcpResult,
)
from ascendboot.facts.query import ENDED_BY_TIMEOUT, Answer, Answered, Unanswered
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.parsers.hccn_tool import Ping

T = TypeVar("T")

_MOST_TOLD_SINGLY = 3
_LOOK = "Look at cable, switch port and address: hccn_tool -i {0} -link -g, -ip -g, -link_stat -g"


def mesh_findings(
    probes: Mapping[str, NodeProbes], results: Mapping[str, ProbeResults]
) -> Iterator[Finding]:
    """NPUs that cannot ping each other, and those that could not be tried."""
    pings: dict[PingProbe, Answer[Ping]] = {}
    for name, found in results.items():
        pings |= found.pings
        yield from _not_tried(name, probes[name], found)
        yield from _inconclusive(name, found)
    yield from _Mesh.of(pings).findings()


def _not_tried(name: str, probes: NodeProbes, found: ProbeResults) -> Iterator[Finding]:
    left = len(probes.pings) - len(found.pings)
    if found.trouble:
        text, remedy = found.trouble.message, "Is the Ascend driver installed on the host side?"
    elif left:
        text = f"{left} of {len(probes.pings)} pings were not made: those before took too long"
        remedy = "Look at the failures of those that were made, then check again"
    else:
        return
    yield error("mesh-untested", (name,), text, remedy)


def _inconclusive(name: str, found: ProbeResults) -> Iterator[Finding]:
    """Pings without a result: the tool was busy, or its answer was not understood."""
    reasons: dict[str, set[int]] = defaultdict(set)
    first: dict[str, str] = {}
    on_fabric: dict[str, bool] = {}
    for ping, answer in found.pings.items():
        if isinstance(answer, Unanswered) and not _is_refuted(ping, answer):
            shape = answer.why.replace(ping.target.address, "").replace(
                f"-i {ping.source.device_id} ", ""
            )
            reasons[shape].add(ping.source.device_id)
            first.setdefault(shape, answer.why)
            on_fabric[shape] = on_fabric.get(shape, True) and ping.command == "hccs_ping"
    for shape, ids in reasons.items():
        yield Finding(
            id="mesh-unknown",
            level="warning" if on_fabric[shape] else "error",
            nodes=(name,),
            text=f"could not tell what {devices(sorted(ids))} reach{'es' * (len(ids) == 1)}: "
            f"{first[shape]}",
        )


@dataclass(frozen=True)
class _DeviceCause:
    """A way in which one device explains several failed pings."""

    id: str
    text: str
    ends: Callable[[PingProbe], Sequence[Npu]]
    """The ends of a ping at which the device counts."""
    directions: int = 1


_DEVICE_CAUSES = (
    _DeviceCause(
        "mesh-device-cut-off",
        "reaches nobody and is reached by nobody",
        lambda ping: (ping.source, ping.target),
        directions=2,
    ),
    _DeviceCause("mesh-device-unreached", "is reached by nobody", lambda ping: (ping.target,)),
    _DeviceCause("mesh-device-reaches-nobody", "reaches nobody", lambda ping: (ping.source,)),
)


@dataclass
class _Mesh:
    """All pings with a known end; `failed` loses what a finding has explained."""

    well: set[PingProbe] = field(default_factory=set)
    bad: dict[PingProbe, str] = field(default_factory=dict)
    """The failure, by ping."""
    failed: dict[PingProbe, str] = field(default_factory=dict)

    @classmethod
    def of(cls, pings: Mapping[PingProbe, Answer[Ping]]) -> _Mesh:
        mesh = cls()
        for ping, answer in pings.items():
            if isinstance(answer, Answered) and answer.value.is_well:
                mesh.well.add(ping)
            elif isinstance(answer, Answered):
                mesh.bad[ping] = answer.value.summary
            elif _is_refuted(ping, answer):
                mesh.bad[ping] = _why(answer)
        mesh.failed = dict(mesh.bad)
        return mesh

    def findings(self) -> Iterator[Finding]:
        """From the widest cause to the narrowest."""
        if self.bad and not self.well and len(self.bad) > _MOST_TOLD_SINGLY:
            yield self._all_dead()
            return
        for name in self._nodes():
            yield from self._node(name)
        for cause in _DEVICE_CAUSES:
            for npu in _most_first(npu for ping in self.failed for npu in cause.ends(ping)):
                yield from self._device(npu, cause)
        yield from self._pairs()

    def _nodes(self) -> list[str]:
        return _most_first(n for p in self.failed for n in (p.source.node, p.target.node))

    def _all_dead(self) -> Finding:
        nodes = tuple(dict.fromkeys(n for p in self.bad for n in (p.source.node, p.target.node)))
        ping, seen = next(iter(self.bad.items()))
        return error(
            "mesh-down",
            nodes,
            f"no NPU reaches one of another node: {len(self.bad)} pings failed, the first "
            f"from {ping.source} to {ping.target}: {seen}",
            "Look at the switch between the NPUs, their VLAN and their gateways: "
            f"hccn_tool -i {ping.source.device_id} -gateway -g",
        )

    def _node(self, name: str) -> Iterator[Finding]:
        """A node none of whose devices reaches or is reached, while others are well."""
        its = [p for p in self.failed if name in (p.source.node, p.target.node)]
        is_dead = not any(name in (p.source.node, p.target.node) for p in self.well)
        of_others = any(name not in (p.source.node, p.target.node) for p in self.well)
        if its and is_dead and of_others:
            yield self._explained(
                its,
                "mesh-node-cut-off",
                (name,),
                "no NPU of the node reaches another node's or is reached by one",
                "Look at its switch ports, their VLAN and its gateways",
            )

    def _device(self, npu: Npu, cause: _DeviceCause) -> Iterator[Finding]:
        pings = [ping for ping in self.failed if npu in cause.ends(ping)]
        is_dead = not any(npu in cause.ends(ping) for ping in self.well)
        sides = {npu == ping.source for ping in pings}
        if is_dead and len(sides) == cause.directions and self._is_to_blame(npu, pings):
            yield self._explained(
                pings,
                cause.id,
                (npu.node,),
                f"device {npu.device_id} ({npu.address}) {cause.text}",
                _LOOK.format(npu.device_id),
            )

    def _is_to_blame(self, npu: Npu, its: Sequence[PingProbe]) -> bool:
        """Whether its peers are more than one, or are well with others."""
        peers = {p.target if p.source == npu else p.source for p in its}
        alive = {npu for p in self.well for npu in (p.source, p.target)}
        return bool(its) and (len(peers) > 1 or peers <= alive)

    def _explained(
        self, pings: Sequence[PingProbe], id_: str, nodes: tuple[str, ...], text: str, remedy: str
    ) -> Finding:
        """One finding for all `pings`; no other finding names them."""
        reason = self.failed[([p for p in pings if p.source.node in nodes] or pings)[0]]
        for ping in pings:
            del self.failed[ping]
        text = f"{text}: {len(pings)} ping{'s' * (len(pings) > 1)} failed, {reason}"
        return error(id_, nodes, text, remedy)

    def _pairs(self) -> Iterator[Finding]:
        """What is left: each failure with both ends, or the first of many between two nodes."""
        between: dict[tuple[str, str], list[PingProbe]] = defaultdict(list)
        for ping in self.failed:
            between[ping.source.node, ping.target.node].append(ping)
        for nodes, pings in between.items():
            shown = pings if len(pings) <= _MOST_TOLD_SINGLY else pings[:1]
            for ping in shown:
                more = (
                    ""
                    if len(shown) > 1 or len(pings) == 1
                    else (f"; {len(pings) - 1} more pings from {nodes[0]} to {nodes[1]} failed")
                )
                yield error(
                    "mesh-ping-failed",
                    nodes,
                    f"{ping.source} cannot reach {ping.target}: {self.failed[ping]}{more}",
                    _LOOK.format(ping.source.device_id) + " at both ends",
                )


def _is_refuted(ping: PingProbe, answer: Unanswered) -> bool:
    """Whether the tool's failure means that the device is not reached.

    Of `-hccs_ping` only counts say so: which versions know it is documented nowhere.
    """
    return answer.kind == "failed" and ping.command == "ping"


def _most_first(ends: Iterable[T]) -> list[T]:
    return [end for end, _ in Counter(ends).most_common()]


def _why(answer: Unanswered) -> str:
    """`Execute failed: Link status is down.`, without the call."""
    if not answer.why.startswith("hccn_tool "):
        return answer.why
    return answer.why.partition(": ")[2] or answer.why


if TYPE_CHECKING:
    _Silent: TypeAlias = dict[str, dict[tuple[tuple[TcpProbe, ...], str], list[str]]]
    """By target, ports and reason: who gets no answer there."""

_REFUSED = "Connection refused"
_NO_DEV_TCP = "No such file or directory"
_MOST_PAIRS_SINGLY = 2
_LOOK_AT_LINKS = (
    "Look for a firewall or a missing route on both and between them: `nft list ruleset`, "
    "`iptables -S`, `firewall-cmd --list-all`, `ip route get`"
)


def connection_findings(results: Mapping[str, ProbeResults]) -> Iterator[Finding]:
    """Ports that cannot be reached, one finding per target node."""
    closed: dict[tuple[str, str], list[str]] = {}
    silent: _Silent = {}
    for source, found in results.items():
        if any(result.reason == _NO_DEV_TCP for result in found.tcp.values()):
            yield _untested(source)
            continue
        for target, tcp in _by_target(found).items():
            for reason, hit in _unreached(tcp).items():
                where = (tuple(_as_seen_from_anywhere(k) for k in hit), reason)
                silent.setdefault(target, {}).setdefault(where, []).append(source)
            for probe, result in tcp.items():
                if probe.is_open and result.reason == _REFUSED:
                    place = (target, f"{probe.address}:{probe.port}")
                    closed.setdefault(place, []).append(source)
    yield from _everywhere(silent, results) or _each(silent)
    for (target, address), sources in closed.items():
        yield _refused(target, address, sources)


def _each(silent: _Silent) -> list[Finding]:
    return [
        _blocked(target, tcp, reason, sources)
        for target, groups in silent.items()
        for (tcp, reason), sources in groups.items()
    ]


def _everywhere(silent: _Silent, results: Mapping[str, ProbeResults]) -> list[Finding]:
    """One finding where all nodes keep the same ports from each other, else none.

    Not every port is tried at every node.
    """
    pairs = {(source, target) for source, found in results.items() for target in _by_target(found)}
    reasons = {reason for groups in silent.values() for _, reason in groups}
    count = sum(len(sources) for groups in silent.values() for sources in groups.values())
    if len(reasons) != 1 or count != len(pairs) or count <= _MOST_PAIRS_SINGLY:
        return []
    tried = Counter((probe.port, probe.use) for found in results.values() for probe in found.tcp)
    failed = Counter(
        (probe.port, probe.use)
        for groups in silent.values()
        for (tcp, _), sources in groups.items()
        for probe in tcp
        for _ in sources
    )
    ports = sorted(failed)
    if any(failed[port] != tried[port] for port in ports):
        return []
    [reason] = reasons
    return [
        error(
            "tcp-blocked",
            tuple(dict.fromkeys(name for pair in sorted(pairs) for name in pair)),
            f"no node reaches another over TCP on {_ports(ports)}: {reason}",
            _LOOK_AT_LINKS,
        )
    ]


def _by_target(found: ProbeResults) -> dict[str, dict[TcpProbe, TcpResult]]:
    targets: dict[str, dict[TcpProbe, TcpResult]] = defaultdict(dict)
    for probe, result in found.tcp.items():
        targets[probe.target][probe] = result
    return targets


def _unreached(tcp: Mapping[TcpProbe, TcpResult]) -> dict[str, list[TcpProbe]]:
    reasons: dict[str, list[TcpProbe]] = defaultdict(list)
    for probe, result in sorted(tcp.items(), key=lambda item: item[0].port):
        if result.exit_code and result.reason != _REFUSED:
            reasons[_seen(result)].append(probe)
    return reasons


def _seen(result: TcpResult) -> str:
    if result.exit_code in ENDED_BY_TIMEOUT:
        return f"no answer within {TCP_TIMEOUT_S} s"
    return result.reason or f"exit code {result.exit_code}"


def _as_seen_from_anywhere(probe: TcpProbe) -> TcpProbe:
    return replace(probe, source="")


def _blocked(target: str, tcp: tuple[TcpProbe, ...], reason: str, sources: list[str]) -> Finding:
    ports = _ports([(probe.port, probe.use) for probe in tcp])
    return error(
        "tcp-blocked",
        (*sources, target),
        f"{fold(sources)} cannot reach {target} ({tcp[0].address}) over TCP on {ports}: {reason}",
        _LOOK_AT_LINKS,
    )


def _ports(ports: Sequence[tuple[int, str]]) -> str:
    shown = ", ".join(f"{port} ({use})" for port, use in ports)
    return f"port{'s' * (len(ports) > 1)} {shown}"


def _refused(target: str, place: str, sources: list[str]) -> Finding:
    return error(
        "tcp-refused",
        (*sources, target),
        f"{fold(sources)} cannot reach the cluster's sshd of {target} at {place}, which runs: "
        f"{_REFUSED}",
        "Look for a firewall that refuses: `nft list ruleset`, `iptables -S`",
    )


def _untested(source: str) -> Finding:
    return warning(
        "tcp-untested",
        (source,),
        "could not try TCP connections: this bash has no /dev/tcp",
        "Try by hand that the nodes reach each other on all ports",
    )


def probe_findings(
    probes: Mapping[str, NodeProbes], results: Mapping[str, ProbeResults]
) -> tuple[Finding, ...]:
    """All findings of probes, errors first; nodes without results have none."""
    mesh = mesh_findings(probes, results)
    if not all(mine.failed_pings_are_errors for mine in probes.values()):
        mesh = (replace(finding, level="warning") for finding in mesh)
    return in_order([*mesh, *connection_findings(results)])
