"""Looks for the newest checkpoint on the nodes of a job, and reports what is odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.query import Unanswered, query
from ascendboot.model.cluster import CheckpointRules
from ascendboot.supervise.checkpoints import Checkpoint, Listing, checkpoint_query, newest
from ascendboot.transport.api import Transport
from ascendboot.transport.pool import on_each
from ascendboot.value import Struct, field


class CheckpointSearch(Struct, kw_only=True, eq=False):
    """The checkpoints of one job, by the rules of its inventory."""

    rules: CheckpointRules
    sides: Mapping[str, Transport]
    """Where the ranks of each node run; nodes come and go."""
    forks: int
    say: Callable[[str], None]
    """Prints a note that was not printed before."""
    _listings: dict[str, Listing] = field(default_factory=dict)
    """What each node last had in its folder of checkpoints."""

    def newest(self, nodes: Sequence[str]) -> Checkpoint | None:
        """Query the nodes; return the newest complete checkpoint that all of them can load."""
        answers = on_each(nodes, self._listing, forks=self.forks)
        for node, answer in answers.items():
            if not isinstance(answer, NodeError):
                self._listings[node] = answer
                continue
            self._listings.pop(node, None)
            if not isinstance(answer, UnreachableError):  # its loss is reported elsewhere
                self.say(f"{answer}; its checkpoints are not known")
        lost = [node for node in self._listings if node not in nodes]
        found = newest(self._listings, self.rules, needed=nodes, lost=lost)
        for note in found.notes:
            self.say(note)
        return found.checkpoint

    def _listing(self, node: str) -> Listing:
        fact = checkpoint_query(self.rules)
        answer = query(self.sides[node], {"checkpoints": fact})["checkpoints"]
        if isinstance(answer, Unanswered):
            raise NodeError(node, answer.message)
        found: Listing = answer.value
        return found
