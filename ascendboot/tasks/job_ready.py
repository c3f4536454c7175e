"""Whether the nodes are ready for what `train` was asked; loaded while it connects to them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ascendboot.ready import look
from ascendboot.tasks.sending import wanted_sending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ascendboot.applied import Applied
    from ascendboot.ready import Readiness
    from ascendboot.tasks.session import Session
    from ascendboot.transport.api import Transport


def found_ready(
    session: Session,
    applied: Applied,
    transports: Mapping[str, Transport],
    script: str,
    meanwhile: Callable[[], object],
) -> Readiness:
    """How all nodes are found; `meanwhile` is called while they look."""
    return look(
        session.cluster,
        applied,
        transports,
        script,
        hosts=session.hosts,
        forks=session.forks,
        sending=wanted_sending(session.cluster, threading.Event()),
        meanwhile=meanwhile,
    )
