"""By which library the ranks of a preflight meet, and the plan of a preflight."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from ascendboot.checks.collective.run import chosen_way, lacks, no_library, preflight_plan
from ascendboot.launch.plan import LaunchRequest
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport
from tests.unit.launch.request import BASE, REQUEST, TORCHRUN

NONE: frozenset[str] = frozenset()
MPI, GLOO = frozenset({"mpi"}), frozenset({"gloo"})
MPI4PY = "mpi4py for python3. It needs mpi4py, built with the Open MPI of mpirun"


@pytest.mark.parametrize(
    ("request_", "lacking", "way"),
    [
        (REQUEST, {"a-1": NONE, "a-2": NONE}, "mpi"),
        (REQUEST, {"a-1": NONE, "a-2": MPI}, "mpi"),
        (REQUEST, {"a-1": MPI, "a-2": MPI}, "gloo"),
        (REQUEST, {"a-1": MPI, "a-2": MPI | GLOO}, "gloo"),
        (REQUEST, {"a-1": MPI | GLOO, "a-2": MPI | GLOO}, "mpi"),
        (REQUEST, {"a-1": MPI}, "gloo"),
        (REQUEST, {}, "mpi"),
        (TORCHRUN, {"a-1": GLOO, "a-2": GLOO}, "gloo"),
    ],
)
def test_the_first_way_that_any_node_has(
    request_: LaunchRequest, lacking: Mapping[str, Collection[str]], way: str
) -> None:
    assert chosen_way(request_, lacking) == way


def answering(node: str, answer: Answer) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: answer])


LACKS = Answer("a notice of sitecustomize\nlacks mpi4py\n")


def test_the_libraries_that_each_node_lacks_are_read_between_other_lines() -> None:
    no_python = Answer(stderr="exec: python3: not found", exit_code=127)
    answers = {"a-1": LACKS, "a-2": Answer(""), "a-3": no_python}
    nodes = {name: answering(name, answer) for name, answer in answers.items()}
    assert lacks(REQUEST, nodes, forks=4) == {"a-1": MPI, "a-2": NONE}
    assert lacks(TORCHRUN, nodes, forks=4) == {"a-1": NONE, "a-2": NONE}


@pytest.mark.parametrize(
    ("way", "lacking", "words"),
    [
        ("gloo", {"a-1": GLOO, "a-2": GLOO}, "torch for python3. It needs torch with gloo"),
        ("mpi", {"a-1": MPI | GLOO, "a-2": MPI | GLOO}, f"{MPI4PY} (or torch, for gloo)"),
        ("mpi", {"a-1": MPI | GLOO, "a-2": MPI, "a-3": NONE}, MPI4PY),
        ("mpi", {"a-1": NONE, "a-2": GLOO}, ""),
    ],
)
def test_nodes_without_the_library_are_named(
    way: str, lacking: Mapping[str, Collection[str]], words: str
) -> None:
    found = no_library(way, "python3", lacking)
    message = (
        f"a-[1-2]: the preflight could not be run: no module {words}; install it there, or state "
        "another code.python."
    )
    assert (found and found.message) == (message if words else None)


TABLE = BASE / "resources/hccl_json_4p_2_host.json"
CHIEF = {"CM_CHIEF_IP": "192.0.2.11", "CM_CHIEF_PORT": "60001"}


@pytest.mark.parametrize(
    ("request_", "by", "meeting_point"),
    [
        (REQUEST, "mpi", ""),
        (replace(REQUEST, meeting=TORCHRUN.meeting), "gloo", ""),
        (replace(REQUEST, rank_table=None, meeting=TORCHRUN.meeting), "mpi", "192.0.2.11/61000"),
        (replace(REQUEST, rank_table=None, chief=CHIEF), "mpi", "192.0.2.11/60001"),
        (TORCHRUN, "gloo", "192.0.2.11/61000"),
        (replace(TORCHRUN, rank_table=TABLE), "gloo", "192.0.2.11/61000"),
    ],
)
def test_the_port_that_must_be_free(request_: LaunchRequest, by: str, meeting_point: str) -> None:
    made = preflight_plan(replace(request_, notes=("checks not made: disk",)), by)
    assert (made.request.meeting_point, made.notes) == (meeting_point, ())
