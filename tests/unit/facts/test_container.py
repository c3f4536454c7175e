"""The query about a node's container, run by bash here with stand-ins for engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.container import PROGRAMS, container_exec, container_query, running_queries
from ascendboot.facts.parsers.system import Container, Engines, parse_inspect, parse_names
from ascendboot.facts.query import Answered, Unanswered, answer_to
from ascendboot.model.cluster import ContainerExec, Engine
from tests.fake_transport import Answer, framed
from tests.here import Here
from tests.unit.checks.well import node, value

ID = "0a1b" * 16
WARNS = "echo 'time=\"2026-01-01\" level=warning msg=no' >&2"
ABSENT = "echo 'Error: No such container: rec-sdk' >&2; exit 1"
DENIED = (
    "Got permission denied while trying to connect to the Docker daemon socket at "
    "unix:///var/run/docker.sock: connect: permission denied"
)


class Host(Here):
    """This machine, with stand-ins for engines first in its PATH."""

    def engine(self, name: str, *, inspect: str, ps: str = "", runs: str = "exit 0") -> str:
        """An engine whose subcommands are these scripts; its path."""
        cases = f"inspect) {inspect} ;;\nps) {ps} ;;\nexec) {runs} ;;"
        return self.put(name, f"case $1 in\n{cases}\nesac")

    def ask(self, engine: Engine = "auto") -> Answered[Engines] | Unanswered:
        fact = container_query(node(1, container="rec-sdk", engine=engine))["container"]
        return answer_to(fact, self(fact.command).to(fact.command))

    def found(self) -> Container:
        container = value(self.ask("docker")).container
        assert container is not None
        return container


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def told(status: str, image: str = "") -> str:
    return f"echo noise >&2; echo '{ID} {status} {image}'"


def test_a_node_without_a_container_has_no_query() -> None:
    assert container_query(node(1)) == {}


def test_docker_is_tried_first_and_bash_is_run_in_its_container(host: Host) -> None:
    docker = host.engine("docker", inspect=told("running", "rec_sdk:7.1"))
    host.engine("podman", inspect=told("running"))
    answer = host.ask()
    found = Container(engine=docker, id=ID, status="running", image="rec_sdk:7.1")
    assert answer == Answered(Engines(container=found))
    assert container_exec(node(1, container="rec-sdk"), answer) == ContainerExec(docker, "rec-sdk")


def test_podman_is_used_if_docker_lacks_the_container(host: Host) -> None:
    host.engine("docker", inspect=ABSENT, ps="echo other")
    podman = host.engine("podman", inspect=told("running"))
    found = Container(engine=podman, id=ID, status="running")
    assert host.ask() == Answered(Engines(container=found))


def test_what_runs_is_listed_beside_a_broken_engine(host: Host) -> None:
    host.engine("docker", inspect="exit 1", ps=f"{WARNS}; echo no socket >&2; exit 1")
    host.engine("podman", inspect="exit 1", ps=f"{WARNS}; printf 'b x/y:1\\na,alias\\n'")
    docker, podman = (
        answer_to(fact, host(fact.command).to(fact.command)) for fact in running_queries().values()
    )
    assert isinstance(docker, Unanswered)
    assert docker.message == "could not list the running containers of docker: no socket"
    assert podman == Answered({"a": "", "b": "x/y:1"})


def test_only_the_stated_engine_is_queried(host: Host) -> None:
    host.engine("docker", inspect=told("running"))
    podman = host.engine("podman", inspect=told("exited"))
    answer = host.ask("podman")
    assert answer == Answered(Engines(container=Container(engine=podman, id=ID, status="exited")))
    assert container_exec(node(1, container="rec-sdk"), answer) is None


def test_why_bash_cannot_run_is_quoted(host: Host) -> None:
    words = "OCI runtime exec failed: bash: executable file not found in $PATH: unknown"
    host.engine("docker", inspect=told("running"), runs=f"echo '{words}' >&2; exit 126")
    assert host.found().obstacle == words
    assert container_exec(node(1, container="rec-sdk"), host.ask("docker")) is None


def test_hostile_16_missing_programs_of_a_container_are_found_by_running_bash_in_it(
    host: Host,
) -> None:
    """The script for the container runs here, with a PATH that lacks three programs."""
    few = host.folder / "few"
    few.mkdir()
    lacking = ("tail", "find", "setsid")
    for name in {name for names in PROGRAMS.values() for name in names} - {*lacking}:
        (few / name).symlink_to("/bin/true")
    # exec -e BASH_ENV= NAME bash -c PROGRAM - WORDS; nothing but `few` is on its PATH
    runs = f'PATH={few}; exec /bin/bash -c "${{7/:*sbin/}}" "${{@:8}}"'
    docker = host.engine("docker", inspect=told("running"), runs=runs)
    assert (host.found().engine, host.found().lacks) == (docker, lacking)
    assert container_exec(node(1, container="rec-sdk"), host.ask("docker")) is None


@pytest.mark.parametrize(
    ("may", "is_lacking"),
    [
        ("00000000a80425fb 0", False),  # as docker gives them to root
        ("00000000000400c0 0", False),
        ("0000000000000000 0", True),
        ("00000000000000c0 0", True),
        ("0000000000000000 1000", False),
    ],
)
def test_hostile_16_an_sshd_of_root_needs_three_capabilities(
    host: Host, may: str, *, is_lacking: bool
) -> None:
    host.engine("docker", inspect=told("running"), runs=f"echo noise; echo may {may}")
    assert host.found().lacks_capabilities is is_lacking


def test_existing_containers_are_listed_once(host: Host) -> None:
    host.engine("docker", inspect=ABSENT, ps="printf 'b\\na\\n'")
    host.engine("podman", inspect=ABSENT, ps="echo b")
    paths = (str(host.folder / "docker"), str(host.folder / "podman"))
    assert host.ask() == Answered(Engines(names=("a", "b"), paths=paths))


def test_an_engine_that_refuses_is_quoted(host: Host) -> None:
    docker = host.engine("docker", inspect=f"echo '{DENIED}' >&2; exit 1")
    answer = host.ask("docker")
    assert answer == Answered(Engines(refused={docker: DENIED}))
    assert container_exec(node(1, container="rec-sdk"), answer) is None


def test_missing_engines_are_named() -> None:
    fact = container_query(node(1, container="rec-sdk"))["container"]
    answer = Answer(framed({"docker": (127, b"no"), "podman": (127, b"no")}))
    assert answer_to(fact, answer.to(fact.command)) == Unanswered(
        "missing",
        "could not look for the container rec-sdk: there is no docker and no podman on the host "
        "side",
    )


def test_unknown_output_of_an_engine_is_refused(host: Host) -> None:
    host.engine("docker", inspect="echo '[]'")
    answer = host.ask("docker")
    assert isinstance(answer, Unanswered)
    assert answer.kind == "not-understood"
    with pytest.raises(NotUnderstoodError):
        parse_inspect(f"{ID} Up 2 hours", "docker")
    with pytest.raises(NotUnderstoodError):
        parse_names("a\n<none>\n")


def test_names_with_links_are_read() -> None:
    assert parse_names("web,app/web\nrec-sdk\n") == ("rec-sdk", "web")
    assert parse_names("") == ()
