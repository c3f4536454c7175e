"""Findings of a preflight: why ranks did not meet, and which differ from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.collective.findings import collective_findings, compare, differences
from ascendboot.checks.collective.progress import RankNotes
from ascendboot.checks.collective.rank import shown
from ascendboot.model.job import FirstFailure, JobReport, JobState
from tests.unit.checks.well import only
from tests.unit.collective.ranks import DIGEST, SLOTS, all_well, end, facts, report


def told(said: Mapping[int, RankNotes], report: JobReport, by: str = "mpi") -> list[str]:
    return [f"{f.id} {f.message}" for f in collective_findings(SLOTS, said, report, by=by)]


def test_when_all_have_the_sum_there_is_nothing_to_say() -> None:
    well = all_well()
    well[0] = replace(well[0], digests=("0", "1", "2", "3"))
    assert told(well, report()) == []


def test_what_was_not_started_is_told_in_the_words_of_the_launch() -> None:
    message = (
        "lab-2: could not prepare job j: no rank table /t; run setup\n"
        "job job.preflight: not started on any node"
    )
    refused = report(125, state=JobState.NOT_STARTED, message=message)
    nothing = dict.fromkeys(range(4), RankNotes())
    assert only(told(nothing, refused)) == (
        "preflight-not-run lab-[1-2]: the preflight could not be run: lab-2: could not prepare job"
        " j: no rank table /t; run setup."
    )


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
    assert [message.partition(". ")[0] for message in told(stuck, report(3))] == [
        (
            "preflight-silent lab-[1-2]: rank 0 on device 4 of lab-1: heard nothing from rank 2 "
            "on device 4 of lab-2 within 10 s"
        ),
        (
            "preflight-silent lab-[1-2]: rank 2 on device 4 of lab-2: heard nothing from rank 0 "
            "on device 4 of lab-1 within 10 s"
        ),
    ]


def test_ranks_that_failed_are_blamed_and_not_those_that_were_ended_for_it() -> None:
    gone = all_well()
    gone |= {r: replace(gone[r], at="load", failed="ImportError: no libmpi") for r in (1, 3)}
    gone[2] = RankNotes()
    assert only(told(gone, report(3))) == (
        "preflight-failed lab-[1-2]: ranks 1,3: failed while it loaded the library of the "
        "collective: ImportError: no libmpi. Install mpi4py, built with the Open MPI of mpirun "
        "there."
    )


def test_a_rank_that_was_killed_is_named_with_what_it_was_at() -> None:
    killed = {rank: replace(one, at="sum") for rank, one in all_well().items()}
    killed[3] = replace(killed[3], others=("Bus error",))
    failure = FirstFailure(**vars(end(3, 137, 9)), message="", log="runs/rank.3.log")
    assert only(told(killed, report(137, first_failure=failure))) == (
        "preflight-failed lab-2: rank 3 on device 5: ended with signal 9 in the allreduce: Bus "
        "error. Read its log: runs/rank.3.log."
    )


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
    [message] = told(late, ended)
    assert message.partition(". ")[0] == f"preflight-failed {words}"


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
    [message] = told({**waited, 3: RankNotes(at=at)}, ended, by="gloo")
    assert message.partition(". ")[0] == f"preflight-failed lab-2: rank 3 on device 5: {words}"
    # All came: then it is the way between them.
    [message] = told(waited, ended, by="gloo")
    assert message.startswith(
        f"preflight-failed lab-[1-2]: ranks 0-3: failed while it met the others: {timed_out}"
    )


def test_a_library_that_fails_at_once_is_blamed_though_others_were_not_there_yet() -> None:
    broken = {
        rank: replace(one, at="meet", failed="ImportError: no libmpi", after_s=0.2)
        for rank, one in all_well().items()
    }
    [message] = told({**broken, 0: RankNotes(at="load")}, report(3))
    assert message.startswith(
        "preflight-failed lab-[1-2]: ranks 1-3: failed while it met the others: ImportError"
    )


def test_ranks_that_ended_well_are_not_refused_for_a_launcher_that_took_long() -> None:
    [finding] = collective_findings(
        SLOTS, all_well(), report(143, message="asked to end"), by="gloo"
    )
    assert (finding.level, finding.text) == (
        "warning",
        "ranks 0-3: had the sum, and the end took too long (asked to end)",
    )
    hung = report(1, ranks=tuple(end(rank, 1) for rank in range(4)))
    [finding] = collective_findings(SLOTS, all_well(), hung, by="mpi")
    assert finding.level == "error"


def test_a_wrong_sum_and_a_rank_that_the_collective_does_not_know() -> None:
    odd = all_well()
    odd[0] = replace(odd[0], digests=("0", "1", "3", "2"))
    odd |= {rank: replace(odd[rank], wrong=(7.0, 69.0, 70.0)) for rank in (0, 1)}
    assert [message.partition(". ")[0] for message in told(odd, report())] == [
        (
            "preflight-failed lab-2: ranks 2-3: gave something else to the gather than it wrote "
            "into its log"
        ),
        "preflight-sum lab-1: ranks 0-1: got a wrong sum: number 7 is 69 and should be 70",
    ]


VALUES = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "120", "600", "/usr/bin:/bin", "/opt/a:" * 20, "a b", "\udc80", "\x1b[2J"]
    ),
    st.text(st.characters(exclude_characters="\u2460\u2461\u2462"), max_size=200),
    st.builds(
        lambda digest: {"digest": digest}, st.text("\u2460\u2461\u2462", min_size=1, max_size=8)
    ),
)


def compared(said: Mapping[int, RankNotes]) -> list[str]:
    return [f"{f.id} {f.level} {f.message}" for f in compare(SLOTS, said, DIGEST)]


def test_of_equal_ranks_there_is_nothing_to_say() -> None:
    assert compared(all_well()) == []


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(0, 40), VALUES, min_size=1))
def test_every_rank_is_named_that_has_another_value_than_most(values: dict[int, Any]) -> None:
    named = [rank for ranks, _ in differences("NAME", values, absent="not set") for rank in ranks]
    counts = Counter(repr(value) for value in values.values())
    leads = max(counts.values())
    unnamed = set(values) - set(named)
    assert len(named) == len(set(named))
    assert len({repr(values[rank]) for rank in unnamed}) == 1
    assert len(unnamed) == leads
    if list(counts.values()).count(leads) > 1:
        first = min(r for r in values if counts[repr(values[r])] == leads)
        assert first in unnamed


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(0, 9), VALUES, min_size=2))
def test_words_are_fit_for_a_terminal_and_show_no_secret(values: dict[int, Any]) -> None:
    for _, words in differences("NAME", values, absent="not set"):
        assert words.startswith("NAME ")
        assert words.isprintable()
        words.encode()
        for value in values.values():
            if isinstance(value, dict):
                assert value["digest"] not in words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0: "600", 1: "120"}, [((1,), "T is 120, 600 on the other 1")]),
        ({0: "600", 1: "600", 2: None}, [((2,), "T is not set, 600 on the other 2")]),
        ({0: None, 1: "a b"}, [((1,), 'T is "a b", not set on the other 1')]),
        (
            {0: "1", 1: "1", 2: "2", 3: "3"},
            [((2,), "T is 2, 1 on 2 others"), ((3,), "T is 3, 1 on 2 others")],
        ),
        (
            {0: {"digest": "ab"}, 1: {"digest": "cd"}},
            [((1,), "T is not that of the other 1 (it may be a secret, and is not shown)")],
        ),
        (
            {0: ":".join(f"/usr/{i}" for i in range(20)), 1: "/opt/x:/usr/0"},
            [
                (
                    (1,),
                    (
                        f"T has /opt/x and lacks {', '.join(f'/usr/{i}' for i in range(1, 13))}, "
                        "7 more, unlike the other 1"
                    ),
                )
            ],
        ),
        (
            {0: f"/a:/b:{'/c' * 60}", 1: f"/b:/a:{'/c' * 60}"},
            [((1,), "T has another order, unlike the other 1")],
        ),
    ],
)
def test_differences_in_words(values: dict[int, Any], words: list[tuple[Any, str]]) -> None:
    assert list(differences("T", values, absent="not set")) == words


def test_what_differs_is_told_with_ranks_and_nodes_and_once_for_the_same_ranks() -> None:
    env = {**facts(2)["env"], "HCCL_CONNECT_TIMEOUT": "120", "HCCL_X": "1"}
    said = all_well(
        env={2: env, 3: env},
        versions={1: {"Python": "3.7.5"}},
        limits={3: {**facts(3)["limits"], "ulimit -l": "64"}},
    )
    assert compared(said) == [
        (
            "preflight-versions error lab-1: rank 1 on device 5: mpi4py is not there, 4.0.3 on "
            "the other 3. Install the same version everywhere."
        ),
        (
            "preflight-environment error lab-2: ranks 2-3: HCCL_CONNECT_TIMEOUT is 120, 600 on "
            "the other 2; HCCL_X is 1, not set on the other 2. Look for it in the container, in "
            "set_env.sh and in what starts Python on that node, or state it under env in the "
            "inventory and run setup."
        ),
        (
            "preflight-limits warning lab-2: rank 3 on device 5: ulimit -l is 64, unlimited on "
            "the other 3. Set it alike: limits.conf or the service's LimitMEMLOCK and "
            "LimitNOFILE; --ulimit and --shm-size of a container."
        ),
    ]


def test_what_mpirun_puts_before_a_list_of_paths_twice_is_no_difference() -> None:
    said = all_well(
        env={rank: {"LD_LIBRARY_PATH": "/usr/lib:/usr/lib" + ":" * (rank > 1)} for rank in range(4)}
    )
    assert compared(said) == []


def test_a_rank_that_is_not_where_it_should_be() -> None:
    said = all_well(
        device={1: "7"},
        local_rank={2: "1"},
        elsewhere={2: {"HCCL_IF_IP": "192.0.2.9"}, 3: {"HCCL_IF_IP": "192.0.2.9"}},
        container={3: "0123456789ab"},
    )
    assert [message.partition(". ")[0] for message in compared(said)] == [
        'preflight-place error lab-1: rank 1 on device 5: DEVICE_ID is "7" and should be 5',
        'preflight-place error lab-2: rank 2 on device 4: LOCAL_RANK is "1" and should be 0',
        (
            "preflight-place error lab-2: ranks 2-3: HCCL_IF_IP is 192.0.2.9, which no interface "
            "of the node has"
        ),
        (
            "preflight-place error lab-2: rank 3 on device 5: the container is 0123456789ab, "
            '"" on the other 1'
        ),
    ]


def test_among_visible_devices_a_number_is_a_place_in_their_list() -> None:
    said = all_well(
        visible=dict.fromkeys(range(4), "4,5"),
        device={rank: str(SLOTS[rank].local_rank) for rank in range(4)},
    )
    assert compared(said) == []


def test_another_rank_table_is_told_and_where_it_puts_ranks() -> None:
    table = facts(3)["table"]
    said = all_well(
        table={
            1: None,
            2: {**table, "sha256": "", "problem": "no such file"},
            3: {**table, "sha256": "e" * 64, "device": "7"},
        }
    )
    assert [message.partition(". ")[0] for message in compared(said)] == [
        "preflight-rank-table error lab-1: rank 1 on device 5: RANK_TABLE_FILE is not set",
        (
            "preflight-rank-table error lab-2: rank 2 on device 4: the rank table cannot be read: "
            "no such file"
        ),
        (
            "preflight-rank-table error lab-2: rank 3 on device 5: the rank table is another: "
            f"sha256 {'e' * 12}, not {'d' * 12}; runs on device 5 of 198.18.0.2; "
            "its rank table says device 7 of server 198.18.0.2"
        ),
    ]


def test_a_rank_without_an_entry_and_one_in_a_table_without_servers() -> None:
    table = facts(3)["table"]
    said = all_well(
        table={2: {**table, "server": "", "device": ""}, 3: {**table, "server": ""}},
    )
    assert [message.partition(". ")[0] for message in compared(said)] == [
        "preflight-rank-table error lab-2: rank 2 on device 4: has no entry in its rank table"
    ]


def test_a_clock_that_is_off_when_all_have_the_sum() -> None:
    said = all_well()
    said |= {rank: replace(said[rank], clock=1e9 - 90) for rank in (2, 3)}
    [early, late] = compared(said)
    ahead = "preflight-clock warning lab-1: the clock of its ranks is 45 s ahead, when all nodes"
    assert early.startswith(ahead)
    assert late.startswith("preflight-clock warning lab-2: ")


def test_ranks_of_which_nothing_was_heard_have_no_part_in_it() -> None:
    assert compared({**all_well(), 3: RankNotes()}) == []
    assert compared(dict.fromkeys(range(4), RankNotes())) == []


def test_what_the_inventory_states_for_one_node_is_held_against_that_alone() -> None:
    own = {"HCCL_CONNECT_TIMEOUT": "1200", "LD_LIBRARY_PATH": "/opt/a:/opt/b", "HCCL_KEY": "k"}
    two = replace(SLOTS[2].node, env={**own, "MINE": "x"})
    slots = [*SLOTS[:2], *(replace(slot, node=two) for slot in SLOTS[2:])]
    usual = facts(0)["env"]
    seen = {**usual, **own, "HCCL_KEY": shown("HCCL_KEY", "k"), "LD_LIBRARY_PATH": "/opt/a:/opt/b:"}
    as_stated = all_well(env={2: seen, 3: seen})
    assert [*compare(slots, as_stated, DIGEST)] == []
    assert [found.nodes for found in compare(SLOTS, as_stated, DIGEST)] == [("lab-2",)]
    [found] = compare(slots, all_well(env={2: seen, 3: usual}), DIGEST)
    assert found.text == (
        "rank 3 on device 5: HCCL_CONNECT_TIMEOUT is 600, 1200 on its node in the inventory; "
        "HCCL_KEY is not that of its node in the inventory (it may be a secret, and is not shown); "
        "LD_LIBRARY_PATH is not set, /opt/a:/opt/b on its node in the inventory"
    )
