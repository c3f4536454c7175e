"""How little may be free on a node's disk."""

from __future__ import annotations

from typing import Final

LEAST_FREE_BYTES: Final = 100 * 1000**2
"""With less, a job may not even be able to say why it ended."""
LEAST_FREE_INODES: Final = 1000
