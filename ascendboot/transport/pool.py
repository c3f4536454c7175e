"""The same for many nodes at once, with a bound; one node's failure is never another's."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ascendboot.errors import AscendbootError, NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.api import HostSide

_LOG = logging.getLogger(__name__)

FORKS = 32

R = TypeVar("R")


def nothing() -> None:
    """Do nothing while the nodes work."""


def connect_all(
    nodes: Sequence[Node],
    opener: Callable[[Node], HostSide],
    *,
    forks: int = FORKS,
    meanwhile: Callable[[], object] = nothing,
) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
    """A transport for every node that can be reached, and why the others cannot.

    Both are in the order of `nodes`. `meanwhile` as in `for_each`.
    """
    answers = for_each(nodes, opener, forks=forks, meanwhile=meanwhile)
    errors = {name: a for name, a in answers.items() if isinstance(a, NodeError)}
    opened = {name: a for name, a in answers.items() if not isinstance(a, NodeError)}
    return opened, errors


def for_each(
    nodes: Sequence[Node],
    work: Callable[[Node], R],
    *,
    forks: int = FORKS,
    meanwhile: Callable[[], object] = nothing,
) -> Mapping[str, R | NodeError]:
    """What `work` gives for each node, or the error that it ended with, in the order of `nodes`.

    At most `forks` run at once. `meanwhile` is called once while they do: what takes time on this
    side, such as to import what comes next, takes none of it then.

    A KeyboardInterrupt is passed on at once: what has not begun never will, and what runs ends
    with the connections, which whoever opened them closes.
    """
    pool = ThreadPoolExecutor(max(1, min(forks, len(nodes))), "node")
    futures = [pool.submit(_guarded, node, work) for node in nodes]
    try:
        meanwhile()
        return {node.name: f.result() for node, f in zip(nodes, futures, strict=True)}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _guarded(node: Node, work: Callable[[Node], R]) -> R | NodeError:
    try:
        return work(node)
    except NodeError as error:
        return error
    except AscendbootError as error:
        return NodeError(node.name, str(error))
    except Exception as error:  # noqa: BLE001  # a bug on one node may not cost the others' results
        _LOG.exception("%s: unexpected", node.name)
        return NodeError(
            node.name,
            f"unexpected {type(error).__name__}: {error}; this is a bug in ascendboot, "
            "the run's log has the traceback",
        )
