"""Setup of nodes whose containers it creates: what is done before all else, and what stops it."""

from __future__ import annotations

from functools import partial

from ascendboot.facts.container import Premises
from ascendboot.facts.parsers.system import Container, Engines, Labels
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Creation
from ascendboot.model.report import Outcome, Report
from ascendboot.transport.api import Command
from ascendboot.value import replace
from tests.engine.simulated import SimulatedNode, Simulation, network
from tests.fake_transport import Answer, framed

DOCKER = "/usr/bin/docker"
PLACES = (
    *(f"/dev/davinci{n}" for n in range(8)),
    *("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
)


def creating() -> Simulation:
    """Two nodes without containers, which setup creates."""
    cluster = Simulation.with_containers(2)
    premises = Answered(Premises({DOCKER: True}, PLACES))
    for number, node in enumerate(cluster.nodes, 1):
        cluster.change(f"lab-{number}", container=Answered(Engines()), premises=premises)
        node.rule = node.work.rule = partial(engine, cluster, node)
    described(cluster, shm="1 GiB")
    return cluster


def described(cluster: Simulation, shm: str) -> None:
    made = Creation(image="x:1", shm=shm)
    nodes = tuple(replace(node, creation=made) for node in cluster.cluster.nodes)
    cluster.cluster = replace(cluster.cluster, nodes=nodes)


def engine(cluster: Simulation, node: SimulatedNode, command: Command) -> Answer | str | None:
    """The answers of an engine; what it creates is a fact from then on."""
    name, lines = f"lab-{node.number}", command.stdin.decode().splitlines()
    if command.purpose == "look for the container rec-sdk":
        seen = cluster.facts[name].container
        assert isinstance(seen, Answered)
        found = seen.value.container
        if found is None or found.labels is None:
            absent = (1, b"no such container")
            return Answer(framed({"docker/names": "", "docker": DOCKER, "docker/inspect": absent}))
        labels = (found.labels.cluster, found.labels.digest, found.labels.description)
        text = "\n".join((f"{found.id} running x:1", *labels))
        return Answer(framed({"docker": DOCKER, "docker/inspect": text, "docker/bash": ""}))
    if command.purpose == "look for users of NPUs":
        return "end\n"
    if command.purpose.endswith("create the container rec-sdk"):
        noted = Labels(*(line.partition("=")[2] for line in lines[:3]))
        made = Container(engine=DOCKER, id="b" * 64, status="running", labels=noted)
        cluster.change(name, container=Answered(Engines(container=made)))
        return ""
    return network(command)


def outcomes(report: Report, outcome: Outcome) -> list[tuple[str, str, str]]:
    return [(r.node, r.step, r.detail) for r in report.results if r.outcome is outcome]


def test_a_plan_shows_the_containers_and_enters_none() -> None:
    cluster = creating()
    report = cluster.walk(planning=True)
    changes = outcomes(report, Outcome.WOULD_CHANGE)
    assert changes[0] == (
        *("lab-1", "container"),
        "there is no container rec-sdk: it would be created",
    )
    assert changes[2:] == [
        (f"lab-{n}", "files", "not known before the containers run") for n in (1, 2)
    ]
    assert [len(node.work.transport.executions) for node in cluster.nodes] == [0, 0]
    assert [len(node.transport.executions) for node in cluster.nodes] == [1, 1]


def test_they_are_created_first_and_a_second_setup_changes_nothing() -> None:
    cluster = creating()
    first = cluster.walk()
    assert first.exit_code == 0, first
    titles = ["Create the containers", "Query every node", "Check the answers"]
    assert cluster.shown[3:6] == titles
    assert outcomes(first, Outcome.CHANGED)[:2] == [
        (f"lab-{n}", "container", "there is no container rec-sdk: created") for n in (1, 2)
    ]
    second = cluster.walk()
    assert outcomes(second, Outcome.CHANGED) == []
    # As without an image: the host: queries and network; the container: queries, and the logins.
    assert [len(node.transport.executions) for node in cluster.nodes] == [2, 2]
    assert [len(node.work.transport.executions) for node in cluster.nodes] == [2, 1]


def test_only_a_changed_description_recreates_them() -> None:
    cluster = creating()
    cluster.walk()
    described(cluster, shm="2 GiB")
    plan = cluster.walk(planning=True)
    change = next(r for r in plan.results if r.outcome is Outcome.WOULD_CHANGE)
    assert change.detail.startswith("the container rec-sdk differs in shm: it would be re-created")
    assert change.diff.splitlines()[-2:] == ['- "shm": "1 GiB",', '+ "shm": "2 GiB",']
    checked = cluster.check()
    assert {r.cause.id for r in checked.results if r.cause} == {"not-as-setup-wishes"}
    assert {step for _, step, _ in outcomes(cluster.walk(), Outcome.CHANGED)} == {"container"}


def test_what_cannot_be_created_stops_setup_before_anything_is_written() -> None:
    cluster = creating()
    failure = Answer(stderr="Error: no space left on device", exit_code=125)
    cluster.nodes[1].broken["create the container"] = failure
    report = cluster.walk()
    assert [detail for _, _, detail in outcomes(report, Outcome.FAILED)] == [
        (
            "lab-2: could not create the container rec-sdk: exited 125: Error: no space left on "
            "device; fix that and run setup again"
        ),
    ]
    assert [dict(node.work.transport.files) for node in cluster.nodes] == [{}, {}]
