"""What supervision knows and orders: states, actions, and the contents of the state file."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from ascendboot.model.cluster import Parallel
from ascendboot.supervise.policy import Fault, Limits, NodeState
from ascendboot.value import Struct, Value, field

SCHEMA = 1


class State(str, Enum):
    """What supervision does now."""

    IDLE = "IDLE"
    PREFLIGHT = "PREFLIGHT"
    LAUNCHING = "LAUNCHING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    DIAGNOSING = "DIAGNOSING"
    PLANNING = "PLANNING"
    WAITING = "WAITING"
    DONE = "DONE"
    GAVE_UP = "GAVE_UP"
    NEEDS_OPERATOR = "NEEDS_OPERATOR"


ACTIVE = (State.LAUNCHING, State.RUNNING, State.DRAINING)
"""States in which ranks may run and no stop was ordered."""
ENDED = (State.DONE, State.GAVE_UP, State.NEEDS_OPERATOR)


class Launch(Value):
    """Start a generation on these nodes, not before a time."""

    generation: int
    nodes: tuple[str, ...]
    not_before: float


class Stop(Value):
    """Stop all ranks of a generation, then call `stopped`."""

    generation: int
    cause: Fault


class Wait(Value):
    """Call `tick` at this time at the latest."""

    until: float


class End(Value):
    """Supervision has ended with this exit code."""

    state: State
    exit_code: int
    words: str


Action: TypeAlias = Launch | Stop | Wait | End


class Choice(Value):
    """What one job uses instead of all nodes and devices, and of what setup and inventory state."""

    nodes: str | None = None
    devices: tuple[int, ...] = ()
    launcher: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    """Of the script; None: not stated, or not kept because a secret is in them."""


class Memory(Struct):
    """What the state file holds."""

    order: tuple[str, ...]
    """All nodes, in inventory order."""
    devices: int
    shape: Parallel
    limits: Limits
    nodes: dict[str, NodeState] = field(default_factory=dict)
    at: float = 0.0
    """The latest time seen."""
    state: State = State.IDLE
    generation: int = 0
    members: tuple[str, ...] = ()
    launched_at: float | None = None
    size: int | None = None
    """The number of nodes that the operator asked for, at most."""
    step: int | None = None
    """Of the newest checkpoint now."""
    best_step: int = -1
    """The highest step of a checkpoint so far."""
    step_at_launch: int = -1
    restarts: int = 0
    no_progress: int = 0
    exits: int = 0
    """Generations that a rank ended without a fault of hardware, since the last checkpoint."""
    early_exit: tuple[int | None, int | None] | None = None
    """Code and rank of the last generation, if that ended soon after its start."""
    failed_node: str = ""
    """Where the last generation failed, without a fault of hardware."""
    doubted: str = ""
    """A node that spares replace, although no fault of it was seen."""
    faults: list[Fault] = field(default_factory=list)
    """What was seen since the generation was launched, for the choice of its cause."""
    pending: list[tuple[float, Fault]] = field(default_factory=list)
    """Faults that stop the generation if they persist until a time."""
    recent: list[Fault] = field(default_factory=list)
    before: dict[str, NodeState] = field(default_factory=dict)
    """The nodes of `recent`, as they were before."""
    excused: list[str] = field(default_factory=list)
    """Nodes that went down by a common cause: used again as soon as they answer."""
    common_at: float | None = None
    common_restarts: int = 0
    """Restarts by a common cause since the last checkpoint."""
    deadline: float = 0.0
    """When WAITING ends, or DIAGNOSING."""
    is_interrupted: bool = False
    end: End | None = None
    choice: Choice | None = None
    """As `train` was called; None: another version began the job, which did not keep it."""
