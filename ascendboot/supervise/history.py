"""What happened to a supervised job so far: as a list, a timeline and figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any, Final, get_args

from ascendboot.model.names import counted, fold, local_time, span
from ascendboot.supervise.core import ENDED, Core, State
from ascendboot.supervise.policy import FaultKind, Status
from ascendboot.value import Value, as_json, replace

WIDTH = 80
_BAR = 20
_SHOWN = 16
"""Generations in a timeline; the others are counted."""
_SHOWN_EVENTS = 5
_OVER = ("diagnosing", *(state.value.lower() for state in ENDED))
"""Events at which no process of a generation is left."""


class Generation(Value, kw_only=True):
    """One start of a supervised job."""

    generation: int
    nodes: tuple[str, ...]
    started: str
    """ISO 8601, UTC."""
    ended: str | None = None
    """When no process of it was left; None: it runs."""
    kind: str = ""
    """What kind of fault ended it; empty: none did, or it runs."""
    cause: str = ""
    exit_code: int | None = None
    """Of its job; None: it runs, or was not started."""


class Supervision(Value, kw_only=True):
    """What is known of a supervised job from its files."""

    job_id: str
    core: Core
    events: tuple[Mapping[str, Any], ...]
    exit_codes: Mapping[int, int | None]
    """By generation that has a report."""
    is_followed: bool
    """Whether `train` supervises it now."""

    @property
    def is_starting(self) -> bool:
        """Whether `train` waits for ranks of the newest generation to begin."""
        return self.is_followed and self.core.state is State.LAUNCHING

    @property
    def generations(self) -> tuple[Generation, ...]:
        """All generations, with the exit codes of their jobs."""
        codes = self.exit_codes
        return tuple(
            replace(each, exit_code=codes.get(each.generation)) for each in generations(self.events)
        )

    def lines(self, now: datetime) -> list[str]:
        """The state, nodes that are not used, the timeline, and the last events."""
        return [*self.head, *timeline(self.generations, now), *self.last(_SHOWN_EVENTS, now)]

    def last(self, count: int, now: datetime) -> list[str]:
        """The last events, in local time."""
        return [cut(event_line(event, now)) for event in self.events[-count:]]

    @property
    def head(self) -> list[str]:
        """The state, and nodes that are not used."""
        core = self.core
        restarts = counted(core.restarts, "restart")
        where = f", generation {core.generation} on {fold(core.members)}" if core.members else ""
        lines = [f"supervised: {core.state.value}{where}, {restarts}"]
        if core.end is None and not self.is_followed:
            lines.append(f"no train supervises it: train SCRIPT --resume {self.job_id} does again")
        if core.spares and core.end is None:
            lines.append(f"spares: {fold(core.spares)}")
        for name, node in core.nodes.items():
            if node.status != "healthy":
                lines.append(f"{name}: {node.status}: {node.reason}")
        return [cut(line) for line in lines]

    def to_json(self) -> dict[str, object]:
        """The part `supervision` of the documents of `status` and `train`."""
        core = self.core
        return {
            "job_id": self.job_id,
            "state": core.state.value,
            "followed": self.is_followed,
            "generation": core.generation,
            "members": list(core.members),
            "spares": list(core.spares),
            "nodes": {
                name: {"status": node.status, "reason": node.reason}
                for name, node in core.nodes.items()
            },
            "restarts": core.restarts,
            "checkpoint_step": core.step,
            "exit_code": core.end.exit_code if core.end else None,
            "message": core.end.words if core.end else "",
            "generations": as_json(self.generations),
            "events": list(self.events[-_SHOWN_EVENTS:]),
        }


def generations(events: Sequence[Mapping[str, Any]]) -> tuple[Generation, ...]:
    """Return the generations that events tell of, without exit codes."""
    found: dict[int, Generation] = {}
    for event in events:
        number, what, time = event["generation"], event["event"], str(event.get("time", ""))
        known = found.get(number)
        if what == "launching":
            nodes = tuple(event.get("nodes", ()))
            found[number] = Generation(generation=number, nodes=nodes, started=time)
        elif known is not None and what in _OVER:
            cause = known.cause or ("" if what == "diagnosing" else str(event["words"]))
            found[number] = replace(known, ended=known.ended or time, cause=cause)
        elif known is not None and what == "cause":
            kind = str(event.get("kind", ""))
            found[number] = replace(known, kind=kind, cause=str(event["words"]))
    return tuple(found.values())


def event_line(event: Mapping[str, Any], now: datetime | None = None) -> str:
    """Describe an event in one line: time, in UTC without `now`, generation, event, node, words."""
    where = f"{event['node']}: " if event["node"] else ""
    when = str(event.get("time", ""))
    when = local_time(when, now) if when and now else when[:19]
    words = str(event["words"]).removeprefix(where)
    return f"{when} g{event['generation']} {event['event']}: {where}{words}"


def timeline(found: Sequence[Generation], now: datetime) -> list[str]:
    """Draw one line per generation, at most 80 columns wide; the last ones if there are many."""

    def seconds(time: str | None) -> float:
        return datetime.fromisoformat(time).timestamp() if time else now.timestamp()

    # A generation that runs ends now.
    starts = [seconds(each.started) for each in found]
    spans = [(at, max(at, seconds(each.ended))) for at, each in zip(starts, found, strict=True)]
    if not spans:
        return []
    first = min(starts)
    total = max(max(end for _, end in spans) - first, 1.0)
    lines = []
    if len(found) > _SHOWN:
        lines.append(f"{counted(len(found) - _SHOWN, 'generation')} before these")
    for each, (start, end) in list(zip(found, spans, strict=True))[-_SHOWN:]:
        left = min(int(_BAR * (start - first) / total), _BAR - 1)
        right = min(max(ceil(_BAR * (end - first) / total), left + 1), _BAR)
        bar = "=" * (right - left - 1) + (">" if each.ended is None else "=")
        drawn = f"{' ' * left}{bar}".ljust(_BAR)
        code = f" exit {each.exit_code}:" if each.exit_code else ""
        name, took = f"g{each.generation}", span(end - start)
        lines.append(cut(f"{name:<3} |{drawn}| {took:>8} {fold(each.nodes)}{code} {each.cause}"))
    return lines


def cut(line: str) -> str:
    """Shorten a line to the width of a terminal, less the indentation."""
    line, width = line.rstrip(), WIDTH - 2
    return line if len(line) <= width else f"{line[: width - 1]}…"


_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    job: str, core: Core, found: Sequence[Generation], *, last_event: float, now: float
) -> str:
    """Return the figures of a job for node_exporter's textfile collector; times are Unix times."""
    statuses = Counter(node.status for node in core.nodes.values())
    restarts = Counter(each.kind for each in found[:-1])
    by_state = {each.value.lower(): float(each is core.state) for each in State}
    by_status = {status: statuses[status] for status in get_args(Status)}
    by_cause = {kind.value: restarts[kind.value] for kind in FaultKind}
    step = {} if core.step is None else {"": core.step}
    # Name, help, label, and values by the value of the label; without a label both are empty.
    metrics: tuple[tuple[str, str, str, Mapping[str, float]], ...] = (
        ("state", "1 for what supervision does now, 0 for all other states.", "state", by_state),
        ("generation", "The number of the last start of the job.", "", {"": core.generation}),
        ("members", "Nodes of the last start.", "", {"": len(core.members)}),
        ("nodes", "Nodes of the cluster by their status.", "status", by_status),
        ("restarts_total", "Further starts, by what ended the start before.", "cause", by_cause),
        ("checkpoint_step", "The step of the newest complete checkpoint.", "", step),
        ("last_event_timestamp_seconds", "When the last event was seen.", "", {"": last_event}),
        ("heartbeat_timestamp_seconds", "When train wrote these figures.", "", {"": now}),
    )
    lines = []
    for metric, words, label, values in metrics:
        name, kind = f"ascendboot_job_{metric}", "counter" if "total" in metric else "gauge"
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"] if values else []
        for key, value in values.items():
            labels = {"job": job, **({label: key} if label else {})}
            shown = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in labels.items())
            lines.append(f"{name}{{{shown}}} {value:.15g}")
    return "".join(f"{line}\n" for line in lines)
