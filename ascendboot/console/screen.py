"""Prints results and progress; control characters from nodes are removed."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ascendboot.console import streams
from ascendboot.model.job import JobReport
from ascendboot.model.names import counted, fold, runs
from ascendboot.model.report import Outcome, Report, StepResult
from ascendboot.value import replace

_SHOWN_BY_DETAIL = {
    *("reach", "ask", "judge", "compare", "code", "hccl-test", "network", "prove", "reset"),
    *("collective", "node-check"),
}
"""Phases without desired state, where the detail is clearer than the step's name."""


_NUMBER, _DEVICE = re.compile(r"\d+"), re.compile(r"\bdevice (\d+)")


def folded(
    results: Iterable[StepResult], *, with_diffs: bool = False
) -> list[tuple[str, StepResult]]:
    """Group equal outcomes of several nodes; problems first, the majority last."""
    groups: dict[tuple[Outcome, str, str, str], list[StepResult]] = defaultdict(list)
    for result in _satisfied_together(results):
        step = "" if result.outcome is Outcome.OK else result.step
        diff = result.diff if with_diffs else ""
        groups[result.outcome, step, _own_words(result), diff].append(result)
    order = list(Outcome)[::-1]

    def rank(group: list[StepResult]) -> tuple[int, bool, int]:
        first = group[0]
        return order.index(first.outcome), not first.is_warning, len({r.node for r in group})

    alike: dict[tuple[object, ...], list[tuple[str, StepResult]]] = defaultdict(list)
    for group in sorted(groups.values(), key=rank):
        nodes = fold({r.node for r in group})
        row = replace(group[0], detail=_own_words(group[0], nodes))
        is_of_device = row.cause and _DEVICE.search(row.detail)
        shape = _NUMBER.sub("#", row.detail) if is_of_device else row.detail
        alike[nodes, row.outcome, row.step, row.diff, shape].append((nodes, row))
    return [_of_devices(rows) for rows in alike.values()]


def _of_devices(rows: list[tuple[str, StepResult]]) -> tuple[str, StepResult]:
    """One row for those of a node that differ only in the numbers of a device."""
    (nodes, first), *others = rows
    if not others:
        return nodes, first
    ids = runs(int(_DEVICE.findall(row.detail)[0]) for _, row in others)
    return nodes, replace(first, detail=f"{first.detail} Likewise device {ids}.")


def _satisfied_together(results: Iterable[StepResult]) -> list[StepResult]:
    """Merge the satisfied steps of a phase into one result per node."""
    others: list[StepResult] = []
    satisfied: dict[tuple[str, str], list[StepResult]] = defaultdict(list)
    for result in results:
        is_step = result.phase not in _SHOWN_BY_DETAIL and result.cause is None
        if result.outcome is Outcome.OK and is_step:
            satisfied[result.node, result.phase].append(result)
        else:
            others.append(result)
    for group in satisfied.values():
        # Of a certificate the screen also shows when it expires.
        names = [
            f"{r.step} ({r.detail})" if r.detail.startswith("expires in ") else r.step
            for r in group
        ]
        others.append(replace(group[0], detail=", ".join(names)))
    return others


def _own_words(result: StepResult, nodes: str = "") -> str:
    """Remove nodes and outcome from the detail, because the line already shows them."""
    words = result.words
    if result.is_warning:
        words = words.removeprefix("warning: ")
    words = words.removeprefix(f"{result.node}: ").removeprefix(f"{nodes}: ")
    return words.removeprefix(f"{result.outcome.value}: ")


_STYLE = {
    Outcome.OK: "green",
    Outcome.CHANGED: "yellow",
    Outcome.WOULD_CHANGE: "yellow",
    Outcome.BLOCKED: "red",
    Outcome.FAILED: "red",
    Outcome.UNREACHABLE: "red",
    Outcome.NOT_RUN: "dim",
}


_LABEL, _WIDEST = len("unreachable"), 32
"""The width of the column of outcomes; that of nodes is at most so wide."""
_LABELS = {Outcome.WOULD_CHANGE: "plan", Outcome.NOT_RUN: "not run"}


class Screen(streams.Writer):
    """Prints progress and results; with `json_mode` on standard error."""

    def __init__(self, *, json_mode: bool = False) -> None:
        super().__init__(sys.stderr if json_mode else sys.stdout)
        self.json_mode = json_mode
        self.shows_diffs = False
        self._err = self if json_mode else streams.Writer(sys.stderr)
        self.end_question: Callable[[], None] | None = None
        """While a question without echo is open: shows again what is typed."""
        self._said: set[str] = set()
        self._names = 0
        """How wide the column of nodes is; it only grows, so that phases are aligned."""

    def say_once(self, text: str, style: str = "") -> None:
        """Print a note, unless the same one was printed before."""
        if text not in self._said:
            self._said.add(text)
            self.say(text, style)

    def phase(self, title: str, results: Sequence[StepResult]) -> None:
        """Print a phase with results: its title, then a line per distinct outcome, worst first."""
        self.rest()
        if results:
            self.line((title, "bold"))
        rows = folded(results, with_diffs=self.shows_diffs)
        names = (len(nodes) for nodes, _ in rows if len(nodes) <= _WIDEST)
        self._names = width = max((self._names, *names))
        for nodes, sample in rows:
            words, *more = sample.detail.split("\n")
            label, style = sample.outcome.value, _STYLE[sample.outcome]
            label = _LABELS.get(sample.outcome, label)
            if sample.is_warning:
                label, style = "warning", "yellow"
            begin = f"  {nodes:<{width}}  "
            first, *rest = self.fitted(words, len(begin) + _LABEL + 2)
            self.line(begin, (f"{label:<{_LABEL}}", style), f"  {first}")
            for line in rest:
                self.line(line)
            # Output of a node may have several lines; they must not look like messages.
            for line in more:
                self.line(f"      {line}")
            for line in sample.diff.splitlines() if self.shows_diffs else ():
                self.line((f"      {line}", "dim"))

    def json(self, document: Mapping[str, object]) -> None:
        """Print a document on standard output; OutputError if it cannot be written."""
        self.text(streams.json_text(document, sys.stdout))

    @staticmethod
    def text(words: str) -> None:
        """Print lines on standard output, escaped only at a terminal; OutputError if it fails."""
        words = streams.legible(words) if sys.stdout.isatty() else words
        streams.write_document(sys.stdout, f"{words}\n")

    @staticmethod
    def raw(*, to_stderr: bool) -> Callable[[bytes], None]:
        """Return a writer for blocks of a job's lines; it raises OSError without a reader.

        Control characters are escaped only at a terminal.
        """
        stream = sys.stderr if to_stderr else sys.stdout
        descriptor, encoding = stream.fileno(), stream.encoding
        # Checked now, because a terminal that hung up no longer counts as one.
        if not stream.isatty():
            return partial(streams.pass_on, descriptor)
        shown = streams.legible_lines
        return lambda block: streams.pass_on_to_terminal(descriptor, shown(block, encoding))

    @staticmethod
    def shows_colours(*, to_stderr: bool) -> bool:
        """Return whether colours are on."""
        return streams.Writer(sys.stderr if to_stderr else sys.stdout).has_colours

    def error(self, text: str, style: str = "red") -> None:
        """Print a failure on standard error, as `say`."""
        self._err.say(text, style)

    def errors(self, text: str, style: str = "red") -> None:
        """Print the lines of a failure."""
        for line in text.split("\n"):
            self.error(line, style)

    def agrees(self, question: str) -> bool:
        """Ask a question at the terminal; no answer means no."""
        self.say(f"{question} [y/N]")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def answer(self, question: str, default: str = "") -> str:
        """Ask for a text at the terminal; an empty line is the default, end of input is Ctrl-C."""
        self.say(f"{question} [{default}]" if default else question)
        if not (line := sys.stdin.readline()):
            raise KeyboardInterrupt
        return line.strip() or default

    def job(self, report: JobReport, folder: str) -> None:
        """Print the end of a job: the cause or the first failing rank, and the exit code."""
        for note in report.notes:
            self.say(note, "yellow")
        cause, failure = report.cause, report.first_failure
        lines = cause.lines() if cause else report.message.split("\n")
        if failure and not cause:
            code, signal = failure.exit_code, failure.signal
            how = f"signal {signal}" if signal else f"exit code {code}"
            where = f"{failure.node}: rank {failure.rank} on device {failure.device}"
            lines = [f"{where} failed first, with {how}"]
        for number, line in enumerate(filter(None, lines)):
            is_inner = number and not line.startswith(" ")
            self.say(f"  {line}" if is_inner else line, "" if number else "red")
        quoted = failure.message if failure else report.beside_cause if cause else ""
        if failure:
            wrote = "its last lines ({}):" if quoted else "it wrote nothing into its log ({})"
            self.say(f"  {wrote.format(failure.log)}")
        for line in quoted.splitlines():
            self.line(f"      {line}")
        style = "green" if report.exit_code == 0 else "red"
        words = f"job {report.job_id} {report.state.value.replace('_', ' ')}"
        took = f"after {report.duration_s:.1f} s, exit code {report.exit_code}"
        self.say(f"{words} {took}. Logs in {folder}", style)

    def summary(self, report: Report, folder: str, *, planned: bool) -> None:
        """Print the last line of a run: changes, problems and the folder."""
        changes = report.count(Outcome.CHANGED, Outcome.WOULD_CHANGE)
        bad = report.count(Outcome.BLOCKED, Outcome.FAILED, Outcome.UNREACHABLE)
        changed = f"{counted(changes, 'thing')} {'would change' if planned else 'changed'}"
        counts = [changed, counted(bad, "problem")]
        if warnings := report.findings("warning"):
            counts.append(counted(warnings, "warning"))
        self._end(report, folder, counts, "red" if bad else "green")
        if report.stopped:
            self.say(f"Stopped: {report.stopped}", "red")

    def verdict(self, report: Report, folder: str) -> None:
        """Print the last line of a check: errors, warnings and the folder."""
        errors, warnings = report.problems, report.findings("warning")
        style = "red" if errors else "yellow" if warnings else "green"
        self._end(report, folder, [counted(errors, "error"), counted(warnings, "warning")], style)
        if report.interrupted:
            self.say(f"Stopped: {report.stopped}", "red")

    def _end(self, report: Report, folder: str, counts: list[str], style: str) -> None:
        interrupted = ["interrupted"] if report.interrupted else []
        text = ", ".join([*counts, *interrupted])
        self.say(f"{report.cluster}: {text}. Kept in {folder}", style)
