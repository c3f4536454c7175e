"""Work on many nodes: bounded, in order, and an error stays with its node."""

from __future__ import annotations

import _thread
import logging
import threading

import pytest

from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.model.cluster import Node
from ascendboot.transport.pool import on_each, results_and_errors
from tests.fake_transport import FakeTransport
from tests.unit.transport.builders import node

NODES = [node(f"n{number}") for number in range(8)]


def test_results_come_in_the_order_of_the_nodes_whatever_ends_first() -> None:
    later = threading.Event()

    def work(name: str) -> str:
        if name == "n0":
            assert later.wait(10)
        if name == "n7":
            later.set()
        return name.upper()

    names = [node.name for node in NODES]
    assert list(on_each(names, work, forks=4).items()) == [(name, name.upper()) for name in names]
    assert on_each([], work, forks=4) == {}


def test_a_wait_names_how_many_answered_and_who_is_missing() -> None:
    seen, told = list[str](), threading.Event()

    def watch(words: str) -> None:
        seen.append(words)
        told.set()

    on_each(["n0", "n1", "n2"], lambda name: name != "n1" or told.wait(10), forks=3, watch=watch)
    assert seen[0] == "2/3 nodes, slowest n1"


def test_no_more_than_the_bound_run_at_once() -> None:
    lock, running, most = threading.Lock(), 0, 0
    full = threading.Barrier(3, timeout=10)

    def work(_one: Node) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait()
        with lock:
            running -= 1

    on_each(NODES[:6], work, forks=3)
    assert most == 3


def test_every_kind_of_failure_stays_with_its_node(caplog: pytest.LogCaptureFixture) -> None:
    unreachable = UnreachableError("n1", "no answer")
    failures: dict[str, Exception] = {
        "n1": unreachable,
        "n2": NotUnderstoodError("tool", 3, "what", "this"),
        "n3": ZeroDivisionError("division by zero"),
    }

    def work(one: Node) -> str:
        if one.name in failures:
            raise failures[one.name]
        return "done"

    with caplog.at_level(logging.ERROR):
        answers = on_each(NODES[:5], work, forks=4)
    assert list(answers) == ["n0", "n1", "n2", "n3", "n4"]
    assert (answers["n0"], answers["n1"], answers["n4"]) == ("done", unreachable, "done")
    errors = [answers["n2"], answers["n3"]]
    assert [type(error) for error in errors] == [NodeError, NodeError]
    assert [str(error) for error in errors] == [
        'n2: tool: line 3 not understood: "what"; expected this',
        (
            "n3: unexpected ZeroDivisionError: division by zero; this is a bug in ascendboot, "
            "the run's log has the traceback"
        ),
    ]
    assert [record.getMessage() for record in caplog.records] == ["n3: unexpected"]
    assert "ZeroDivisionError" in caplog.text


def test_an_interrupt_starts_no_more_work_and_does_not_wait() -> None:
    begun: list[str] = []
    is_at_work, may_end = threading.Event(), threading.Event()

    def work(one: Node) -> None:
        begun.append(one.name)
        is_at_work.set()
        assert may_end.wait(10)

    def press() -> None:
        assert is_at_work.wait(10)
        _thread.interrupt_main()

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        on_each(NODES, work, forks=1)
    [worker] = [thread for thread in threading.enumerate() if thread.name.startswith("node")]
    assert worker.daemon, "the program would wait for it when it ends"
    may_end.set()
    worker.join(10)
    assert begun == ["n0"]


def test_an_interrupt_in_a_worker_ends_all() -> None:
    begun: list[str] = []

    def work(one: Node) -> None:
        begun.append(one.name)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_each(NODES, work, forks=1)
    assert begun == ["n0"]


def test_results_and_errors_are_separated() -> None:
    transports = {n.name: FakeTransport(n.name) for n in NODES}
    refused = UnreachableError("n2", "no answer")

    def opener(one: Node) -> FakeTransport:
        if one.name == "n2":
            raise refused
        return transports[one.name]

    opened, errors = results_and_errors(NODES[:4], opener, forks=2)
    assert list(opened.items()) == [(name, transports[name]) for name in ("n0", "n1", "n3")]
    assert errors == {"n2": refused}
