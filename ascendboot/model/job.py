"""The report of a job: its state, how each rank ended, and the cause of a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from ascendboot.model.names import least_most, ranks_named
from ascendboot.model.secrets import masked_json
from ascendboot.value import Value, as_json, from_json


class JobState(str, Enum):
    """How a job ended, or that it has not."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    """By `stop`, from another terminal."""
    HUNG = "hung"
    """It made no progress and was stopped for that."""
    LOST = "lost"
    """It started, its launcher is gone, and its exit code is unknown."""
    NOT_STARTED = "not_started"


class NpuUse(Value, kw_only=True):
    """How much an NPU is used, as `npu-smi info` shows it; None and a total of 0: not shown."""

    utilization_percent: int | None
    temperature_c: int | None
    memory_used_mb: int
    """Of its HBM, where it has any."""
    memory_total_mb: int


def use_words(uses: Sequence[NpuUse]) -> tuple[str, str, str]:
    """Return utilisation, memory and temperature of some NPUs, least to most; empty: not shown."""
    percent = [use.utilization_percent for use in uses if use.utilization_percent is not None]
    celsius = [use.temperature_c for use in uses if use.temperature_c is not None]
    total_gb = max((use.memory_total_mb for use in uses), default=0) / 1024
    used = least_most([use.memory_used_mb / 1024 for use in uses], "{:.0f}".format)
    busy, hot = least_most(percent, "{:.0f}".format), least_most(celsius, "{:.0f}".format)
    memory = f"{used} of {total_gb:.0f} GiB" if total_gb else ""
    return busy and f"NPU {busy} %", memory, hot and f"{hot} °C"


class RankTimes(Value, kw_only=True):
    """When what happened to one rank: ISO 8601, UTC, by the clock of the control machine.

    The start and the output are known only of a job that `train` followed, within half a second.
    """

    started: str | None = None
    first_output: str | None = None
    last_output: str | None = None
    silent_s: float | None = None
    """The longest time without output, between its start and its last output."""
    silent_since: str | None = None
    ended: str | None = None


class RankEnd(Value, kw_only=True):
    """How one rank ended; both codes are None if it was killed together with its wrapper."""

    rank: int
    node: str
    device: int
    exit_code: int | None
    """As a shell reports it: 128+n if signal n ended the rank."""
    signal: int | None
    times: RankTimes | None = None
    """None: nothing is known."""


class FirstFailure(RankEnd, kw_only=True):
    """The rank that failed before all others, and the end of its log."""

    message: str
    """The last lines that it wrote, without empty ones."""
    log: str
    """Its log on the control machine."""


class CauseKind(str, Enum):
    """What caused the failure of a job."""

    RANK = "rank"
    """One rank failed before all others."""
    ALIKE = "alike"
    """Several ranks failed in the same way, none because of another."""
    LEFT = "left"
    """Ranks that ended with success or were missing while others still needed them."""
    ONE_OF = "one_of"
    """One of several ranks; the evidence does not show which."""
    NODE = "node"
    """Nodes that were lost with all their ranks."""
    LAUNCHER = "launcher"
    """The program that starts the ranks; no rank failed on its own."""


class Followed(Value):
    """Ranks that ended only because of the cause, and how."""

    ranks: tuple[int, ...]
    how: str

    def __str__(self) -> str:
        return f"{ranks_named(self.ranks)}: {self.how}"


class DeviceChange(Value):
    """What changed on a device, or on its node, while a job ran."""

    node: str
    device: int | None
    """The physical id; None: it concerns the node."""
    text: str
    is_severe: bool = False
    """Whether no job can run with it."""

    def __str__(self) -> str:
        where = self.node if self.device is None else f"{self.node} device {self.device}"
        return f"{where}: {self.text}"


class JobCause(Value, kw_only=True):
    """Why a job failed: what failed first, the evidence, and which ranks only followed."""

    kind: CauseKind
    title: str
    """What failed, where and how, in one line."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    device: int | None = None
    """None unless one rank is the cause."""
    at: str | None = None
    """When it was first seen, ISO 8601, UTC, by the clock of the control machine; None: unknown."""
    words: str = ""
    """The evidence as it stands in `source`."""
    source: str = ""
    """Where the evidence stands: `rank.3.log`, `launcher.log`, `error file`."""
    meaning: str = ""
    remedy: str = ""
    why: str = ""
    """Why this is the cause and nothing else."""
    unsure: str = ""
    """Why the cause could be another one; empty if it is certain."""
    devices: tuple[str, ...] = ()
    """What changed on the devices of the job while it ran, queried once after the failure."""
    losses: tuple[str, ...] = ()
    """Losses in the output of ranks that were nan, inf, or the same for long."""
    followed: tuple[Followed, ...] = ()

    @property
    def rank(self) -> int | None:
        """The rank; None if there are several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    @property
    def node(self) -> str | None:
        """The node; None if there are several."""
        return self.nodes[0] if len(self.nodes) == 1 else None

    def lines(self) -> list[str]:
        """The cause as text, its title first."""
        is_missing = self.kind in (CauseKind.LEFT, CauseKind.ONE_OF)
        details = {
            "from the logs" if is_missing else "it says": self.words,
            "it means": self.meaning,
            "to do": self.remedy,
            "reason": self.why,
            "not certain": self.unsure,
            "devices": "; ".join(self.devices),
            "loss": "; ".join(self.losses),
            "only followed": "; ".join(map(str, self.followed)),
        }
        return [self.title, *(f"  {name}: {text}" for name, text in details.items() if text)]

    def to_json(self) -> dict[str, object]:
        """The cause in the document of a report."""
        return {**as_json(self), "rank": self.rank, "node": self.node}


class JobReport(Value, kw_only=True):
    """One job from its start to its end, ranks in rank order."""

    job_id: str
    state: JobState
    exit_code: int | None
    """None while it runs."""
    started: str
    """When it was started, ISO 8601, UTC."""
    command: str
    """What a person would paste on the primary node to start the same job."""
    script: Mapping[str, str | None] | None = None
    """Its path on the nodes, and where it was copied from; None: not kept, or there is none."""
    first_failure: FirstFailure | None
    ranks: tuple[RankEnd, ...]
    duration_s: float
    folder: str
    """The folder of the logs on the control machine."""
    message: str = ""
    """Why it failed if no single rank is the reason; the cause's title if that states it."""
    notes: tuple[str, ...] = ()
    """Further remarks for the operator: processes ended or left behind, logs that are short."""
    cause: JobCause | None = None
    """Why it failed, over all ranks and nodes; None: unknown, or it did not fail."""

    @property
    def beside_cause(self) -> str:
        """The message, unless it only repeats the title of the cause."""
        is_title = self.cause is not None and self.message == self.cause.title
        return "" if is_title else self.message

    def without(self, secrets: Sequence[str]) -> JobReport:
        """The same report without these secrets, also in the last lines of a rank."""
        if not secrets:
            return self
        return JobReport.from_json(masked_json(self.to_json(), secrets))

    def to_json(self) -> dict[str, object]:
        """The report as documented in the reference of `--json`."""
        cause = self.cause and self.cause.to_json()
        return {**as_json(self), "duration_s": round(self.duration_s, 3), "cause": cause}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobReport:
        """Reads what `to_json` wrote; ValueError if the document has another form."""
        return from_json(document, JobReport)
