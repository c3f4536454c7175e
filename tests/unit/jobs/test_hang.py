"""Detection of a job without progress, from samples with an artificial clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.jobs.hang import Detector, HangRules, Standstill
from ascendboot.launch.events import NodeSample, parse_sample


def sample(at_s: float, *cpu_s: float, wrote: bool = False) -> NodeSample:
    return NodeSample(at_s=at_s, cpu_s=dict(enumerate(cpu_s)), wrote=wrote)


def hang(idle_s: float, silent_s: float | None = None) -> Standstill:
    return Standstill(silent_s=silent_s or idle_s, idle_s=idle_s, is_hang=True)


def alone(*samples: NodeSample) -> list[tuple[str, NodeSample]]:
    return [("a", one) for one in samples]


SEEN = {
    # The clock of a node begins anywhere.
    "once": (
        alone(*(sample(at, 5.0, 7.0) for at in (1000, 1010, 1019, 1020, 1030))),
        {3: hang(20)},
    ),
    "work or output of any rank": (
        alone(
            sample(0, 5.0, 7.0),
            sample(10, 5.0, 7.6),  # 6 %
            sample(19, 5.0, 7.6),
            sample(30, 5.0, 7.7, wrote=True),  # 1 % is not work, a line is
            sample(49, 5.3, 8.0),
            sample(50, 5.3, 8.0),
        ),
        {5: hang(20)},
    ),
    "output of one node": (
        [
            *(("a", sample(0, 1.0)), ("b", sample(500, 1.0, wrote=True))),
            *(("a", sample(30, 1.0)), ("b", sample(530, 1.0, wrote=True))),
            ("b", sample(550, 1.0)),  # what a did meanwhile, it has not said
            ("a", sample(50, 1.0)),
        ],
        {5: hang(20)},
    ),
    "a node without samples": (
        [
            *(("a", sample(at, 1.0)) for at in (0, 10, 30, 300)),
            *(("b", sample(at, 1.0)) for at in (0, 10)),
            # It was cut off, and says at once what it had to say meanwhile.
            *(("b", sample(300, 1.0, wrote=True)), ("a", sample(310, 1.0))),
            *(("b", sample(320, 1.0)), ("a", sample(320, 1.0))),
        ],
        {9: hang(20)},
    ),
    # Ranks that spin: once per job, and a hang of them all the same.
    "spin": (
        alone(
            *(sample(at, at * 1.0) for at in (0, 10, 20, 30)),
            sample(40, 40.0, wrote=True),
            *(sample(at, at * 1.0) for at in (50, 60, 70)),
            *(sample(at, 70.0) for at in (80, 90)),
        ),
        {2: Standstill(silent_s=20, idle_s=0, is_hang=False), 9: hang(20, 50)},
    ),
    "again": (
        alone(sample(0, 1.0), sample(20, 1.0), sample(30, 9.0), sample(50, 9.0)),
        {1: hang(20), 3: hang(20, 50)},
    ),
    "started ranks and ended processes are work": (
        alone(
            *(sample(0), sample(20)),  # nobody is there that could hang
            *(sample(30, 0.1), sample(49, 0.0)),  # a child ended and took its time with it
            *(sample(68, 0.0), sample(69, 0.0)),
        ),
        {4: Standstill(silent_s=38, idle_s=19, is_hang=False), 5: hang(20, 39)},
    ),
    "an ended rank is no work": (
        alone(sample(0, 1.0, 2.0), sample(10, 1.0), sample(20, 1.0)),
        {2: hang(20)},
    ),
}


@pytest.mark.parametrize(("steps", "told"), SEEN.values(), ids=SEEN)
def test_what_is_reported_after_which_samples(
    steps: list[tuple[str, NodeSample]], told: dict[int, Standstill]
) -> None:
    detector = Detector({node for node, _ in steps}, 20)
    reports = [detector.take(node, one) for node, one in steps]
    assert {at: report for at, report in enumerate(reports) if report} == told


SHARES = st.lists(st.tuples(st.floats(0, 2), st.booleans()), min_size=1, max_size=40)


@given(shares=SHARES, timeout=st.integers(5, 100))
def test_a_hang_follows_its_definition(shares: list[tuple[float, bool]], timeout: int) -> None:
    detector, cpu_s, quiet_since = Detector(["a"], timeout), 0.0, 0
    detector.take("a", sample(0, cpu_s))
    for number, (share, wrote) in enumerate(shares, 1):
        cpu_s += share * 10
        if wrote or share > 0.051:
            quiet_since = number * 10
        elif share > 0.049:
            return  # on the edge, either is right
        told = detector.take("a", sample(number * 10.0, cpu_s, wrote=wrote))
        quiet_s = number * 10 - quiet_since
        if told is not None and told.is_hang:
            assert quiet_s >= timeout
        if quiet_s >= timeout > quiet_s - 10:
            assert told is not None
            assert told.is_hang


def test_a_line_of_a_follower() -> None:
    line = "sample 12345.67 11:1500 3:20"
    assert parse_sample(line, wrote=True) == NodeSample(
        at_s=12345.67, cpu_s={3: 0.02, 11: 1.5}, wrote=True
    )
    assert parse_sample("sample 1.00") == NodeSample(at_s=1.0, cpu_s={})
    for part in ("", "sample", "sample 1.00 3", "ample 1.00", line[:-1] + ":", line + "\n"):
        assert parse_sample(part) is None


@pytest.mark.parametrize(
    ("timeout_s", "sample_s", "beat_s"),
    [(0, 0, 10), (2, 1, 1), (60, 6, 6), (600, 60, 10), (86400, 60, 10)],
)
def test_how_often_nodes_send_samples(timeout_s: float, sample_s: int, beat_s: float) -> None:
    rules = HangRules(timeout_s=timeout_s)
    assert (rules.sample_s, rules.beat_s(10)) == (sample_s, beat_s)
