"""The live proofs of all nodes in one round: logins from the primary, and the network."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot import network
from ascendboot.errors import AscendbootError, NodeError
from ascendboot.outcomes import failed, found, proved
from ascendboot.prove import (
    Evidence,
    Login,
    evidence_question,
    proof,
    read_evidence,
    read_proof,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.model.cluster import Node
    from ascendboot.model.report import StepResult
    from ascendboot.prove import Expectation
    from ascendboot.transport.api import Command, Result, Sides


@dataclass(frozen=True)
class Proved:
    """What one node's part of the round gave."""

    duration_s: float
    logins: Mapping[str, Login] | None = None
    """How the login to each node went, as seen from the primary; None elsewhere."""
    tried: network.Tried | None = None
    """None where nothing was to be tried."""


@dataclass(frozen=True)
class Proofs:
    """What is to be proved."""

    primary_name: str
    logins: Expectation | None
    """What a login must find; None: there is nothing to log in to yet."""
    wanted: Mapping[str, network.Attempts]
    """What each node tries, by name."""

    def run(self, node: Node, sides: Sides) -> Proved:
        """One node's part, in one execution per side; none where it has no part.

        Ranks and their launcher log in from the workload side; NPUs are the host side's.

        Raises:
            NodeError: it could not be run, or answered what nobody knows.
        """
        expected = self.logins if node.name == self.primary_name else None
        mine = self.wanted.get(node.name, network.Attempts())
        logins_too = [proof(expected)] if expected else []
        attempts = [network.command(mine)] if mine.pings or mine.knocks else []
        began = time.monotonic()
        results = _run(sides, logins_too, attempts)
        took = time.monotonic() - began
        logins = _read_logins(expected, results.pop(0)) if expected else None
        try:
            tried = network.read(mine, results.pop(0)) if results else None
        except AscendbootError as error:
            raise NodeError(node.name, f"could not try the network: {error}") from error
        return Proved(took, logins, tried)

    def broken(self, parts: Mapping[str, Proved | NodeError]) -> frozenset[str]:
        """The nodes that can tell why a login broke off: its own, and the primary; or none."""
        part = parts.get(self.primary_name)
        logins = part.logins if isinstance(part, Proved) and part.logins else {}
        found = {name for name, login in logins.items() if login.broke_off}
        return frozenset({*found, self.primary_name} if found else ())

    def evidence(self, node: Node, sides: Sides) -> Evidence:
        """What a node knows of a login that broke off.

        Raises:
            NodeError: it could not be asked.
        """
        if self.logins is None:
            return Evidence()
        question = evidence_question(self.logins.base)
        found = read_evidence(sides.work.run(question))
        if not self.logins.cluster.serves_from_host(node) or sides.is_one:
            return found
        return replace(found, log=read_evidence(sides.host.run(question)).log)

    def login_results(
        self,
        parts: Mapping[str, Proved | NodeError],
        evidence: Mapping[str, Evidence | NodeError],
    ) -> list[StepResult]:
        """How the logins went, node by node."""
        part = parts.get(self.primary_name)
        if self.logins is None or part is None:
            return []
        if isinstance(part, NodeError):
            return [failed("prove", "login", part)]
        known = {name: e for name, e in evidence.items() if isinstance(e, Evidence)}
        logins, expected = part.logins or {}, self.logins
        nodes = [node for node in expected.cluster.nodes if node.name in logins]
        return [
            result
            for node in nodes
            for result in proved(
                node.name, told(expected, node, logins[node.name], known), part.duration_s
            )
        ]

    def network_results(self, parts: Mapping[str, Proved | NodeError]) -> list[StepResult]:
        """What the network was found to be, node by node."""
        lost = [
            failed("network", "attempts", p) for p in parts.values() if isinstance(p, NodeError)
        ]
        tried = {
            name: part.tried
            for name, part in parts.items()
            if isinstance(part, Proved) and part.tried is not None
        }
        findings = network.verdict(self.wanted, tried)
        told = {name: _told(part) for name, part in tried.items()}
        return [*lost, *found("network", "attempts", told, findings)]


def _run(sides: Sides, at_work: list[Command], on_host: list[Command]) -> list[Result]:
    if sides.is_one:
        return list(sides.work.run_all([*at_work, *on_host]))
    return [*sides.work.run_all(at_work), *sides.host.run_all(on_host)]


def _read_logins(expected: Expectation, result: Result) -> Mapping[str, Login]:
    try:
        return read_proof(expected, result)
    except AscendbootError as error:
        problem = str(error).removeprefix(f"{result.node}: ")
        return {expected.cluster.primary_name: Login((problem,))}


def _told(tried: network.Tried) -> str:
    pings, knocks = len(tried.pings), len(tried.knocks)
    parts = [f"{pings} ping{'s' * (pings != 1)} between NPUs"] if pings else []
    parts += [f"{knocks} TCP connection{'s' * (knocks != 1)}"] if knocks else []
    return f"reaches the other nodes: {' and '.join(parts)}"
