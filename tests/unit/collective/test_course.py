"""How a preflight went, from the words of its ranks and the launcher's report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ascendboot.checks.collective.findings import collective_findings
from ascendboot.checks.collective.progress import RankNotes, rank_notes, read
from ascendboot.errors import NotUnderstoodError
from ascendboot.model.job import FirstFailure, JobState
from tests.unit.collective.ranks import PLACES, all_well, digest, end, facts, log, report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ascendboot.model.job import JobReport

DONE = ({"wrong": None, "clock": 5.0}, {"at": "done"})


def told(
    said: Mapping[int, RankNotes], report: JobReport, by: str = "mpi"
) -> list[tuple[str, str]]:
    return [(f.id, f.message) for f in collective_findings(PLACES, said, report, by=by)]


# ------------------------------------------------------------------------------------- what is read


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


# ----------------------------------------------------------------------------------- what it means


def test_when_all_have_the_sum_there_is_nothing_to_say() -> None:
    well = all_well()
    well[0] = replace(well[0], digests=("0", "1", "2", "3"))
    assert told(well, report()) == []


def test_what_was_not_started_is_told_in_the_words_of_the_launch() -> None:
    message = (
        "lab-2: could not make ready for job j: no rank table /t; run setup\n"
        "job job.preflight: not started on any node"
    )
    refused = report(125, state=JobState.NOT_STARTED, message=message)
    nothing = dict.fromkeys(range(4), RankNotes())
    assert told(nothing, refused) == [
        (
            "preflight-not-run",
            (
                "lab-[1-2]: the preflight could not be run: lab-2: could not make ready for "
                "job j: no rank table /t; run setup."
            ),
        )
    ]


@pytest.mark.parametrize("state", [JobState.INTERRUPTED, JobState.STOPPED])
def test_nobody_is_blamed_for_a_preflight_that_was_interrupted(state: JobState) -> None:
    begun = {rank: RankNotes(at="meet") for rank in range(4)}
    assert told(begun, report(130, state=state)) == []


def test_who_was_not_heard_is_named_with_both_ends() -> None:
    stuck = {
        rank: replace(one, at="neighbours", failed="SilentError: …", silent=2 - rank)
        if rank in (0, 2)
        else replace(one, at="gather")
        for rank, one in all_well().items()
    }
    assert [(id_, message.partition(". ")[0]) for id_, message in told(stuck, report(3))] == [
        (
            "preflight-silent",
            (
                "lab-[1-2]: rank 0 on device 4 of lab-1: heard nothing from rank 2 on device 4 of "
                "lab-2 within 10 s"
            ),
        ),
        (
            "preflight-silent",
            (
                "lab-[1-2]: rank 2 on device 4 of lab-2: heard nothing from rank 0 on device 4 of "
                "lab-1 within 10 s"
            ),
        ),
    ]


def test_ranks_that_failed_are_blamed_and_not_those_that_were_ended_for_it() -> None:
    gone = all_well()
    gone |= {r: replace(gone[r], at="load", failed="ImportError: no libmpi") for r in (1, 3)}
    gone[2] = RankNotes()
    assert told(gone, report(3)) == [
        (
            "preflight-failed",
            (
                "lab-[1-2]: ranks 1,3: failed while it loaded the library of the collective: "
                "ImportError: no libmpi. Install mpi4py, built with the Open MPI of mpirun "
                "there."
            ),
        )
    ]


def test_a_rank_that_was_killed_is_named_with_what_it_was_at() -> None:
    killed = {rank: replace(one, at="sum") for rank, one in all_well().items()}
    killed[3] = replace(killed[3], others=("Bus error",))
    failure = FirstFailure(**vars(end(3, 137, 9)), message="", log="runs/rank.3.log")
    assert told(killed, report(137, first_failure=failure)) == [
        (
            "preflight-failed",
            (
                "lab-2: rank 3 on device 5: ended with signal 9 in the allreduce: Bus error. Read "
                "its log: runs/rank.3.log."
            ),
        )
    ]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("", "lab-2: ranks 2-3: never came: nothing was heard of it (gone)"),
        (
            "meet",
            "lab-2: ranks 2-3: came no further, while it met the others; nobody failed (gone)",
        ),
    ],
)
def test_who_came_least_far_is_named_when_time_was_up(at: str, words: str) -> None:
    late = {rank: replace(one, at="gather", is_late=True) for rank, one in all_well().items()}
    late |= {rank: RankNotes(at=at) for rank in (2, 3)}
    failure = FirstFailure(**vars(end(0, 1)), message="", log="runs/rank.0.log")
    ended = report(1, first_failure=failure, message="gone")
    [(id_, message)] = told(late, ended)
    assert (id_, message.partition(". ")[0]) == ("preflight-failed", words)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("", "never came: nothing was heard of it; ranks 0-2 waited in vain"),
        (
            "load",
            (
                "came no further, while it loaded the library of the collective; ranks 0-2 waited "
                "in vain"
            ),
        ),
    ],
)
def test_who_waited_in_vain_for_others_is_not_blamed(at: str, words: str) -> None:
    timed_out = "DistStoreError: Timed out after 31 seconds waiting for clients"
    waited = {
        rank: replace(one, at="meet", failed=timed_out, after_s=30.5)
        for rank, one in all_well().items()
    }
    failure = FirstFailure(**vars(end(0, 3)), message="", log="runs/rank.0.log")
    ended = report(3, first_failure=failure)
    [(id_, message)] = told({**waited, 3: RankNotes(at=at)}, ended, by="gloo")
    assert (id_, message.partition(". ")[0]) == (
        "preflight-failed",
        f"lab-2: rank 3 on device 5: {words}",
    )
    # All came: then it is the way between them.
    [(_, message)] = told(waited, ended, by="gloo")
    assert message.startswith(f"lab-[1-2]: ranks 0-3: failed while it met the others: {timed_out}")


def test_a_library_that_fails_at_once_is_blamed_though_others_were_not_there_yet() -> None:
    broken = {
        rank: replace(one, at="meet", failed="ImportError: no libmpi", after_s=0.2)
        for rank, one in all_well().items()
    }
    [(_, message)] = told({**broken, 0: RankNotes(at="load")}, report(3))
    assert message.startswith("lab-[1-2]: ranks 1-3: failed while it met the others: ImportError")


def test_ranks_that_ended_well_are_not_refused_for_a_launcher_that_took_long() -> None:
    [finding] = collective_findings(
        PLACES, all_well(), report(143, message="asked to end"), by="gloo"
    )
    assert (finding.level, finding.text) == (
        "warning",
        "ranks 0-3: had the sum, and the end took too long (asked to end)",
    )
    hung = report(1, ranks=tuple(end(rank, 1) for rank in range(4)))
    [finding] = collective_findings(PLACES, all_well(), hung, by="mpi")
    assert finding.level == "error"


def test_a_wrong_sum_and_a_rank_that_the_collective_does_not_know() -> None:
    odd = all_well()
    odd[0] = replace(odd[0], digests=("0", "1", "3", "2"))
    odd |= {rank: replace(odd[rank], wrong=(7.0, 69.0, 70.0)) for rank in (0, 1)}
    assert [(id_, message.partition(". ")[0]) for id_, message in told(odd, report())] == [
        (
            "preflight-failed",
            "lab-2: ranks 2-3: gave something else to the gather than it wrote into its log",
        ),
        (
            "preflight-sum",
            "lab-1: ranks 0-1: got a wrong sum: number 7 is 69 and should be 70",
        ),
    ]
