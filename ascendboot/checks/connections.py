"""Findings from probes between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ascendboot.checks.devices import DRIVER
from ascendboot.checks.finding import Finding, Findings, devices, error, grouped, in_order, warning
from ascendboot.checks.probes import NodeProbes, Npu, PingProbe, ProbeResults, TcpProbe
from ascendboot.facts.parsers.hccn_tool import Ping
from ascendboot.facts.query import Answer, Answered, Unanswered
from ascendboot.model.names import fold
from ascendboot.value import replace

T = TypeVar("T")

_MOST_SINGLY = 3
_LOOK = "Look at cable, switch port and address: hccn_tool -i {0} -link -g, -ip -g, -link_stat -g"


def probe_findings(
    probes: Mapping[str, NodeProbes], results: Mapping[str, ProbeResults]
) -> tuple[Finding, ...]:
    """All findings of probes, errors first; nodes without results have none."""
    found: list[Finding] = []
    for name, of_node in results.items():
        found += _untested(name, probes[name], of_node)
    found += _mesh(results)
    if not all(mine.failed_pings_are_errors for mine in probes.values()):
        found = [replace(finding, level="warning") for finding in found]
    return in_order([*found, *_connections(results)])


def _untested(name: str, probes: NodeProbes, found: ProbeResults) -> Findings:
    """Pings that were not made, and those without a result, as of a busy tool."""
    left = len(probes.pings) - len(found.pings)
    if found.trouble:
        yield error("mesh-untested", (name,), found.trouble.message, DRIVER)
    elif left:
        text = f"{left} of {len(probes.pings)} pings were not made: those before took too long"
        remedy = "Look at the failures of those that were made, then check again"
        yield error("mesh-untested", (name,), text, remedy)
    unknown = [
        (ping, answer)
        for ping, answer in found.pings.items()
        if isinstance(answer, Unanswered) and not _is_refuted(ping, answer)
    ]
    # the reasons are alike but for address and device
    shapes = (
        answer.why.replace(ping.target.address, "").replace(f"-i {ping.source.device_id} ", "")
        for ping, answer in unknown
    )
    for alike in grouped(zip(shapes, unknown, strict=True)).values():
        ids = sorted({ping.source.device_id for ping, _ in alike})
        on_fabric = all(ping.command == "hccs_ping" for ping, _ in alike)
        reach = f"{devices(ids)} reach{'es' * (len(ids) == 1)}"
        text = f"could not tell what {reach}: {alike[0][1].why}"
        yield Finding("mesh-unknown", "warning" if on_fabric else "error", (name,), text)


def _is_refuted(ping: PingProbe, answer: Unanswered) -> bool:
    """Whether the tool's failure means that the device is not reached.

    Versions without `-hccs_ping` are not documented, so a failure of that may mean its absence.
    """
    return answer.kind in ("failed", "silent") and ping.command == "ping"


def _failure(ping: PingProbe, answer: Answer[Ping]) -> str:
    """Why a ping failed, `Execute failed: Link status is down.`; empty: it did not, or unknown."""
    if isinstance(answer, Answered):
        return "" if answer.value.is_well else answer.value.summary
    if not _is_refuted(ping, answer):
        return ""
    without_call = answer.why.partition(": ")[2] if answer.why.startswith("hccn_tool ") else ""
    return without_call or answer.why


_DEVICE_CAUSES = (
    ("mesh-device-cut-off", "reaches no other device and is reached by none", ("source", "target")),
    ("mesh-device-unreached", "is reached by no other device", ("target",)),
    ("mesh-device-reaches-nobody", "reaches no other device", ("source",)),
)
"""Ways in which one device explains several failed pings: id, text, and its ends of the pings."""


def _mesh(results: Mapping[str, ProbeResults]) -> Findings:
    """NPUs that cannot ping each other, from the widest cause to the narrowest."""
    pings = {ping: answer for found in results.values() for ping, answer in found.pings.items()}
    reasons = {ping: _failure(ping, answer) for ping, answer in pings.items()}
    failed = {ping: why for ping, why in reasons.items() if why}  # loses what a finding explains
    well = {p for p, answer in pings.items() if isinstance(answer, Answered) and not reasons[p]}
    if failed and not well and len(failed) > _MOST_SINGLY:
        ping, seen = next(iter(failed.items()))
        first = f"the first from {ping.source} to {ping.target}: {seen}"
        text = f"no NPU reaches one of another node: {len(failed)} pings failed, {first}"
        remedy = "Look at the switch between the NPUs, their VLAN and their gateways: "
        remedy += f"hccn_tool -i {ping.source.device_id} -gateway -g"
        nodes = tuple(dict.fromkeys(name for ping in failed for name in _nodes(ping)))
        yield error("mesh-down", nodes, text, remedy)
        return
    for name in _most_first(name for ping in failed for name in _nodes(ping)):
        its = [ping for ping in failed if name in _nodes(ping)]
        if its and well and not any(name in _nodes(ping) for ping in well):
            text = "no NPU of the node reaches another node's or is reached by one"
            remedy = "Look at its switch ports, their VLAN and its gateways"
            why = _explain(failed, its, name)
            yield error("mesh-node-cut-off", (name,), f"{text}: {why}", remedy)
    alive = {npu for ping in well for npu in (ping.source, ping.target)}
    for id_, what, ends in _DEVICE_CAUSES:
        for npu in _most_first(npu for ping in failed for npu in _ends(ping, ends)):
            its = [ping for ping in failed if npu in _ends(ping, ends)]
            is_dead = not any(npu in _ends(ping, ends) for ping in well)
            peers = {ping.target if ping.source == npu else ping.source for ping in its}
            # it is to blame if its peers are several, or reach others
            is_to_blame = its and (len(peers) > 1 or peers <= alive)
            on_both = len({npu == ping.source for ping in its}) == len(ends)
            if is_dead and on_both and is_to_blame:
                why = _explain(failed, its, npu.node)
                text = f"device {npu.device_id} ({npu.address}) {what}: {why}"
                yield error(id_, (npu.node,), text, _LOOK.format(npu.device_id))
    yield from _pairs(failed)


def _nodes(ping: PingProbe) -> tuple[str, str]:
    return ping.source.node, ping.target.node


def _ends(ping: PingProbe, ends: Sequence[str]) -> list[Npu]:
    return [getattr(ping, end) for end in ends]


def _most_first(ends: Iterable[T]) -> list[T]:
    return [end for end, _ in Counter(ends).most_common()]


def _explain(failed: dict[PingProbe, str], pings: Sequence[PingProbe], node: str) -> str:
    """`3 pings failed, REASON`; removes the pings, so that no other finding names them."""
    reason = failed[next((ping for ping in pings if ping.source.node == node), pings[0])]
    for ping in pings:
        del failed[ping]
    return f"{len(pings)} ping{'s' * (len(pings) > 1)} failed, {reason}"


def _pairs(failed: Mapping[PingProbe, str]) -> Findings:
    """What is left: each failure with both ends, or the first of many between two nodes."""
    for nodes, pings in grouped((_nodes(ping), ping) for ping in failed).items():
        more = ""
        if len(pings) > _MOST_SINGLY:
            more = f"; {len(pings) - 1} more pings from {nodes[0]} to {nodes[1]} failed"
        for ping in pings[:1] if more else pings:
            text = f"{ping.source} cannot reach {ping.target}: {failed[ping]}{more}"
            remedy = f"{_LOOK.format(ping.source.device_id)} at both ends"
            yield error("mesh-ping-failed", nodes, text, remedy)


_REFUSED = "Connection refused"
_NO_DEV_TCP = "No such file or directory"
_LOOK_AT_LINKS = (
    "Look for a firewall or a missing route on both and between them: `nft list ruleset`, "
    "`iptables -S`, `firewall-cmd --list-all`, `ip route get`"
)


def _connections(results: Mapping[str, ProbeResults]) -> Findings:
    silent: list[tuple[TcpProbe, str]] = []
    refused: list[tuple[tuple[str, str], str]] = []
    for source, found in results.items():
        if any(result.reason == _NO_DEV_TCP for result in found.tcp.values()):
            text = "could not try TCP connections: this bash has no /dev/tcp"
            remedy = "Try by hand that the nodes reach each other on all ports"
            yield warning("tcp-untested", (source,), text, remedy)
            continue
        for probe, result in sorted(found.tcp.items(), key=lambda item: item[0].port):
            if result.exit_code and result.reason != _REFUSED:
                silent.append((probe, result.why))
            elif probe.is_open and result.exit_code:
                refused.append(((probe.target, f"{probe.address}:{probe.port}"), source))
    yield from _blocked(silent)
    for (target, place), sources in grouped(refused).items():
        who = f"{fold(sources)} cannot reach the cluster's sshd of {target}"
        text = f"{who} at {place}, which runs: {_REFUSED}"
        remedy = "Look for a firewall that refuses: `nft list ruleset`, `iptables -S`"
        yield error("tcp-refused", (*sources, target), text, remedy)


def _blocked(silent: Sequence[tuple[TcpProbe, str]]) -> Findings:
    """One finding for the sources that miss the same ports of a node, or of many."""
    missed = grouped(((k.source, k.target, k.address, why), (k.port, k.use)) for k, why in silent)
    alike = grouped(
        ((why, tuple(ports)), ((target, f"{target} ({address})"), source))
        for (source, target, address, why), ports in missed.items()
    )
    for (why, ports), pairs in alike.items():
        listed = ", ".join(f"{port} ({use})" for port, use in ports)
        shown = f"port{'s' * (len(ports) > 1)} {listed}"
        single = grouped(pairs).items()
        found: list[tuple[tuple[str, ...], str, list[str]]]
        found = [((to,), place, sources) for (to, place), sources in single]
        if len(found) > _MOST_SINGLY:
            every = tuple(to for (to, _), _ in single)
            found = [(every, fold(every), [source for _, source in pairs])]
        for targets, place, sources in found:
            text = f"{fold(sources)} cannot reach {place} over TCP on {shown}: {why}"
            nodes = tuple(dict.fromkeys((*sources, *targets)))
            yield error("tcp-blocked", nodes, text, _LOOK_AT_LINKS)
