"""Ranks of a preflight held against each other: who differs is named, and nobody else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.collective.findings import compare, differences
from ascendboot.checks.collective.progress import RankNotes
from ascendboot.checks.collective.rank import shown
from tests.unit.collective.ranks import DIGEST, PLACES, all_well, facts

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def told(said: Mapping[int, RankNotes], digest: str = DIGEST) -> list[tuple[str, str, str]]:
    return [(f.id, f.level, f.message) for f in compare(PLACES, said, digest)]


def test_of_equal_ranks_there_is_nothing_to_say() -> None:
    assert told(all_well()) == []


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
    assert told(said) == [
        (
            "preflight-versions",
            "error",
            (
                "lab-1: rank 1 on device 5: mpi4py is not there, 4.0.3 on the other 3. Install the "
                "same version everywhere."
            ),
        ),
        (
            "preflight-environment",
            "error",
            (
                "lab-2: ranks 2-3: HCCL_CONNECT_TIMEOUT is 120, 600 on the other 2; HCCL_X is 1, "
                "not set on the other 2. Look for it in the container, in set_env.sh and in what "
                "starts Python on that node, or state it under env in the inventory and run setup."
            ),
        ),
        (
            "preflight-limits",
            "warning",
            (
                "lab-2: rank 3 on device 5: ulimit -l is 64, unlimited on the other 3. Set it "
                "alike: limits.conf or the service's LimitMEMLOCK and LimitNOFILE; --ulimit and "
                "--shm-size of a container."
            ),
        ),
    ]


def test_what_mpirun_puts_before_a_list_of_paths_twice_is_no_difference() -> None:
    said = all_well(
        env={rank: {"LD_LIBRARY_PATH": "/usr/lib:/usr/lib" + ":" * (rank > 1)} for rank in range(4)}
    )
    assert told(said) == []


def test_a_rank_that_is_not_where_it_should_be() -> None:
    said = all_well(
        device={1: "7"},
        local_rank={2: "1"},
        elsewhere={2: {"HCCL_IF_IP": "192.0.2.9"}, 3: {"HCCL_IF_IP": "192.0.2.9"}},
        container={3: "0123456789ab"},
    )
    assert [(id_, message.partition(". ")[0]) for id_, _, message in told(said)] == [
        ("preflight-place", 'lab-1: rank 1 on device 5: DEVICE_ID is "7" and should be 5'),
        ("preflight-place", 'lab-2: rank 2 on device 4: LOCAL_RANK is "1" and should be 0'),
        (
            "preflight-place",
            "lab-2: ranks 2-3: HCCL_IF_IP is 192.0.2.9, which no interface of the node has",
        ),
        (
            "preflight-place",
            'lab-2: rank 3 on device 5: the container is 0123456789ab, "" on the other 1',
        ),
    ]


def test_among_visible_devices_a_number_is_a_place_in_their_list() -> None:
    said = all_well(
        visible=dict.fromkeys(range(4), "4,5"),
        device={rank: str(PLACES[rank].local_rank) for rank in range(4)},
    )
    assert told(said) == []


def test_another_rank_table_is_told_and_where_it_puts_ranks() -> None:
    table = facts(3)["table"]
    said = all_well(
        table={
            1: None,
            2: {**table, "sha256": "", "problem": "no such file"},
            3: {**table, "sha256": "e" * 64, "device": "7"},
        }
    )
    assert [message.partition(". ")[0] for *_, message in told(said)] == [
        "lab-1: rank 1 on device 5: RANK_TABLE_FILE is not set",
        "lab-2: rank 2 on device 4: the rank table cannot be read: no such file",
        (
            "lab-2: rank 3 on device 5: the rank table is another: "
            f"sha256 {'e' * 12}, not {'d' * 12}; runs on device 5 of 198.18.0.2; "
            "its rank table says device 7 of server 198.18.0.2"
        ),
    ]


def test_a_rank_without_an_entry_and_one_in_a_table_without_servers() -> None:
    table = facts(3)["table"]
    said = all_well(
        table={2: {**table, "server": "", "device": ""}, 3: {**table, "server": ""}},
    )
    assert [message.partition(". ")[0] for *_, message in told(said)] == [
        "lab-2: rank 2 on device 4: has no entry in its rank table"
    ]


def test_a_clock_that_is_off_when_all_have_the_sum() -> None:
    said = all_well()
    said |= {rank: replace(said[rank], clock=1e9 - 90) for rank in (2, 3)}
    [early, late] = told(said)
    assert early[2].startswith("lab-1: the clock of its ranks is 45 s ahead, when all nodes have")
    assert late[:2] == ("preflight-clock", "warning")


def test_ranks_of_which_nothing_was_heard_have_no_part_in_it() -> None:
    assert told({**all_well(), 3: RankNotes()}) == []
    assert told(dict.fromkeys(range(4), RankNotes())) == []


def test_what_the_inventory_states_for_one_node_is_held_against_that_alone() -> None:
    own = {"HCCL_CONNECT_TIMEOUT": "1200", "LD_LIBRARY_PATH": "/opt/a:/opt/b", "HCCL_KEY": "k"}
    places = [*PLACES[:2], *(replace(p, env={**own, "MINE": "x"}) for p in PLACES[2:])]
    usual = facts(0)["env"]
    seen = {**usual, **own, "HCCL_KEY": shown("HCCL_KEY", "k"), "LD_LIBRARY_PATH": "/opt/a:/opt/b:"}
    as_stated = all_well(env={2: seen, 3: seen})
    assert [*compare(places, as_stated, DIGEST)] == []
    assert [found.nodes for found in compare(PLACES, as_stated, DIGEST)] == [("lab-2",)]
    [found] = compare(places, all_well(env={2: seen, 3: usual}), DIGEST)
    assert found.text == (
        "rank 3 on device 5: HCCL_CONNECT_TIMEOUT is 600, 1200 on its node in the inventory; "
        "HCCL_KEY is not that of its node in the inventory (it may be a secret, and is not shown); "
        "LD_LIBRARY_PATH is not set, /opt/a:/opt/b on its node in the inventory"
    )
