"""What `setup` and `check` share: the survey of a session's nodes, shown as it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.authority import Keys
from ascendboot.engine.progress import Progress
from ascendboot.engine.survey import Survey
from ascendboot.laid_out import installed_templates
from ascendboot.render import Templates

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from ascendboot.code.send import Sending
    from ascendboot.console import Screen
    from ascendboot.model.certificate import Authority
    from ascendboot.model.report import StepResult
    from ascendboot.steps.lock import Locks
    from ascendboot.tasks.session import Session


@dataclass(frozen=True)
class OnScreen:
    """Shows each phase as it ends."""

    screen: Screen

    def phase_begins(self, title: str) -> None:
        """Tell a person what is going on."""
        self.screen.working(title)

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """Print the phase, folded."""
        self.screen.phase(title, results)


def survey_of(
    session: Session,
    screen: Screen,
    interrupted: threading.Event,
    *,
    authority: Authority | None,
    sending: Sending | None,
    locks: Locks | None = None,
) -> Survey:
    """How all nodes of a session's cluster are looked at; without locks nothing may be written."""
    return Survey(
        progress=Progress(session.cluster, OnScreen(screen), interrupted, session.forks),
        templates=Templates(installed_templates()),
        former=session.former,
        authority=authority,
        sending=sending,
        locks=locks,
    )


def keys_of(session: Session) -> Keys | None:
    """Where the keys of the cluster's authority lie, made or not; None where trust needs none."""
    cluster = session.cluster
    if cluster.trust != "ca":
        return None
    return Keys(session.state.authority(cluster.name), cluster.name)
