"""The same for many nodes at once, with a bound; one node's failure is never another's."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ascendboot.errors import AscendbootError, NodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.api import HostSide

_LOG = logging.getLogger(__name__)

FORKS = 32

_HEED_S = 0.2
"""How long a Ctrl-C may go unnoticed: one that comes as Python begins to wait does not wake it."""

R = TypeVar("R")


def nothing() -> None:
    """Do nothing while the nodes work."""


def connect_all(
    nodes: Sequence[Node],
    opener: Callable[[Node], HostSide],
    *,
    forks: int,
    meanwhile: Callable[[], object] = nothing,
) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
    """A transport for every node that can be reached, and why the others cannot.

    Both are in the order of `nodes`. `meanwhile` as in `on_each`.
    """
    answers = for_each(nodes, opener, forks=forks, meanwhile=meanwhile)
    errors = {name: a for name, a in answers.items() if isinstance(a, NodeError)}
    opened = {name: a for name, a in answers.items() if not isinstance(a, NodeError)}
    return opened, errors


def for_each(
    nodes: Sequence[Node],
    work: Callable[[Node], R],
    *,
    forks: int,
    meanwhile: Callable[[], object] = nothing,
) -> Mapping[str, R | NodeError]:
    """As `on_each`, for those who work with nodes as the inventory has them."""
    by_name = {node.name: node for node in nodes}
    return on_each(by_name, lambda name: work(by_name[name]), forks=forks, meanwhile=meanwhile)


def on_each(
    names: Iterable[str],
    work: Callable[[str], R],
    *,
    forks: int,
    meanwhile: Callable[[], object] = nothing,
) -> dict[str, R | NodeError]:
    """What `work` gives for each node, or the error that it ended with, in the order of `names`.

    At most `forks` run at once. `meanwhile` is called once while they do: what takes time on this
    side, such as to import what comes next, takes none of it then.

    A KeyboardInterrupt is passed on at once: what has not begun never will, and what runs, be it a
    connection that nobody answers, is waited for by nobody, not even when the program ends.
    """
    answers: dict[str, Future[R | NodeError]] = {name: Future() for name in names}
    waiting = deque(answers.items())

    def work_off() -> None:
        with suppress(IndexError):  # nothing is waiting any more
            while True:
                name, answer = waiting.popleft()
                _work_on(name, work, answer, waiting.clear)

    # Of an executor's threads Python waits for each before it ends.
    for number in range(min(forks, len(answers))):
        threading.Thread(target=work_off, name=f"node_{number}", daemon=True).start()
    try:
        meanwhile()
        return {name: _when_done(answer) for name, answer in answers.items()}
    finally:
        waiting.clear()


def _when_done(answer: Future[R]) -> R:
    while not answer.done():
        wait([answer], _HEED_S)
    return answer.result()


def _work_on(
    name: str, work: Callable[[str], R], answer: Future[R | NodeError], stop: Callable[[], None]
) -> None:
    try:
        answer.set_result(_guarded(name, work))
    except BaseException as error:  # noqa: BLE001  # it is the end, and whoever waits raises it
        stop()
        answer.set_exception(error)


def _guarded(name: str, work: Callable[[str], R]) -> R | NodeError:
    try:
        return work(name)
    except NodeError as error:
        return error
    except AscendbootError as error:
        return NodeError(name, str(error))
    except Exception as error:  # noqa: BLE001  # a bug on one node may not cost the others' results
        _LOG.exception("%s: unexpected", name)
        return NodeError(
            name,
            f"unexpected {type(error).__name__}: {error}; this is a bug in ascendboot, "
            "the run's log has the traceback",
        )
