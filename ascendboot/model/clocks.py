"""NodeClocks: how the clocks of nodes stand against the operator's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class NodeClocks:
    """By how much each node's clock is ahead; one that is not named goes as the operator's."""

    offsets: Mapping[str, float] = field(default_factory=dict)
    """In seconds; below 0 where it is behind."""
    uncertainty_s: float = 0.0
    """By how much each of them may be wrong."""

    def here(self, node: str, at: float) -> float:
        """What the operator's clock shows when that of a node shows `at`."""
        return at - self.offsets.get(node, 0.0)

    def there(self, node: str, at: float) -> float:
        """What a node's clock shows when the operator's shows `at`."""
        return at + self.offsets.get(node, 0.0)
