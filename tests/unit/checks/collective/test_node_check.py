"""The node check: which nodes, pairs and devices are bad or slow."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ascendboot.checks.collective import node_check
from ascendboot.checks.collective.findings import RankNotes
from ascendboot.model.cluster import Placement
from ascendboot.model.job import JobReport, JobState
from ascendboot.value import replace
from tests.unit.checks.collective.ranks import SLOTS, lines, noted, report
from tests.unit.launch.request import REQUEST

PLACEMENT = Placement(SLOTS)
ONE, TWO = (node.name for node in PLACEMENT.nodes)


def isolated(count: int, passes: Callable[[int, int], bool]) -> tuple[node_check.Isolated, int]:
    """What pairs of nodes `0`, `1` … show, and after how many rounds."""
    rounds = []

    def passed(pairs: Sequence[node_check.Pair]) -> dict[node_check.Pair, bool]:
        names = [name for pair in pairs for name in pair]
        assert pairs
        assert len(names) == len({*names})  # all pairs of a round run at once
        rounds.append(pairs)
        return {pair: passes(int(pair[0]), int(pair[1])) for pair in pairs}

    return node_check.isolate([str(number) for number in range(count)], passed), len(rounds)


@pytest.mark.parametrize("count", [3, 4, 5, 8, 16, 64])
def test_bad_nodes_are_named_exactly(count: int) -> None:
    """As many of them as in the simulation of reference/resilience.md §6.2."""
    chance, most = random.Random(3), 0  # noqa: S311
    for _ in range(100):
        bad = {*chance.sample(range(count), chance.randint(0, max(1, count // 8)))}
        found, steps = isolated(count, lambda a, b, bad=bad: not {a, b} & bad)  # type: ignore[misc]
        assert found == node_check.Isolated(bad=tuple(str(number) for number in sorted(bad)))
        most = max(most, steps)
    assert most <= 4


def test_one_bad_node_of_an_even_number_takes_two_rounds() -> None:
    for count in (4, 8, 16):
        for bad in range(count):
            found, steps = isolated(count, lambda a, b, bad=bad: bad not in (a, b))  # type: ignore[misc]
            assert (found.bad, steps) == ((str(bad),), 2)


def test_a_bad_connection_blames_no_node() -> None:
    found, _ = isolated(8, lambda a, b: {a, b} != {2, 3})
    assert found == node_check.Isolated(edges=(("2", "3"),))


@pytest.mark.parametrize(("count", "steps"), [(0, 0), (1, 0), (2, 1), (8, 3)])
def test_if_no_pair_passes_no_node_is_named(count: int, steps: int) -> None:
    assert isolated(count, lambda *_: False) == (node_check.Isolated(is_unclear=count > 1), steps)


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        ((300, 100), {}),
        ((300, 301, 299, 100), {3: 2.995}),
        ((300, 301, 299, 240), {}),  # 25 % faster
        ((300, 301, 299, 225), {3: 1.331}),
        ((300, 400, 500, 250), {}),  # they scatter
    ],
)
def test_what_is_slow(rates: Sequence[float], slow: Mapping[int, float]) -> None:
    found = node_check.slow_ones(dict(enumerate(map(float, rates))))
    assert {rank: round(times, 3) for rank, times in found.items()} == slow


Round = Mapping[int, dict[str, Any] | str]


def npu(product: float = 300.0, memory: float = 900.0) -> dict[str, Any]:
    return {"by": "NPU", "product": product, "memory": memory}


WELL = {rank: npu(300.0 + rank) for rank in range(4)}
PASSED = {rank: {"bandwidth": 20.0 + rank} for rank in range(4)}


def checked(
    *rounds: Round, ended: JobReport | None = None
) -> tuple[node_check.NodeCheck, list[str]]:
    """A check with these results of its rounds; a text is why a rank failed."""
    left, words_of = list(rounds), []

    def start(words: tuple[str, ...]) -> tuple[dict[int, RankNotes], JobReport]:
        words_of.append(" ".join(words))
        return {rank: noted(it) for rank, it in left.pop(0).items()}, ended or report()

    check = node_check.check_all(replace(REQUEST, placement=PLACEMENT), start, 61001)
    assert not left
    return check, words_of


def test_a_cluster_that_is_well() -> None:
    check, words = checked(WELL, PASSED)
    address = PLACEMENT.nodes[0].cluster_address
    assert words == ["device", f'pair NPU [["{address}", 61001, [0, 1, 2, 3]]]']
    assert (lines(check), check.interrupted) == ([], False)
    assert check.words(PLACEMENT) == {
        ONE: "2 devices: product 300-301 TFLOPS, memory 900 GB/s, with another node 20 GB/s",
        TWO: "2 devices: product 302-303 TFLOPS, memory 900 GB/s, with another node 20 GB/s",
    }
    assert check.to_json()["pairs"] == [{"nodes": (ONE, TWO), "result": 20.0}]


def test_a_node_with_a_device_that_fails_takes_no_part_in_pairs() -> None:
    check, words = checked({**WELL, 3: "no result within 150 s"})
    text = "device 5: does not compute: no result within 150 s"
    assert lines(check) == [("node-device-failed", "error", (TWO,), text)]
    assert (words, [*check.words(PLACEMENT)]) == (["device"], [ONE])


def test_a_slow_device_is_named_if_it_is_slow_twice() -> None:
    check, _ = checked({**WELL, 2: npu(100.0)}, {**WELL, 2: npu(200.0)}, PASSED)
    text = "device 4: its matrix product is slow: 200 TFLOPS, 67% of the median of all devices"
    assert lines(check) == [("node-device-slow", "warning", (TWO,), text)]
    assert lines(checked({**WELL, 2: npu(100.0)}, WELL, PASSED)[0]) == []
    far = {**WELL, 1: npu(memory=100.0)}
    [(_, level, where, text)] = lines(checked(far, far, PASSED)[0])
    assert (level, where) == ("error", (ONE,))
    assert text == "device 5: its memory is slow: 100 GB/s, 11% of the median of all devices"


def test_processors_are_no_npus_and_only_twice_is_slow() -> None:
    slower = {rank: {**own, "by": "processor"} for rank, own in WELL.items()}
    slower[2] = {"by": "processor", "product": 200.0, "memory": 1.0}
    check, words = checked(slower, {0: {}, 1: {}, 2: {"bandwidth": 1.0}, 3: {}})
    text = "no torch_npu where ranks run: the processors computed, the NPUs were not tested"
    assert lines(check) == [("node-no-torch-npu", "warning", (ONE, TWO), text)]
    assert words[1].startswith("pair processor ")


def test_npus_are_not_compared_with_processors() -> None:
    """Of six ranks three are on processors, and one of each kind is far too slow."""
    slots = tuple(SLOTS[rank % 4] for rank in range(6))
    rates = {rank: npu(product) for rank, product in enumerate((300.0, 301.0, 50.0))}
    rates |= {rank + 3: {**own, "by": "processor"} for rank, own in rates.items()}
    rated = node_check._of_rates(slots, rates)
    found = [f.text.partition(":")[0] for f in rated if f.level == "error"]
    assert found == ["device 4", "device 5"]


def test_a_failed_pair_of_two_nodes_blames_none() -> None:
    check, _ = checked(WELL, {**PASSED, 3: "no result within 200 s"})
    text = "no pair of nodes exchanges data, so no node can be named: rank 3 on device 5 of "
    [found] = lines(check)
    assert found[:3] == ("node-pairs-failed", "error", (ONE, TWO))
    assert found[3] == f"{text}{TWO}: no result within 200 s"


def test_a_round_that_does_not_end_names_who_is_missing() -> None:
    failed = report(exit_code=1, message="lab-2: lost\nranks were ended")
    check, _ = checked({0: npu(), 1: npu(), 2: npu()}, ended=failed)
    text = "the node check ended early: lab-2: lost; ranks were ended"
    assert lines(check) == [("node-check-ended", "error", (ONE, TWO), text)]


def test_an_interrupted_check_has_no_findings() -> None:
    check, _ = checked({}, ended=report(state=JobState.INTERRUPTED))
    assert (lines(check), check.interrupted) == ([], True)
