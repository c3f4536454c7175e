"""The results of a run: Finding, StepResult and Report, shown on the screen and by `--json`."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from ascendboot.model.names import fold
from ascendboot.value import Value, as_json, replace


class Outcome(str, Enum):
    """How one step ended on one node."""

    OK = "ok"
    CHANGED = "changed"
    WOULD_CHANGE = "would_change"
    BLOCKED = "blocked"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    NOT_RUN = "not_run"


_PAST = {"set": "set", "stop": "stopped"}
_EXIT_CODES = {Outcome.UNREACHABLE: 4, Outcome.FAILED: 1, Outcome.BLOCKED: 1}
_STOPPED = {
    Outcome.UNREACHABLE: "a node is unreachable",
    Outcome.FAILED: "a step failed",
    Outcome.BLOCKED: "blocked by the above",
}
NOTHING_WRITTEN = "nothing was written on the nodes"
KEPT = "what was changed stays, and the next run goes on from there"
_READING, _PROOF = {"reach", "ask", "judge"}, {"prove", "network"}
"""Phases that write nothing, and those after which nothing is left to do."""


Level: TypeAlias = Literal["error", "warning", "info"]


class Finding(Value):
    """A problem or remark about some nodes; `id` is stable across versions."""

    id: str
    level: Level
    nodes: tuple[str, ...]
    text: str
    remedy: str = ""

    @property
    def message(self) -> str:
        """Where, what was seen, what to do, as sentences: `lab-[03,17]: … is missing. Add …`."""
        sentences = [self.text, self.remedy] if self.remedy else [self.text]
        ended = (text if text.endswith((".", "?", "!")) else f"{text}." for text in sentences)
        return f"{fold(self.nodes)}: {' '.join(ended)}"


class StepResult(Value):
    """How one step of one phase ended on one node; `duration_s` in seconds."""

    node: str
    phase: str
    step: str
    outcome: Outcome
    detail: str = ""
    duration_s: float = 0.0
    diff: str = ""
    cause: Finding | None = None
    """The finding behind it, if any."""
    action: str = ""
    """What a change does, and to what: `create env/node.env`."""

    @property
    def words(self) -> str:
        """What happened: `created env/node.env`, `would create env/node.env`, or the detail."""
        verb, _, rest = self.action.partition(" ")
        if verb and self.outcome is Outcome.WOULD_CHANGE:
            return f"would {self.action}"
        if verb and self.outcome is Outcome.CHANGED:
            return f"{_PAST.get(verb) or verb.removesuffix('e') + 'ed'} {rest}"
        return self.detail or self.step

    @property
    def is_warning(self) -> bool:
        """Whether it succeeded with a warning."""
        level = self.cause.level if self.cause else ""
        return self.outcome is Outcome.OK and level == "warning"

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for results of one finding on several nodes."""
        detail = f" {self.detail}".replace(f" {self.node}: ", " ")  # not of `alpha,beta: `
        return "" if self.cause else self.node, self.phase, self.step, detail

    def to_json(self) -> dict[str, object]:
        """The result with the members of its cause, whose text is in `detail`."""
        document = {**as_json(self), "duration_s": round(self.duration_s, 3)}
        cause = document.pop("cause") or {}
        cause.pop("text", None)
        shown = {k: v for k, v in document.items() if v or k not in ("diff", "action")}
        return {**shown, **cause}


class Report(Value, kw_only=True):
    """All results of one run, in the order of phases and of the inventory's nodes."""

    run_id: str
    cluster: str
    results: tuple[StepResult, ...]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 success · 1 failed or blocked · 4 a node was unreachable · 130 interrupted."""
        if self.interrupted:
            return 130
        return max((_EXIT_CODES.get(r.outcome, 0) for r in self.results), default=0)

    def count(self, *outcomes: Outcome) -> int:
        """How many results ended in one of `outcomes`."""
        return sum(r.outcome in outcomes for r in self.results)

    @property
    def stopped(self) -> str:
        """Why the run ended early and whether it wrote something; empty where it did not."""
        bad = [r for r in self.results if r.outcome in _EXIT_CODES and r.phase not in _PROOF]
        if self.results and self.results[-1].phase in {*_PROOF, "reset"}:
            bad = [r for r in bad if r.phase not in _READING]  # it went on without them
        outcomes = {r.outcome for r in bad}
        seen = ", ".join(words for outcome, words in _STOPPED.items() if outcome in outcomes)
        why = "interrupted" if self.interrupted else seen
        is_changed = self.count(Outcome.CHANGED) or any(r.phase not in _READING for r in bad)
        return f"{why}; {KEPT if is_changed else NOTHING_WRITTEN}" if why else ""

    @property
    def problems(self) -> int:
        """How many results are failures; one finding on several nodes counts once."""
        return len({r.identity for r in self.results if r.outcome in {*_EXIT_CODES}})

    def findings(self, level: str) -> int:
        """How many findings have this level; one on several nodes counts once."""
        return len({r.identity for r in self.results if r.cause and r.cause.level == level})

    def joined(self, other: Report) -> Report:
        """Both reports of one run as one."""
        interrupted = self.interrupted or other.interrupted
        return replace(self, results=(*self.results, *other.results), interrupted=interrupted)

    def to_json(self) -> dict[str, object]:
        """The report as documented in the reference of `--json`."""
        return {
            "run_id": self.run_id,
            "cluster": self.cluster,
            "exit_code": self.exit_code,
            "results": [result.to_json() for result in self.results],
        }
