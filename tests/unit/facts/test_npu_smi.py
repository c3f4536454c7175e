"""Health, ids, use and memory of devices in recorded tables of npu-smi, changed a little."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.facts.parsers.npu_smi import NpuProcess, parse_table
from ascendboot.model.job import NpuUse

DATA = Path(__file__).parents[2] / "data/npu-smi-info"


def recorded(case: str) -> str:
    return (DATA / f"{case}.txt").read_text()


def test_the_health_belongs_to_the_right_chip() -> None:
    rows = recorded("A3-25.3.rc1/busy").split("\n")
    at = next(n for n, row in enumerate(rows) if row.startswith("| 1     5  "))
    rows[at - 1] = rows[at - 1].replace("| OK      ", "| Critical")
    health = parse_table("\n".join(rows)).health
    assert {i for i, word in health.items() if word == "Critical"} == {5}
    of_950 = recorded("950-26.0/usual").replace("| OK     ", "| UNKNOWN")
    assert parse_table(of_950).health == {0: "UNKNOWN"}


@pytest.mark.parametrize("word", ["Alarms", "", "NA", "Not known"])
def test_an_unknown_health_hides_no_other(word: str) -> None:
    text = recorded("A2-24.1/ill").replace("| Alarm    ", f"| {word:9}", 1)
    assert parse_table(text).health == {0: word, 1: "Warning"}


def test_the_mapping_gives_the_physical_ids() -> None:
    text = recorded("A2-24.1/ill").replace("| 1     910B3", "| 2     910B3")
    text = text.replace("| 0     910B3", "| 1     910B3")
    assert parse_table(text, {(1, 0): 0, (2, 0): 1}).health == {0: "Alarm", 1: "Warning"}
    assert parse_table(text, {(2, 0): 1}).health == {1: "Warning"}
    busy = text.replace(
        "| No running processes found in NPU 1" + " " * 60 + "|", "| 2  0 | 77 | x | 1 |"
    )
    assert parse_table(busy, {(1, 0): 0, (2, 0): 1}).processes == (NpuProcess(1, 77),)
    two = recorded("A2-24.1/two_chips_of_one_npu")
    assert parse_table(two, {(0, 0): 0, (0, 1): 1}).health == {0: "OK", 1: "OK"}


def test_physical_ids_of_the_table_take_precedence() -> None:
    ids = {(npu, chip): 99 for npu in range(8) for chip in range(2)}
    assert list(parse_table(recorded("A3-25.3.rc1/busy"), ids).devices) == list(range(16))


def test_devices_without_a_total_show_no_free_memory() -> None:
    text = recorded("A2-24.1/usual")
    assert parse_table(text).free_memory == {0: 62147, 1: 62147}
    text = text.replace("3389 / 65536", "0    / 0    ", 1)
    assert parse_table(text).free_memory == {1: 62147}


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        ("280.1       61 ", "97          0    / 0          62308/ 65536", (97, 61, 62308, 65536)),
        ("-           - ", "NA          0    / 0          0    / 0    ", (None, None, 0, 0)),
        ("14.1        -2 ", "3           1850 / 21527 ", (3, -2, 1850, 21527)),  # of 310P
    ],
)
def test_what_does_not_exist_is_no_number(
    first: str, second: str, seen: tuple[int | None, int | None, int, int]
) -> None:
    text = recorded("A2-24.1/usual").replace("91.5        48 ", first, 1)
    text = text.replace("0           0    / 0          3389 / 65536", second, 1)
    percent, celsius, used_mb, total_mb = seen
    assert parse_table(text).uses[0] == NpuUse(
        utilization_percent=percent,
        temperature_c=celsius,
        memory_used_mb=used_mb,
        memory_total_mb=total_mb,
    )
