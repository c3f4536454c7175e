"""What the attempts of all nodes say together: findings, each named where its cause is; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ascendboot.judge.finding import in_order
from ascendboot.network.connections import connection_findings
from ascendboot.network.mesh import mesh_findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.judge.finding import Finding
    from ascendboot.network.attempts import Attempts
    from ascendboot.network.script import Tried


def verdict(wanted: Mapping[str, Attempts], tried: Mapping[str, Tried]) -> tuple[Finding, ...]:
    """What is wrong, errors first; nodes of which nothing came back are not judged here."""
    mesh = mesh_findings(wanted, tried)
    if not all(mine.pings_decide for mine in wanted.values()):
        mesh = (replace(finding, level="warning") for finding in mesh)
    return in_order([*mesh, *connection_findings(tried)])
