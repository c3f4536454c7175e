"""Health and ids of devices in recorded tables of npu-smi."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.facts.parsers.npu_smi import (
    NpuProcess,
    parse_free_memory,
    parse_health,
    parse_table,
    parse_use,
)
from ascendboot.model.job import NpuUse

DATA = Path(__file__).parents[2] / "data/npu-smi-info"


def recorded(case: str) -> str:
    return (DATA / f"{case}.txt").read_text()


@pytest.mark.parametrize(
    ("case", "health"),
    [
        ("A2-24.1/usual", {0: "OK", 1: "OK"}),
        ("A2-24.1/ill", {0: "Alarm", 1: "Warning"}),
        ("A3-25.3.rc1/busy", dict.fromkeys(range(16), "OK")),
        ("950-26.0/usual", {0: "OK"}),
        ("A2-24.1/two_chips_of_one_npu", {}),
        ("A2-24.1/no_npus", {}),
    ],
)
def test_the_health_of_each_device(case: str, health: dict[int, str]) -> None:
    assert parse_health(recorded(case)) == health


def test_the_health_belongs_to_the_right_chip() -> None:
    rows = recorded("A3-25.3.rc1/busy").split("\n")
    at = next(n for n, row in enumerate(rows) if row.startswith("| 1     5  "))
    rows[at - 1] = rows[at - 1].replace("| OK      ", "| Critical")
    assert {i for i, word in parse_health("\n".join(rows)).items() if word == "Critical"} == {5}
    of_950 = recorded("950-26.0/usual").replace("| OK     ", "| UNKNOWN")
    assert parse_health(of_950) == {0: "UNKNOWN"}


@pytest.mark.parametrize("word", ["Alarms", "", "NA", "Not known"])
def test_an_unknown_health_hides_no_other(word: str) -> None:
    text = recorded("A2-24.1/ill").replace("| Alarm    ", f"| {word:9}", 1)
    assert parse_health(text) == {0: word, 1: "Warning"}


def test_the_mapping_gives_the_physical_ids() -> None:
    text = recorded("A2-24.1/ill").replace("| 1     910B3", "| 2     910B3")
    text = text.replace("| 0     910B3", "| 1     910B3")
    assert parse_health(text, {(1, 0): 0, (2, 0): 1}) == {0: "Alarm", 1: "Warning"}
    assert parse_health(text, {(2, 0): 1}) == {1: "Warning"}
    assert parse_table(text, {(1, 0): 0, (2, 0): 1}).device_ids == (0, 1)
    busy = text.replace(
        "| No running processes found in NPU 1" + " " * 60 + "|", "| 2  0 | 77 | x | 1 |"
    )
    assert parse_table(busy, {(1, 0): 0, (2, 0): 1}).processes == (NpuProcess(1, 77),)
    two = recorded("A2-24.1/two_chips_of_one_npu")
    assert parse_health(two, {(0, 0): 0, (0, 1): 1}) == {0: "OK", 1: "OK"}


def test_physical_ids_of_the_table_take_precedence() -> None:
    ids = {(npu, chip): 99 for npu in range(8) for chip in range(2)}
    assert parse_health(recorded("A3-25.3.rc1/busy"), ids) == dict.fromkeys(range(16), "OK")


@pytest.mark.parametrize(
    ("case", "free"),
    [
        ("A2-24.1/usual", {0: 62147, 1: 62147}),
        ("950-26.0/usual", {0: 81577}),
        ("A2-24.1/no_npus", {}),
    ],
)
def test_the_free_memory_of_each_device(case: str, free: dict[int, int]) -> None:
    assert parse_free_memory(recorded(case)) == free


def test_devices_without_a_total_show_no_free_memory() -> None:
    assert parse_free_memory(
        recorded("A2-24.1/usual").replace("3389 / 65536", "0    / 0    ", 1)
    ) == {1: 62147}


def use(percent: int | None, celsius: int | None, used_mb: int, total_mb: int) -> NpuUse:
    return NpuUse(
        utilization_percent=percent,
        temperature_c=celsius,
        memory_used_mb=used_mb,
        memory_total_mb=total_mb,
    )


@pytest.mark.parametrize(
    ("case", "device_id", "seen"),
    [
        ("A2-24.1/usual", 1, use(0, 48, 3389, 65536)),
        ("A3-25.3.rc1/busy", 5, use(0, 29, 61795, 65536)),
        ("950-26.0/usual", 0, use(0, 56, 4439, 86016)),
    ],
)
def test_the_use_of_each_device(case: str, device_id: int, seen: NpuUse) -> None:
    assert parse_use(recorded(case))[device_id] == seen


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        (
            "280.1       61 ",
            "97          0    / 0          62308/ 65536",
            use(97, 61, 62308, 65536),
        ),
        ("-           - ", "NA          0    / 0          0    / 0    ", use(None, None, 0, 0)),
        ("14.1        -2 ", "3           1850 / 21527 ", use(3, -2, 1850, 21527)),  # of 310P
    ],
)
def test_what_does_not_exist_is_no_number(first: str, second: str, seen: NpuUse) -> None:
    text = recorded("A2-24.1/usual").replace("91.5        48 ", first, 1)
    text = text.replace("0           0    / 0          3389 / 65536", second, 1)
    assert parse_use(text) == {0: seen, 1: use(0, 48, 3389, 65536)}
