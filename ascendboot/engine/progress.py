"""How far a walk over the nodes is: what came of each phase, told as it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ascendboot.model.report import Outcome, Report
from ascendboot.model.secrets import masked
from ascendboot.transport.pool import FORKS, for_each

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Container, Sequence

    from ascendboot.errors import NodeError
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.report import StepResult

T = TypeVar("T")


class Listener(Protocol):
    """Hears of every phase."""

    def phase_begins(self, title: str) -> None:
        """This is what is going on now."""
        ...

    def phase_done(self, title: str, results: Sequence[StepResult]) -> None:
        """All results of one phase, in inventory order."""
        ...


class Stopped(Exception):  # noqa: N818 - not an error: it ends the walk early
    """The walk ends here; the results so far say why."""


@dataclass
class Progress:
    """One walk over the nodes; its results grow as it goes."""

    cluster: Cluster
    listener: Listener
    interrupted: threading.Event
    forks: int = FORKS
    results: list[StepResult] = field(default_factory=list)

    def begin(self, title: str) -> None:
        """Tell that a phase begins.

        Raises:
            Stopped: the operator interrupted.
        """
        if self.interrupted.is_set():
            raise Stopped
        self.listener.phase_begins(title)

    def end(self, title: str, results: Sequence[StepResult]) -> None:
        """Keep the results of a phase, and show them, without the cluster's secrets."""
        secrets = self.cluster.secrets
        if secrets:
            results = [
                replace(r, detail=masked(r.detail, secrets), diff=masked(r.diff, secrets))
                for r in results
            ]
        self.results.extend(results)
        self.listener.phase_done(title, results)

    def for_each(
        self, names: Container[str], work: Callable[[Node], T]
    ) -> dict[str, T | NodeError]:
        """What `work` gives for each node of these names, in inventory order.

        The primary is begun first: others are asked while or after it gets the lock.
        """
        nodes = [node for node in self.cluster.rank_order if node.name in names]
        done = for_each(nodes, work, forks=self.forks)
        return {node.name: done[node.name] for node in self.cluster.nodes if node.name in done}

    def stop_if_bad(self) -> None:
        """Go on only where nothing has gone wrong so far.

        Raises:
            Stopped: something has; the results say what.
        """
        bad = {Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE}
        if any(result.outcome in bad for result in self.results):
            raise Stopped

    def report(self, run_id: str) -> Report:
        """Everything that happened."""
        return Report(
            run_id=run_id,
            cluster=self.cluster.name,
            results=tuple(self.results),
            interrupted=self.interrupted.is_set(),
        )
