#!/usr/bin/env python3
"""Months of supervised training on a large cluster, simulated with published rates of faults."""

from __future__ import annotations

import argparse
import heapq
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial

from common import show

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import ACTIVE, Action, Core, Launch, State, Stop
from ascendboot.supervise.policy import Fault, FaultKind, Level, Limits

PROMISE = "a generation of all nodes is planned in less than 0.2 s"
PLAN_S = 0.2
DEVICES = 8
DAY_S, HOUR_S, MINUTE_S = 86400.0, 3600.0, 60.0

RATE = 466 / (54 * DAY_S * 16384)
"""Interruptions per device and second: Llama 3 405B, 16,384 devices, 54 days."""
CAUSES = {"NPU": 268, "software": 63, "node": 46, "network": 42, "planned": 47}
"""The 419 unexpected interruptions of the paper's table, grouped, and the 47 planned ones."""

DETECT_S = {"NPU": 5.0, "software": 1.0, "node": 8.0, "network": 25.0, "planned": 0.0}
"""The goals of the probes."""
STOP_S = 15.0
RESET_S = 10 * MINUTE_S
"""From a fault of an NPU that a reset repairs until it is healthy again."""
NEEDS_REPAIR = 0.5
"""Of the faults of NPUs; the others need a reset."""


class Run:
    """One simulated job; where its time went, in seconds."""

    def __init__(self, asked: argparse.Namespace, interval_s: float, spares: int) -> None:
        self.asked, self.interval_s = asked, interval_s
        self.random = random.Random(asked.seed)  # noqa: S311
        self.clock, self.end = 0.0, asked.days * DAY_S
        self.names = [f"n{i:04}" for i in range(asked.nodes)]
        self.full = asked.nodes - spares
        limits = Limits(max_nodes=self.full, max_restarts=10**9, no_progress_limit=10**9)
        shape = Parallel(tp=asked.tp, pp=asked.pp)
        self.core = Core(self.names, DEVICES, shape, limits, on_event=self.heard)
        self.queue: list[tuple[float, int, Callable[[], object]]] = []
        self.number = 0
        self.step_s = 0.0
        """Training time that is saved in a checkpoint."""
        self.useful = 0.0
        """The same, by the share of the nodes of the cluster."""
        self.since = 0.0
        """When the training began that no checkpoint has yet."""
        self.is_training = False
        self.cause = "start"
        self.lost: defaultdict[str, float] = defaultdict(float)
        self.restarts: Counter[str] = Counter()
        self.slowest_s = 0.0

    def heard(self, event: Mapping[str, object]) -> None:
        """Time without training counts for what caused it."""
        if event["event"] == "stopping":
            self.pause()

    def later(self, wait_s: float, what: Callable[[], object]) -> None:
        """Do something after a time."""
        self.number += 1
        heapq.heappush(self.queue, (self.clock + wait_s, self.number, what))

    def run(self) -> Run:
        """Simulate until the end."""
        self.next_fault()
        self.call(lambda: self.core.begin(0.0))
        while self.queue[0][0] < self.end:
            self.clock, _, what = heapq.heappop(self.queue)
            what()
        self.clock = self.end
        if not self.is_training:
            self.lost[self.cause] += self.clock - self.since
        return self

    def call(self, ask: Callable[[], tuple[Action, ...]]) -> None:
        """Ask the core, and do what it says."""
        began = time.perf_counter()
        actions = ask()
        self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
        for action in actions:
            if isinstance(action, Stop):
                self.later(STOP_S, self.stopped)
            elif isinstance(action, Launch):
                wait_s = action.not_before - self.clock + self.asked.start_s
                self.later(wait_s, partial(self.begun, action.generation))
        if (due := self.core.due) is not None:
            self.later(
                max(0.0, due - self.clock), lambda: self.call(lambda: self.core.tick(self.clock))
            )

    def begun(self, generation: int) -> None:
        """The ranks have loaded the checkpoint."""
        if generation != self.core.generation or self.core.state is not State.LAUNCHING:
            return
        self.lost[self.cause] += self.clock - self.since
        self.since, self.is_training = self.clock, True
        self.call(lambda: self.core.launched(self.clock))
        self.later(self.interval_s + self.asked.save_s, lambda: self.save(generation))

    def save(self, generation: int) -> None:
        """A checkpoint is complete."""
        if generation != self.core.generation or not self.is_training:
            return
        self.step_s += self.interval_s
        self.useful += self.interval_s * len(self.core.members) / self.asked.nodes
        self.lost["saving"] += self.asked.save_s
        self.since = self.clock
        self.cause = "growth"
        self.call(lambda: self.core.checkpoint(self.clock, int(self.step_s)))
        self.later(self.interval_s + self.asked.save_s, lambda: self.save(generation))

    def pause(self) -> None:
        """Training ends; what was not saved is lost."""
        if self.is_training:
            self.is_training = False
            self.restarts[self.cause] += 1

    def stopped(self) -> None:
        """Nothing of the generation is left."""
        self.call(lambda: self.core.stopped(self.clock, ()))

    def next_fault(self) -> None:
        """Faults come at random, on any node."""
        rate = RATE * DEVICES * self.asked.nodes * self.asked.rate
        kind = self.random.choices(list(CAUSES), list(CAUSES.values()))[0]
        node = self.random.choice(self.names)
        wait_s = self.random.expovariate(rate)
        self.later(wait_s + DETECT_S[kind], lambda: self.fault(kind, node))
        self.later(wait_s, self.next_fault)

    def fault(self, kind: str, node: str) -> None:
        """Something fails on a node; it is repaired some time later."""
        core, at = self.core, self.clock
        if core.state in ACTIVE and node in core.members:
            self.cause = kind
        repair_s = self.asked.repair_h * HOUR_S
        if kind == "software":
            rank, code = self.random.randrange(10**6), self.random.randrange(1, 100)
            self.report(
                Fault(kind=FaultKind.RANK_EXIT, at=at, node=node, rank=rank, exit_code=code)
            )
        elif kind == "planned":
            self.call(lambda: core.quarantine(self.clock, node, "maintenance"))
            self.later(2 * HOUR_S, lambda: self.call(lambda: core.release(self.clock, node)))
        elif kind == "NPU" and self.random.random() < NEEDS_REPAIR:
            level = Level.SEPARATE_NPU
            self.report(Fault(kind=FaultKind.NPU_FAULT, at=at, node=node, level=level))
            self.later(repair_s, lambda: self.call(lambda: core.release(self.clock, node)))
        else:
            kinds = {"NPU": FaultKind.NPU_FAULT, "node": FaultKind.NODE_DOWN}
            seen = kinds.get(kind, FaultKind.LINK_DOWN)
            self.report(Fault(kind=seen, at=at, node=node, level=Level.RESTART_NPU))
            wait_s = RESET_S if kind == "NPU" else HOUR_S
            self.later(wait_s, lambda: self.call(lambda: core.node_up(self.clock, node)))

    def report(self, fault: Fault) -> None:
        """Hand a fault to the core."""
        self.call(lambda: self.core.fault(fault))


def main() -> None:
    """Print one row per policy."""
    asked = _asked()
    mtbf_s = 1 / (RATE * DEVICES * asked.nodes * asked.rate)
    young_min = math.sqrt(2 * asked.save_s * mtbf_s) / MINUTE_S  # Young, 1974
    rows = []
    for interval_min in sorted({*asked.intervals, round(young_min)}):
        for spares in asked.spares:
            run = Run(asked, interval_min * MINUTE_S, spares).run()
            rows.append(_row(run, interval_min, spares))
    notes = (
        f"{asked.days} days of {asked.nodes} nodes of {DEVICES} devices, seed {asked.seed}; "
        f"one interruption per {mtbf_s / HOUR_S:.1f} h; lost: % of the time, by cause\n"
        f"sqrt(2 x save time x MTBF): a checkpoint every {young_min:.0f} minutes\n"
    )
    show("Supervised training", PROMISE, rows, as_json=asked.json, notes=notes)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1024, help="nodes of the cluster (1024)")
    parser.add_argument("--days", type=int, default=90, help="simulated days (90)")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults (1)")
    parser.add_argument("--rate", type=float, default=1.0, help="times the published rate (1)")
    parser.add_argument("--tp", type=int, default=8, help="tensor parallel size (8)")
    parser.add_argument("--pp", type=int, default=16, help="pipeline parallel size (16)")
    parser.add_argument(
        "--intervals",
        type=int,
        nargs="+",
        metavar="N",
        default=[10, 30, 60],
        help="minutes between checkpoints (10 30 60)",
    )
    parser.add_argument(
        "--spares", type=int, nargs="+", metavar="N", default=[0, 16], help="spare nodes (0 16)"
    )
    parser.add_argument("--save-s", type=float, default=30.0, help="seconds of a save (30)")
    parser.add_argument(
        "--start-s", type=float, default=210.0, help="seconds of a start with its load (210)"
    )
    parser.add_argument("--repair-h", type=float, default=24.0, help="hours of a repair (24)")
    parser.add_argument("--json", action="store_true", help="print the figure as JSON")
    return parser.parse_args()


def _row(run: Run, interval_min: int, spares: int) -> dict[str, object]:
    def percent(seconds: float) -> float:
        return 100 * seconds / run.end

    return {
        "every min": interval_min,
        "spares": spares,
        "effective %": percent(run.step_s),
        "of cluster %": percent(run.useful),
        "restarts": sum(run.restarts.values()),
        **{f"{cause} lost": percent(run.lost[cause]) for cause in (*CAUSES, "growth", "saving")},
        "plan ms": 1000 * run.slowest_s,
        "promise": "kept" if run.slowest_s < PLAN_S else "broken",
    }


if __name__ == "__main__":
    main()
