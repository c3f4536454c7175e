"""The cause of a failure, from the evidence of all ranks."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.diagnosis import first_cause
from ascendboot.jobs.evidence import NOBODY, ErrorKind, Named, RankError, RankEvidence
from ascendboot.jobs.stacks import RankView
from ascendboot.model.job import CauseKind, Followed, JobCause
from ascendboot.value import replace

RANKS = tuple(RankEvidence(rank=n, node=f"a-{1 + n // 2}", device=n % 2) for n in range(4))
RESET = "RuntimeError: Connection reset by peer"
Clue: TypeAlias = tuple[int, dict[str, Any]]
"""A rank, and what is known of it."""


def ended(rank: int, code: int, at: float | None, **more: object) -> Clue:
    return rank, {"exit_code": code, "ended_at": at, **more}


def ended_by_us(rank: int, code: int, at: float | None) -> Clue:
    return ended(rank, code, at, is_ended_by_us=True)


def own(rank: int, words: str, at: float | None = None, precision_s: float = 0.0) -> Clue:
    return error(rank, ErrorKind.OWN, words=words, at=at, precision_s=precision_s)


def peer(rank: int, at: float | None = None, *blames: int, nodes: tuple[str, ...] = ()) -> Clue:
    return error(rank, ErrorKind.PEER, words=RESET, at=at, missing=Named(blames, nodes))


def error(rank: int, kind: ErrorKind, **more: Any) -> Clue:
    return rank, {"error": RankError(kind=kind, source=f"rank.{rank}.log", **more)}


def evidence(*clues: Clue) -> list[RankEvidence]:
    ranks = list(RANKS)
    for rank, known in clues:
        ranks[rank] = replace(ranks[rank], **known)
    return ranks


def judged(*clues: Clue, uncertainty_s: float = 0.0, launcher: Named = NOBODY) -> JobCause:
    cause = first_cause(evidence(*clues), launcher, uncertainty_s=uncertainty_s)
    assert cause is not None
    return cause


def test_one_rank_fails_and_all_others_are_ended_for_it() -> None:
    cause = judged(ended(2, 3, 10.0), *(ended(rank, 143, 10.5) for rank in (0, 1, 3)))
    assert cause == JobCause(
        kind=CauseKind.RANK,
        title="a-2: rank 2 on device 0 failed first, with exit code 3, at 00:00:10.000 UTC",
        ranks=(2,),
        nodes=("a-2",),
        device=0,
        at="1970-01-01T00:00:10.000+00:00",
        source="events",
        why="no other rank failed on its own",
        followed=(Followed((0, 1, 3), "ended with the job"),),
    )


def at(rank: int, place: str, wchan: str = "futex_wait_queue") -> Clue:
    """A rank that was ended with the job, and where it was then."""
    lines = ['Thread 9 (idle): "MainThread"', f"    {place} (x.py:3)", "    main (x.py:9)"]
    seen = RankView(rank=rank, node=f"a-{1 + rank // 2}", pid=9, state="S", wchan=wchan)
    seen.spy_code, seen.spy_lines = 0, lines if place else []
    return ended(rank, 143, 12.0, is_ended_by_us=True, view=seen)


def lost(rank: int, at: float, *blames: int, nodes: tuple[str, ...] = ()) -> tuple[Clue, Clue]:
    return ended(rank, 1, at), peer(rank, at, *blames, nodes=nodes)


@pytest.mark.parametrize(
    "clues",
    [
        (at(2, "load"), at(1, "all_reduce"), at(3, "all_reduce")),  # it may wait for its device
        (at(2, "load", ""), at(1, "all_reduce"), at(3, "all_reduce")),  # the kernel shows nothing
        (at(2, "", "hrtimer_nanosleep"), at(1, "all_reduce"), at(3, "all_reduce")),  # no py-spy
        (at(2, "load", "pipe_read"), at(1, "all_reduce"), at(3, "step")),
        (at(2, "load", "pipe_read"), at(1, "all_reduce"), at(3, "load", "pipe_read")),
        (at(2, "load", "pipe_read"), at(1, "all_reduce"), ended(3, 143, 12.0, is_ended_by_us=True)),
        (at(2, "all_gather"), at(1, "all_reduce"), at(3, "all_reduce", "pipe_read")),
    ],
)
def test_stacks_that_do_not_decide_name_nobody(clues: tuple[Clue, ...]) -> None:
    cause = judged(*lost(0, 10.0), *clues)
    assert (cause.kind, cause.ranks) == (CauseKind.ONE_OF, (1, 2, 3))
    assert cause.unsure == "the logs do not show which of them was lost"


def test_stacks_do_not_overrule_what_names_a_rank() -> None:
    clues = (at(2, "load", "pipe_read"), at(1, "all_reduce"), at(3, "all_reduce"))
    assert judged(*lost(0, 10.0, 3), *clues).ranks == (3,)
    own_error = (ended(0, 1, 10.0), own(0, "ValueError: no", 10.0))
    assert judged(*own_error, *clues).ranks == (0,)


def test_a_rank_that_ends_after_the_ranks_that_lost_it_is_the_cause() -> None:
    """As under Horovod: the exception waits for threads, and mpirun names another rank first."""
    cause = judged(
        *(ended(1, 143, 12.0), own(1, "ValueError: no", 9.0)),
        *(ended(0, 1, 10.0), peer(0), ended(2, 1, 10.1), peer(2), ended(3, 143, 11.0)),
    )
    assert (cause.rank, cause.words, cause.source) == (1, "ValueError: no", "rank.1.log")
    assert cause.at == "1970-01-01T00:00:09.000+00:00"
    assert cause.followed == (
        Followed((0, 2), "the connection to another rank broke"),
        Followed((3,), "ended with the job"),
    )


def test_an_error_without_a_time_is_the_cause_if_no_other_rank_has_one() -> None:
    cause = judged(ended(0, 1, 10.0), peer(0), ended_by_us(1, 143, 12.0), own(1, "ValueError: no"))
    assert (cause.rank, cause.at, cause.meaning) == (1, None, "")
    assert (
        cause.title == "a-1: rank 1 on device 1 failed first, and was ended later, with signal 15"
    )
    assert cause.why.endswith(" of its own; the time of this error is unknown")


def test_the_earlier_of_two_own_errors_is_the_cause() -> None:
    cause = judged(ended(0, 1, 10.5), own(0, "KeyError: 1", 10.0), ended(3, 7, 10.25))
    assert (cause.rank, cause.unsure) == (0, "")
    assert cause.why == "0.250 s before a-2:3, the next rank that failed on its own"
    assert cause.followed == (
        Followed((1, 2), "no recorded end"),
        Followed((3,), "failed later, with exit code 7"),
    )


@pytest.mark.parametrize(
    ("seen", "uncertainty_s", "unsure"),
    [
        ((ended(1, 1, 10.1), ended(3, 7, 10.2)), 0.3, ""),  # the next is on the same node
        ((ended(3, 7, 10.2),), 0.1, ""),
        (
            (ended(3, 7, 10.2),),
            0.3,
            "a-2:3 may have failed first: times are only accurate to 0.3 s",
        ),
        (
            (ended(1, 1, 11.0), own(1, "KeyError: 1", 10.5, 1.0)),
            0.0,
            "a-1:1 may have failed first: times are only accurate to 1 s",
        ),
        (
            (ended(1, 143, 12.0), own(1, "KeyError: 1")),
            0.0,
            "the time of the error of a-1:1 is unknown",
        ),
    ],
)
def test_times_that_are_too_close_or_unknown_make_the_cause_uncertain(
    seen: tuple[Clue, ...], uncertainty_s: float, unsure: str
) -> None:
    cause = judged(ended(0, 1, 10.0), *seen, uncertainty_s=uncertainty_s)
    assert (cause.rank, cause.unsure) == (0, unsure)


def test_all_ranks_fail_alike() -> None:
    missing = "ModuleNotFoundError: No module named 'apex'"
    seen = [clue for n in range(4) for clue in (ended(n, 1, 10 + n / 10), own(n, missing))]
    cause = judged(*seen)
    assert (cause.rank, cause.ranks, cause.device) == (None, (0, 1, 2, 3), None)
    assert cause.title == (
        "a-[1-2]: all 4 ranks failed alike, with exit code 1, at 00:00:10.000 UTC"
    )
    assert cause.meaning == "Python lacks a module"
    assert (cause.followed, cause.unsure) == ((), "")


def test_a_rank_with_the_same_error_while_it_is_ended_counts_as_alike() -> None:
    seen = [clue for n in range(3) for clue in (ended(n, 1, 10.0), own(n, f"KeyError: {n}", 9.0))]
    late = error(3, ErrorKind.LATE, at=11.0, words="KeyError: 3")
    cause = judged(*seen, ended_by_us(3, 1, 11.0), late)
    assert (cause.kind, cause.ranks, cause.words) == (CauseKind.ALIKE, (0, 1, 2, 3), "KeyError: 0")
    assert judged(ended(0, 1, 10.0), ended_by_us(3, 1, 11.0), late).ranks == (0,)


def test_all_fail_alike_although_the_first_was_ended() -> None:
    said = [own(n, "main.py: error: unrecognized arguments: -x", 9.0 + n) for n in range(4)]
    cause = judged(*said, ended_by_us(0, 143, 11.0), *(ended(n, 2, 10.0) for n in (1, 2, 3)))
    assert cause.title == (
        "a-[1-2]: all 4 ranks failed alike, with exit code 2, at 00:00:09.000 UTC"
    )
    cause = judged(*said, *(ended_by_us(n, 143, 11.0) for n in range(4)))
    assert cause.title == "a-[1-2]: all 4 ranks failed alike, at 00:00:09.000 UTC"


def test_the_ranks_of_one_node_fail_alike() -> None:
    torch = "ImportError: libhccl.so: cannot open shared object file"
    cause = judged(
        *(clue for n in (2, 3) for clue in (ended(n, 1, 10.0 + n), own(n, torch))),
        *(ended(n, 143, 13.5) for n in (0, 1)),
    )
    assert cause.title == "a-2: 2 of 4 ranks failed alike (ranks 2-3), at 00:00:12.000 UTC"
    assert cause.followed == (Followed((0, 1), "ended with the job"),)


def test_all_end_together_with_one_exit_code_and_no_error() -> None:
    assert judged(*(ended(n, 2, 10 + n / 10) for n in range(4))).kind is CauseKind.ALIKE
    assert judged(*(ended(n, 2, 10.0 + n) for n in range(4))).kind is CauseKind.RANK


def test_a_rank_whose_end_only_the_launcher_reports_was_the_first() -> None:
    killed = ended(3, 137, None, is_killed_unseen=True)
    cause = judged(killed, ended(0, 1, 10.0), own(0, "KeyError: 1", 9.0))
    assert (cause.rank, cause.at) == (3, None)
    assert cause.meaning.startswith("SIGKILL")
    assert cause.unsure == ""


@pytest.mark.parametrize(
    ("end", "meaning"),
    [
        (ended(1, 139, 10.0), "a fault in native code"),
        (ended(1, 135, 10.0), "SIGBUS"),
        (ended(1, 143, 10.0), "SIGTERM, from outside of the job"),
        (ended(1, 137, 10.0, out_of_memory=True), "SIGKILL, while the kernel ended processes"),
    ],
)
def test_the_meaning_of_an_end(end: Clue, meaning: str) -> None:
    cause = judged(end, ended(0, 1, 10.1), peer(0))
    assert (cause.rank, cause.meaning[: len(meaning)]) == (1, meaning)


def test_a_rank_that_ended_well_while_others_needed_it() -> None:
    cause = judged(ended(1, 0, 5.0), ended(0, 1, 10.0), peer(0), ended(2, 1, 10.1), peer(2))
    assert (cause.kind, cause.ranks) == (CauseKind.LEFT, (1,))
    assert cause.title == "a-1: rank 1 ended with exit code 0 while others waited for it"


KILLED = "all others only lost a peer; this rank was killed and logged no error"
ELSEWHERE = "it was in load (x.py:3) when the job was ended; ranks 1,3 were in a collective"
IN_LOAD = at(2, "load", "folio_wait_bit_common")
ALONE = "all others lost a peer, and only this rank logged no error"
ALL_LOST = "every rank only reports that it lost another"
UNNAMED = "rank 0 lost a peer, and these logged no error"
ONE = "the logs do not show which of them "


@pytest.mark.parametrize(
    ("seen", "kind", "ranks", "why", "unsure"),
    [
        (
            (ended(2, 137, 10.2), ended(0, 1, 10.0), peer(0), ended(1, 143, 10.3)),
            *(CauseKind.RANK, (2,), KILLED, ""),
        ),
        # The only one that was in no collective.
        (
            (*lost(0, 10.0), IN_LOAD, at(1, "all_reduce"), at(3, "barrier")),
            *(CauseKind.LEFT, (2,), ELSEWHERE, ""),
        ),
        # The only one that says nothing, whatever ended it.
        (
            (*lost(0, 10.0), *lost(1, 10.1), *lost(2, 10.2), ended_by_us(3, 143, 11.0)),
            *(CauseKind.LEFT, (3,), ALONE, ""),
        ),
        # A chain: who is named and lost a peer too is not the cause.
        (
            (*lost(0, 10.0, 1), *lost(1, 10.1, 2), *lost(2, 10.2, 3), ended(3, 143, 11.0)),
            *(CauseKind.LEFT, (3,), "rank 2 reports it missing", ""),
        ),
        # One that says nothing only waited; the other is named.
        (
            (*lost(0, 10.0, 3), *lost(1, 10.1, 3), ended_by_us(2, 143, 11.0)),
            *(CauseKind.LEFT, (3,), "ranks 0-1 report it missing", ""),
        ),
        # The address of a node names it where one rank of it says nothing ...
        (
            (*lost(0, 10.0, nodes=("a-2",)), *lost(2, 10.2, nodes=("a-2",))),
            *(CauseKind.LEFT, (3,), "ranks 0,2 report it missing", ""),
        ),
        # ... and does not decide where several do.
        (
            lost(0, 10.0, nodes=("a-2",)),
            *(CauseKind.ONE_OF, (2, 3), "rank 0 reports their node missing, but no rank"),
            f"{ONE}was lost",
        ),
        (
            (*lost(0, 10.0, 2), *lost(1, 10.0, 3)),
            *(CauseKind.ONE_OF, (2, 3), "ranks 0-1 report different ranks missing"),
            f"{ONE}was lost",
        ),
        (
            (*lost(0, 10.0), ended_by_us(1, 143, 11.0), ended(2, 143, 11.0)),
            *(CauseKind.ONE_OF, (1, 2, 3), UNNAMED, f"{ONE}was lost"),
        ),
        # All lost another: the one that all others name, else any.
        (
            (*lost(0, 10.0, 2), *lost(1, 10.1, 2), *lost(2, 10.2, 0), *lost(3, 10.3, 2)),
            *(CauseKind.LEFT, (2,), "ranks 0-1,3 report it missing", ""),
        ),
        (
            tuple(clue for n in range(4) for clue in lost(n, 10.0 + n, (n + 1) % 4)),
            *(CauseKind.ONE_OF, (0, 1, 2, 3), ALL_LOST),
            "the logs do not show which of them was first; a-1:0 logged its error first",
        ),
    ],
)
def test_whom_the_others_miss(
    seen: tuple[Clue, ...], kind: CauseKind, ranks: tuple[int, ...], why: str, unsure: str
) -> None:
    cause = judged(*seen)
    assert (cause.kind, cause.ranks, cause.why, cause.unsure) == (kind, ranks, why, unsure)
    if kind is CauseKind.ONE_OF:
        assert "not certain which rank failed first: one of ranks " in cause.title


def test_an_own_error_is_doubted_where_the_others_name_another() -> None:
    seen = (ended(1, 1, 10.0), own(1, "[ERROR] no metrics"), *lost(0, 10.5, 3), *lost(2, 10.6, 3))
    assert judged(*seen).unsure == ("rank 3 may have failed first: ranks 0,2 report it missing")


def test_an_own_error_explains_why_its_node_is_missing() -> None:
    lost_node = [peer(n, 10.5, nodes=("a-1",)) for n in (2, 3)]
    of_node = [*lost_node, *(ended(n, 143, 11.0) for n in (2, 3))]
    cause = judged(ended(0, 139, 10.0), own(0, "Segmentation fault"), ended(1, 143, 11.0), *of_node)
    assert (cause.ranks, cause.unsure) == ((0,), "")
    of_rank = peer(3, 10.5, 1, nodes=("a-1",))
    cause = judged(ended(0, 139, 10.0), own(0, "Segmentation fault"), *of_node, of_rank)
    assert cause.unsure == "rank 1 may have failed first: rank 3 reports it missing"


def test_no_rank_failed_before_it_was_ended() -> None:
    assert first_cause(evidence(ended_by_us(0, 143, 10.0), ended(1, 0, 9.0))) is None
    assert first_cause(RANKS) is None


def test_the_verdict_fits_a_screen() -> None:
    seen = (ended(0, 1, 10.0), own(0, "EI0011", 9.9), ended(3, 7, 10.0), ended(1, 143, 11.0))
    remedy = "npu-smi info shows what else runs on it; else use a smaller batch"
    followed = "rank 1: ended with the job; rank 2: no recorded end; rank 3: failed later"
    assert judged(*seen, uncertainty_s=1.0).lines() == [
        "a-1: rank 0 on device 0 failed first, with exit code 1, at 00:00:09.900 UTC",
        "  it says: EI0011",
        "  it means: the device has too little free memory",
        f"  to do: {remedy} or a smaller HCCL_BUFFSIZE",
        "  reason: 0.100 s before a-2:3, the next rank that failed on its own",
        "  not certain: a-2:3 may have failed first: times are only accurate to 1 s",
        f"  only followed: {followed}, with exit code 7",
    ]


TIMES = st.none() | st.integers(0, 40).map(lambda n: n / 4)
ENDS = st.none() | st.builds(
    lambda by_us, code, at: (ended_by_us if by_us else ended)(0, code, at)[1],
    st.booleans(),
    st.sampled_from((0, 1, 3, 137, 139, 143)),
    TIMES,
)
ERRORS = st.none() | st.builds(
    lambda is_own, word, at: (own(0, word, at) if is_own else peer(0, at))[1],
    st.booleans(),
    st.sampled_from(("KeyError: 1", "ValueError: 2 x")),
    TIMES,
)
JOBS = st.tuples(*[st.tuples(ENDS, ERRORS)] * 4).map(
    lambda ranks: evidence(
        *((n, {**(end or {}), **(err or {})}) for n, (end, err) in enumerate(ranks))
    )
)


@given(JOBS)
def test_a_cause_is_not_among_the_followers(ranks: list[RankEvidence]) -> None:
    cause = first_cause(ranks)
    if cause is not None:
        followed = {rank for group in cause.followed for rank in group.ranks}
        assert not followed & set(cause.ranks)
        assert len(cause.lines()) <= 7


@given(JOBS, st.integers(-4, 4), st.randoms())
def test_a_shift_of_all_clocks_does_not_change_the_cause(
    ranks: list[RankEvidence], by: int, random: Any
) -> None:
    def later(at: float | None) -> float | None:
        return None if at is None else at + 100 + by

    moved = [
        replace(
            one,
            ended_at=later(one.ended_at),
            error=one.error and replace(one.error, at=later(one.error.at)),
        )
        for one in ranks
    ]
    random.shuffle(moved)  # nor does the order
    first, second = first_cause(ranks), first_cause(moved)
    assert (first and first.ranks) == (second and second.ranks)


@pytest.mark.parametrize(
    ("launcher", "more", "ranks", "why", "unsure"),
    [
        (Named((3,)), [], (3,), "launcher.log reports it missing", ""),
        (
            Named((), ("a-2",)),
            [],
            (2, 3),
            "launcher.log reports their node missing, but no rank",
            "the logs do not show which of them was lost",
        ),
        (
            Named((), ("a-2",)),
            [ended(2, 1, 9.0), own(2, "ValueError: loss is nan", 9.0)],
            (2,),
            "no other rank failed on its own",
            "",
        ),
        (
            Named((3,)),
            [ended(2, 1, 9.0)],
            (2,),
            "no other rank failed on its own",
            "rank 3 may have failed first: launcher.log reports it missing",
        ),
    ],
    ids=["rank", "node", "explained", "doubted"],
)
def test_item_09_a_peer_that_only_the_launcher_names(
    launcher: Named, more: list[Clue], ranks: tuple[int, ...], why: str, unsure: str
) -> None:
    cause = judged(*lost(0, 10.0), *lost(1, 10.0), *more, launcher=launcher)
    assert (cause.ranks, cause.why, cause.unsure) == (ranks, why, unsure)


@pytest.mark.parametrize(
    ("kind", "label"), [(CauseKind.RANK, "it says"), (CauseKind.LEFT, "from the logs")]
)
def test_words_of_others_are_not_shown_as_its_own(kind: CauseKind, label: str) -> None:
    cause = JobCause(kind=kind, title="t", ranks=(1,), nodes=("a-1",), words="w")
    assert cause.lines() == ["t", f"  {label}: w"]
