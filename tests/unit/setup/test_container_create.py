"""What a container that setup creates should be, and when it is created again."""

from __future__ import annotations

from typing import Any

import pytest

from ascendboot.checks.containers import busy_findings
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Creation, Device, Node
from ascendboot.setup.create import Pending, pending
from ascendboot.value import replace
from tests.unit.checks import well

DOCKER = "/usr/bin/docker"
MANAGERS = ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]
MADE = Creation(image="x:1", mounts=("/data:/data", "/a:/b:ro"), env={"TZ": "UTC"})


def node(**changes: Any) -> Node:
    return well.node(1, container="made", creation=replace(MADE, **changes))


def facts(container: Container | None = None) -> NodeFacts:
    return well.facts(1, container=Answered(Engines(container=container, paths=(DOCKER,))))


def found(of: Node, seen: NodeFacts | None = None, **cluster: Any) -> Pending | None:
    return pending(well.cluster(of, **cluster), of, seen or facts())


def created(of: Node, **cluster: Any) -> tuple[list[str], list[str], str]:
    """The words of `create` for a node, what it gets where it exists, and its input."""
    todo = found(of, **cluster)
    assert todo is not None
    at = todo.command.argv.index(of.creation.image if of.creation else "")
    places = todo.command.argv[2].partition("places=")[2].partition("\n")[0].strip("'")
    return [*todo.command.argv[at + 1 :]], places.split(), todo.command.stdin.decode()


def container(of: Node, status: str = "running", **changes: Any) -> Container:
    labels = dict(line.split("=", 1) for line in created(of)[2].splitlines())
    made = Container(
        engine=DOCKER,
        id="a" * 64,
        status=status,
        cluster=labels["ascendboot.cluster"],
        description=labels["ascendboot.description"],
    )
    return replace(made, **changes)


def devices(words: list[str]) -> list[str]:
    return [word.removeprefix("--device=") for word in words if word.startswith("--device=")]


def test_it_gets_the_devices_of_the_job_and_what_exists_of_the_driver() -> None:
    two = replace(node(), devices=(Device(5), Device(3)))
    words, places, lines = created(two)
    assert words == [
        *("--network=host", "--user=0"),
        "--mount=type=volume,source=ascendboot-lab-made,target=/var/lib/ascendboot",
        *("--device=/dev/davinci3", "--device=/dev/davinci5"),
        *(f"--device={path}" for path in MANAGERS),
        "--mount=type=bind,source=/data,target=/data",
        "--mount=type=bind,source=/a,target=/b,readonly",
        "--shm-size=1g",
    ]
    assert places == [
        *("/usr/local/Ascend/driver", "/etc/ascend_install.info", "/etc/hccn.conf"),
        *("/usr/local/dcmi", "/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"),
    ]
    assert lines.splitlines()[2:] == ["TZ=UTC"]
    assert len(devices(created(replace(two, creation=replace(MADE, devices="all")))[0])) == 8 + 3


def test_a_mount_of_the_operator_takes_the_place_of_the_drivers() -> None:
    own = node(mounts=("/my/driver:/usr/local/Ascend/driver/",))
    assert "/usr/local/Ascend/driver" not in created(own)[1]


def test_a_950_has_devices_and_files_of_its_own() -> None:
    words, places, _ = created(node(), product="a5")
    assert devices(words)[-2:] == ["/dev/davinci_manager", "/dev/hisi_hdc"]
    assert {"/dev/ummu", "/usr/lib64/liburma*", "/etc/hccl_rootinfo.json"} <= {*places}


def test_ascend_docker_runtime_gets_ids_instead() -> None:
    wanted = replace(node(runtime="ascend"), devices=(Device(0), Device(1), Device(6)))
    words, places, _ = created(wanted)
    assert "--runtime=ascend" in words
    assert devices(words) == []
    assert "/usr/local/dcmi" not in places
    assert "--env=ASCEND_VISIBLE_DEVICES=0-1,6" in words


def test_secrets_are_neither_in_labels_nor_in_arguments() -> None:
    secret = node(env={"MY_TOKEN": "open-sesame"})
    todo = found(secret)
    assert todo is not None
    *labels, variable = todo.command.stdin.decode().splitlines()
    assert "open-sesame" not in " ".join((*todo.command.argv, *labels))
    assert variable == "MY_TOKEN=open-sesame"
    assert well.cluster(secret).secrets == ("open-sesame",)
    assert container(secret).description != container(node(env={"MY_TOKEN": "x"})).description


OTHER = replace(node(image="x:2"), devices=(Device(0),))


@pytest.mark.parametrize(
    ("of", "seen", "todo"),
    [
        (node(), None, "created: there is no container made"),
        (node(), container(node()), ""),
        (node(), container(node(), "exited"), "started: the container made is exited"),
        (node(), container(OTHER, "paused"), ""),
        (node(), container(OTHER, obstacle="no answer within 20 s"), ""),
        (node(), container(OTHER, cluster="other"), ""),
        (node(), container(OTHER, cluster=""), ""),
        (node(shm="2 GiB"), container(node()), "re-created: the container made differs in shm"),
        (OTHER, container(node()), "re-created: the container made differs in image, devices"),
    ],
)
def test_only_what_differs_is_to_be_done(of: Node, seen: Container | None, todo: str) -> None:
    what = found(of, facts(seen))
    assert (f"{what.done.partition(',')[0]}: {what.why}" if what else "") == todo


def test_what_runs_in_it_keeps_it() -> None:
    users = ("12 (sleep)", "13 (bash)", "14 (bash)", "15 (bash)")
    todo = found(node(shm="2 GiB"), facts(container(node(), processes=users)))
    assert todo is not None
    [busy] = busy_findings({"lab-1": (todo.why, todo.users)})
    text = (
        "the container made differs in shm, and this runs in it: 12 (sleep), 13 (bash), 14 (bash)"
    )
    assert (busy.level, busy.text) == ("error", text)
