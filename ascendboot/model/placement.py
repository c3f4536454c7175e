"""Which rank runs on which device of which node."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.model.cluster import Node


@dataclass(frozen=True)
class Slot:
    """A device of a node where one rank can run."""

    node: Node
    device_id: int
    device_ip: str | None
    local_rank: int


@dataclass(frozen=True)
class Placement:
    """The slots of a job in rank order: a slot's rank is its index."""

    slots: tuple[Slot, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.slots)

    @property
    def primary(self) -> Node:
        """The node of rank 0."""
        return self.slots[0].node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that hold ranks, in rank order."""
        return tuple({slot.node.name: slot.node for slot in self.slots}.values())

    def on(self, node: Node) -> tuple[Slot, ...]:
        """The slots of one node, by local rank."""
        return tuple(self.slots[rank] for rank in self.ranks_on(node))

    def ranks_on(self, node: Node) -> tuple[int, ...]:
        """The ranks of one node, ascending."""
        return self._ranks.get(node.name, ())

    @cached_property
    def _ranks(self) -> dict[str, tuple[int, ...]]:
        ranks: dict[str, list[int]] = {}
        for rank, slot in enumerate(self.slots):
            ranks.setdefault(slot.node.name, []).append(rank)
        return {name: tuple(of_node) for name, of_node in ranks.items()}
