"""Findings about hosts and the environment of ranks."""

from __future__ import annotations

from typing import Any

import pytest

from ascendboot.facts.derive import logic_ids
from ascendboot.facts.node_facts import MANAGERS, Confinement, NodeEnvironment
from ascendboot.facts.parsers.software import Program
from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import Answered, Clock
from ascendboot.model.cluster import Device
from ascendboot.value import replace
from tests.unit.checks.well import (
    FULL,
    TWO,
    alike,
    cluster,
    facts,
    found,
    messages,
    node,
    only,
    second,
    system,
)
from tests.unit.readiness import found as readiness


def mpirun(version: str, path: str = "/usr/bin/mpirun") -> Answered[Program]:
    return Answered(Program(path, version))


def clock(offset_s: float, uncertainty_s: float = 0.1) -> Answered[Clock]:
    return Answered(Clock(offset_s=offset_s, uncertainty_s=uncertainty_s))


def test_versions_that_differ_name_the_few() -> None:
    lab = cluster(*(node(i) for i in range(1, 17)))
    seen = [facts(i, openmpi=mpirun("4.1.4" if i in (3, 14) else "4.1.5")) for i in range(1, 17)]
    assert found(lab, *seen) == (
        "openmpi-differs warning lab-[3,14]: 14 nodes have Open MPI 4.1.5, lab-[3,14] have 4.1.4"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"python": Answered(Program("/usr/bin/python3", "3.7.5"))},
            "python-differs error lab-[1-2]: lab-1 has Python 3.10.4, lab-2 has 3.7.5",
        ),
        (
            {"openmpi": mpirun("4.1.5", "/opt/mpirun")},
            "openmpi-path-differs warning lab-[1-2]: … at /usr/bin/mpirun, lab-2 has /opt/mpirun",
        ),
        (
            {"system": Answered(system(2, arch="x86_64"))},
            "arch-differs warning lab-[1-2]: … the architecture aarch64, lab-2 has x86_64",
        ),
        ({"system": Answered(system(1))}, 'hostname-twice warning lab-[1-2]: 2 nodes … "lab-1"'),
        ({"clock": clock(35.0, uncertainty_s=6.0)}, ""),
    ],
)
def test_a_node_that_differs(changes: dict[str, Any], text: str) -> None:
    assert alike(second(**changes), text)


def test_open_mpi_5_is_not_supported_yet() -> None:
    seen = (facts(n, openmpi=mpirun("5.0.3")) for n in (1, 2))
    assert alike(found(TWO, *seen), "openmpi-unsupported error lab-[1-2]: Open MPI 5.0.3 …")


def test_one_machine_under_two_names_is_one_finding() -> None:
    lab = cluster(node(1), node(2, cluster_address="198.18.0.1"))
    text = found(lab, facts(1), replace(facts(1), node="lab-2"))
    assert text == "same-machine error lab-[1-2]: lab-[1-2] are one and the same machine"


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ((0.0, 1.0, 95.2), "lab-3: the clock is 94 s ahead of the other nodes"),
        ((0.0, -40.0), "lab-2: the clock is 40 s behind the other nodes"),
        ((0.0, 30.0), ""),
        ((500.0, 501.0, 502.0), ""),  # it is the operator's clock that is off
    ],
)
def test_clocks_against_their_median(offsets: tuple[float, ...], text: str) -> None:
    lab = cluster(*(node(i) for i, _ in enumerate(offsets, 1)))
    seen = [facts(i, clock=clock(offset)) for i, offset in enumerate(offsets, 1)]
    assert found(lab, *seen) == (f"clock-off warning {text}" if text else "")


def test_a_cluster_folder_that_nodes_may_share() -> None:
    words = found(TWO, facts(1, place=Answered("nfs")), facts(2, place=Answered("ext2/ext3")))
    assert words.startswith("base-shared warning lab-1: the cluster's folder is on nfs: if nodes")
    assert found(cluster(node(1)), facts(1, place=Answered("nfs"))) == ""


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (replace(FULL, free_bytes=83_500_000), "83 MB"),
        (replace(FULL, free_bytes=-1), "0 MB"),
        (replace(FULL, free_inodes=9), "9 inodes"),
        (FileSystem(mount_point="/", free_bytes=0, free_inodes=0), "0 MB and 0 inodes"),
        (replace(FULL, free_inodes=None), ""),
    ],
)
def test_a_full_disk(there: FileSystem, words: str) -> None:
    text = f"disk-full error lab-2: only {words} are free on /"
    assert second(disk=Answered((there, there))) == (text if words else "")


NODE = node(1, container="rec-sdk")
PLACE = "the container rec-sdk"
VARIABLE = "ASCEND_VISIBLE_DEVICES"
LACKS = f"device-node-missing error lab-1: {PLACE} has no"
REFUSED = "device-not-granted error lab-1: devices"
AGAIN = "Re-create it with"
HERE = {"work_machine": facts(1).machine}


def given(*device_ids: int, managers: tuple[str, ...] = MANAGERS, **more: Any) -> NodeEnvironment:
    names = {*(f"davinci{device_id}" for device_id in device_ids), *managers}
    return NodeEnvironment(device_nodes=frozenset(names), **more)


def inside(it: NodeEnvironment, host: Confinement | None = None, **changes: Any) -> list[str]:
    more = {"confinement": Answered(host)} if host else {}
    seen = facts(1, surroundings=Answered(it), **HERE, **more)
    return messages(cluster(replace(NODE, **changes)), seen)


def test_a_container_with_all_devices_has_no_finding() -> None:
    assert inside(given(*range(8))) == []
    assert inside(given(*range(8), visible="0-7", memlock_kib=8192)) == []
    four = tuple(map(Device, range(4, 8)))
    assert inside(given(*range(4, 8), visible="4-7"), devices=four) == []


@pytest.mark.parametrize(
    ("it", "message"),
    [
        (given(*range(7)), f"{LACKS} /dev/davinci7. {AGAIN} --device=/dev/davinci7."),
        (
            given(*range(8), managers=MANAGERS[:1]),
            f"{LACKS} /dev/devmm_svm, /dev/hisi_hdc. {AGAIN} --device=/dev/devmm_svm …/hisi_hdc.",
        ),
        (
            given(*range(4), visible="0-3"),
            f"{REFUSED} 4-7 are …: its {VARIABLE}=0-3 grants devices 0-3. {AGAIN} {VARIABLE}=0-7,…",
        ),
        (
            given(managers=(), visible="void"),
            f"{REFUSED} 0-7 are …: its {VARIABLE}=void grants no device. {AGAIN} {VARIABLE}=0-7,…",
        ),
        (given(*range(7), visible="0-7"), f"{LACKS} /dev/davinci7. {AGAIN} --runtime=ascend, …"),
        (
            given(*range(8), visible="all"),
            f'device-not-granted warning lab-1: {VARIABLE} of {PLACE} is "all", which …',
        ),
        (
            given(*range(8), memlock_kib=64),
            f"memlock-small warning lab-1: ranks may lock 64 KiB of memory in {PLACE} … --ulimit …",
        ),
    ],
)
def test_what_a_container_lacks(it: NodeEnvironment, message: str) -> None:
    assert alike(only(inside(it)), message)


def test_a_950_needs_no_devmm_svm() -> None:
    it = given(*range(8), managers=("davinci_manager", "hisi_hdc"))
    seen = facts(1, surroundings=Answered(it), **HERE)
    assert "device-node" not in found(cluster(NODE, product="a5"), seen)


def test_on_the_host_itself_only_the_limit_counts() -> None:
    low = facts(1, surroundings=Answered(NodeEnvironment(memlock_kib=64)))
    pattern = "memlock-small … memory (ulimit -l), … /etc/security/limits.conf or LimitMEMLOCK …"
    assert alike(only(messages(cluster(node(1)), low)), pattern)


SELINUX = "system_u:system_r:container_t:s0:c1,c2"
AVC = f"avc:  denied  {{ open }} for comm=python3 scontext={SELINUX} tclass=chr_file"
APPARMOR = 'apparmor="DENIED" operation="open" profile="docker-default" name="/dev/x"'


def test_selinux_and_apparmor_are_named() -> None:
    confined = given(*range(8), label=SELINUX)
    assert inside(confined, Confinement(enforcing=False, denials=(AVC,))) == []
    assert inside(given(*range(8), label="x:y:spc_t:s0"), Confinement(enforcing=True)) == []
    line = only(inside(confined, Confinement(enforcing=True, denials=(AVC, APPARMOR))))
    pattern = f"selinux-confines warning lab-1: … {PLACE} (container_t): …; its last denial: …"
    assert alike(line, pattern)
    assert f'"{AVC}". Mount with :z' in line
    armored = given(*range(8), label="docker-default (enforce)")
    assert inside(armored, Confinement(denials=(AVC,))) == []
    line = only(inside(armored, Confinement(denials=("x" * 400, APPARMOR))))
    assert alike(line, f'apparmor-denies warning lab-1: … docker-default, … "{APPARMOR}". If …')


def test_a_container_with_some_devices_counts_them_from_0() -> None:
    some_devices = replace(NODE, devices=(Device(5), Device(7)))
    some = facts(1, surroundings=Answered(given(4, 5, 6, 7)))
    every = facts(1, surroundings=Answered(given(*range(8))))
    assert logic_ids(some_devices, some) == (1, 3)
    assert logic_ids(some_devices, every) == (5, 7)
    assert logic_ids(replace(some_devices, container=None), some) == (5, 7)


@pytest.mark.parametrize(
    ("visible", "pattern"),
    [
        (None, f"devices error lab-2: {PLACE} has no /dev/davinci3; … --device=/dev/davinci3"),
        ("0-2", f"devices error lab-2: device 3 is not granted to {PLACE}: …"),
    ],
)
def test_before_a_job_its_devices_are_looked_for_in_its_container(
    visible: str | None, pattern: str
) -> None:
    lacking = Answered(given(0, 1, 2, visible=visible))
    assert alike(only(readiness.second(surroundings=lacking)), pattern)
