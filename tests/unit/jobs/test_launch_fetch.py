"""What a node sends of a log of which it has dropped a part, by its marks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from ascendboot.jobs.gather import Frames
from ascendboot.templates import script

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
SIZE = 20 * MIB
WHOLE = f"1.0 {SIZE} {MIB} {16 * MIB}\n"
ALL = [("give", SIZE)]
JUMPED = [("give", MIB), ("skip", 15 * MIB), ("give", 4 * MIB)]


def sent(folder: Path, marks: str, here: int) -> list[tuple[str, int]]:
    """What is given and skipped, in order, to a copy that has `here` bytes."""
    with (folder / "rank.0.log").open("wb") as log:
        log.truncate(SIZE)
    (folder / "rank.0.marks").write_text(marks)
    sizes = (str(folder), "once", "1", "0", "rank.0.log", str(here))
    argv = ("/bin/bash", "-c", script("jobs-logs.sh"), "logs", *sizes)
    done = subprocess.run(argv, capture_output=True, check=True, timeout=300)
    assert done.stderr == b""
    *frames, last = Frames().feed(done.stdout)
    assert last == "end"
    contents = [frame[1] for frame in frames]
    return [("skip", c) if isinstance(c, int) else ("give", len(c)) for c in contents]


@pytest.mark.parametrize(
    ("marks", "parts"),
    [
        (WHOLE, JUMPED),
        ("", ALL),
        (f"1.0 {SIZE} 0 0\n", ALL),
        (f"{WHOLE}2.0 {SIZE} {MIB} 12", JUMPED),
        (f"2.0 {SIZE} {MIB} 12", ALL),
        (f"2.0 {SIZE} {MIB} 12\n3.0 {SIZE}", ALL),
        (f"2.0 {SIZE} {MIB}\n3.", ALL),
    ],
)
def test_a_mark_that_is_torn_makes_no_gap(
    marks: str, parts: list[tuple[str, int]], tmp_path: Path
) -> None:
    assert sent(tmp_path, marks, 0) == parts


def test_who_has_a_part_of_what_was_dropped_gets_what_comes_after(tmp_path: Path) -> None:
    assert sent(tmp_path, WHOLE, 5 * MIB) == [("skip", 11 * MIB), ("give", 4 * MIB)]
