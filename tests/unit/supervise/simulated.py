"""A world of nodes and a clock that runs one supervised job and checks what must always hold."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from ascendboot.jobs.supervisor import TIMEOUTS
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import (
    ACTIVE,
    Action,
    Core,
    End,
    Launch,
    Pick,
    State,
    Stop,
    keep_members,
)
from ascendboot.supervise.policy import Fault, FaultKind, Limits, is_back

DEVICES = 8
LINK_CONFIRM_S = 20.0
"""A link that is down for less is not reported."""


class World:
    """One step of the job takes a second; ranks, nodes and what is seen of them are simulated."""

    total, every = 7200, 600
    """How many steps the job has, and when it writes checkpoints."""

    def __init__(
        self,
        seed: int,
        *,
        count: int = 4,
        shape: Parallel | None = None,
        limits: Limits | None = None,
        pick: Pick = keep_members,
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.names = tuple(f"n{i}" for i in range(count))
        self.shape = shape or Parallel(tp=8)
        self.limits = limits or Limits()
        self.clock = self.random.uniform(0, 1e6)
        self.began = self.clock
        self.events: list[Mapping[str, Any]] = []
        self.pick = pick
        self.core = Core(
            self.names, DEVICES, self.shape, self.limits, pick=pick, on_event=self.events.append
        )
        self.out: set[str] = set()
        """Nodes that do not answer."""
        self.full: set[str] = set()
        """Nodes whose disk is full: not ready for a generation."""
        self.stop_s = 2.0, 15.0
        """How long it takes to stop a generation, at least and at most."""
        self.ranks: dict[str, int] = {}
        """The generation whose ranks live on a node."""
        self.open: int | None = None
        """The generation launched and not yet stopped."""
        self.launches: list[Launch] = []
        self.steps: list[int | None] = []
        """Of the newest checkpoint, by launch."""
        self.returning: set[str] = set()
        """Nodes that answer again, where ranks of an older generation are not ended yet."""
        self.woken = 0
        """How many nodes had ranks of an older generation when they came back."""
        self.checked = 0
        """The last generation that was checked."""
        self.epoch = 0
        self.reloads = False
        self.kill_odds = 0.0
        self.saved_step = 0
        self.queue: list[tuple[float, int, int | None, Callable[[], object]]] = []
        self.number = 0
        self.kills: set[State] = set()

    # The clock

    def later(self, wait_s: float, what: Callable[[], object], *, ours: bool = False) -> None:
        """`ours`: it is lost when the supervisor is killed."""
        self.number += 1
        epoch = self.epoch if ours else None
        heapq.heappush(self.queue, (self.clock + wait_s, self.number, epoch, what))

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def run(self, *, limit_s: float = 40 * 86400.0) -> End:
        self.call(lambda: self.core.begin(self.clock))
        while not self.core.end:
            assert self.queue, f"nothing happens any more in {self.core.state}"
            at, _, epoch, what = heapq.heappop(self.queue)
            assert at - self.began < limit_s, f"does not end: {self.core.state}"
            self.clock = max(self.clock, at)
            if epoch in (None, self.epoch):
                what()
        assert {*self.ranks} <= self.out | self.returning, "ranks are left"
        return self.core.end

    # The supervisor

    def call(self, ask: Callable[[], tuple[Action, ...]]) -> None:
        is_killed = self.random.random() < self.kill_odds
        before = self.core.to_json() if is_killed else {}
        actions = ask()
        self.check()
        if self.reloads:
            self.reload()
        if is_killed:
            self.kill(before)
            return
        for action in actions:
            self.do(action)
        if self.core.due is not None:
            wait_s = max(0.0, self.core.due - self.clock)
            self.later(wait_s, lambda: self.call(lambda: self.core.tick(self.clock)), ours=True)

    def reload(self) -> None:
        document = json.loads(json.dumps(self.core.to_json()))
        self.core = Core.from_json(document, pick=self.pick, on_event=self.events.append)
        assert json.loads(json.dumps(self.core.to_json())) == document

    def kill(self, before: Mapping[str, Any]) -> None:
        """The supervisor ends before or after it saved its state, and before it did anything."""
        self.kills.add(self.core.state)
        self.epoch += 1
        if self.random.random() < 0.5 and before["state"] != State.IDLE.value:
            self.core = Core.from_json(before, pick=self.pick, on_event=self.events.append)
        else:
            self.reload()
        self.checked = self.core.generation
        self.later(self.between(1, 60), self.begin_again, ours=True)

    def begin_again(self) -> None:
        members, generation = self.core.members, self.core.generation
        alive = all(self.ranks.get(n) == generation and n not in self.out for n in members)
        self.call(lambda: self.core.resume(self.clock, alive=alive))
        if alive and self.core.state in (State.RUNNING, State.DRAINING):
            self.follow(generation)
        for name in self.names:
            if name in self.out:
                self.see_down(name)
            else:
                self.see_up(name)
        self.later(5, lambda: self.call(lambda: self.core.tick(self.clock)), ours=True)

    def do(self, action: Action) -> None:
        if isinstance(action, Launch):
            self.launch(action)
        elif isinstance(action, Stop):
            self.later(
                self.between(*self.stop_s), lambda: self.stopped(action.generation), ours=True
            )

    def launch(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.steps.append(self.core.step)
        self.open = launch.generation
        wait_s = max(0.0, launch.not_before - self.clock)
        self.later(wait_s, lambda: self.start(launch), ours=True)

    def start(self, launch: Launch) -> None:
        if self.open != launch.generation or self.core.state is not State.LAUNCHING:
            return
        if unready := self.full.intersection(launch.nodes):
            name = min(unready)
            self.call(lambda: self.core.quarantine(self.clock, [name], "its disk is full"))
            return
        for name in launch.nodes:
            if name not in self.out:
                left = self.ranks.get(name, launch.generation)
                assert left == launch.generation, f"{name} still has ranks of generation {left}"
                self.ranks[name] = launch.generation
        missing = [name for name in launch.nodes if name in self.out]
        for name in missing:
            self.see_down(name)
        if not missing:
            self.later(self.between(5, 30), lambda: self.began_all(launch), ours=True)

    def began_all(self, launch: Launch) -> None:
        if self.is_complete(launch.generation):
            self.saved_step = self.core.step or 0
            self.call(lambda: self.core.launched(self.clock))
            self.follow(launch.generation)

    def is_complete(self, generation: int) -> bool:
        members = self.core.members
        return generation == self.core.generation and all(
            self.ranks.get(name) == generation for name in members
        )

    def follow(self, generation: int) -> None:
        """The next checkpoint, or the end of the job."""
        step = min(self.saved_step + self.every, self.total)

        def reach() -> None:
            if not self.is_complete(generation) or self.core.state not in ACTIVE:
                return
            if self.out.issuperset(self.core.members):
                self.later(5, reach, ours=True)  # it is seen when the network is back
                return
            if step >= self.total:
                self.ranks = {n: g for n, g in self.ranks.items() if g != generation}
                self.call(lambda: self.core.completed(self.clock))
                return
            if self.saves:
                self.saved_step = step
                self.call(lambda: self.core.checkpoint(self.clock, step))
            self.follow(generation)

        self.later(step - self.saved_step, reach, ours=True)

    saves = True
    """Whether checkpoints are written."""

    def stopped(self, generation: int) -> None:
        members = [name for name in self.names if self.ranks.get(name) == generation]
        for name in members:
            if name not in self.out:
                del self.ranks[name]
        unverified = [name for name in self.core.members if name in self.out]
        if self.open == generation:
            self.open = None
        if generation == self.core.generation:
            self.call(lambda: self.core.stopped(self.clock, unverified))

    # What happens to nodes and ranks

    def report(self, kind: FaultKind, node: str = "", **more: Any) -> None:
        fault = Fault(kind=kind, at=self.clock, node=node, **more)
        self.call(lambda: self.core.fault(fault))

    def member(self) -> str:
        return self.random.choice(self.core.members or self.names)

    def rank_ends(self, exit_code: int, **more: Any) -> None:
        """A rank of a running generation ends; it may not be known which."""
        if self.core.state not in ACTIVE or not self.is_complete(self.core.generation):
            return
        node = self.member()
        del self.ranks[node]
        rank = self.core.members.index(node) * DEVICES + self.random.randrange(DEVICES)
        if self.random.random() < 0.5:
            self.report(FaultKind.RANK_EXIT, node, exit_code=exit_code, **{"rank": rank, **more})
        else:
            self.report(FaultKind.RANK_EXIT, exit_code=exit_code)

    def goes_out(self, node: str, *, has_power: bool) -> None:
        """A node does not answer any more; without power its ranks are gone, too."""
        self.out.add(node)
        generation = self.ranks.get(node)
        if not has_power:
            self.ranks.pop(node, None)
        self.see_down(node)
        if generation == self.core.generation and self.random.random() < 0.5:
            others = [name for name in self.core.members if name != node]
            if others:
                other = self.random.choice(others)
                self.later(self.between(0, 30), lambda: self.symptom(other, generation), ours=True)

    def symptom(self, node: str, generation: int) -> None:
        if self.ranks.get(node) == generation and node not in self.out:
            del self.ranks[node]
            if generation == self.core.generation:
                self.report(FaultKind.RANK_EXIT, node, exit_code=1, rank=0)

    def control_is_cut_off(self, for_s: float) -> None:
        """This machine has no network: after some minutes it takes all nodes for lost."""
        self.out |= {*self.names}

        def see() -> None:
            for name in self.names if self.out.issuperset(self.names) else ():
                self.report(FaultKind.NODE_DOWN, name)

        self.later(TIMEOUTS.silence_s, see, ours=True)
        self.later(for_s, lambda: self.comes_back(*self.names))

    def checkpoint_is_lost(self) -> None:
        """The newest checkpoint is incomplete, or was on a lost node: the one before is left."""
        self.saved_step = max(0, self.saved_step - self.every)
        self.call(lambda: self.core.checkpoint(self.clock, self.saved_step))

    def see_down(self, node: str) -> None:
        def see() -> None:
            if node in self.out:
                self.report(FaultKind.NODE_DOWN, node)

        self.later(self.between(6, 9), see, ours=True)

    def comes_back(self, *nodes: str) -> None:
        """Ranks of an older generation wake up, are ended, and then the nodes are used again."""
        self.out.difference_update(nodes)
        self.returning.update(nodes)
        self.see_up(*nodes)

    def see_up(self, *nodes: str) -> None:
        """One look at these nodes, by and by."""

        def see() -> None:
            there = [node for node in nodes if node not in self.out]
            for node in there:
                self.returning.discard(node)
                self.wakes_up(node)
            free = [node for node in there if self.ranks.get(node) is None]
            self.call(lambda: self.core.node_up(self.clock, *free))

        self.later(self.between(3, 10), see, ours=True)

    def wakes_up(self, node: str) -> None:
        """Ranks of an older generation are ended; nothing looks at what they do until then."""
        old = self.ranks.get(node)
        if old is None or (old == self.open and node in self.core.members):
            return
        self.woken += 1
        del self.ranks[node]

    def link_flaps(self, node: str, for_s: float) -> None:
        if for_s > LINK_CONFIRM_S:
            self.later(LINK_CONFIRM_S, lambda: self.report(FaultKind.LINK_DOWN, node))
        self.later(for_s, lambda: self.see_up(node))

    # What must always hold

    def check(self) -> None:
        """The core launches legal worlds only, misses none, and one at a time."""
        core = self.core
        reachable = {g for n, g in self.ranks.items() if n in core.members and n not in self.out}
        assert len(reachable) <= 1, reachable
        healthy = sum(now.status == "healthy" for now in core.nodes.values())
        others = sum(now.status == "suspect" or is_back(now) for now in core.nodes.values())
        if core.generation != self.checked:
            assert core.generation == self.checked + 1
            assert self.open is None, "two generations at once"
            self.checked = core.generation
            sizes = self.legal_sizes(healthy)
            expected = max(sizes) if sizes else min(self.legal_sizes(healthy + others))
            assert len(core.members) == expected
        if core.state is State.WAITING:
            assert not self.legal_sizes(healthy + others), "a legal world was missed"

    def legal_sizes(self, available: int) -> list[int]:
        most = min(available, self.limits.max_nodes or available)
        found = []
        for nodes in range(self.limits.min_nodes, most + 1):
            ranks, block = nodes * DEVICES, self.shape.tp * self.shape.pp * self.shape.cp
            dp = ranks / block
            batch = self.shape.gbs or 0
            if ranks % block == 0 and dp >= self.shape.dp_min and not batch % (self.shape.mbs * dp):
                found.append(nodes)
        return found
