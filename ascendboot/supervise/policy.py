"""Faults and their levels, which is the cause, and on how many nodes a job can go on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, IntEnum
from functools import cache
from typing import Literal

from ascendboot.model.cluster import Parallel
from ascendboot.model.names import counted
from ascendboot.value import Value, data_file, replace

Status = Literal["healthy", "suspect", "soft-quarantine", "quarantined", "absent"]
Treatment = Literal["log", "suspect", "restart", "drop", "quarantine"]

DAY_S = 86400.0
_SEVERE = ("alarm", "critical")
TOOL_HANGS, CARD_DROPPED = "npu-tool-hang", "card-dropped"
"""Our own codes: a vendor tool gave no answer in time; an NPU is no longer on the bus."""


class Level(IntEnum):
    """How severe MindCluster rates a fault code; a higher level wins."""

    NOT_HANDLE = 0
    SUB_HEALTH = 1
    PRE_SEPARATE = 2
    RESTART_REQUEST = 3
    RESTART_BUSINESS = 4
    FREE_RESTART_NPU = 5
    RESTART_NPU = 6
    SEPARATE_NPU = 7

    @property
    def treatment(self) -> Treatment:
        """What happens at this level.

        log: nothing. suspect: the node is not used for the next generation unless it is needed.
        restart: on the same nodes, if the fault persists or ranks ended. drop: stop, and use the
        node again when it has been healthy for a while. quarantine: stop, and do not use the node
        until an operator releases it.
        """
        return _TREATMENTS[self]


_TREATMENTS: tuple[Treatment, ...] = (
    *("log", "suspect", "suspect", "restart", "restart", "drop", "drop", "quarantine"),
)
"""In the order of the levels."""


class FaultKind(str, Enum):
    """What was observed."""

    RANK_EXIT = "rank-exit"
    NODE_DOWN = "node-down"
    NPU_FAULT = "npu-fault"
    LINK_DOWN = "link-down"
    NET_FAULT = "net-fault"
    HANG = "hang"
    START_FAILED = "start-failed"
    PREEMPTED_BY_OPERATOR = "preempted-by-operator"


OF_JOB = (FaultKind.RANK_EXIT, FaultKind.HANG, FaultKind.START_FAILED)
"""What ranks of one generation do."""
HARDWARE = (FaultKind.NPU_FAULT, FaultKind.LINK_DOWN, FaultKind.NODE_DOWN)

_ORDER = {
    **dict.fromkeys(HARDWARE, 0),
    FaultKind.NET_FAULT: 1,
    FaultKind.PREEMPTED_BY_OPERATOR: 2,
    FaultKind.RANK_EXIT: 3,
    FaultKind.START_FAILED: 3,
    FaultKind.HANG: 4,
}


class Fault(Value, kw_only=True):
    """One observation; `at` is in the time of the core."""

    kind: FaultKind
    at: float
    node: str = ""
    """Empty: not known."""
    rank: int | None = None
    exit_code: int | None = None
    codes: tuple[str, ...] = ()
    level: Level | None = None
    """Of an NPU fault; None: by `codes`, at health Alarm."""
    words: str = ""

    @property
    def severity(self) -> Level:
        """The level, from the table of codes if none is stated."""
        return level_of(self.codes, "Alarm") if self.level is None else self.level

    @property
    def is_slow(self) -> bool:
        """Whether it stops a generation only after some time, or if a rank ends."""
        is_npu = self.kind is FaultKind.NPU_FAULT
        return self.kind is FaultKind.NET_FAULT or (is_npu and self.severity.treatment == "restart")

    @property
    def shown(self) -> str:
        """The fault for a message: `n1: npu-fault (80E3A201): device 3 is Alarm`."""
        if self.words and self.kind in (*OF_JOB, FaultKind.PREEMPTED_BY_OPERATOR):
            return self.words  # they name what ended, and where
        where = f"{self.node}: " if self.node else ""
        rank = f" of rank {self.rank}" if self.rank is not None else ""
        code = f" with exit code {self.exit_code}" if self.exit_code is not None else ""
        codes = f" ({' '.join(self.codes)})" if self.codes else ""
        words = f": {self.words}" if self.words else ""
        return f"{where}{self.kind.value}{rank}{code}{codes}{words}"


class NodeState(Value):
    """Whether a node may run ranks."""

    status: Status = "healthy"
    until: float | None = None
    """When it is healthy again; None: not before it is seen healthy, or released."""
    reason: str = ""
    relapses: int = 0
    """Faults after it was healthy again, each within 24 hours."""
    faults: tuple[tuple[str, float], ...] = ()
    """Code (or kind) and time of each fault in the 24 hours before the last one."""


class Limits(Value, kw_only=True):
    """Budgets and times (seconds) of supervision."""

    max_restarts: int = 10
    no_progress_limit: int = 3
    """Generations in a row that end without a newer checkpoint."""
    rejoin_wait_s: float = 270.0
    stable_for_s: float = 300.0
    backoff_s: float = 5.0
    backoff_cap_s: float = 300.0
    correlate_s: float = 10.0
    common_s: float = 30.0
    min_nodes: int = 1
    max_nodes: int | None = None


def hold_s(stable_for_s: float, relapses: int) -> float:
    """Return how long (seconds) a node must be healthy before it is used again."""
    return min(stable_for_s * 2.0 ** min(relapses, 30), DAY_S)


def after_fault(
    now: NodeState, fault: Fault, treatment: Treatment, stable_for_s: float
) -> NodeState:
    """Return the condition of a node after a fault; a better one never replaces a worse one."""
    span_s = DAY_S + hold_s(stable_for_s, now.relapses)
    kept = tuple(each for each in now.faults if fault.at - each[1] <= span_s)
    code = " ".join(fault.codes) or fault.kind.value
    is_same = now.status != "healthy" and now.until is None
    relapses = now.relapses if is_same else now.relapses + 1 if kept else 0
    faults = kept if is_same and code in dict(kept) else (*kept, (code, fault.at))
    status = now.status
    if treatment == "quarantine" or status == "quarantined":
        status = "quarantined"
    elif fault.kind is FaultKind.NODE_DOWN:
        status = "absent"
    elif treatment == "suspect":
        status = "suspect" if status == "healthy" else status
    elif status != "absent":
        status = "soft-quarantine"
    shown = fault.shown.removeprefix(f"{fault.node}: ")
    reason = now.reason if now.status == "quarantined" else shown
    return NodeState(status, None, reason, relapses=relapses, faults=faults)


def healthy_again(now: NodeState) -> NodeState:
    """Return the condition of a node that may be used; its faults are kept."""
    return replace(now, status="healthy", until=None, reason="")


def is_back(now: NodeState) -> bool:
    """Whether a node answers again after it was down, for the first time."""
    was_down = bool(now.faults) and now.faults[-1][0] == FaultKind.NODE_DOWN.value
    is_held = now.status == "soft-quarantine" and now.until is not None
    return is_held and was_down and not now.relapses


def level_of(codes: Collection[str], health: str) -> Level:
    """Return the level of the fault codes of an NPU; the highest of several.

    `health` is the word of `npu-smi info -t health`. An unknown code, or no code at all, is
    SEPARATE_NPU at Alarm and Critical, and otherwise NOT_HANDLE.
    """
    unknown = Level.SEPARATE_NPU if health.lower() in _SEVERE else Level.NOT_HANDLE
    return max((_table().get(code.upper(), unknown) for code in codes), default=unknown)


def first_cause(faults: Sequence[Fault], correlate_s: float) -> Fault:
    """Return the cause among faults that were seen together; there is at least one.

    Only the `correlate_s` seconds after the earliest count. NPU, link and node come before the
    end of a rank, and that before a hang. Among equals a fault with a node comes first, then the
    earliest.
    """
    since = min(fault.at for fault in faults)
    near = [fault for fault in faults if fault.at <= since + correlate_s]
    return min(near, key=lambda fault: (_ORDER[fault.kind], not fault.node, fault.at))


def common_nodes(
    faults: Sequence[Fault], nodes: Collection[str], common_s: float
) -> frozenset[str]:
    """Return the nodes with a fault in common: within `common_s`, a code on two, or any on half."""
    seen = [fault for fault in faults if fault.kind in HARDWARE and fault.node in nodes]
    found: set[str] = set()
    for last in seen:
        near = [fault for fault in seen if 0 <= last.at - fault.at <= common_s]
        groups = [{one.node for one in near if sign in _signs(one)} for sign in _signs(last)]
        together = {fault.node for fault in near}
        if 2 * len(together) >= len(nodes):
            groups.append(together)
        found.update(*(group for group in groups if len(group) > 1))
    return frozenset(found)


def _signs(fault: Fault) -> tuple[str, ...]:
    return (fault.kind.value,) if fault.kind is FaultKind.LINK_DOWN else fault.codes


@cache
def _table() -> dict[str, Level]:
    """The contents of `fault_codes.yaml`: the highest level of each code."""
    listed = data_file("supervise/fault_codes.yaml", dict[str, list[str]])
    ascending = sorted(Level[name] for name in listed)
    return {code.upper(): level for level in ascending for code in listed[level.name]}


def legal_world(
    shape: Parallel, available: int, devices: int, *, at_least: int = 1, at_most: int | None = None
) -> int | None:
    """Return how many of `available` nodes of `devices` NPUs form the largest world; None: none.

    The number of ranks is a multiple of TP x PP x CP, the data parallel size is at least `dp_min`,
    and the global batch is a multiple of `mbs` times the data parallel size.
    """
    most = available if at_most is None else min(available, at_most)
    for nodes in range(most, max(at_least, 1) - 1, -1):
        dp, rest = divmod(nodes * devices, shape.model_devices)
        if rest or dp < shape.dp_min:
            continue
        if shape.gbs is None or shape.gbs % (shape.mbs * dp) == 0:
            return nodes
    return None


def why_not_legal(shape: Parallel, available: int, devices: int, at_least: int) -> str:
    """Say why no number of nodes is legal, for a message."""
    seen = f"{counted(available, 'node')} of {devices} devices"
    if available < at_least:
        return f"{seen}: fewer than min_nodes {at_least}; release or repair a node"
    of_batch = f", and gbs {shape.gbs} a multiple of mbs {shape.mbs} x DP" if shape.gbs else ""
    return (
        f"{seen}: the number of ranks must be a multiple of {shape.model_devices} ({shape.words}), "
        f"DP at least {shape.dp_min} (dp_min){of_batch}; add nodes or change these"
    )
