"""The report of a job: its state, how each rank ended, and the cause of a failure."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotation
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from ascendboot.model.names import ranks_named
from ascendboot.model.secrets import masked_json

if TYPE_CHECKING:
    from collections.abc import Sequence


class JobState(str, Enum):
    """How a job ended, or that it has not."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    """By `stop`, from another terminal."""
    HUNG = "hung"
    """It stood still, and was stopped for that."""
    LOST = "lost"
    """It began, its launcher is gone, and its exit code is unknown."""
    NOT_STARTED = "not_started"


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended; both codes are None when it was killed together with its wrapper."""

    rank: int
    node: str
    device: int
    exit_code: int | None
    """As a shell reports it: 128+n when signal n ended the rank."""
    signal: int | None


@dataclass(frozen=True, kw_only=True)
class FirstFailure:
    """The rank that failed before all others, and its last words."""

    end: RankEnd
    message: str
    """The last lines, not empty ones, that it wrote."""
    log: str
    """Its log on the operator's side."""

    def to_json(self) -> dict[str, object]:
        """This failure as documented in the reference of `--json`."""
        return {**asdict(self.end), "message": self.message, "log": self.log}


@dataclass(frozen=True, kw_only=True)
class JobReport:
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
    """Where the logs are, on the operator's side."""
    message: str = ""
    """Why it failed when no single rank is to blame; the cause's title where that says it."""
    notes: tuple[str, ...] = ()
    """What else the operator should know: processes ended or left behind, logs that are short."""
    cause: JobCause | None = None
    """Why it failed, over all ranks and nodes; None where that is not known, or it did not."""

    @property
    def beside_cause(self) -> str:
        """The message, where it says something else than the title of the cause."""
        says_the_same = self.cause is not None and self.message == self.cause.title
        return "" if says_the_same else self.message

    def without(self, secrets: Sequence[str]) -> JobReport:
        """The same with none of these secrets in it, also where a rank's last lines held one."""
        if not secrets:
            return self
        return JobReport.from_json(masked_json(self.to_json(), secrets))

    def to_json(self) -> dict[str, object]:
        """The report as documented in the reference of `--json`."""
        return {
            **TypeAdapter(JobReport).dump_python(self, mode="json"),
            "first_failure": self.first_failure.to_json() if self.first_failure else None,
            "duration_s": round(self.duration_s, 3),
            "cause": self.cause.to_json() if self.cause else None,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobReport:
        """What `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document has another form.
        """
        failure = document["first_failure"]
        if failure is not None:
            failure = {"end": failure, **failure}
        return TypeAdapter(JobReport).validate_python({**document, "first_failure": failure})


class CauseKind(str, Enum):
    """What a job failed of."""

    RANK = "rank"
    """One rank failed before all others."""
    ALIKE = "alike"
    """Several ranks failed in the same way, none because of another."""
    LEFT = "left"
    """Ranks that ended well, or were not there, while others still needed them."""
    ONE_OF = "one_of"
    """One of several ranks; what was seen does not decide which."""
    NODE = "node"
    """Nodes that were lost with all their ranks."""
    LAUNCHER = "launcher"
    """What starts the ranks; no rank failed on its own."""


@dataclass(frozen=True)
class Followed:
    """Ranks that ended only because of the cause, and how."""

    ranks: tuple[int, ...]
    how: str

    def __str__(self) -> str:
        return f"{ranks_named(self.ranks)}: {self.how}"


@dataclass(frozen=True, kw_only=True)
class JobCause:
    """Why a job failed: who was first, its words, why it was chosen, who only followed."""

    kind: CauseKind
    title: str
    """Who failed, where and how, in one line."""
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    device: int | None = None
    """None where it is not of one rank."""
    at: str | None = None
    """When it was first seen, ISO 8601, UTC, by the operator's clock; None: unknown."""
    words: str = ""
    """What says so, as it stands in `source`."""
    source: str = ""
    """Where the words stand: `rank.3.log`, `launcher.log`, `error file`."""
    meaning: str = ""
    remedy: str = ""
    why: str = ""
    """Why this one and no other."""
    unsure: str = ""
    """What could make it another one; empty when nothing could."""
    followed: tuple[Followed, ...] = ()

    @property
    def rank(self) -> int | None:
        """The one rank; None where there are several."""
        return self.ranks[0] if len(self.ranks) == 1 else None

    def lines(self) -> list[str]:
        """The cause as text, its title first."""
        details = {
            "it says": self.words,
            "it means": self.meaning,
            "to do": self.remedy,
            "chosen, as": self.why,
            "not certain": self.unsure,
            "only followed": "; ".join(map(str, self.followed)),
        }
        return [self.title, *(f"  {name}: {text}" for name, text in details.items() if text)]

    def to_json(self) -> dict[str, object]:
        """This cause as documented in the reference of `--json`."""
        node = self.nodes[0] if len(self.nodes) == 1 else None
        members = TypeAdapter(JobCause).dump_python(self, mode="json")
        return {**members, "rank": self.rank, "node": node}
