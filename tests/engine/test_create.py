"""Setup of nodes whose containers it creates: what is done before all else, and what stops it."""

from __future__ import annotations

from functools import partial

from ascendboot.facts.parsers.system import Engines
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Creation
from ascendboot.model.report import Outcome
from ascendboot.transport.api import Command
from ascendboot.value import replace
from tests.engine.simulated import SimulatedNode, Simulation, network, rows, running
from tests.fake_transport import Answer

DOCKER = "/usr/bin/docker"
ABSENT = Answered(Engines(paths=(DOCKER,)))


def creating() -> Simulation:
    """Two nodes without containers, which setup creates."""
    cluster = Simulation.with_containers(2)
    for number, node in enumerate(cluster.nodes, 1):
        cluster.change(f"lab-{number}", container=ABSENT)
        node.rule = node.work.rule = partial(engine, cluster, node)
    described(cluster, shm="1 GiB")
    return cluster


def described(cluster: Simulation, shm: str) -> None:
    made = Creation(image="x:1", shm=shm)
    nodes = tuple(replace(node, creation=made) for node in cluster.cluster.nodes)
    cluster.cluster = replace(cluster.cluster, nodes=nodes)


def engine(cluster: Simulation, node: SimulatedNode, command: Command) -> Answer | str | None:
    """The answers of an engine; what it creates is a fact from then on."""
    if command.purpose.endswith("create the container rec-sdk"):
        lines = command.stdin.decode().splitlines()
        name, description = (line.partition("=")[2] for line in lines[:2])
        made = running(id="b" * 64, cluster=name, description=description)
        cluster.change(f"lab-{node.number}", container=made)
        return ""
    return network(command)


def test_a_plan_shows_the_containers_and_enters_none() -> None:
    cluster = creating()
    report = cluster.walk(planning=True)
    changes = rows(report, Outcome.WOULD_CHANGE)
    text = "there is no container rec-sdk: it would be created; files in it are not compared before"
    assert changes == [(f"lab-{n}", "container", text) for n in (1, 2)]
    assert report.exit_code == 0
    assert [len(node.work.transport.executions) for node in cluster.nodes] == [0, 0]
    assert [len(node.transport.executions) for node in cluster.nodes] == [1, 1]


def test_they_are_created_first_and_a_second_setup_changes_nothing() -> None:
    cluster = creating()
    first = cluster.walk()
    assert first.exit_code == 0, first
    titles = ["Create the containers", "Query every node", "Check the answers"]
    assert cluster.shown[2:5] == titles
    assert rows(first, Outcome.CHANGED)[:2] == [
        (f"lab-{n}", "container", "there is no container rec-sdk: created") for n in (1, 2)
    ]
    second = cluster.walk()
    assert rows(second, Outcome.CHANGED) == []
    # As without an image: the host: queries and network; the container: queries, and the logins.
    assert [len(node.transport.executions) for node in cluster.nodes] == [2, 2]
    assert [len(node.work.transport.executions) for node in cluster.nodes] == [2, 1]


def test_nothing_is_created_while_something_blocks_setup() -> None:
    cluster = creating()
    theirs = running(cluster="other")
    cluster.change("lab-2", container=theirs)
    report = cluster.walk()
    assert [step for _, step, _ in rows(report, Outcome.BLOCKED)] == ["container-not-ours"]
    assert cluster.shown == ["Reach the nodes", "Query every node", "Check the answers"]
    assert [len(node.work.transport.executions) for node in cluster.nodes] == [0, 0]
    assert cluster.facts["lab-1"].container == ABSENT


def test_only_a_changed_description_recreates_them() -> None:
    cluster = creating()
    cluster.walk()
    described(cluster, shm="2 GiB")
    plan = cluster.walk(planning=True)
    change = next(r for r in plan.results if r.outcome is Outcome.WOULD_CHANGE)
    assert change.detail.startswith("the container rec-sdk differs in shm: it would be re-created")
    checked = cluster.check()
    assert {r.cause.id for r in checked.results if r.cause} == {"not-as-setup-wishes"}
    assert {step for _, step, _ in rows(cluster.walk(), Outcome.CHANGED)} == {"container"}
