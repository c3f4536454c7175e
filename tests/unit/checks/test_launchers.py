"""The choice of the launcher, and findings about launcher, settings and ports of jobs."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from ascendboot.checks.launchers import choose_launcher
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.npu_smi import NpuMap
from ascendboot.facts.parsers.software import Horovod, Program, Torch
from ascendboot.facts.parsers.system import KernelPorts, Listener
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import Cluster, Device
from ascendboot.value import replace
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
    ("lab", "seen", "choice"),
    [
        (well.TWO, (WORKS, THERE, SSH), ("horovod", "Horovod 0.28.1 beside python3 …", RUN)),
        (well.TWO, (MISSING, MISSING, SSH), ("mpirun", "lab-1: there is no horovodrun …", None)),
        (well.TWO, (WORKS, MISSING, SSH), ("mpirun", "there is no Horovod on lab-2", None)),
        (well.TWO, (WITHOUT_MPI, THERE, SSH), ("mpirun", "Horovod on lab-1 … without MPI", None)),
        (well.TWO, (WORKS, THERE, NO_SSH), ("mpirun", f"lab-1: {NO_SSH.message}", None)),
        (replace(well.TWO, launcher="mpirun"), (WORKS, THERE, SSH), ("mpirun", STATES_IT, None)),
        (BY_HOROVOD, (WORKS, THERE, SSH), ("horovod", STATES_IT, RUN)),
    ],
)
def test_auto_takes_horovod_if_it_works_and_the_inventory_decides(
    lab: Cluster, seen: tuple[Any, Any, Any], choice: tuple[str, str, str | None]
) -> None:
    first, second, ssh = seen
    facts = {"lab-1": well.facts(1, horovod=first, ssh=ssh), "lab-2": well.facts(2, horovod=second)}
    made, (kind, why, path) = choose_launcher(lab, facts), choice
    assert (made.kind, made.path) == (kind, path)
    assert well.alike(made.why, why)


TORCH = Answered(Torch("2.1.0", "2.1.0.post3"))
NO_TORCH = Unanswered("missing", "could not find torch: there is no torch for /usr/bin/python3")
ROOT_INFO = replace(well.TWO, resource_mode="root-info")
BY_TORCHRUN = replace(ROOT_INFO, launcher="torchrun")


def torches(first: Any, second: Any, **changes: Any) -> dict[str, NodeFacts]:
    return {
        f"lab-{n}": well.facts(n, torch=torch, ssh=SSH, **changes)
        for n, torch in ((1, first), (2, second))
    }


@pytest.mark.parametrize(
    ("lab", "second", "words"),
    [
        (BY_TORCHRUN, TORCH, f"torchrun starts jobs: {STATES_IT}"),
        (ROOT_INFO, TORCH, "torchrun … has torch 2.1.0, torch_npu 2.1.0.post3 on every node"),
        (ROOT_INFO, NO_TORCH, "mpirun … lab-2: there is no torch for python3"),
    ],
)
def test_auto_takes_torchrun_for_root_info_where_all_nodes_have_torch(
    lab: Cluster, second: Any, words: str
) -> None:
    assert well.alike(choose_launcher(lab, torches(TORCH, second)).words, words)


def test_torchrun_needs_torch_on_all_nodes_and_no_open_mpi() -> None:
    no_mpi = Unanswered("missing", "could not find Open MPI: there is none")
    text = well.found(BY_TORCHRUN, *torches(TORCH, NO_TORCH, openmpi=no_mpi).values())
    assert text == f"torch-missing error lab-2: {NO_TORCH.message}"


def test_versions_that_differ() -> None:
    assert well.found(BY_TORCHRUN, *torches(TORCH, Answered(Torch("2.1.0"))).values()) == (
        "torch-differs error lab-[1-2]: lab-1 has torch 2.1.0, torch_npu 2.1.0.post3, lab-2 "
        "has torch 2.1.0"
    )
    other = Answered(Horovod(RUN, "0.22.1"))
    assert well.found(well.TWO, well.facts(1, horovod=WORKS), well.facts(2, horovod=other)) == (
        "horovod-differs error lab-[1-2]: lab-1 has Horovod 0.28.1, lab-2 has 0.22.1"
    )


def test_a_stated_horovod_must_be_on_all_nodes_with_mpi() -> None:
    facts = well.facts(1, horovod=WITHOUT_MPI, ssh=NO_SSH), well.facts(2, horovod=MISSING)
    no_ssh = f"ssh-missing error lab-1: {NO_SSH.message}"
    assert sorted(well.found(BY_HOROVOD, *facts).split("\n")) == [
        f"horovod-missing error lab-2: {MISSING.message}",
        "horovod-without-mpi error lab-1: Horovod 0.28.1 was built without MPI",
        no_ssh,
    ]
    assert well.found(well.TWO, *facts) == no_ssh


def test_13_an_ssh_that_does_not_know_our_options_is_named_on_the_primary_alone() -> None:
    old, enough = (Answered(Program("/usr/bin/ssh", version)) for version in ("7.2p2", "7.4p1"))
    assert well.found(well.TWO, well.facts(1, ssh=enough), well.facts(2, ssh=old)) == ""
    assert well.found(well.TWO, well.facts(1, ssh=old), well.facts(2)) == (
        "ssh-old error lab-1: /usr/bin/ssh is of OpenSSH 7.2p2, which lacks "
        "IdentityAgent (since 7.3)"
    )


WITHOUT = replace(well.TWO, resource_mode="no-rank-table")
LINUX = Answered(KernelPorts(32768, 60999, ((60000, 60031),)))


def first(lab: Cluster = WITHOUT, **changes: Any) -> str:
    """What is found when the primary differs."""
    return well.found(lab, well.facts(1, **{"kernel_ports": LINUX, **changes}), well.facts(2))


def listeners(*listening: tuple[int, str | None, int | None]) -> Answered[tuple[Listener, ...]]:
    return Answered(
        tuple(Listener(address="*", port=n, program=who, pid=pid) for n, who, pid in listening)
    )


@pytest.mark.parametrize(
    "lab", [WITHOUT, ROOT_INFO, replace(well.TWO, launcher="torchrun")], ids=str
)
def test_a_chief_port_that_is_taken(lab: Cluster) -> None:
    taken = listeners((61000, "redis", 7))
    text = first(lab, listeners=taken).split("\n")[0]
    assert well.alike(text, "chief-port-taken error lab-1: port 61000, … redis (pid 7)")
    assert first(WITHOUT, listeners=listeners((61001, "redis", 7))) == ""
    assert first(well.TWO, listeners=taken) == ""
    assert "chief-port" not in well.found(lab, well.facts(1), well.facts(2, listeners=taken))


def test_a_chief_port_that_outgoing_connections_may_take() -> None:
    lab = replace(WITHOUT, chief_port=50000)
    assert first(lab) == (
        "chief-port-ephemeral warning lab-1: any outgoing connection may take port 50000: "
        "Linux gives 32768-60999 to them"
    )
    reserved = Answered(KernelPorts(32768, 60999, ((50000, 50003), (60000, 60031))))
    assert first(lab, kernel_ports=reserved) == ""
    silent = Unanswered("failed", "could not read the kernel's ports: no")
    text = f"kernel-ports-unknown warning lab-1: {silent.message}"
    assert first(lab, kernel_ports=silent) == text


def test_a_chief_device_that_no_rank_has() -> None:
    pattern = "chief-device-missing error lab-1: … the logic id 8 …; they have 0-7"
    assert well.alike(first(replace(WITHOUT, chief_device=8)), pattern)


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
    lab = well.cluster(well.node(1), resource_mode="no-rank-table")
    text = well.found(lab, well.facts(1, kernel_ports=LINUX, **well.chips(1, name, count)))
    start = f"no-rank-table-unsupported error lab-1: the NPUs are of the {product}, and HCCL reads"
    assert [line[: len(start)] for line in text.split("\n") if "no-rank" in line] == (
        [start] if product else []
    )


def test_devices_that_torch_would_take_in_another_order() -> None:
    one, two = ROOT_INFO.nodes
    stated = replace(ROOT_INFO, nodes=(replace(one, devices=(Device(3), Device(1))), two))
    [line] = [found for found in first(stated).split("\n") if found.startswith("device-order")]
    assert well.alike(line, "device-order error lab-1: … those of devices 3,1 are 3,1")


RANGES = {"HCCL_HOST_SOCKET_PORT_RANGE": "50000-50050,61000"}
PORT_TAKEN = "hccl-port-taken warning lab-{}: port {} of HCCL's {} is taken by "


def test_a_node_may_have_ports_of_its_own_and_several_ranges() -> None:
    one, two = well.TWO.nodes
    lab = replace(well.TWO, nodes=(one, replace(two, env={"HCCL_IF_BASE_PORT": "50000"})))
    taken = listeners((50007, "nfsd", 7), (60000, "x", 8), (61000, "nfsd", 7))
    seen = well.facts(1, listeners=taken), well.facts(2, listeners=taken)
    assert well.found(lab, *seen).split("\n") == [
        PORT_TAKEN.format(1, 60000, "60000-60031") + "x (pid 8)",
        PORT_TAKEN.format(2, 50007, "50000-50031") + "nfsd (pid 7)",
    ]
    assert well.found(replace(well.TWO, env=RANGES), well.facts(1), seen[1]).split("\n") == [
        PORT_TAKEN.format(2, 50007, "50000-50050") + "nfsd (pid 7)",
        PORT_TAKEN.format(2, 61000, "61000") + "nfsd (pid 7)",
    ]


def test_taken_ports_are_named_with_their_holders() -> None:
    other = (60031, None, None)
    taken = listeners((60000, "python3", 7), (60001, "python3", 7), other, (60032, "x", 8))
    pattern = (
        "hccl-port-taken warning lab-2: ports 60000-60001 of … are taken by python3 (pid 7)\n"
        "hccl-port-taken warning lab-2: port 60031 of … is taken by a program of another user"
    )
    assert well.alike(well.second(listeners=taken), pattern)


@pytest.mark.parametrize(
    ("ports", "pattern"),
    [
        (KernelPorts(32768, 60999, ((60000, 60015),)), "… 60000-60031: Linux gives 32768-60999 …"),
        (KernelPorts(32768, 60999, ((60000, 60031),)), ""),
        (KernelPorts(32768, 59999), ""),
    ],
)
def test_ports_that_any_outgoing_connection_may_take(ports: KernelPorts, pattern: str) -> None:
    start = "hccl-ports-ephemeral warning lab-2: " if pattern else ""
    assert well.alike(well.second(kernel_ports=Answered(ports)), start + pattern)
    alone = well.cluster(well.node(1))  # it needs none
    assert well.found(alone, well.facts(1, kernel_ports=Answered(ports))) == ""


@pytest.mark.parametrize(
    ("shown", "used", "ids"),
    [
        ("0,1", (), ("0-1", "0-7")),
        ("2,3", (1, 2), ("2-3", "1-2")),
        ("0,1,2,3,4,5,6,7", (), ()),
        ("1,2,5", (1, 2), ()),
    ],
)
def test_devices_that_a_rank_would_not_see(
    shown: str, used: tuple[int, ...], ids: tuple[str, ...]
) -> None:
    devices, env = tuple(map(Device, used)), {"ASCEND_RT_VISIBLE_DEVICES": shown}
    lab = well.cluster(well.node(1, devices=devices), env=env, product="a2")
    pattern = "hccl-setting error lab-1: … shows {}, … the logic ids {}".format(*ids) if ids else ""
    assert well.alike(well.found(lab, well.facts(1)), pattern)


@pytest.mark.parametrize(
    ("env", "profile", "pattern"),
    [
        ({"HCCL_BUFSIZE": "400"}, "none", "HCCL reads no variable HCCL_BUFSIZE"),
        ({"HCCL_DIAGNOSE_ENABLE": "1", "HCCL_BUFFSIZE": "400"}, "none", ""),
        ({"HCCL_IF_BASE_PORT": "29480"}, "none", "HCCL takes ports 29480-29511, and 29500 is …"),
        ({"HCCL_IF_BASE_PORT": "29480"}, "rec-sdk-tf", ""),
        ({"HCCL_IF_BASE_PORT": "29501"}, "none", ""),
        ({"HCCL_HOST_SOCKET_PORT_RANGE": "29400-29500"}, "none", "HCCL takes ports 29400-29500, …"),
    ],
)
def test_misspelt_names_and_the_port_of_pytorch_are_warnings(
    env: dict[str, str], profile: Literal["none", "rec-sdk-tf"], pattern: str
) -> None:
    lab = replace(well.TWO, env=env, profile=profile, product="a2")
    text = f"hccl-setting warning lab-[1-2]: {pattern}" if pattern else ""
    assert well.alike(well.found(lab, well.facts(1), well.facts(2)), text)


TAKES = "elastic training in the process (HIGH_AVAILABILITY) takes up to"


@pytest.mark.parametrize(
    ("env", "free", "pattern"),
    [
        ({}, {}, ""),
        ({"HIGH_AVAILABILITY": "recover,retry"}, {}, ""),
        (
            {"HIGH_AVAILABILITY": "retry,elastic-training"},
            {0: 3600, 1: 9000},
            f"info lab-[1-2]: {TAKES} 3600 MB more memory of each NPU (HCCL_BUFFSIZE x 2 x 9)",
        ),
        (
            {"HIGH_AVAILABILITY": "elastic-training"},
            {},
            f"info lab-[1-2]: {TAKES} 3600 MB … x 9); how much is free is not known",
        ),
        (
            {"HIGH_AVAILABILITY": "elastic-training", "HCCL_BUFFSIZE": "400"},
            {0: 9000, 1: 7199, 9: 1},
            f"warning lab-[1-2]: {TAKES} 7200 MB … x 9); device 1: 7199 MB free at the least",
        ),
        ({"HIGH_AVAILABILITY": "elastic-training", "HCCL_BUFFSIZE": "much"}, {}, ""),
    ],
)
def test_the_memory_that_elastic_training_takes_is_compared_with_what_is_free(
    env: dict[str, str], free: dict[int, int], pattern: str
) -> None:
    lab = replace(well.TWO, env=env)
    lines = well.found(lab, *(well.facts(n, free_memory=Answered(free)) for n in (1, 2)))
    found = [line for line in lines.split("\n") if line.startswith("elastic-memory")]
    assert well.alike("\n".join(found), f"elastic-memory {pattern}" if pattern else "")


def test_values_that_are_wrong_for_the_product_the_nodes_report() -> None:
    lab = replace(well.TWO, env={"HCCL_EXEC_TIMEOUT": "0", "HCCL_INTER_HCCS_DISABLE": "TRUE"})
    one = well.facts(1, npus=Answered(NpuMap((well.npu(0, "Ascend 910A"),))))
    lines = well.found(lab, one, well.facts(2)).split("\n")
    where = "HCCL_INTER_HCCS_DISABLE: is read on A3 only, not on"
    range_ = '"0" is not a whole number from 1 to 17340, in seconds on 910'
    assert [line for line in lines if line.startswith("hccl-setting")] == [
        f"hccl-setting error lab-1: HCCL_EXEC_TIMEOUT: {range_}",
        f"hccl-setting warning lab-1: {where} 910; remove it",
        f"hccl-setting warning lab-2: {where} A2; remove it",
    ]
