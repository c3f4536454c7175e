"""The launcher that is chosen, and findings about what jobs need: launcher, settings, ports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ascendboot.checks.launchers import choose_launcher, ports_of_hccl
from ascendboot.checks.rank_table import rank_table_text
from ascendboot.facts.parsers.npu_smi import NpuMap
from ascendboot.facts.parsers.software import Horovod, Program, Torch
from ascendboot.facts.parsers.system import KernelPorts, Listener
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import Device, LauncherChoice, OwnTable
from tests.unit.checks import well

RUN = "/opt/py/bin/horovodrun"
WORKS = Answered(Horovod(RUN, "0.28.1", has_mpi=True))
THERE = Answered(Horovod(RUN, "0.28.1"))
WITHOUT_MPI = Answered(Horovod(RUN, "0.28.1", has_mpi=False))
MISSING = Unanswered("missing", "could not find Horovod: there is no horovodrun beside python3")
SSH = Answered(Program("/usr/bin/ssh", "9.2p1"))
NO_SSH = Unanswered("missing", "could not find ssh: it is not there")
STATES_IT = "the inventory states it"
BY_HOROVOD = replace(well.TWO, launcher="horovod")


@pytest.mark.parametrize(
    ("wish", "seen", "choice"),
    [
        (
            well.TWO,
            (WORKS, THERE, SSH),
            LauncherChoice("horovod", "Horovod 0.28.1 beside python3 works on lab-1", RUN),
        ),
        (
            well.TWO,
            (MISSING, MISSING, SSH),
            LauncherChoice("mpirun", "lab-1: there is no horovodrun beside python3"),
        ),
        (
            well.TWO,
            (WORKS, MISSING, SSH),
            LauncherChoice("mpirun", "there is no Horovod on lab-2"),
        ),
        (
            well.TWO,
            (WITHOUT_MPI, THERE, SSH),
            LauncherChoice("mpirun", "Horovod on lab-1 was built without MPI"),
        ),
        (well.TWO, (WORKS, THERE, NO_SSH), LauncherChoice("mpirun", f"lab-1: {NO_SSH.message}")),
        (
            replace(well.TWO, launcher="mpirun"),
            (WORKS, THERE, SSH),
            LauncherChoice("mpirun", STATES_IT),
        ),
        (BY_HOROVOD, (WORKS, THERE, SSH), LauncherChoice("horovod", STATES_IT, RUN)),
    ],
)
def test_auto_takes_horovod_if_it_works_and_the_inventory_decides(
    wish: Any, seen: tuple[Any, Any, Any], choice: LauncherChoice
) -> None:
    first, second, ssh = seen
    facts = {"lab-1": well.facts(1, horovod=first, ssh=ssh), "lab-2": well.facts(2, horovod=second)}
    assert choose_launcher(wish, facts) == choice


TORCH = Answered(Torch("2.1.0", "2.1.0.post3"))
NO_TORCH = Unanswered("missing", "could not find torch: there is no torch for /usr/bin/python3")
ROOT_INFO = replace(well.TWO, resource_mode="root-info")
BY_TORCHRUN = replace(ROOT_INFO, launcher="torchrun")


def torches(first: Any, second: Any) -> dict[str, Any]:
    return {
        "lab-1": well.facts(1, torch=first, ssh=SSH),
        "lab-2": well.facts(2, torch=second, ssh=SSH),
    }


def test_torchrun_where_the_inventory_states_it() -> None:
    stated = choose_launcher(BY_TORCHRUN, torches(TORCH, TORCH))
    assert stated == LauncherChoice("torchrun", STATES_IT)
    assert (stated.name, stated.words) == ("torchrun", f"torchrun starts jobs: {STATES_IT}")


def test_auto_takes_torchrun_for_root_info_where_there_is_torch_everywhere() -> None:
    assert choose_launcher(ROOT_INFO, torches(TORCH, TORCH)) == LauncherChoice(
        "torchrun",
        "resources.mode is root-info, and python3 has torch 2.1.0, torch_npu 2.1.0.post3 on every "
        "node",
    )
    assert choose_launcher(ROOT_INFO, torches(TORCH, NO_TORCH)) == LauncherChoice(
        "mpirun", "lab-2: there is no torch for python3"
    )


def test_torchrun_wants_torch_everywhere_and_no_open_mpi() -> None:
    no_mpi = Unanswered("missing", "could not find Open MPI: there is none")
    one, two = torches(TORCH, NO_TORCH).values()
    found = well.judged(BY_TORCHRUN, replace(one, openmpi=no_mpi), replace(two, openmpi=no_mpi))
    assert well.only(found) == (
        f"torch-missing error lab-2: {NO_TORCH.message}. "
        "Install PyTorch for the Python that `code.python` states."
    )


def test_versions_that_differ() -> None:
    found = well.judged(BY_TORCHRUN, *torches(TORCH, Answered(Torch("2.1.0"))).values())
    assert well.only(found) == (
        "torch-differs error lab-[1-2]: lab-1 has torch 2.1.0, torch_npu 2.1.0.post3, lab-2 "
        "has torch 2.1.0. Install the same versions on all nodes."
    )
    other = Answered(Horovod(RUN, "0.22.1"))
    seen = (well.facts(1, horovod=WORKS, ssh=SSH), well.facts(2, horovod=other))
    assert well.only(well.judged(well.TWO, *seen)) == (
        "horovod-differs error lab-[1-2]: lab-1 has Horovod 0.28.1, lab-2 has 0.22.1. "
        "Install the same version on all nodes."
    )


def test_a_stated_horovod_must_be_on_all_nodes_with_mpi() -> None:
    remedy = (
        "Install Horovod with MPI (HOROVOD_WITH_MPI=1) for the Python that `code.python` states."
    )
    no_ssh = f"ssh-missing error lab-1: {NO_SSH.message}. Install openssh-client."
    facts = well.facts(1, horovod=WITHOUT_MPI, ssh=NO_SSH), well.facts(2, horovod=MISSING)
    assert sorted(well.judged(BY_HOROVOD, *facts)) == [
        f"horovod-missing error lab-2: {MISSING.message}. {remedy}",
        f"horovod-without-mpi error lab-1: Horovod 0.28.1 was built without MPI. {remedy}",
        no_ssh,
    ]
    assert well.judged(well.TWO, *facts) == [no_ssh]


def test_13_an_ssh_that_does_not_know_our_options_is_named_on_the_primary_alone() -> None:
    old, enough = (Answered(Program("/usr/bin/ssh", version)) for version in ("7.2p2", "7.4p1"))
    assert well.judged(well.TWO, well.facts(1, ssh=enough), well.facts(2, ssh=old)) == []
    assert well.only(well.judged(well.TWO, well.facts(1, ssh=old), well.facts(2))) == (
        "ssh-old error lab-1: /usr/bin/ssh is of OpenSSH 7.2p2, which does not know "
        "IdentityAgent (since 7.3). Install OpenSSH 7.4 or later where ranks run."
    )


WITHOUT = replace(well.TWO, resource_mode="no-rank-table")
LINUX = Answered(KernelPorts(32768, 60999, ((60000, 60031),)))


def first(wish: Any = WITHOUT, **changes: Any) -> list[str]:
    """What is found when the primary differs."""
    return well.judged(wish, well.facts(1, **{"kernel_ports": LINUX, **changes}), well.facts(2))


def listeners(*listening: tuple[int, str | None, int | None]) -> Answered[tuple[Listener, ...]]:
    return Answered(
        tuple(Listener(address="*", port=n, program=who, pid=pid) for n, who, pid in listening)
    )


@pytest.mark.parametrize(
    "wish", [WITHOUT, ROOT_INFO, replace(well.TWO, launcher="torchrun")], ids=str
)
def test_a_chief_port_that_is_taken(wish: Any) -> None:
    taken = listeners((61000, "redis", 7))
    assert first(wish, listeners=taken)[0] == (
        "chief-port-taken error lab-1: port 61000, where the ranks are to meet, is taken by "
        "redis (pid 7). State another `resources.chief_port`."
    )
    assert first(WITHOUT, listeners=listeners((61001, "redis", 7))) == []
    assert first(well.TWO, listeners=taken) == []
    assert not any(
        line.startswith("chief-port-taken")
        for line in well.judged(wish, well.facts(1), well.facts(2, listeners=taken))
    )


def test_a_chief_port_that_outgoing_connections_may_take() -> None:
    wish = replace(WITHOUT, chief_port=50000)
    assert well.only(first(wish)) == (
        "chief-port-ephemeral warning lab-1: any outgoing connection may take port 50000: "
        "Linux gives 32768-60999 to them. State a `resources.chief_port` outside, such as "
        "61000, or add it to net.ipv4.ip_local_reserved_ports."
    )
    reserved = Answered(KernelPorts(32768, 60999, ((50000, 50003), (60000, 60031))))
    assert first(wish, kernel_ports=reserved) == []
    silent = Unanswered("failed", "could not read the kernel's ports: no")
    assert first(wish, kernel_ports=silent) == [
        f"kernel-ports-unknown warning lab-1: {silent.message}."
    ]


def test_a_chief_device_that_no_rank_has() -> None:
    assert well.only(first(replace(WITHOUT, chief_device=8))) == (
        "chief-device-missing error lab-1: no device of the job has the logic id 8 that "
        "`resources.chief_device` states; they have 0-7. State one of these."
    )


@pytest.mark.parametrize(
    ("name", "count", "product"),
    [
        ("Ascend910", 2, "A3"),
        ("Ascend910_9392", 1, "A3"),
        ("Ascend950PR", 1, "950"),
        ("Ascend 910B3", 2, None),
        ("Ascend 910A", 1, None),
        ("Ascend910", 1, None),
    ],
)
def test_it_does_not_exist_on_every_product(name: str, count: int, product: str | None) -> None:
    wish = well.cluster(well.node(1), resource_mode="no-rank-table")
    seen = well.facts(1, kernel_ports=LINUX, **well.chips(1, name, count))
    told = (
        f"no-rank-table-unsupported error lab-1: the NPUs are of the {product}, and HCCL reads CM_ "
        "variables on 910 and A2 only. State `resources: {mode: rank-table}`."
    )
    found = [line for line in well.judged(wish, seen) if line.startswith("no-rank")]
    assert found == ([told] if product else [])


def test_devices_that_torch_would_take_in_another_order() -> None:
    one, two = ROOT_INFO.nodes
    stated = replace(ROOT_INFO, nodes=(replace(one, devices=(Device(3), Device(1))), two))
    assert well.only([found for found in first(stated) if found.startswith("device-order")]) == (
        "device-order error lab-1: PyTorch takes devices in the order of their logic ids, but "
        "those of devices 3,1 are 3,1. State `devices` in that order."
    )


@pytest.mark.parametrize(
    ("profile", "devices", "said"),
    [("rec-sdk-tf", 512, 0), ("rec-sdk-tf", 513, 1), ("none", 513, 0)],
)
def test_a_job_without_a_rank_table_has_a_largest_size(
    profile: Any, devices: int, said: int
) -> None:
    npus = {"npus": Answered(NpuMap(tuple(map(well.npu, range(devices)))))}
    wish = replace(well.cluster(well.node(1)), resource_mode="no-rank-table", profile=profile)
    found = well.judged(wish, well.facts(1, kernel_ports=LINUX, **npus))
    assert len([text for text in found if text.startswith("worker-size error lab-1")]) == said


MOVE = "Unless that is a job which runs now, end it, or move HCCL: HCCL_IF_BASE_PORT under `env`."


@pytest.mark.parametrize(
    ("env", "ports"),
    [
        ({}, (range(60000, 60032),)),
        ({"HCCL_IF_BASE_PORT": "50000"}, (range(50000, 50032),)),
        ({"HCCL_IF_BASE_PORT": "much"}, ()),
        (
            {"HCCL_HOST_SOCKET_PORT_RANGE": "60000-60050,61000"},
            (range(60000, 60051), range(61000, 61001)),
        ),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "auto", "HCCL_IF_BASE_PORT": "1"}, ()),
    ],
)
def test_the_environment_of_the_job_moves_the_ports_of_hccl(
    env: dict[str, str], ports: tuple[range, ...]
) -> None:
    cluster = well.cluster(well.node(1), env=env)
    assert ports_of_hccl(cluster, cluster.primary) == ports


def test_a_node_may_have_ports_of_its_own_and_several_ranges() -> None:
    one, two = well.TWO.nodes
    wish = replace(well.TWO, nodes=(one, replace(two, env={"HCCL_IF_BASE_PORT": "50000"})))
    taken = listeners((50007, "nfsd", 7), (60000, "x", 8), (61000, "nfsd", 7))
    found = well.judged(wish, well.facts(1, listeners=taken), well.facts(2, listeners=taken))
    assert [text.partition(" is ")[0] for text in found] == [
        "hccl-port-taken warning lab-1: port 60000 of HCCL's 60000-60031",
        "hccl-port-taken warning lab-2: port 50007 of HCCL's 50000-50031",
    ]
    wish = replace(well.TWO, env={"HCCL_HOST_SOCKET_PORT_RANGE": "50000-50050,61000"})
    found = well.judged(wish, well.facts(1), well.facts(2, listeners=taken))
    assert [text.partition(" is ")[0] for text in found] == [
        "hccl-port-taken warning lab-2: port 50007 of HCCL's 50000-50050",
        "hccl-port-taken warning lab-2: port 61000 of HCCL's 61000",
    ]


def test_ports_that_are_taken_are_told_with_their_holders() -> None:
    python, other = "python3", (60031, None, None)
    taken = listeners((60000, python, 7), (60001, python, 7), other, (60032, "x", 8))
    where = "hccl-port-taken warning lab-2:"
    assert well.second(listeners=taken) == [
        f"{where} ports 60000-60001 of HCCL's 60000-60031 are taken by python3 (pid 7). {MOVE}",
        f"{where} port 60031 of HCCL's 60000-60031 is taken by a program of another user. {MOVE}",
    ]


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        (KernelPorts(32768, 60999, ((60000, 60015),)), 1),
        (KernelPorts(32768, 60999, ((60000, 60031),)), 0),
        (KernelPorts(32768, 59999), 0),
    ],
)
def test_ports_that_any_connection_may_take_are_told(ports: KernelPorts, said: int) -> None:
    message = (
        "hccl-ports-ephemeral warning lab-2: any outgoing connection may take a port of HCCL's "
        "60000-60031: Linux gives 32768-60999 to them. Add the range to "
        "net.ipv4.ip_local_reserved_ports, behind what is there."
    )
    assert well.second(kernel_ports=Answered(ports)) == [message] * said
    alone = well.cluster(well.node(1))  # it needs none
    assert well.judged(alone, well.facts(1, kernel_ports=Answered(ports))) == []


@pytest.mark.parametrize(
    ("shown", "used", "said"),
    [
        ("0,1", (), "0-1, and the ranks of this node have the devices with the logic ids 0-7"),
        ("2,3", (1, 2), "2-3, and the ranks of this node have the devices with the logic ids 1-2"),
        ("0,1,2,3,4,5,6,7", (), ""),
        ("1,2,5", (1, 2), ""),
    ],
)
def test_devices_that_a_rank_would_not_see(shown: str, used: tuple[int, ...], said: str) -> None:
    devices = tuple(map(Device, used))
    wish = well.cluster(
        well.node(1, devices=devices), env={"ASCEND_RT_VISIBLE_DEVICES": shown}, product="a2"
    )
    text = f"hccl-setting error lab-1: ASCEND_RT_VISIBLE_DEVICES shows {said}. "
    remedy = "Leave it out, and state the ones to use as `devices`."
    assert well.judged(wish, well.facts(1)) == ([text + remedy] if said else [])


@pytest.mark.parametrize(
    ("hosts", "retry", "is_told"),
    [
        (None, "L0:0, L1:1", True),
        (None, "L0:0, L1:0", False),
        ((), "L1:1", True),
        ((1,), "L1:1", True),
        ((1, 2), "L1:1", False),
    ],
)
def test_steps_are_repeated_only_where_the_table_has_the_hosts(
    hosts: tuple[int, ...] | None,
    retry: str,
    is_told: bool,  # noqa: FBT001
) -> None:
    seen = (well.a3(1), well.a3(2))
    wish = replace(well.TWO, env={"HCCL_OP_RETRY_ENABLE": retry})
    if hosts is not None:
        made = json.loads(rank_table_text(wish, {found.node: found for found in seen}))
        for number in hosts:
            made["server_list"][number - 1]["host_ip"] = f"198.18.0.{number}"
        table = OwnTable(text=json.dumps(made), generation="1.2", places=())
        wish = replace(wish, own_table=table)
    found = [line for line in well.judged(wish, *seen) if line.startswith("hccl-setting")]
    text = (
        "hccl-setting warning lab-[1-2]: HCCL_OP_RETRY_ENABLE: nothing is repeated, because the "
        "rank table does not state a host_ip for every server. Give a table that does as "
        "`resources.file`, or switch it off."
    )
    assert found == ([text] if is_told else [])
    not_a3 = replace(wish, own_table=None)
    two = [well.facts(1), well.facts(2)]
    assert "nothing is repeated" not in "".join(well.judged(not_a3, *two))


def test_values_that_are_wrong_for_the_product_the_nodes_report() -> None:
    wish = replace(well.TWO, env={"HCCL_EXEC_TIMEOUT": "0", "HCCL_INTER_HCCS_DISABLE": "TRUE"})
    one = well.facts(1, npus=Answered(NpuMap((well.npu(0, "Ascend 910A"),))))
    found = [f for f in well.judged(wish, one, well.facts(2)) if f.startswith("hccl-setting")]
    where = "HCCL_INTER_HCCS_DISABLE: is read on A3 only, not on"
    range_ = '"0" is not a whole number from 1 to 17340, in seconds on 910'
    remedy = "Correct it in the inventory."
    assert found == [
        f"hccl-setting error lab-1: HCCL_EXEC_TIMEOUT: {range_}. {remedy}",
        f"hccl-setting warning lab-1: {where} 910; remove it. {remedy}",
        f"hccl-setting warning lab-2: {where} A2; remove it. {remedy}",
    ]
