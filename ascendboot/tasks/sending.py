"""What the verbs share about code that is sent: the wish, as the inventory states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.code.send import Sending
from ascendboot.code.source import read_source
from ascendboot.errors import UsageError

if TYPE_CHECKING:
    import threading

    from ascendboot.model.cluster import Cluster


def wanted_sending(
    cluster: Cluster, interrupted: threading.Event, *, deletes: bool = False
) -> Sending | None:
    """The code that setup sends to the nodes, as far as it is known; None where it sends none.

    Raises:
        InventoryError: it cannot be read or sent.
        UsageError: something is to be deleted although nothing is sent.
    """
    source = read_source(cluster)
    if source is None and deletes:
        raise UsageError(
            f"--delete-code: {cluster.source} states no code.source, so there is nothing that the "
            "nodes could be made equal to; state one"
        )
    return Sending(cluster, source, deletes, interrupted) if source else None
