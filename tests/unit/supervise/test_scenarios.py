"""A simulated world drives the core through every scenario, with many seeds each.

Invariants are checked after every call, in `simulated.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import ENDED, End, Pick, State, keep_members
from ascendboot.supervise.policy import FaultKind, Limits
from tests.unit.supervise.simulated import World

SEEDS = 1000
PAIRS = Parallel(tp=8, pp=2)


@dataclass(frozen=True)
class Scenario:
    """What happens to the world, how it ends, and what is true then."""

    happens: Callable[[World], None]
    ends: State = State.DONE
    afterwards: Callable[[World, End], bool] = lambda _world, _end: True
    count: int = 4
    shape: Parallel = field(default_factory=lambda: Parallel(tp=8))
    limits: Limits = field(default_factory=Limits)
    pick: Pick = keep_members


Happens: TypeAlias = Callable[[World], object]


def between(low_s: float, high_s: float) -> Callable[[Happens], Callable[[World], None]]:
    """At some time of the job."""
    return lambda what: lambda world: world.later(world.between(low_s, high_s), lambda: what(world))


soon = between(100, 6000)


def statuses(world: World) -> set[str]:
    return {now.status for now in world.core.nodes.values()}


def cut_off(world: World, *nodes: str) -> None:
    for node in nodes:
        world.goes_out(node, has_power=True)
        world.later(world.between(20, 2000), lambda node=node: world.comes_back(node))  # type: ignore[misc]


one_rank_ends = soon(lambda world: world.rank_ends(1))
a_rank_is_killed = soon(lambda world: world.rank_ends(137))
power_is_lost = soon(lambda world: world.goes_out(world.member(), has_power=False))
sshd_is_gone = soon(lambda world: world.goes_out(world.member(), has_power=True))
one_node_is_cut_off = soon(lambda world: cut_off(world, world.member()))
half_is_cut_off = soon(lambda world: cut_off(world, *world.names[:2]))
the_node_of_rank_0_is_lost = soon(
    lambda world: world.goes_out(world.core.members[0], has_power=False)
)


@between(100, 4000)
def an_old_generation_wakes_up(world: World) -> None:
    node = world.member()
    world.goes_out(node, has_power=True)
    world.later(world.between(100, 2000), lambda: world.comes_back(node))


def the_link_flaps(for_s: float) -> Callable[[World], None]:
    return soon(lambda world: world.link_flaps(world.member(), for_s))


def an_alarm(*codes: str, repaired: bool = False) -> Callable[[World], None]:
    def raised(world: World) -> None:
        node = world.member()
        world.report(FaultKind.NPU_FAULT, node, codes=codes)
        if repaired:
            world.later(world.between(60, 600), lambda: world.see_up(node))

    return soon(raised)


@soon
def two_nodes_have_one_code(world: World) -> None:
    first, second = world.random.sample(world.names, 2)
    world.report(FaultKind.NPU_FAULT, first, codes=("80E3A201",))
    wait_s = world.between(0, 29)
    world.later(wait_s, lambda: world.report(FaultKind.NPU_FAULT, second, codes=("80E3A201",)))


def control_is_cut_off(low_s: float, high_s: float) -> Callable[[World], None]:
    return soon(lambda world: world.control_is_cut_off(world.between(low_s, high_s)))


@between(100, 4000)
def a_disk_is_full(world: World) -> None:
    world.full.add(world.names[-1])
    world.rank_ends(1)


@between(700, 4000)
def the_newest_checkpoint_is_lost(world: World) -> None:
    if world.random.random() < 0.5:
        world.goes_out(world.member(), has_power=False)
        world.later(5, world.checkpoint_is_lost)
    else:
        world.checkpoint_is_lost()
        world.rank_ends(1)


def ranks_that_ignore_sigterm_are_stopped(world: World) -> None:
    world.stop_s = 10.0, 90.0
    one_node_is_cut_off(world)
    one_rank_ends(world)


def standby_first(candidates: Sequence[str], count: int, keep: Sequence[str]) -> tuple[str, ...]:
    """Jobs are started on n0 or n3."""
    head = next((name for name in ("n0", "n3") if name in candidates), None)
    others = keep_members([n for n in candidates if n != head], count - 1, keep)
    return (head, *others) if head else ()


def no_checkpoint_and_ranks_end(world: World) -> None:
    world.saves = False
    for n in range(1, 40):
        world.later(n * 400.0, lambda: world.rank_ends(1))


@between(100, 3000)
def a_node_is_lost_and_returns(world: World) -> None:
    node = world.member()
    world.goes_out(node, has_power=False)
    world.later(world.between(60, 600), lambda: world.comes_back(node))


def a_node_flaps(world: World) -> None:
    node = world.random.choice(world.names)
    for n in range(200):
        begin = n * 600.0 + world.between(0, 300)
        world.later(begin, lambda: world.goes_out(node, has_power=False))
        world.later(begin + world.between(15, 200), lambda: world.comes_back(node))


def a_bug_of_the_program(world: World) -> None:
    def fails() -> None:
        if world.core.state is State.RUNNING:
            world.rank_ends(1, rank=3)
        world.later(world.between(20, 40), fails)

    world.later(30, fails)


def anything(world: World) -> None:
    kinds = (
        *(one_rank_ends, a_rank_is_killed, sshd_is_gone, one_node_is_cut_off, half_is_cut_off),
        *(the_link_flaps(10), the_link_flaps(30), an_alarm("8C03A000", repaired=True)),
        *(an_alarm("DEADBEEF"), an_alarm("npu-tool-hang"), an_alarm("80C98008")),
        *(two_nodes_have_one_code, a_node_is_lost_and_returns, power_is_lost),
    )
    for what in world.random.sample(kinds, 4):
        what(world)


def newest_step(world: World) -> int:
    """Of the checkpoints of the first generation."""
    seen = [e for e in world.events if (e["event"], e["generation"]) == ("checkpoint", 1)]
    return max(int(event["words"].removeprefix("step ")) for event in seen)


SCENARIOS = {
    "a rank exits": Scenario(one_rank_ends, afterwards=lambda w, _: w.core.restarts == 1),
    "a rank is killed": Scenario(
        a_rank_is_killed, afterwards=lambda w, _: len(w.core.members) == 4
    ),
    "a node loses power": Scenario(power_is_lost, afterwards=lambda w, _: len(w.core.members) == 3),
    "a node loses power, with a spare": Scenario(
        power_is_lost, limits=Limits(max_nodes=3), afterwards=lambda w, _: len(w.core.members) == 3
    ),
    "sshd is gone": Scenario(sshd_is_gone, afterwards=lambda w, _: len(w.core.members) == 3),
    "one node is cut off": Scenario(one_node_is_cut_off),
    "an old generation wakes up": Scenario(
        an_old_generation_wakes_up, afterwards=lambda w, _: w.woken == 1 and w.core.restarts == 1
    ),
    "half is cut off": Scenario(
        half_is_cut_off, afterwards=lambda w, _: statuses(w) <= {"healthy", "absent"}
    ),
    "a link flaps for 10 s": Scenario(
        the_link_flaps(10), afterwards=lambda w, _: w.core.restarts == 0
    ),
    "a link flaps for 30 s": Scenario(
        the_link_flaps(30), afterwards=lambda w, _: w.core.restarts == 1
    ),
    "an alarm with a known code": Scenario(
        an_alarm("8C03A000", repaired=True),
        afterwards=lambda w, _: "quarantined" not in statuses(w) and w.core.restarts == 1,
    ),
    "an alarm with an unknown code": Scenario(
        an_alarm("DEADBEEF"), afterwards=lambda w, _: "quarantined" in statuses(w)
    ),
    "two nodes have one code": Scenario(
        two_nodes_have_one_code,
        count=5,
        afterwards=lambda w, _: statuses(w) == {"healthy"} and w.core.restarts <= 2,
    ),
    "the NPU tool hangs": Scenario(
        an_alarm("npu-tool-hang"),
        afterwards=lambda w, _: w.core.restarts == 0 and "suspect" in statuses(w),
    ),
    "the node of rank 0 is lost": Scenario(
        the_node_of_rank_0_is_lost, afterwards=lambda w, _: w.core.members[0] == "n1"
    ),
    "the node of rank 0 is lost, with a standby": Scenario(
        the_node_of_rank_0_is_lost,
        afterwards=lambda w, _: w.core.members == ("n3", "n1", "n2"),
        pick=standby_first,
    ),
    "the control machine is cut off": Scenario(
        control_is_cut_off(20, 290), afterwards=lambda w, _: w.core.restarts == 0
    ),
    "the control machine is cut off for longer": Scenario(
        control_is_cut_off(310, 500),
        afterwards=lambda w, _: [len(launch.nodes) for launch in w.launches] == [4, 4],
    ),
    "a disk is full": Scenario(
        a_disk_is_full, afterwards=lambda w, _: statuses(w) == {"healthy", "quarantined"}
    ),
    "the newest checkpoint is lost": Scenario(
        the_newest_checkpoint_is_lost,
        afterwards=lambda w, _: w.steps[1] == newest_step(w) - w.every,
    ),
    "ranks ignore SIGTERM": Scenario(
        ranks_that_ignore_sigterm_are_stopped, afterwards=lambda w, _: w.core.restarts <= 2
    ),
    "no checkpoint": Scenario(
        no_checkpoint_and_ranks_end,
        State.NEEDS_OPERATOR,
        lambda w, end: end.exit_code == 93 and len(w.launches) == 3,
    ),
    "no legal world": Scenario(
        power_is_lost, State.GAVE_UP, lambda _, end: end.exit_code == 75, count=2, shape=PAIRS
    ),
    "growth": Scenario(
        a_node_is_lost_and_returns, afterwards=lambda w, _: len(w.core.members) == 4
    ),
    "a node flaps": Scenario(
        a_node_flaps, afterwards=lambda w, _: w.core.restarts <= 6 and len(w.launches) <= 12
    ),
    "a bug of the program": Scenario(
        a_bug_of_the_program,
        State.NEEDS_OPERATOR,
        lambda w, _: len(w.launches) == 2 and statuses(w) == {"healthy"},
    ),
}


def simulated(scenario: Scenario, seed: int) -> World:
    world = World(
        seed, count=scenario.count, shape=scenario.shape, limits=scenario.limits, pick=scenario.pick
    )
    scenario.happens(world)
    return world


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_as_it_should(name: str) -> None:
    scenario = SCENARIOS[name]
    for seed in range(SEEDS):
        world = simulated(scenario, seed)
        end = world.run()
        assert end.state is scenario.ends, (seed, end)
        assert scenario.afterwards(world, end), (seed, end, world.core.nodes)


@pytest.mark.parametrize("count", [3, 4, 8])
@pytest.mark.parametrize("shape", [Parallel(tp=8), PAIRS, Parallel(tp=8, gbs=256)], ids=str)
def test_any_mixture_of_faults_ends(count: int, shape: Parallel) -> None:
    for seed in range(SEEDS):
        assert simulated(Scenario(anything, count=count, shape=shape), seed).run().state in ENDED


def test_a_supervisor_killed_in_any_state_brings_the_job_to_its_end() -> None:
    killed: set[State] = set()
    for seed in range(SEEDS):
        world = simulated(Scenario(anything, limits=Limits(max_restarts=50)), seed)
        world.kill_odds = 0.2
        assert world.run().state in ENDED, seed
        killed |= world.kills
    assert killed - {*ENDED} == {
        *(State.LAUNCHING, State.RUNNING, State.DRAINING, State.STOPPING, State.DIAGNOSING),
        State.WAITING,
    }


def test_saving_and_reading_between_any_two_calls_changes_nothing() -> None:
    """Nor does the time of day, which differs between the two runs of a seed."""
    for seed in range(SEEDS):
        plain, saved = (simulated(Scenario(anything), seed) for _ in range(2))
        saved.reloads = True
        assert (plain.run(), plain.events) == (saved.run(), saved.events)
