"""The way into a node's container, where no setup remembers it: the host side is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import CommandError
from ascendboot.facts.api import ask
from ascendboot.facts.container import container_question, way_into
from ascendboot.judge.container import obstacles

if TYPE_CHECKING:
    from ascendboot.model.cluster import Node
    from ascendboot.model.container import Inside
    from ascendboot.transport.api import HostSide


def way_in(node: Node, host: HostSide) -> Inside:
    """What reaches into the container of a node that has one.

    Raises:
        NodeError: nothing does.
    """
    answer = ask(host, dict(container_question(node)))["container"]
    way = way_into(node, answer)
    if way is None:
        found = next(iter(obstacles(node, answer)))
        raise CommandError(node.name, f"{found.text}; {found.remedy}")
    return way
