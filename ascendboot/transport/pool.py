"""Works on many nodes in parallel; an error on one node does not affect the others."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TypeVar

from ascendboot.errors import AscendbootError, NodeError
from ascendboot.model.cluster import Node

_LOG = logging.getLogger(__name__)

FORKS = 32

_INTERRUPT_POLL_S = 0.2
"""A Ctrl-C that arrives just before Python starts to wait does not end the wait."""

R = TypeVar("R")
N = TypeVar("N", str, Node)
Watch = Callable[[str], None]
"""Gets words such as `12/16 nodes, slowest atlas-07` while nodes work, from the calling thread."""


def results_and_errors(
    nodes: Iterable[N], work: Callable[[N], R], *, forks: int, watch: Watch | None = None
) -> tuple[dict[str, R], dict[str, NodeError]]:
    """Return the results of `on_each`, and the errors of the other nodes."""
    answers = on_each(nodes, work, forks=forks, watch=watch)
    errors = {name: a for name, a in answers.items() if isinstance(a, NodeError)}
    return {name: a for name, a in answers.items() if not isinstance(a, NodeError)}, errors


def on_each(
    nodes: Iterable[N], work: Callable[[N], R], *, forks: int, watch: Watch | None = None
) -> dict[str, R | NodeError]:
    """Return the result or the error of `work` for each node, by name, in the order of `nodes`.

    At most `forks` run in parallel. A KeyboardInterrupt is raised at once: waiting nodes are not
    started, and nothing waits for the running ones, not even the end of the program.
    """
    waiting = deque((node, Future[R | NodeError]()) for node in nodes)
    answers = {_name(node): answer for node, answer in waiting}

    def run_worker() -> None:
        while waiting:
            try:
                node, answer = waiting.popleft()
            except IndexError:  # another worker took the last one
                return
            try:
                answer.set_result(_guarded(node, work))
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                waiting.clear()
                answer.set_exception(error)

    try:
        # No executor: Python waits for its threads at exit.
        for number in range(min(forks, len(answers))):
            threading.Thread(target=run_worker, name=f"node_{number}", daemon=True).start()
        for name, answer in answers.items():
            while not answer.done():
                wait([answer], _INTERRUPT_POLL_S)
                if watch is not None and not answer.done():
                    done = sum(each.done() for each in answers.values())
                    watch(f"{done}/{len(answers)} nodes, slowest {name}")
            answer.result()
    finally:
        waiting.clear()
    return {name: answer.result() for name, answer in answers.items()}


def _name(node: str | Node) -> str:
    return node if isinstance(node, str) else node.name


def _guarded(node: N, work: Callable[[N], R]) -> R | NodeError:
    try:
        return work(node)
    except NodeError as error:
        return error
    except AscendbootError as error:
        return NodeError(_name(node), str(error))
    except Exception as error:  # noqa: BLE001  # a bug on one node must not cost the others' results
        _LOG.exception("%s: unexpected", _name(node))
        bug = "this is a bug in ascendboot, the run's log has the traceback"
        return NodeError(_name(node), f"unexpected {type(error).__name__}: {error}; {bug}")
