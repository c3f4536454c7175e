"""Findings about TCP between nodes: refused proves that packets pass, silence that they do not."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.facts.api import ENDED_BY_TIMEOUT
from ascendboot.judge.finding import Finding
from ascendboot.model.names import fold
from ascendboot.network.script import KNOCK_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from ascendboot.network.attempts import Knock
    from ascendboot.network.script import Knocked, Tried

    _Silent: TypeAlias = dict[str, dict[tuple[tuple[Knock, ...], str], list[str]]]
    """By target, ports and reason: who gets no answer there."""

_REFUSED = "Connection refused"
_NO_DEV_TCP = "No such file or directory"
_MOST_TOLD_SINGLY = 2
_LOOK = (
    "Look for a firewall or a missing route on both and between them: `nft list ruleset`, "
    "`iptables -S`, `firewall-cmd --list-all`, `ip route get`"
)


def connection_findings(tried: Mapping[str, Tried]) -> Iterator[Finding]:
    """Ports that one node does not reach at another, one finding per node that is not reached."""
    closed: dict[tuple[str, str], list[str]] = {}
    silent: _Silent = {}
    for source, found in tried.items():
        if any(knocked.reason == _NO_DEV_TCP for knocked in found.knocks.values()):
            yield _untested(source)
            continue
        for target, knocks in _by_target(found).items():
            for reason, hit in _unreached(knocks).items():
                where = (tuple(_as_seen_from_anywhere(k) for k in hit), reason)
                silent.setdefault(target, {}).setdefault(where, []).append(source)
            for knock, knocked in knocks.items():
                if knock.is_open and knocked.reason == _REFUSED:
                    place = (target, f"{knock.address}:{knock.port}")
                    closed.setdefault(place, []).append(source)
    yield from _everywhere(silent, tried) or _each(silent)
    for (target, address), sources in closed.items():
        yield _refused(target, address, sources)


def _each(silent: _Silent) -> list[Finding]:
    return [
        _blocked(target, knocks, reason, sources)
        for target, groups in silent.items()
        for (knocks, reason), sources in groups.items()
    ]


def _everywhere(silent: _Silent, tried: Mapping[str, Tried]) -> list[Finding]:
    """One finding where all nodes keep the same ports from each other, else none.

    Not every port is tried at every node.
    """
    pairs = {(source, target) for source, found in tried.items() for target in _by_target(found)}
    reasons = {reason for groups in silent.values() for _, reason in groups}
    count = sum(len(sources) for groups in silent.values() for sources in groups.values())
    if len(reasons) != 1 or count != len(pairs) or count <= _MOST_TOLD_SINGLY:
        return []
    asked = Counter((knock.port, knock.use) for found in tried.values() for knock in found.knocks)
    unheard = Counter(
        (knock.port, knock.use)
        for groups in silent.values()
        for (knocks, _), sources in groups.items()
        for knock in knocks
        for _ in sources
    )
    ports = sorted(unheard)
    if any(unheard[port] != asked[port] for port in ports):
        return []
    [reason] = reasons
    return [
        Finding(
            id="tcp-blocked",
            level="error",
            nodes=tuple(dict.fromkeys(name for pair in sorted(pairs) for name in pair)),
            text=f"no node reaches another over TCP on {_ports(ports)}: {reason}",
            remedy=_LOOK,
        )
    ]


def _by_target(found: Tried) -> dict[str, dict[Knock, Knocked]]:
    targets: dict[str, dict[Knock, Knocked]] = defaultdict(dict)
    for knock, knocked in found.knocks.items():
        targets[knock.target][knock] = knocked
    return targets


def _unreached(knocks: Mapping[Knock, Knocked]) -> dict[str, list[Knock]]:
    reasons: dict[str, list[Knock]] = defaultdict(list)
    for knock, knocked in sorted(knocks.items(), key=lambda item: item[0].port):
        if knocked.exit_code and knocked.reason != _REFUSED:
            reasons[_seen(knocked)].append(knock)
    return reasons


def _seen(knocked: Knocked) -> str:
    if knocked.exit_code in ENDED_BY_TIMEOUT:
        return f"no answer within {KNOCK_TIMEOUT_S} s"
    return knocked.reason or f"exit code {knocked.exit_code}"


def _as_seen_from_anywhere(knock: Knock) -> Knock:
    return replace(knock, source="")


def _blocked(target: str, knocks: tuple[Knock, ...], reason: str, sources: list[str]) -> Finding:
    ports = _ports([(knock.port, knock.use) for knock in knocks])
    return Finding(
        id="tcp-blocked",
        level="error",
        nodes=(*sources, target),
        text=f"{fold(sources)} cannot reach {target} ({knocks[0].address}) over TCP on "
        f"{ports}: {reason}",
        remedy=_LOOK,
    )


def _ports(ports: Sequence[tuple[int, str]]) -> str:
    told = ", ".join(f"{port} ({use})" for port, use in ports)
    return f"port{'s' * (len(ports) > 1)} {told}"


def _refused(target: str, place: str, sources: list[str]) -> Finding:
    return Finding(
        id="tcp-refused",
        level="error",
        nodes=(*sources, target),
        text=f"{fold(sources)} cannot reach the cluster's sshd of {target} at {place}, which runs: "
        f"{_REFUSED}",
        remedy="Look for a firewall that refuses: `nft list ruleset`, `iptables -S`",
    )


def _untested(source: str) -> Finding:
    return Finding(
        id="tcp-untested",
        level="warning",
        nodes=(source,),
        text="could not try TCP connections: this bash has no /dev/tcp",
        remedy="Try by hand that the nodes reach each other on all ports",
    )
