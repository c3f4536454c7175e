"""By which library the ranks of a preflight meet, by what the nodes lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.preflight.library import chosen_way, lacks, no_library
from ascendboot.transport.fake import Answer, FakeTransport
from tests.unit.launch.wanted import REQUEST, TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ascendboot.launch.request import LaunchRequest

NONE: frozenset[str] = frozenset()
MPI, GLOO = frozenset({"mpi"}), frozenset({"gloo"})


@pytest.mark.parametrize(
    ("request_", "lacking", "way"),
    [
        (REQUEST, {"a-1": NONE, "a-2": NONE}, "mpi"),
        (REQUEST, {"a-1": NONE, "a-2": MPI}, "mpi"),
        (REQUEST, {"a-1": MPI, "a-2": MPI}, "gloo"),
        (REQUEST, {"a-1": MPI, "a-2": MPI | GLOO}, "gloo"),
        (REQUEST, {"a-1": MPI | GLOO, "a-2": MPI | GLOO}, "mpi"),
        (TORCHRUN, {"a-1": GLOO, "a-2": GLOO}, "gloo"),
    ],
)
def test_the_first_way_that_any_node_has(
    request_: LaunchRequest, lacking: Mapping[str, Collection[str]], way: str
) -> None:
    assert chosen_way(request_, lacking) == way


def saying(node: str, answer: Answer) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: answer])


def test_what_each_node_lacks_is_read_past_what_else_python_says() -> None:
    said = {"a-1": Answer("a notice of sitecustomize\nlacks mpi4py\n"), "a-2": Answer("")}
    nodes = {name: saying(name, answer) for name, answer in said.items()}
    assert lacks(REQUEST, nodes) == {"a-1": MPI, "a-2": NONE}
    assert lacks(TORCHRUN, nodes) == {"a-1": NONE, "a-2": NONE}


def test_of_a_node_without_that_python_nothing_is_known_to_be_missing() -> None:
    answer = Answer(stderr="exec: python3: not found", exit_code=127)
    nodes = {name: saying(name, answer) for name in ("a-1", "a-2")}
    assert lacks(REQUEST, nodes) == {"a-1": NONE, "a-2": NONE}


def test_who_lacks_it_is_named_with_what_to_do() -> None:
    assert no_library("gloo", "python3", ["a-1", "a-2"]).message == (
        "a-[1-2]: the preflight could not be run: no module torch for python3. It needs torch with "
        "gloo; install it there, or state another code.python."
    )
