"""Which launcher is taken and why, and what is wrong with Horovod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.checks.launchers import choose_launcher
from ascendboot.facts.parsers.software import Horovod, Program, Torch
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import LauncherChoice
from tests.unit.checks import well

RUN = "/opt/py/bin/horovodrun"
WORKS = Answered(Horovod(RUN, "0.28.1", has_mpi=True))
THERE = Answered(Horovod(RUN, "0.28.1"))
MISSING = Unanswered("missing", "could not find Horovod: there is no horovodrun beside python3")
SSH = Answered(Program("/usr/bin/ssh", "9.2p1"))
STATED = replace(well.TWO, launcher="horovod")


def chosen(first: Any, second: Any, wish: Any = well.TWO, ssh: Any = SSH) -> LauncherChoice:
    facts = {"lab-1": well.facts(1, horovod=first, ssh=ssh), "lab-2": well.facts(2, horovod=second)}
    return choose_launcher(wish, facts)


@pytest.mark.parametrize(
    ("first", "second", "why", "path"),
    [
        (WORKS, THERE, "Horovod 0.28.1 beside python3 works on lab-1", RUN),
        (MISSING, MISSING, "lab-1: there is no horovodrun beside python3", None),
        (WORKS, MISSING, "there is no Horovod on lab-2", None),
        (
            Answered(Horovod(RUN, "0.28.1", has_mpi=False)),
            THERE,
            "Horovod on lab-1 was built without MPI",
            None,
        ),
    ],
)
def test_auto_takes_what_works(first: Any, second: Any, why: str, path: str | None) -> None:
    assert chosen(first, second) == LauncherChoice("horovod" if path else "mpirun", why, path)


def test_auto_without_ssh_takes_mpirun() -> None:
    no_ssh = Unanswered("missing", "could not find ssh: it is not there")
    assert chosen(WORKS, THERE, ssh=no_ssh) == LauncherChoice(
        "mpirun", "lab-1: could not find ssh: it is not there"
    )


def test_what_the_inventory_states_is_taken() -> None:
    why = "the inventory states it"
    assert chosen(WORKS, THERE, replace(well.TWO, launcher="mpirun")) == LauncherChoice(
        "mpirun", why
    )
    assert chosen(WORKS, THERE, STATED) == LauncherChoice("horovod", why, RUN)


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
    stated = LauncherChoice("torchrun", "the inventory states it")
    assert choose_launcher(BY_TORCHRUN, torches(TORCH, TORCH)) == stated
    assert (stated.name, stated.words) == (
        "torchrun",
        "torchrun starts jobs: the inventory states it",
    )


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
    assert found == [
        (
            "torch-missing error lab-2: could not find torch: there is no torch for "
            "/usr/bin/python3. Install PyTorch for the Python that `code.python` states."
        )
    ]


def test_versions_of_torch_that_differ() -> None:
    found = well.judged(BY_TORCHRUN, *torches(TORCH, Answered(Torch("2.1.0"))).values())
    assert found == [
        (
            "torch-differs error lab-[1-2]: lab-1 has torch 2.1.0, torch_npu 2.1.0.post3, lab-2 "
            "has torch 2.1.0. Install the same versions on all nodes."
        )
    ]


def test_versions_that_differ() -> None:
    other = Answered(Horovod(RUN, "0.22.1"))
    found = well.judged(
        well.TWO, well.facts(1, horovod=WORKS, ssh=SSH), well.facts(2, horovod=other)
    )
    assert found == [
        (
            "horovod-differs error lab-[1-2]: lab-1 has Horovod 0.28.1, lab-2 has 0.22.1. "
            "Install the same version on all nodes."
        )
    ]


SSH_MISSING = (
    "ssh-missing error lab-1: could not find ssh: it is not there. Install openssh-client."
)


def test_a_stated_horovod_must_be_on_all_nodes_with_mpi() -> None:
    without = Answered(Horovod(RUN, "0.28.1", has_mpi=False))
    no_ssh = Unanswered("missing", "could not find ssh: it is not there")
    remedy = (
        "Install Horovod with MPI (HOROVOD_WITH_MPI=1) for the Python that `code.python` states."
    )
    facts = well.facts(1, horovod=without, ssh=no_ssh), well.facts(2, horovod=MISSING)
    assert sorted(well.judged(STATED, *facts)) == [
        f"horovod-missing error lab-2: {MISSING.message}. {remedy}",
        f"horovod-without-mpi error lab-1: Horovod 0.28.1 was built without MPI. {remedy}",
        SSH_MISSING,
    ]
    assert well.judged(well.TWO, *facts) == [SSH_MISSING]


def test_13_an_ssh_that_does_not_know_our_options_is_named_on_the_primary_alone() -> None:
    old, enough = (Answered(Program("/usr/bin/ssh", version)) for version in ("7.2p2", "7.4p1"))
    assert well.judged(well.TWO, well.facts(1, ssh=enough), well.facts(2, ssh=old)) == []
    assert well.judged(well.TWO, well.facts(1, ssh=old), well.facts(2)) == [
        (
            "ssh-old error lab-1: /usr/bin/ssh is of OpenSSH 7.2p2, which does not know "
            "IdentityAgent (since 7.3). Install OpenSSH 7.4 or later where ranks run."
        )
    ]
