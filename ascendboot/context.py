"""Context: all that the wishes of a phase are made from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ascendboot.facts.api import value_of
from ascendboot.model.certificate import fingerprint
from ascendboot.resources.files import resource_files
from ascendboot.steps.api import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.decide import Decisions, Seen
    from ascendboot.model.certificate import Authority
    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.model.owner import Control, Owner
    from ascendboot.render import Templates


@dataclass(frozen=True, kw_only=True)
class Context:
    """All that wishes are made from."""

    cluster: Cluster
    decisions: Decisions
    seen: Seen
    templates: Templates
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    control: Control | None = None
    """The control folder, which nodes record; None: they record none."""
    now: float = field(default_factory=time.time)
    """The time on the operator's side, in seconds since the epoch."""

    @cached_property
    def resources(self) -> Mapping[str, str]:
        """Name and text of every file below `resources/`; made once, for all nodes."""
        return resource_files(self.decisions.placement, self.decisions.rank_table)

    @cached_property
    def owner(self) -> Owner | None:
        """What every node records of the control folder; None while its key is not made yet.

        A record of the same key stays as it is: control folders may share the key.
        """
        certified = self.cluster.trust == "ca"
        made = fingerprint(self.authority.host) if self.authority else ""
        key = made if certified else (self.control.id if self.control else "")
        if self.control is None or not key:
            return None
        there = (self.seen.serving(node.name).owner for node in self.cluster.nodes)
        return next((o for o in there if o and o.key == key), self.control.owner(key))

    def user(self, node: Node) -> str:
        """The login name that we really have on a node, on the side where our sshd runs."""
        facts = self.seen.facts[node.name]
        system = value_of(facts.host if node.name in self.seen.served else facts.system)
        return system.user if system else node.ssh.user


Wishes = Callable[[Context, "Node"], Sequence[Step]]
