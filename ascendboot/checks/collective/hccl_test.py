"""`check --hccl-test`: runs Huawei's HCCL Test on pairs of devices, then on all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Final

from ascendboot.checks.collective import node_check
from ascendboot.checks.collective.findings import Notes, Slots, nodes_of, ranks_shown
from ascendboot.checks.finding import Finding, Findings, devices, error, grouped, warning
from ascendboot.errors import UsageError
from ascendboot.jobs.error_codes import known_words
from ascendboot.launch.plan import LaunchRequest
from ascendboot.model.cluster import Placement, Slot
from ascendboot.model.job import JobReport, JobState
from ascendboot.model.names import counted, id_list
from ascendboot.value import Value, field

NOT_RUN, MISSING = "hccl-test-not-run", "hccl-test-missing"
OPERATIONS: Final = (
    *("all_reduce", "reduce", "reduce_scatter"),
    *("all_gather", "alltoall", "alltoallv", "broadcast", "scatter"),
)
_SIZE: Final = re.compile(r"([1-9][0-9]{0,9})([KMG]?)", re.IGNORECASE)
_RATE: Final = re.compile(r"(?=.*[1-9])[0-9]{1,6}(\.[0-9]{1,6})?")
_MOST_BYTES: Final = 16 << 30


class HcclPlan(Value):
    """What to measure, on which devices, and what is expected; empty: all."""

    operation: str = "all_reduce"
    least: int = 8 << 10
    most: int = 256 << 20
    floor: float | None = None
    """GB/s that the best size must reach."""
    devices: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, operation: str | None, sizes: str | None, floor: str, devices: str, *, is_wanted: bool
    ) -> HcclPlan:
        """The values of the flags, and of --hccl-test; a UsageError if one is not possible."""
        is_stated = operation is not None or sizes is not None or floor or devices
        operation = "all_reduce" if operation is None else operation
        sizes = "8K-256M" if sizes is None else sizes
        found = [_SIZE.fullmatch(word) for word in sizes.split("-", 1)]
        numbers = [int(f[1]) << 10 * " KMG".index(f[2].upper() or " ") for f in found if f]
        wrong = ""
        if operation not in OPERATIONS:
            wrong = f'no operation "{operation}" in HCCL Test; there are {", ".join(OPERATIONS)}'
        elif len(numbers) != len(found) or not 4 <= numbers[0] <= numbers[-1] <= _MOST_BYTES:  # noqa: PLR2004
            wrong = f'--sizes is "{sizes}"; it is from 4 to 16G bytes, as 8K-256M or 64M'
        elif floor and not _RATE.fullmatch(floor):
            wrong = f'--floor is "{floor}"; it is a bandwidth in GB/s, as 20'
        elif is_stated and not is_wanted:
            wrong = "--operation, --sizes, --floor and --devices belong to --hccl-test; add it"
        if wrong:
            raise UsageError(f"check: {wrong}")
        ids = frozenset(id_list("check: --devices", devices) if devices else ())
        return cls(operation, numbers[0], numbers[-1], float(floor) if floor else None, ids)


class HcclTest(node_check.NodeCheck, kw_only=True):
    """What the tool measured so far."""

    rows: Sequence[tuple[int, float, str]] = ()
    before: Mapping[str, float] = field(default_factory=dict)
    """The `last` and the `best` bandwidth of earlier runs of the same."""

    @property
    def peak(self) -> float:
        """GB/s of the best size; 0 without a table."""
        return max((rate for _, rate, _ in self.rows), default=0.0)

    @property
    def line(self) -> str:
        """`23.8 GB/s, 23.9 in the run before`."""
        last = f", {self.before['last']:.4g} in the run before" if self.before else ""
        return f"{self.peak:.4g} GB/s{last}"


def check_hccl(
    request: LaunchRequest, start: node_check.Start, wanted: HcclPlan, before: Mapping[str, float]
) -> HcclTest:
    """Run the tool on pairs of devices of each node, then on all, unless a device failed."""
    check, slots = HcclTest(before=before), request.placement.slots
    words = (str(request.mpirun), wanted.operation, str(wanted.least), str(wanted.most))
    with suppress(node_check.EndedError):  # the findings have the reason
        check.findings += _pairs(request.placement, check, start, words)
        if not any(finding.level == "error" for finding in check.findings):
            notes, report = start(("whole", *words))
            check.interrupted = report.state in (JobState.INTERRUPTED, JobState.STOPPED)
            if not check.interrupted:
                check.findings += _of_whole(slots, check, notes, report, wanted.floor)
    return check


def pairings(placement: Placement) -> list[list[tuple[int, int]]]:
    """The first two ways to pair the devices of each node.

    All pairs of one way are linked alike: by the two dies of a card, within or between meshes.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for node in placement.nodes:
        places = sorted((placement.slots[r].device_id, r) for r in placement.ranks_on(node))
        for (one, rank), (other, partner) in combinations(places, 2):
            found.setdefault(one ^ other, []).append((rank, partner))
    return [found[way] for way in sorted(found, key=lambda way: (-len(found[way]), way))[:2]]


def _pairs(
    placement: Placement, check: HcclTest, start: node_check.Start, words: tuple[str, ...]
) -> Findings:
    """Test pairs, in a second way if one of them is bad, and find the devices that are bad."""
    slots, bad = placement.slots, dict[tuple[int, int], str | float]()
    partners: dict[int, list[tuple[int, int]]] = {}
    for pairs in pairings(placement):
        places = [[(r, slots[r].device_id, slots[r].local_rank) for r in pair] for pair in pairs]
        results = node_check.round_of(slots, check, start, ("pairs", *words, json.dumps(places)))
        found = dict[tuple[int, int], str | float]()
        for pair in pairs:
            own = results[pair[0]]
            rows = [] if isinstance(own, str) else own.get("rows", [])
            found[pair] = rows[0][1] or 1e-9 if rows else str(own)
            one, other = (f"{slots[r].node.name} device {slots[r].device_id}" for r in pair)
            check.pairs[one, other] = found[pair]
            for rank in pair:
                partners.setdefault(rank, []).append(pair)
        bad |= {pair: why for pair, why in found.items() if isinstance(why, str)}
        rates = {pair: rate for pair, rate in found.items() if isinstance(rate, float)}
        bad |= node_check.slow_ones(rates)
        if not bad:
            return
    guilty = [r for r, own in partners.items() if len(own) > 1 and all(pair in bad for pair in own)]
    for (_, result), ranks in grouped(
        ((slots[rank].node.name, bad[partners[rank][0]]), rank) for rank in guilty
    ).items():
        yield _of_bad(tuple(slots[rank] for rank in sorted(ranks)), "", result)
    for pair, result in bad.items():
        if not {*pair} & {*guilty}:
            yield _of_bad(tuple(slots[rank] for rank in pair), " together", result)


def _of_bad(slots: tuple[Slot, ...], how: str, result: str | float) -> Finding:
    """A device that is bad with each partner, or a pair of which one or the link is bad."""
    node, who = slots[0].node.name, devices([slot.device_id for slot in slots]) + how
    remedy = "If it stays, take it out with `devices` of the node; see npu-smi info and dmesg"
    if isinstance(result, str):
        known = known_words(result)
        text = f"{who}: HCCL Test failed: {result}{f' ({known.meaning})' if known else ''}"
        return error("hccl-test-failed", (node,), text, remedy)
    made = error if result > node_check.FAR_TOO_SLOW else warning
    text = f"{who}: slow in HCCL Test, {1 / result:.0%} of the median of all pairs"
    return made("hccl-test-slow", (node,), text, remedy)


def _of_whole(
    slots: Slots, check: HcclTest, notes: Notes, report: JobReport, floor: float | None
) -> Findings:
    """What the run on all devices showed: it failed, or it is slow."""
    names, cause = nodes_of(range(len(slots)), slots), report.cause
    failed = {rank: own.failed for rank, own in notes.items() if own.failed}
    check.rows = (notes[0].measured or {}).get("rows", ())
    if failed or report.state is not JobState.SUCCEEDED:
        said = [f"{ranks_shown([rank], slots)}: {why}" for rank, why in failed.items()][:1]
        said = [cause.title, cause.words] if cause else said or report.message.splitlines()
        why = "; ".join(filter(None, said))
        text = f"HCCL Test failed on {counted(len(slots), 'device')}: {why}"
        remedy = (cause and cause.remedy) or "See the logs of the ranks in the run's folder"
        yield error("hccl-test-failed", (cause and cause.nodes) or names, text, remedy)
    else:
        remedy = "See what pings and links of check, or the pairs of --level full, show"
        text, best = f"HCCL Test reaches {check.line}; ", check.before.get("best", 0.0)
        if floor is not None and check.peak < floor:
            text += f"{floor:g} GB/s are expected"
            yield error("hccl-test-slow", names, text, remedy)
        elif best > node_check.SLOW * check.peak:
            made = error if best > node_check.FAR_TOO_SLOW * check.peak else warning
            text += f"{best:.4g} in the best run of these devices"
            yield made("hccl-test-slow", names, text, remedy)
