"""Whether the nodes are ready for what `train` was asked; loaded while it connects to them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ascendboot.before.here import file_system
from ascendboot.ready import look

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.applied import Applied
    from ascendboot.code.send import Sending
    from ascendboot.model.cluster import Cluster
    from ascendboot.ready import Readiness
    from ascendboot.tasks.order import Order
    from ascendboot.tasks.session import Session
    from ascendboot.transport.api import Transport


def found_ready(
    session: Session,
    applied: Applied,
    transports: Mapping[str, Transport],
    order: Order,
    meanwhile: Callable[[], object],
) -> Readiness:
    """How all nodes are found; `meanwhile` is called while they look."""
    return look(
        session.cluster,
        applied,
        transports,
        order.script,
        hosts=session.hosts,
        forks=session.forks,
        sending=_sending(session.cluster),
        meanwhile=meanwhile,
        skipped=order.rules.skipped,
        here=file_system(session.run.folder),
    )


def _sending(cluster: Cluster) -> Sending | None:
    """The code that the nodes should have from this side; few inventories state any."""
    if cluster.code_source is None:
        return None
    from ascendboot.tasks.sending import wanted_sending  # noqa: PLC0415 - only in that case

    return wanted_sending(cluster, threading.Event())
