"""The proof at the end of a walk: logins from the primary, and the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.network import attempts
from ascendboot.phases import NETWORK, PROVE
from ascendboot.proofs import Proofs
from ascendboot.prove import Expectation, daemon_of, rank_wrapper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.context import Context
    from ascendboot.engine.progress import Progress
    from ascendboot.transport.api import Sides


def prove(progress: Progress, context: Context, sides: Mapping[str, Sides]) -> None:
    """Log in from the primary to every node and look around there; try the network.

    Each NPU pings at least one of another node; `check` tries more.

    Raises:
        Stopped: a node is not as it should be, or the operator interrupted.
    """
    ports = dict.fromkeys(context.seen.facts, context.decisions.port)
    wanted = attempts(context.cluster, context.seen.facts, "once", ssh_ports=ports)
    proofs = Proofs(context.cluster.primary_name, _expectation(context), wanted)
    run_proofs(progress, proofs, sides)
    progress.stop_if_bad()


def run_proofs(progress: Progress, proofs: Proofs, sides: Mapping[str, Sides]) -> None:
    """All live proofs, in one execution per node that has a part.

    Raises:
        Stopped: the operator interrupted.
    """
    progress.begin(PROVE)
    parts = progress.for_each(sides, lambda node: proofs.run(node, sides[node.name]))
    # Only what went wrong is asked about, and where it did.
    broken = proofs.broken(parts) & sides.keys()
    evidence = progress.for_each(broken, lambda node: proofs.evidence(node, sides[node.name]))
    if logins := proofs.login_results(parts, evidence):
        progress.end(PROVE, logins)
    if tried := proofs.network_results(parts):
        progress.end(NETWORK, tried)


def _expectation(context: Context) -> Expectation:
    """What the proof must find on every node."""
    decided = context.decisions
    base, daemon = decided.base, daemon_of(decided.mpirun)
    return Expectation(
        cluster=context.cluster,
        base=base,
        mpirun="" if decided.launcher.torchrun else decided.mpirun,
        programs={**rank_wrapper(base), **({} if decided.launcher.torchrun else daemon)},
        files={f"resources/{name}": text for name, text in context.resources.items()},
    )
