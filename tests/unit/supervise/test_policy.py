"""Levels of fault codes; which of several faults is the cause."""

from __future__ import annotations

import re

import pytest

from ascendboot.supervise import policy
from ascendboot.supervise.policy import Fault, FaultKind, Level, common_nodes, first_cause, level_of

NODES = ("n1", "n2", "n3", "n4", "n5")


@pytest.mark.parametrize(
    ("codes", "health", "expected"),
    [
        ((), "OK", Level.NOT_HANDLE),
        ((), "Warning", Level.NOT_HANDLE),
        ((), "Critical", Level.SEPARATE_NPU),
        (("DEADBEEF",), "Alarm", Level.SEPARATE_NPU),
        (("DEADBEEF",), "Warning", Level.NOT_HANDLE),
        (("80E3A201",), "OK", Level.SEPARATE_NPU),
        (("80e3a202",), "Alarm", Level.RESTART_NPU),
        (("A4025021", "8C03A000", "8C084E00"), "Alarm", Level.RESTART_NPU),
        (("81078603",), "Alarm", Level.NOT_HANDLE),
        (("8C2FA001", "80C98008"), "Warning", Level.RESTART_REQUEST),
        (("npu-tool-hang",), "UNKNOWN", Level.PRE_SEPARATE),
        (("card-dropped",), "UNKNOWN", Level.SEPARATE_NPU),
    ],
)
def test_the_highest_level_of_all_codes_counts(
    codes: tuple[str, ...], health: str, expected: Level
) -> None:
    assert level_of(codes, health) is expected


def test_every_level_has_codes_and_every_code_has_the_form_of_one() -> None:
    table = policy._table()
    assert set(table.values()) == set(Level)
    own = {"NPU-TOOL-HANG", "CARD-DROPPED"}
    assert [c for c in table if c not in own and not re.fullmatch(r"[0-9A-F]{8}", c)] == []


def test_levels_are_treated_as_the_vendor_does() -> None:
    treatments = [level.treatment for level in Level]
    assert treatments == [
        *("log", "suspect", "suspect", "restart", "restart", "drop", "drop", "quarantine")
    ]


def seen(kind: FaultKind, at: float, node: str = "", *codes: str) -> Fault:
    return Fault(kind=kind, at=at, node=node, codes=codes)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([seen(FaultKind.HANG, 0), seen(FaultKind.RANK_EXIT, 9, "n2")], 1),
        ([seen(FaultKind.RANK_EXIT, 0, "n1"), seen(FaultKind.NODE_DOWN, 8, "n2")], 1),
        ([seen(FaultKind.RANK_EXIT, 0, "n1"), seen(FaultKind.NODE_DOWN, 11, "n2")], 0),
        ([seen(FaultKind.LINK_DOWN, 5, "n2"), seen(FaultKind.NPU_FAULT, 4, "n1")], 1),
        ([seen(FaultKind.RANK_EXIT, 1), seen(FaultKind.RANK_EXIT, 2, "n3")], 1),
        ([seen(FaultKind.RANK_EXIT, 1, "n1"), seen(FaultKind.NET_FAULT, 2, "n3")], 1),
        ([seen(FaultKind.HANG, 1, "n1")], 0),
    ],
)
def test_the_cause_is_the_first_of_the_strongest_kind(faults: list[Fault], expected: int) -> None:
    assert first_cause(faults, 10) is faults[expected]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([(0, "n1", "80E3A201"), (30, "n2", "80E3A201")], True),
        ([(0, "n1", "80E3A201"), (31, "n2", "80E3A201")], False),
        ([(0, "n1", "80E3A201"), (0, "n1", "80E3A201")], False),
        ([(0, "n1", "80E3A201"), (0, "n2", "8C03A000")], False),
        ([(0, "n1", "80E3A201"), (0, "n2", "8C03A000"), (9, "n3", "8C1FA006")], True),
        ([(0, "n1", "80E3A201"), (5, "n9", "80E3A201")], False),
    ],
)
def test_one_code_on_two_nodes_or_half_of_the_nodes_have_a_common_cause(
    faults: list[tuple[float, str, str]], *, expected: bool
) -> None:
    npus = [seen(FaultKind.NPU_FAULT, at, node, code) for at, node, code in faults]
    assert bool(common_nodes(npus, NODES, 30)) is expected


def test_two_links_have_a_common_cause_but_not_two_nodes_or_ranks() -> None:
    def both(kind: FaultKind) -> frozenset[str]:
        return common_nodes([seen(kind, 0, "n1"), seen(kind, 3, "n2")], NODES, 30)

    assert both(FaultKind.LINK_DOWN)
    assert not both(FaultKind.NODE_DOWN)
    assert not both(FaultKind.RANK_EXIT)
    assert not common_nodes([seen(FaultKind.NODE_DOWN, 0, "n1")], ["n1"], 30)  # the only node
