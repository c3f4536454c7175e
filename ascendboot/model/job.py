"""The report of a job: its state, how each rank ended, and the cause of a failure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ascendboot.model.names import ranks_named
from ascendboot.model.secrets import masked_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    """How one rank ended; both codes are None when nobody saw its end (killed with its wrapper)."""

    rank: int
    node: str
    device: int
    exit_code: int | None
    """As a shell reports it: 128+n when signal n ended the rank."""
    signal: int | None

    def to_json(self) -> dict[str, object]:
        """This rank as documented in the reference of `--json`."""
        return {
            "rank": self.rank,
            "node": self.node,
            "device": self.device,
            "exit_code": self.exit_code,
            "signal": self.signal,
        }


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
        return {**self.end.to_json(), "message": self.message, "log": self.log}


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
    first_failure: FirstFailure | None
    ranks: tuple[RankEnd, ...]
    duration_s: float
    folder: str
    """Where the logs are, on the operator's side."""
    message: str = ""
    """Why it failed when no single rank is to blame; the cause's title where that says it."""
    notes: tuple[str, ...] = ()
    """What else the operator should know: processes ended or left behind, logs that are short."""
    script: Mapping[str, str | None] | None = None
    """Its path on the nodes, and where it was copied from; None: not kept, or there is none."""
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
            "job_id": self.job_id,
            "state": self.state.value,
            "exit_code": self.exit_code,
            "started": self.started,
            "command": self.command,
            "script": None if self.script is None else dict(self.script),
            "first_failure": self.first_failure.to_json() if self.first_failure else None,
            "ranks": [end.to_json() for end in self.ranks],
            "duration_s": round(self.duration_s, 3),
            "folder": self.folder,
            "message": self.message,
            "notes": list(self.notes),
            "cause": self.cause.to_json() if self.cause else None,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobReport:
        """What `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document has another form.
        """
        failure = document["first_failure"]
        return cls(
            job_id=document["job_id"],
            state=JobState(document["state"]),
            exit_code=document["exit_code"],
            started=document["started"],
            command=document["command"],
            script=document.get("script"),
            first_failure=None
            if failure is None
            else FirstFailure(
                end=_rank_end(failure), message=failure["message"], log=failure["log"]
            ),
            ranks=tuple(_rank_end(end) for end in document["ranks"]),
            duration_s=document["duration_s"],
            folder=document["folder"],
            message=document["message"],
            notes=tuple(document["notes"]),
            cause=_cause(document.get("cause")),
        )


def _rank_end(document: Mapping[str, Any]) -> RankEnd:
    return RankEnd(
        rank=document["rank"],
        node=document["node"],
        device=document["device"],
        exit_code=document["exit_code"],
        signal=document["signal"],
    )


def _cause(document: Mapping[str, Any] | None) -> JobCause | None:
    if document is None:
        return None

    return JobCause.from_json(document)


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
    """What starts the ranks; no rank failed by itself."""


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
        """The verdict for a person, its title first."""
        told = {
            "it says": self.words,
            "it means": self.meaning,
            "to do": self.remedy,
            "chosen, as": self.why,
            "not certain": self.unsure,
            "only followed": "; ".join(map(str, self.followed)),
        }
        return [self.title, *(f"  {name}: {text}" for name, text in told.items() if text)]

    def to_json(self) -> dict[str, object]:
        """This cause as documented in the reference of `--json`."""
        return {
            "kind": self.kind.value,
            "title": self.title,
            "rank": self.rank,
            "node": self.nodes[0] if len(self.nodes) == 1 else None,
            "device": self.device,
            "ranks": list(self.ranks),
            "nodes": list(self.nodes),
            "at": self.at,
            "words": self.words,
            "source": self.source,
            "meaning": self.meaning,
            "remedy": self.remedy,
            "why": self.why,
            "unsure": self.unsure,
            "followed": [{"ranks": list(f.ranks), "how": f.how} for f in self.followed],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JobCause:
        """What `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the document has another form.
        """
        texts = ("title", "words", "source", "meaning", "remedy", "why", "unsure")
        return cls(
            kind=CauseKind(document["kind"]),
            ranks=tuple(document["ranks"]),
            nodes=tuple(document["nodes"]),
            device=document["device"],
            at=document["at"],
            followed=tuple(Followed(tuple(f["ranks"]), f["how"]) for f in document["followed"]),
            **{name: document[name] for name in texts},
        )
