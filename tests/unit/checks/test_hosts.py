"""Findings about hosts and the environment of ranks: the whole message of each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.derive import logic_ids
from ascendboot.facts.node_facts import MANAGERS, Confinement, NodeEnvironment
from ascendboot.facts.parsers.software import Program
from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import Answered, Clock
from ascendboot.model.cluster import Device
from tests.unit.checks.well import FULL, TWO, cluster, facts, judged, node, only, second, system
from tests.unit.readiness import found

SAME_VERSION = "Install the same version on all nodes."


def test_versions_that_differ_name_the_few() -> None:
    wish = cluster(*(node(i) for i in range(1, 17)))
    older, newer = (Answered(Program("/usr/bin/mpirun", version)) for version in ("4.1.4", "4.1.5"))
    seen = [facts(i, openmpi=older if i in (3, 14) else newer) for i in range(1, 17)]
    assert only(judged(wish, *seen)) == (
        "openmpi-differs warning lab-[3,14]: "
        f"14 nodes have Open MPI 4.1.5, lab-[3,14] have 4.1.4. {SAME_VERSION}"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"python": Answered(Program("/usr/bin/python3", "3.7.5"))},
            "python-differs error lab-[1-2]: lab-1 has Python 3.10.4, lab-2 has 3.7.5. "
            f"{SAME_VERSION}",
            id="another series",
        ),
        pytest.param(
            {"openmpi": Answered(Program("/usr/local/openmpi/bin/mpirun", "4.1.5"))},
            "openmpi-path-differs warning lab-[1-2]: lab-1 has mpirun at /usr/bin/mpirun, "
            "lab-2 has /usr/local/openmpi/bin/mpirun. "
            "Install Open MPI at the same place on all nodes.",
            id="another path",
        ),
        pytest.param(
            {"system": Answered(system(2, arch="x86_64"))},
            "arch-differs warning lab-[1-2]: lab-1 has the architecture aarch64, lab-2 has x86_64. "
            "Use nodes of one architecture, or a `code.python` that is right on each.",
            id="another architecture",
        ),
        pytest.param(
            {"system": Answered(system(1))},
            'hostname-twice warning lab-[1-2]: 2 nodes have the same hostname "lab-1". '
            "Give each its own: hostnamectl set-hostname NAME.",
            id="one hostname",
        ),
    ],
)
def test_a_node_that_differs(changes: dict[str, Any], message: str) -> None:
    assert second(**changes) == [message]


def test_open_mpi_5_is_not_supported_yet() -> None:
    five = Answered(Program("/usr/bin/mpirun", "5.0.3"))
    assert only(judged(TWO, facts(1, openmpi=five), facts(2, openmpi=five))) == (
        "openmpi-unsupported error lab-[1-2]: Open MPI 5.0.3 is not supported yet by this "
        "version. Install Open MPI 4.1."
    )


def test_one_machine_under_two_names_is_said_once() -> None:
    wish = cluster(node(1), node(2, cluster_address="198.18.0.1"))
    assert only(judged(wish, facts(1), replace(facts(1), node="lab-2"))) == (
        "same-machine error lab-[1-2]: lab-[1-2] are one and the same machine. "
        "Correct the addresses in the inventory."
    )


def clock(offset_s: float, uncertainty_s: float = 0.1) -> Answered[Clock]:
    return Answered(Clock(offset_s=offset_s, uncertainty_s=uncertainty_s))


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ((0.0, 1.0, 95.2), ["lab-3: the clock is 94 s ahead of the other nodes."]),
        ((0.0, -40.0), ["lab-2: the clock is 40 s behind the other nodes."]),
        ((0.0, 30.0), []),
        ((500.0, 501.0, 502.0), []),  # it is the operator's clock that is off
    ],
)
def test_clocks_against_their_median(offsets: tuple[float, ...], expected: list[str]) -> None:
    wish = cluster(*(node(i) for i, _ in enumerate(offsets, 1)))
    seen = [facts(i, clock=clock(offset)) for i, offset in enumerate(offsets, 1)]
    remedy = "Set the time on all nodes from one source (chrony, ntpd)."
    assert judged(wish, *seen) == [f"clock-off warning {words} {remedy}" for words in expected]


def test_a_clock_that_is_not_surely_off_is_left_alone() -> None:
    assert second(clock=clock(35.0, uncertainty_s=6.0)) == []


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
    message = f"disk-full error lab-2: only {words} are free on /. Free 100 MB and 1000 inodes."
    assert second(disk=Answered((there, there))) == ([message] if words else [])


NODE = node(1, container="rec-sdk")
PLACE = "the container rec-sdk"
VARIABLE = "ASCEND_VISIBLE_DEVICES"
HERE = {"work_machine": facts(1).machine}


def given(*device_ids: int, managers: tuple[str, ...] = MANAGERS, **more: Any) -> NodeEnvironment:
    names = {*(f"davinci{device_id}" for device_id in device_ids), *managers}
    return NodeEnvironment(device_nodes=frozenset(names), **more)


def inside(it: NodeEnvironment, host: Confinement | None = None, **changes: Any) -> list[str]:
    more = {"confinement": Answered(host)} if host else {}
    seen = facts(1, surroundings=Answered(it), **HERE, **more)
    return judged(cluster(replace(NODE, **changes)), seen)


def test_a_container_with_all_devices_is_well() -> None:
    assert inside(given(*range(8))) == []
    assert inside(given(*range(8), visible="0-7", memlock_kib=8192)) == []
    four = tuple(map(Device, range(4, 8)))
    assert inside(given(*range(4, 8), visible="4-7"), devices=four) == []


@pytest.mark.parametrize(
    ("it", "message"),
    [
        pytest.param(
            given(*range(7)),
            f"device-node-missing error lab-1: {PLACE} has no /dev/davinci7. Create it again "
            "with --device=/dev/davinci7.",
            id="a device",
        ),
        pytest.param(
            given(*range(8), managers=MANAGERS[:1]),
            f"device-node-missing error lab-1: {PLACE} has no /dev/devmm_svm, /dev/hisi_hdc. "
            "Create it again with --device=/dev/devmm_svm --device=/dev/hisi_hdc.",
            id="what opens devices",
        ),
        pytest.param(
            given(*range(4), visible="0-3"),
            f"device-not-granted error lab-1: devices 4-7 are not granted to {PLACE}: its "
            f"{VARIABLE}=0-3 grants devices 0-3. Create it again with "
            f"{VARIABLE}=0-7, or state the granted ones under `devices`.",
            id="not granted",
        ),
        pytest.param(
            given(managers=(), visible="void"),
            f"device-not-granted error lab-1: devices 0-7 are not granted to {PLACE}: its "
            f"{VARIABLE}=void grants no device. Create it again with "
            f"{VARIABLE}=0-7, or state the granted ones under `devices`.",
            id="none granted",
        ),
        pytest.param(
            given(*range(7), visible="0-7"),
            f"device-node-missing error lab-1: {PLACE} has no /dev/davinci7. Create it again "
            f"with --runtime=ascend, which adds what {VARIABLE}=0-7 grants.",
            id="granted and absent",
        ),
        pytest.param(
            given(*range(8), visible="all"),
            f'device-not-granted warning lab-1: {VARIABLE} of {PLACE} is "all", '
            "which its runtime cannot read. State ids and ranges, as 0-3,6, and create the "
            "container again.",
            id="unreadable",
        ),
        pytest.param(
            given(*range(8), memlock_kib=64),
            "memlock-small warning lab-1: ranks may lock 64 KiB of memory in the container "
            "rec-sdk (ulimit -l), too little for RDMA and pinned buffers. Create the container "
            "again with --ulimit memlock=-1:-1.",
            id="locked memory",
        ),
    ],
)
def test_what_a_container_lacks(it: NodeEnvironment, message: str) -> None:
    assert inside(it) == [message]


def test_a_950_needs_no_devmm_svm() -> None:
    it = given(*range(8), managers=("davinci_manager", "hisi_hdc"))
    seen = facts(1, surroundings=Answered(it), **HERE)
    found = judged(cluster(NODE, product="a5"), seen)
    assert not [line for line in found if line.startswith("device-node")]


def test_on_the_host_itself_only_the_limit_counts() -> None:
    low = NodeEnvironment(memlock_kib=64)
    assert only(judged(cluster(node(1)), facts(1, surroundings=Answered(low)))) == (
        "memlock-small warning lab-1: ranks may lock 64 KiB of memory (ulimit -l), too little "
        "for RDMA and pinned buffers. Set memlock to unlimited in /etc/security/limits.conf or "
        "LimitMEMLOCK of the service."
    )


SELINUX = "system_u:system_r:container_t:s0:c1,c2"
AVC = f"avc:  denied  {{ open }} for comm=python3 scontext={SELINUX} tclass=chr_file"
APPARMOR = 'apparmor="DENIED" operation="open" profile="docker-default" name="/dev/x"'


def test_selinux_and_apparmor_are_named() -> None:
    confined = given(*range(8), label=SELINUX)
    assert inside(confined, Confinement(enforcing=False, denials=(AVC,))) == []
    assert inside(given(*range(8), label="x:y:spc_t:s0"), Confinement(enforcing=True)) == []
    (line,) = inside(confined, Confinement(enforcing=True, denials=(AVC, APPARMOR)))
    assert line.startswith(
        "selinux-confines warning lab-1: SELinux is enforcing and confines the container rec-sdk "
        "(container_t): it may refuse devices, and folders of the host that were mounted without "
        f':z; its last denial: "{AVC}". Mount with :z'
    )
    armored = given(*range(8), label="docker-default (enforce)")
    assert inside(armored, Confinement(denials=(AVC,))) == []
    (line,) = inside(armored, Confinement(denials=("x" * 400, APPARMOR)))
    assert line.startswith(
        "apparmor-denies warning lab-1: AppArmor has refused something to the profile "
        f'docker-default, which the container rec-sdk has; its last denial: "{APPARMOR}". If'
    )


def test_a_container_with_some_devices_counts_them_from_0() -> None:
    some_devices = replace(NODE, devices=(Device(5), Device(7)))
    some = facts(1, surroundings=Answered(given(4, 5, 6, 7)))
    every = facts(1, surroundings=Answered(given(*range(8))))
    assert logic_ids(some_devices, some) == (1, 3)
    assert logic_ids(some_devices, every) == (5, 7)
    assert logic_ids(replace(some_devices, container=None), some) == (5, 7)


def test_before_a_job_its_devices_are_looked_for_in_its_container() -> None:
    lacking = found.probe(2, surroundings=Answered(given(0, 1, 2)))
    assert only(found.said(found.probe(1), lacking)) == (
        "devices error lab-2: the container rec-sdk has no /dev/davinci3; create it again with "
        "--device=/dev/davinci3"
    )
    granted = found.probe(2, surroundings=Answered(given(0, 1, 2, visible="0-2")))
    (line,) = found.said(found.probe(1), granted)
    assert line.startswith("devices error lab-2: device 3 is not granted to the container rec-sdk")
