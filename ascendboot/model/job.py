"""How a job went: RankEnd, FirstFailure and JobReport, the value behind `train --json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ascendboot.model.secrets import masked_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.model.cause import JobCause


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
    """It began, its launcher is gone, and nobody saw how it ended."""
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
    from ascendboot.model.cause import JobCause  # noqa: PLC0415 - a start has no use for it

    return JobCause.from_json(document)
