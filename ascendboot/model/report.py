"""What happened: StepResult and Report, the value behind the screen and `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(str, Enum):
    """How one step ended on one node."""

    OK = "ok"
    CHANGED = "changed"
    WOULD_CHANGE = "would_change"
    BLOCKED = "blocked"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    NOT_RUN = "not_run"


_CODE_OF_OUTCOME = {Outcome.UNREACHABLE: 4, Outcome.FAILED: 1, Outcome.BLOCKED: 1}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The finding behind a result: its id, how bad it is, all nodes it is about, what to do."""

    id: str
    level: str
    """`error`, `warning` or `info`."""
    nodes: tuple[str, ...]
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """How one step of one phase ended on one node; `duration_s` in seconds."""

    node: str
    phase: str
    step: str
    outcome: Outcome
    detail: str = ""
    duration_s: float = 0.0
    diff: str = ""
    cause: Cause | None = None
    """The finding that it comes from, if it does."""

    @property
    def is_warning(self) -> bool:
        """Nothing stands in the way, but something is worth a look."""
        return (
            self.outcome is Outcome.OK
            and self.cause is not None
            and (self.cause.level == "warning")
        )


@dataclass(frozen=True, kw_only=True)
class Report:
    """All results of one run, in the order of phases and of the inventory's nodes."""

    run_id: str
    cluster: str
    results: tuple[StepResult, ...]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 all is well · 1 failed or blocked · 4 a node was unreachable · 130 interrupted."""
        if self.interrupted:
            return 130
        return max((_CODE_OF_OUTCOME.get(r.outcome, 0) for r in self.results), default=0)

    def count(self, *outcomes: Outcome) -> int:
        """How many results ended in one of `outcomes`."""
        return sum(r.outcome in outcomes for r in self.results)

    @property
    def problems(self) -> int:
        """How many different things went wrong; one that several nodes share counts once."""
        wrong = {Outcome.BLOCKED, Outcome.FAILED, Outcome.UNREACHABLE}
        return len({_once(r) for r in self.results if r.outcome in wrong})

    def findings(self, level: str) -> int:
        """How many different things of this level were found, on however many nodes."""
        return len({_once(r) for r in self.results if r.cause and r.cause.level == level})

    def to_json(self) -> dict[str, object]:
        """The report as documented in the reference of `--json`."""
        return {
            "run_id": self.run_id,
            "cluster": self.cluster,
            "exit_code": self.exit_code,
            "results": [
                {
                    "node": r.node,
                    "phase": r.phase,
                    "step": r.step,
                    "outcome": r.outcome.value,
                    "detail": r.detail,
                    "duration_s": round(r.duration_s, 3),
                    **({"diff": r.diff} if r.diff else {}),
                    **_cause(r.cause),
                }
                for r in self.results
            ],
        }


def _cause(cause: Cause | None) -> dict[str, object]:
    if cause is None:
        return {}
    return {
        "id": cause.id,
        "level": cause.level,
        "nodes": list(cause.nodes),
        "remedy": cause.remedy,
    }


def _once(result: StepResult) -> tuple[str, ...]:
    """Equal for results that tell of the same thing: of one finding at several nodes."""
    detail = result.detail.replace(f"{result.node}: ", "")
    where = "" if result.cause else result.node
    return where, result.phase, result.step, detail
