"""Minding that a job does not stand still, from what its nodes say of their ranks."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ascendboot.launch.hang import Detector, Standstill
from ascendboot.model.spans import span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ascendboot.launch.plan import LaunchPlan
    from ascendboot.launch.usage import NodeSample
    from ascendboot.transport.api import Transport

_SAMPLES: Final = 10
"""In the time after which a job counts as hanging."""
_MOST_SELDOM_S: Final = 60


@dataclass(frozen=True, kw_only=True)
class HangRules:
    """What is done about a job that stands still."""

    timeout_s: float = 0.0
    """Without output and work for so long it hangs; 0: nobody looks."""
    stops: bool = False
    """It is stopped then; otherwise it is only told."""
    tell: Callable[[str], None] = lambda _words: None
    """Tells the operator at once."""

    @property
    def sample_s(self) -> int:
        """How often the nodes say what their ranks use; 0: never."""
        if not self.timeout_s:
            return 0
        return max(1, min(_MOST_SELDOM_S, int(self.timeout_s / _SAMPLES)))

    def beat_s(self, usual_s: float) -> float:
        """How often a follower gives a sign of life, so that it can say so."""
        return min(usual_s, self.sample_s) if self.sample_s else usual_s


@dataclass(frozen=True)
class Standing:
    """A job was found to stand still, and where its ranks are."""

    words: str
    is_hang: bool


class Watch:
    """Takes samples from the threads that read them; looks where ranks wait in one of its own."""

    def __init__(
        self,
        rules: HangRules,
        plan: LaunchPlan,
        transports: Mapping[str, Transport],
        folder: Path,
        on_found: Callable[[Standing], None],
        *,
        forks: int,
    ) -> None:
        self._plan = plan
        self._transports = transports
        self._folder = folder
        self._on_found = on_found
        self._forks = forks
        self._lock = threading.Lock()
        self._detector = Detector(plan.nodes, rules.timeout_s)

    def take(self, node: str, sample: NodeSample) -> None:
        """What a node says of its ranks."""
        with self._lock:
            found = self._detector.take(node, sample)
        if found is not None:
            threading.Thread(target=self._look, args=(found,), name="hang", daemon=True).start()

    def forget(self, node: str) -> None:
        """The job goes on without this node."""
        with self._lock:
            self._detector.forget(node)

    def _look(self, found: Standstill) -> None:
        # A job that goes on needs nothing of this.
        from ascendboot.launch.whereabouts import look_at_ranks  # noqa: PLC0415

        plan = self._plan
        seen = look_at_ranks(
            self._transports,
            plan.job_folder,
            plan.python,
            folder=self._folder,
            why="hang",
            forks=self._forks,
        )
        words = [headline(plan.job_id, found), *(f"  {line}" for line in seen.lines)]
        if seen.file is not None:
            words.append(f"  All of it is in {seen.file}")
        self._on_found(Standing("\n".join(words), found.is_hang))


def headline(job_id: str, found: Standstill) -> str:
    """That the job stands still, and since when."""
    if found.is_hang:
        return f"job {job_id} hangs: no rank has put out or computed anything for " + (
            span(found.idle_s)
        )
    return (
        f"job {job_id}: no rank has put out anything for {span(found.silent_s)}, while ranks use "
        "their processors: they compute, or spin in a collective that does not end"
    )
