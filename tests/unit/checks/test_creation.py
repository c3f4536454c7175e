"""What a container that setup creates should be, and what keeps it from being created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ascendboot.checks.creation import as_text, description, digest, pending
from ascendboot.facts.container import Premises, premises_query
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.system import FORMAT, Container, Engines, Labels, parse_inspect
from ascendboot.facts.query import Answered, answer_to
from ascendboot.model.cluster import Cluster, Creation, Device, Node
from ascendboot.setup.create import _command
from ascendboot.value import replace
from tests.here import Here
from tests.unit.checks import well

DOCKER = "/usr/bin/docker"
MANAGERS = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
DRIVER = ("/usr/local/Ascend/driver", "/usr/local/sbin/npu-smi", "/etc/ascend_install.info")
THERE = (*(f"/dev/davinci{n}" for n in range(8)), *MANAGERS, *DRIVER, "/data")
MADE = Creation(image="x:1", mounts=("/data:/data",), env={"TZ": "UTC"})


def node(**changes: Any) -> Node:
    return well.node(1, container="made", creation=replace(MADE, **changes))


def facts(container: Container | None = None, **changes: Any) -> NodeFacts:
    premises = Premises({DOCKER: True}, changes.pop("places", THERE))
    plain = {"container": Answered(Engines(container=container)), "premises": Answered(premises)}
    return well.facts(1, **plain | changes)


def created(wanted: dict[str, Any], status: str = "running", cluster: str = "lab") -> Container:
    labels = Labels(cluster, digest(wanted), as_text(wanted))
    return Container(engine=DOCKER, id="a" * 64, status=status, labels=labels)


def wanted(of: Node, seen: NodeFacts | None = None, **cluster: Any) -> dict[str, Any]:
    return description(well.cluster(of, **cluster), of, seen or facts())


def test_it_gets_the_devices_of_the_job_and_what_exists_of_the_driver() -> None:
    two = replace(node(), devices=(Device(5), Device(3)))
    assert wanted(two) == {
        "image": "x:1",
        "devices": ["/dev/davinci3", "/dev/davinci5", *MANAGERS],
        "mounts": [*(f"{path}:{path}:ro" for path in DRIVER), "/data:/data"],
        "shm": "1 GiB",
        "runtime": "default",
        "env": {"TZ": "UTC"},
    }
    every = replace(two, creation=replace(MADE, devices="all"))
    assert len(wanted(every)["devices"]) == 8 + 3


def test_a_950_has_devices_and_mounts_of_its_own() -> None:
    places = (*THERE, "/dev/ummu", "/usr/lib64/liburma.so.0", "/etc/hccl_rootinfo.json")
    found = wanted(node(), facts(places=places), product="a5")
    assert found["devices"][-3:] == ["/dev/davinci_manager", "/dev/hisi_hdc", "/dev/ummu"]
    assert "/usr/lib64/liburma.so.0:/usr/lib64/liburma.so.0:ro" in found["mounts"]
    assert "/usr/lib64/liburma.so.0" not in as_text(wanted(node(), facts(places=places)))


def test_ascend_docker_runtime_gets_ids_instead() -> None:
    found = wanted(replace(node(runtime="ascend"), devices=(Device(0), Device(1), Device(6))))
    assert found["devices"] == ["0-1,6"]
    assert [mount.split(":")[0] for mount in found["mounts"]] == [*DRIVER[::2], "/data"]


def test_secrets_are_neither_in_the_description_nor_in_arguments() -> None:
    secret = node(env={"MY_TOKEN": "open-sesame", "TZ": "UTC"})
    whole, other = wanted(secret), wanted(node(env={"MY_TOKEN": "other", "TZ": "UTC"}))
    assert "open-sesame" not in as_text(whole)
    assert whole["env"]["MY_TOKEN"] != other["env"]["MY_TOKEN"]
    cluster = well.cluster(secret)
    todo = pending(cluster, secret, facts())
    assert todo is not None
    command = _command(cluster, secret, todo)
    assert "open-sesame" not in " ".join(command.argv)
    assert command.stdin.decode().splitlines()[3:] == ["MY_TOKEN=open-sesame", "TZ=UTC"]
    assert cluster.secrets == ("open-sesame",)


BEFORE = wanted(node())


@pytest.mark.parametrize(
    ("of", "found", "todo"),
    [
        (node(), None, "create: there is no container made"),
        (node(), created(BEFORE), ""),
        (node(), created(BEFORE, "exited"), "start: the container made is exited"),
        (node(), created(BEFORE, "paused"), ""),
        (node(), created(BEFORE, cluster="other"), ""),
        (node(), Container(engine=DOCKER, id="a" * 64, status="running"), ""),
        (node(pull=True), created(BEFORE), ""),
        (node(shm="2 GiB"), created(BEFORE), "replace: the container made differs in shm"),
        (
            replace(node(image="x:2"), devices=(Device(0),)),
            created(BEFORE, "exited"),
            "replace: the container made differs in image, devices",
        ),
    ],
)
def test_only_what_differs_is_to_be_done(of: Node, found: Container | None, todo: str) -> None:
    what = pending(well.cluster(of), of, facts(found))
    assert (f"{what.action}: {what.why}" if what else "") == todo


def findings(of: Node, seen: NodeFacts) -> list[str]:
    cluster: Cluster = well.cluster(of)
    return [line for line in well.messages(cluster, seen) if line.startswith("container-")]


def test_what_keeps_it_from_being_created_is_named() -> None:
    seen = facts(places=THERE[1:-1])
    lacking = replace(seen, premises=Answered(Premises({DOCKER: False}, THERE[1:-1])))
    of_image, lacks = "container-image-missing error lab-1", "container-device-missing error lab-1"
    assert [line.split(". ")[0] for line in findings(node(), lacking)] == [
        f"{of_image}: {DOCKER} has no image x:1, from which to create made",
        "container-mount-missing error lab-1: `container.mounts` names what does not exist: /data",
        f"{lacks}: could not give /dev/davinci0 to the container: the server has no such device",
    ]
    assert len(findings(node(pull=True), lacking)) == 2


def test_an_image_that_is_gone_does_not_matter_while_its_container_is_there() -> None:
    seen = facts(created(BEFORE), work_machine=facts().machine)
    gone = replace(seen, premises=Answered(Premises({DOCKER: False}, THERE)))
    assert findings(node(), gone) == []


@pytest.mark.parametrize("found", [None, "other"])
def test_a_container_of_others_is_left_alone(found: str | None) -> None:
    theirs = created(BEFORE, cluster=found or "")
    theirs = theirs if found else replace(theirs, labels=None)
    [message] = findings(node(), facts(theirs))
    by = "for the cluster other" if found else "not created by ascendboot"
    assert message.startswith(
        f"container-not-ours error lab-1: the container made exists already, {by}: it is left"
    )


def test_labels_are_read_and_nothing_is_made_of_others() -> None:
    first = f"{'0a1b' * 16} running x:1"
    assert parse_inspect(f"{first}\n\n\n", DOCKER).labels is None
    assert parse_inspect(f"{first}\nlab\n\n{{}}", DOCKER).labels is None
    assert parse_inspect(f"{first}\nlab\nabc\n{{}}", DOCKER).labels == Labels("lab", "abc", "{}")
    assert len(FORMAT.splitlines()) == 4


def test_the_host_says_what_is_there(tmp_path: Path) -> None:
    here = Here(tmp_path)
    docker = here.put("docker", "[ $4 = '{{.Id}}' ] && [ $5 = x:1 ] && echo sha256:1")
    podman = here.put("podman", "echo Error >&2; exit 125")
    (tmp_path / "a[b*").mkdir()
    of = node(mounts=(f"{tmp_path}/a[b*:/a", f"{tmp_path}/none:/b"))
    fact = premises_query(of)["premises"]
    found = well.value(answer_to(fact, here(fact.command).to(fact.command)))
    assert found.images == {docker: True, podman: False}
    assert f"{tmp_path}/a[b*" in found.places
    assert f"{tmp_path}/none" not in found.places
