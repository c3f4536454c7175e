"""The notes in the log of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.checks.collective.progress import RankNotes, rank_notes, read
from ascendboot.errors import NotUnderstoodError
from tests.unit.collective.ranks import digest, facts, log

DONE = ({"wrong": None, "clock": 5.0}, {"at": "done"})


def test_the_log_of_a_rank_that_came_to_the_end() -> None:
    text = (
        "a warning of a library\n"
        + log(0, {"at": "load"}, {"at": "meet"}, {"library": "MPI 3"}, {"at": "neighbours"})
        + "no newline of ours "
        + log(0, {"at": "gather"}, {"digests": ["a", "b"]}, {"at": "sum"}).partition("\n")[2]
        + log(0, *DONE).partition("\n")[2]
    )
    assert rank_notes(text) == RankNotes(
        at="done",
        facts=facts(0),
        digest=digest(0),
        library="MPI 3",
        digests=("a", "b"),
        clock=5.0,
        others=("a warning of a library", "no newline of ours "),
    )


def test_a_rank_that_gave_up_one_that_was_late_and_one_cut_off_in_a_word() -> None:
    failed = {"failed": "ImportError: x", "silent": None, "after_s": 1.5}
    one = rank_notes(log(1, {"at": "load"}, failed))
    assert (one.at, one.failed, one.after_s, one.is_late) == ("load", "ImportError: x", 1.5, False)
    late = rank_notes(
        log(1, {"at": "meet"}) + "Timeout (0:01:00)!\nThread 0x1 (most recent call):\n"
    )
    assert (late.at, late.is_late) == ("meet", True)
    assert rank_notes(log(1)[:-20]) == RankNotes()


@pytest.mark.parametrize(
    "note", ['{"at": "lunch"}', "{}", "[]", '{"hungry": 1}', '{"clock": "late"}', "x"]
)
def test_a_note_that_nobody_knows_is_refused(note: str) -> None:
    with pytest.raises(NotUnderstoodError):
        rank_notes(f"ascendboot-preflight {note}\n")


def test_a_rank_without_a_log_said_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank.1.log").write_text(log(1))
    assert read(tmp_path, [0, 1]) == {0: RankNotes(), 1: rank_notes(log(1))}
