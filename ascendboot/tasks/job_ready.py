"""Whether the nodes are ready for what `train` was asked; loaded while it connects to them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ascendboot.before.here import file_system
from ascendboot.ready import look
from ascendboot.tasks.sending import wanted_sending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.applied import Applied
    from ascendboot.ready import Readiness
    from ascendboot.tasks.session import Session
    from ascendboot.tasks.train import Order
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
        sending=wanted_sending(session.cluster, threading.Event()),
        meanwhile=meanwhile,
        skipped=order.rules.skipped,
        here=file_system(session.run.folder),
    )
