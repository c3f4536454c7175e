"""The judge on what ranks are given: devices of their container, limits, SELinux, AppArmor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.derive import logic_ids
from ascendboot.facts.environment import MANAGERS, Confinement, NodeEnvironment
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import Device
from tests.unit.checks import well
from tests.unit.readiness import found

NODE = well.node(1, container="rec-sdk")
PLACE = "the container rec-sdk"
HERE = {"work_machine": well.facts(1).machine}


def given(*device_ids: int, managers: tuple[str, ...] = MANAGERS, **more: Any) -> NodeEnvironment:
    names = {*(f"davinci{device_id}" for device_id in device_ids), *managers}
    return NodeEnvironment(device_nodes=frozenset(names), **more)


def judged(it: NodeEnvironment, host: Confinement | None = None, **changes: Any) -> list[str]:
    more = {"confinement": Answered(host)} if host else {}
    seen = well.facts(1, surroundings=Answered(it), **HERE, **more)
    return well.judged(well.cluster(replace(NODE, **changes)), seen)


def test_a_container_with_all_devices_is_well() -> None:
    assert judged(given(*range(8))) == []
    assert judged(given(*range(8), visible="0-7", memlock_kib=8192)) == []
    four = tuple(map(Device, range(4, 8)))
    assert judged(given(*range(4, 8), visible="4-7"), devices=four) == []


@pytest.mark.parametrize(
    ("it", "message"),
    [
        (
            given(*range(7)),
            (
                f"device-node-missing error lab-1: {PLACE} has no /dev/davinci7. Create it again "
                "with --device=/dev/davinci7."
            ),
        ),
        (
            given(*range(8), managers=MANAGERS[:1]),
            (
                f"device-node-missing error lab-1: {PLACE} has no /dev/devmm_svm, /dev/hisi_hdc. "
                "Create it again with --device=/dev/devmm_svm --device=/dev/hisi_hdc."
            ),
        ),
        (
            given(*range(4), visible="0-3"),
            (
                f"device-not-granted error lab-1: devices 4-7 are not granted to {PLACE}: its "
                "ASCEND_VISIBLE_DEVICES=0-3 grants devices 0-3. Create it again with "
                "ASCEND_VISIBLE_DEVICES=0-7, or state the granted ones under `devices`."
            ),
        ),
        (
            given(managers=(), visible="void"),
            (
                f"device-not-granted error lab-1: devices 0-7 are not granted to {PLACE}: its "
                "ASCEND_VISIBLE_DEVICES=void grants no device. Create it again with "
                "ASCEND_VISIBLE_DEVICES=0-7, or state the granted ones under `devices`."
            ),
        ),
        (
            given(*range(7), visible="0-7"),
            (
                f"device-node-missing error lab-1: {PLACE} has no /dev/davinci7. Create it again "
                "with --runtime=ascend, which adds what ASCEND_VISIBLE_DEVICES=0-7 grants."
            ),
        ),
        (
            given(*range(8), visible="all"),
            (
                f'device-not-granted warning lab-1: ASCEND_VISIBLE_DEVICES of {PLACE} is "all", '
                "which its runtime cannot read. State ids and ranges, as 0-3,6, and create the "
                "container again."
            ),
        ),
        (
            given(*range(8), memlock_kib=64),
            (
                "memlock-small warning lab-1: ranks may lock 64 KiB of memory in the container "
                "rec-sdk (ulimit -l), too little for RDMA and pinned buffers. Create the container "
                "again with --ulimit memlock=-1:-1."
            ),
        ),
    ],
)
def test_what_a_container_lacks(it: NodeEnvironment, message: str) -> None:
    assert judged(it) == [message]


def test_a_950_needs_no_devmm_svm() -> None:
    names = {f"davinci{device_id}" for device_id in range(8)} | {"davinci_manager", "hisi_hdc"}
    it = NodeEnvironment(device_nodes=frozenset(names))
    wish = well.cluster(NODE, product="a5")
    seen = well.facts(1, surroundings=Answered(it), **HERE)
    assert not [line for line in well.judged(wish, seen) if line.startswith("device-node")]


def test_on_the_host_itself_only_the_limit_counts() -> None:
    low = NodeEnvironment(memlock_kib=64)
    assert well.judged(well.cluster(well.node(1)), well.facts(1, surroundings=Answered(low))) == [
        (
            "memlock-small warning lab-1: ranks may lock 64 KiB of memory (ulimit -l), too little "
            "for RDMA and pinned buffers. Set memlock to unlimited in /etc/security/limits.conf or "
            "LimitMEMLOCK of the service."
        )
    ]


SELINUX = "system_u:system_r:container_t:s0:c1,c2"
AVC = f"avc:  denied  {{ open }} for comm=python3 scontext={SELINUX} tclass=chr_file"
APPARMOR = 'apparmor="DENIED" operation="open" profile="docker-default" name="/dev/x"'


def test_selinux_and_apparmor_are_named() -> None:
    well_given = given(*range(8), label=SELINUX)
    assert judged(well_given, Confinement(enforcing=False, denials=(AVC,))) == []
    assert judged(given(*range(8), label="x:y:spc_t:s0"), Confinement(enforcing=True)) == []
    (line,) = judged(well_given, Confinement(enforcing=True, denials=(AVC, APPARMOR)))
    assert line.startswith(
        "selinux-confines warning lab-1: SELinux is enforcing and confines the container rec-sdk "
        "(container_t): it may refuse devices, and folders of the host that were mounted without "
        f':z; its last denial: "{AVC}". Mount with :z'
    )
    armored = given(*range(8), label="docker-default (enforce)")
    assert judged(armored, Confinement(denials=(AVC,))) == []
    (line,) = judged(armored, Confinement(denials=("x" * 400, APPARMOR)))
    assert line.startswith(
        "apparmor-denies warning lab-1: AppArmor has refused something to the profile "
        f'docker-default, which the container rec-sdk has; its last denial: "{APPARMOR}". If'
    )


def test_a_container_with_some_devices_counts_them_from_0() -> None:
    node = replace(NODE, devices=(Device(5), Device(7)))
    some = well.facts(1, surroundings=Answered(given(4, 5, 6, 7)))
    every = well.facts(1, surroundings=Answered(given(*range(8))))
    assert logic_ids(node, some) == (1, 3)
    assert logic_ids(node, every) == (5, 7)
    assert logic_ids(replace(node, container=None), some) == (5, 7)


def test_before_a_job_its_devices_are_looked_for_in_its_container() -> None:
    lacking = found.probe(2, surroundings=Answered(given(0, 1, 2)))
    assert found.said(found.probe(1), lacking) == [
        (
            "devices error lab-2: the container rec-sdk has no /dev/davinci3; create it again with "
            "--device=/dev/davinci3"
        )
    ]
    granted = found.probe(2, surroundings=Answered(given(0, 1, 2, visible="0-2")))
    (line,) = found.said(found.probe(1), granted)
    assert line.startswith("devices error lab-2: device 3 is not granted to the container rec-sdk")
