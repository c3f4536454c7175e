"""The judge on software and system: one test per rule, over the whole message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ascendboot.facts.parsers.software import Program
from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import Answered, Clock
from tests.unit.checks.well import FULL, TWO, cluster, facts, judged, node, second, system

SAME_VERSION = "Install the same version on all nodes."


def test_versions_that_differ_name_the_few() -> None:
    wish = cluster(*(node(i) for i in range(1, 17)))
    older = Program("/usr/bin/mpirun", "4.1.4")
    newer = Program("/usr/bin/mpirun", "4.1.5")
    seen = [facts(i, openmpi=Answered(older if i in (3, 14) else newer)) for i in range(1, 17)]
    assert judged(wish, *seen) == [
        (
            "openmpi-differs warning lab-[3,14]: "
            f"14 nodes have Open MPI 4.1.5, lab-[3,14] have 4.1.4. {SAME_VERSION}"
        )
    ]


def test_versions_of_another_series_are_an_error() -> None:
    assert second(python=Answered(Program("/usr/bin/python3", "3.7.5"))) == [
        (
            "python-differs error lab-[1-2]: lab-1 has Python 3.10.4, lab-2 has 3.7.5. "
            f"{SAME_VERSION}"
        )
    ]


def test_open_mpi_5_is_not_supported_yet() -> None:
    five = Answered(Program("/usr/bin/mpirun", "5.0.3"))
    assert judged(TWO, facts(1, openmpi=five), facts(2, openmpi=five)) == [
        (
            "openmpi-unsupported error lab-[1-2]: Open MPI 5.0.3 is not supported yet by this "
            "version. Install Open MPI 4.1."
        )
    ]


def test_open_mpi_at_different_places() -> None:
    assert second(openmpi=Answered(Program("/usr/local/openmpi/bin/mpirun", "4.1.5"))) == [
        (
            "openmpi-path-differs warning lab-[1-2]: lab-1 has mpirun at /usr/bin/mpirun, "
            "lab-2 has /usr/local/openmpi/bin/mpirun. "
            "Install Open MPI at the same place on all nodes."
        )
    ]


def test_different_architectures() -> None:
    assert second(system=Answered(system(2, arch="x86_64"))) == [
        (
            "arch-differs warning lab-[1-2]: lab-1 has the architecture aarch64, "
            "lab-2 has x86_64. "
            "Use nodes of one architecture, or a `code.python` that is right on each."
        )
    ]


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
    ("found", "words"),
    [
        (replace(FULL, free_bytes=83_500_000), "only 83 MB are free on /"),
        (replace(FULL, free_bytes=-1), "only 0 MB are free on /"),
        (replace(FULL, free_inodes=9), "only 9 inodes are free on /"),
        (
            FileSystem(mount_point="/", free_bytes=0, free_inodes=0),
            "only 0 MB and 0 inodes are free on /",
        ),
    ],
)
def test_a_full_disk(found: FileSystem, words: str) -> None:
    assert second(disk=Answered((found, found))) == [
        f"disk-full error lab-2: {words}. Free 100 MB and 1000 inodes."
    ]


def test_a_file_system_without_inodes_to_count() -> None:
    no_inodes = replace(FULL, free_inodes=None)
    assert second(disk=Answered((no_inodes, FULL))) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("absent", ["the code path /workspace/demo does not exist."]),
        ("unreadable", ["the code path /workspace/demo cannot be read."]),
        ("readable", []),
    ],
)
def test_code_that_is_not_there_or_not_readable(code: str, found: list[str]) -> None:
    remedy = (
        "Put the code there on every node, have setup send it (`code.source`), or leave `code` "
        "out of the inventory."
    )
    wish = replace(TWO, code_path="/workspace/demo")
    assert judged(wish, facts(1), facts(2, code=Answered(code))) == [
        f"code-missing error lab-2: {words} {remedy}" for words in found
    ]


def test_two_nodes_with_one_hostname() -> None:
    assert second(system=Answered(system(1))) == [
        (
            'hostname-twice warning lab-[1-2]: 2 nodes have the same hostname "lab-1". '
            "Give each its own: hostnamectl set-hostname NAME."
        )
    ]


def test_one_machine_under_two_names_is_said_once() -> None:
    wish = cluster(node(1), node(2, cluster_address="198.18.0.1"))
    assert judged(wish, facts(1), replace(facts(1), node="lab-2")) == [
        (
            "same-machine error lab-[1-2]: lab-[1-2] are one and the same machine. "
            "Correct the addresses in the inventory."
        )
    ]
