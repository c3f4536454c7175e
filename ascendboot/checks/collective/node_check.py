"""`check --level full`: measures devices, then pairs of nodes, and names what is bad or slow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any, TypeAlias

from ascendboot.checks.collective.findings import Notes, Slots, nodes_of, ranks_shown
from ascendboot.checks.finding import Finding, Findings, devices, error, grouped, warning
from ascendboot.launch.plan import LaunchRequest
from ascendboot.model.cluster import Placement
from ascendboot.model.job import JobReport, JobState
from ascendboot.model.names import counted, fold
from ascendboot.value import Struct, Value, field

NOT_RUN = "node-check-not-run"
SLOW = 1.3
"""A device is slow if the median of all is faster by this: MindCluster takes 30 % …"""
OUTLIER = 3 * 1.4826
"""… and, as timings scatter, if it is also this many median deviations away (3 sigma)."""
FAR_TOO_SLOW = 2.0
"""An error: DLRover calls a node a straggler above twice the median."""
LEAST = 3
"""Of two values nobody can say which is the usual one."""
ROTATIONS = 3
"""So many times all nodes get other partners before the fault is not a node's."""

Pair: TypeAlias = tuple[str, str]
Measured: TypeAlias = Mapping[int, Mapping[str, Any] | str]
"""By rank what it measured, or why it did not."""
Start: TypeAlias = Callable[[tuple[str, ...]], tuple[Notes, JobReport]]
"""Runs `templates/scripts/measure.py` with these words on all ranks."""


class NodeCheck(Struct, kw_only=True):
    """What a node check found so far."""

    findings: list[Finding] = field(default_factory=list)
    rates: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    pairs: dict[Pair, float | str] = field(default_factory=dict)
    """GB/s of the pairs of nodes, or why they failed."""
    interrupted: bool = False

    @property
    def by(self) -> str:
        """`NPU`, or `processor` if not all ranks have torch_npu."""
        return "NPU" if all(own["by"] == "NPU" for own in self.rates.values()) else "processor"

    def words(self, placement: Placement) -> dict[str, str]:
        """By node: what was measured; nothing for a node that was not measured wholly."""
        lines = {}
        for node in placement.nodes:
            own = [self.rates[rank] for rank in placement.ranks_on(node) if rank in self.rates]
            pairs = {pair: rate for pair, rate in self.pairs.items() if node.name in pair}
            if len(own) == len(placement.ranks_on(node)):
                parts = [f"{name} {_range(own, name)}" for name in ("product", "memory")]
                passed = [rate for rate in pairs.values() if isinstance(rate, float)]
                parts += [f"with another node {max(passed):.3g} GB/s"] if passed else []
                lines[node.name] = f"{counted(len(own), 'device')}: {', '.join(parts)}"
        return lines

    def to_json(self) -> dict[str, object]:
        """For the run's folder."""
        pairs = [{"nodes": pair, "result": result} for pair, result in self.pairs.items()]
        return {"devices": self.rates, "pairs": pairs}


def _range(own: Sequence[Mapping[str, Any]], name: str) -> str:
    """`313-319 TFLOPS`."""
    least, most = min(rate[name] for rate in own), max(rate[name] for rate in own)
    first, last = _rate(least, name), _rate(most, name)
    return last if first == last else f"{first.split()[0]}-{last}"


def _rate(rate: float, name: str) -> str:
    """`313 TFLOPS`; `17.1 MFLOPS` of a processor."""
    if name == "product":
        return f"{rate:.3g} TFLOPS" if rate >= 1 else f"{rate * 1e6:.3g} MFLOPS"
    return f"{rate:.3g} GB/s"


def skipped(reasons: Mapping[str, str]) -> Findings:
    """The nodes that took no part, each with its reason."""
    remedy = "Repeat the check when the node is free, and ready for a job"
    for why, names in grouped((why, name) for name, why in reasons.items()).items():
        yield warning("node-check-skipped", tuple(names), f"not checked: {why}", remedy)


class EndedError(Exception):
    """The check ends here."""


def check_all(request: LaunchRequest, start: Start, port: int) -> NodeCheck:
    """Measure devices, again if some are slow; then pairs of good nodes, at `port` of the first."""
    slots, check = request.placement.slots, NodeCheck()
    try:
        bad = _devices(slots, check, round_of(slots, check, start, ("device",)))
        if _slow_ranks(check.rates):
            bad |= _devices(slots, check, round_of(slots, check, start, ("device",)))
        check.findings += _of_rates(slots, check.rates)
        names = [node.name for node in request.placement.nodes if node.name not in bad]
        check.findings += _of_pairs(_pairs(request, check, start, names, port), check)
    except EndedError:
        pass
    return check


def round_of(slots: Slots, check: NodeCheck, start: Start, words: tuple[str, ...]) -> Measured:
    """Measure once; EndedError if the round did not end well."""
    notes, report = start(words)
    if report.state in (JobState.INTERRUPTED, JobState.STOPPED):
        check.interrupted = True
        raise EndedError
    silent = [rank for rank, own in notes.items() if own.measured is None and not own.failed]
    if report.state is not JobState.SUCCEEDED or silent:
        who = f"; no result of {ranks_shown(silent, slots)}" if silent else ""
        why = "; ".join(report.message.splitlines()) or f"its state is {report.state.value}"
        where = nodes_of(silent or range(len(slots)), slots)
        remedy = "See the logs of the ranks in the run's folder"
        text = f"the node check ended early: {why}{who}"
        check.findings.append(error("node-check-ended", where, text, remedy))
        raise EndedError
    return {rank: own.failed or own.measured or {} for rank, own in notes.items()}


def _devices(slots: Slots, check: NodeCheck, results: Measured) -> set[str]:
    """Keep the best rates of the devices; return the nodes with one that failed."""
    failed = {rank: why for rank, why in results.items() if isinstance(why, str)}
    for (node, why), ranks in grouped(
        ((slots[rank].node.name, why), rank) for rank, why in failed.items()
    ).items():
        text = f"{devices([slots[rank].device_id for rank in ranks])}: does not compute: {why}"
        remedy = "Take it out with `devices` of the node, and look at npu-smi info and dmesg"
        check.findings.append(error("node-device-failed", (node,), text, remedy))
    for rank, found in results.items():
        if not isinstance(found, str):
            before = check.rates.get(rank, {})
            names = [name for name in found if name != "by"]
            best = {name: max(found[name], before.get(name, 0.0)) for name in names}
            check.rates[rank] = {**found, **best}
    return {slots[rank].node.name for rank in failed}


def _slow_ranks(rates: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """By measurement: the slow ranks and how many times faster the median is.

    Ranks share the processors and the memory of their node, so there only twice is slow, and only
    of the product.
    """
    found: dict[str, dict[int, float]] = {}
    for by, ranks in grouped((own["by"], rank) for rank, own in rates.items()).items():
        least = SLOW if by == "NPU" else FAR_TOO_SLOW
        for what in ("product", "memory") if by == "NPU" else ("product",):
            slow = slow_ones({rank: rates[rank][what] for rank in ranks})
            if slow := {rank: times for rank, times in slow.items() if times > least}:
                found[what] = {**found.get(what, {}), **slow}
    return found


def slow_ones(rates: Mapping[Any, float]) -> dict[Any, float]:
    """How many times faster the median is, for each one that is slow."""
    if len(rates) < LEAST:
        return {}
    usual = median(rates.values())
    scatter = median(abs(rate - usual) for rate in rates.values())
    return {
        who: usual / rate
        for who, rate in rates.items()
        if usual > SLOW * rate and usual - rate > OUTLIER * scatter
    }


_WHAT = {"product": "matrix product", "memory": "memory"}


def _of_rates(slots: Slots, rates: Mapping[int, Mapping[str, Any]]) -> Findings:
    for what, slow in _slow_ranks(rates).items():
        for rank, times in slow.items():
            slot, is_far = slots[rank], times > FAR_TOO_SLOW
            rate = _rate(rates[rank][what], what)
            text = f"device {slot.device_id}: its {_WHAT[what]} is slow: {rate}, "
            text += f"{1 / times:.0%} of the median of all devices"
            remedy = "See its clock, temperature and other users with npu-smi info; if it stays, "
            made = error if is_far else warning
            remedy += "take it out with `devices` of the node"
            yield made("node-device-slow", (slot.node.name,), text, remedy)
    on_processor = [rank for rank, own in rates.items() if own["by"] != "NPU"]
    if on_processor:
        text = "no torch_npu where ranks run: the processors computed, the NPUs were not tested"
        remedy = "Install torch_npu, or state a code.python that has it"
        yield warning("node-no-torch-npu", nodes_of(on_processor, slots), text, remedy)


def _pairs(
    request: LaunchRequest, check: NodeCheck, start: Start, names: Sequence[str], port: int
) -> Isolated:
    """Test pairs of nodes in rounds, until each node is known to be good or bad."""
    slots, placement = request.placement.slots, request.placement
    nodes = {node.name: node for node in placement.nodes}
    ranks = {name: placement.ranks_on(node) for name, node in nodes.items()}

    def passed(pairs: Sequence[Pair]) -> dict[Pair, bool]:
        groups = [(nodes[a].cluster_address, port, ranks[a] + ranks[b]) for a, b in pairs]
        results = round_of(slots, check, start, ("pair", check.by, json.dumps(groups)))
        for pair, (_, _, of_pair) in zip(pairs, groups, strict=True):
            check.pairs[pair] = _of_pair(slots, {rank: results[rank] for rank in of_pair})
        return {pair: isinstance(check.pairs[pair], float) for pair in pairs}

    return isolate(names, passed)


def _of_pair(slots: Slots, own: Measured) -> float | str:
    for rank, found in own.items():
        if isinstance(found, str):
            return f"{ranks_shown([rank], slots)} of {slots[rank].node.name}: {found}"
    rates = [float(found["bandwidth"]) for found in own.values() if "bandwidth" in found]  # type: ignore[index]
    return min(rates, default=0.0)


class Isolated(Value, kw_only=True):
    """What pairs of nodes showed."""

    bad: tuple[str, ...] = ()
    """Nodes that failed with two good nodes, or with all there are."""
    edges: tuple[Pair, ...] = ()
    """Pairs that failed, although both nodes passed with others."""
    is_unclear: bool = False
    """No pair passed, so that no node can be named."""


def isolate(
    names: Sequence[str], passed: Callable[[Sequence[Pair]], Mapping[Pair, bool]]
) -> Isolated:
    """Choose pairs of nodes to test at once, again and again, until each node is good or bad.

    First neighbours meet, then each node of a failed pair meets a node that is known to be good.
    """
    results: dict[Pair, bool] = {}
    rotations = islice(_rotations(names), ROTATIONS)
    while True:
        good = [n for n in names if any(ok and n in pair for pair, ok in results.items())]
        failed = {frozenset(pair) for pair, ok in results.items() if not ok}
        partners = {n: [p for p in names if {n, p} in failed] for n in names}
        enough = min(2, len(good) or 2)
        with_good = {n: [p for p in partners[n] if p in good] for n in names}
        bad = [n for n in names if n not in good and len(with_good[n]) >= enough]
        pairs = []
        if good:
            free = list(good)
            for suspect in (n for n in names if n not in good and n not in bad):
                if partner := next((p for p in free if p not in partners[suspect]), None):
                    free.remove(partner)
                    pairs.append((partner, suspect))
        else:
            pairs = next(rotations, [])
        if not pairs:
            edges = [p for p, ok in results.items() if not ok and {*p} <= {*good}]
            is_unclear = bool(results) and not good
            return Isolated(bad=tuple(bad), edges=tuple(edges), is_unclear=is_unclear)
        results |= passed(pairs)


def _rotations(names: Sequence[str]) -> Iterator[list[Pair]]:
    """All ways to make pairs, as of a round-robin tournament; in the first one, of neighbours."""
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    ring = [*ring[::2], *ring[1::2][::-1]]
    for _ in range(len(ring) - 1):
        halves = zip(ring, ring[: (len(ring) - 1) // 2 : -1], strict=False)
        yield [(a, b) for a, b in halves if a is not None and b is not None]
        ring = [ring[0], ring[-1], *ring[1:-1]]


def _of_pairs(isolated: Isolated, check: NodeCheck) -> Findings:
    pairs = check.pairs
    why = {pair: result for pair, result in pairs.items() if isinstance(result, str)}
    network = "See whether check finds a broken link or a blocked port between them"
    for name in isolated.bad:
        of_it = [(pair, words) for pair, words in why.items() if name in pair]
        others = fold(n for pair, _ in of_it for n in pair if n != name)
        text = f"exchanges no data with {others}, which are good with others: {of_it[-1][1]}"
        remedy = "Take the node out of the job, and test its network and NPUs"
        yield error("node-pair-failed", (name,), text, remedy)
    for pair in isolated.edges:
        text = f"exchange no data, but both do so with other nodes: {why[pair]}"
        yield error("node-link-failed", pair, text, network)
    if isolated.is_unclear:
        names = tuple(dict.fromkeys(name for pair in why for name in pair))
        text = f"no pair of nodes exchanges data, so no node can be named: {[*why.values()][-1]}"
        yield error("node-pairs-failed", names, text, network)
    rates = {pair: rate for pair, rate in pairs.items() if isinstance(rate, float)}
    for pair, times in slow_ones(rates).items() if check.by == "NPU" else ():
        text = f"their allreduce is slow: {rates[pair]:.3g} GB/s, {1 / times:.0%} of the median"
        yield warning("node-pair-slow", pair, f"{text} of all pairs", network)
