"""Figures of a supervised job as text for Prometheus: for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, get_args

from ascendboot.supervise.core import Core, State
from ascendboot.supervise.history import Generation
from ascendboot.supervise.policy import FaultKind, Status

_METRICS: Final = {
    "state": ("gauge", "1 for what supervision does now, 0 for all other states."),
    "generation": ("gauge", "The number of the last start of the job."),
    "members": ("gauge", "Nodes of the last start."),
    "nodes": ("gauge", "Nodes of the cluster by their status."),
    "restarts_total": ("counter", "Further starts, by what ended the start before."),
    "checkpoint_step": ("gauge", "The step of the newest complete checkpoint."),
    "last_event_timestamp_seconds": ("gauge", "When the last event was seen."),
    "heartbeat_timestamp_seconds": ("gauge", "When train wrote these figures."),
}
"""Type and help of each metric; all names begin with `ascendboot_job_`."""
_Values: TypeAlias = tuple[str, Mapping[str, float]]
"""The name of a label, and values by its value; without a label both are empty."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics_text(
    job: str, core: Core, found: Sequence[Generation], *, last_event: float, now: float
) -> str:
    """Return the figures of a job.

    `found` are its generations; `last_event` and `now` are seconds since the epoch.
    """
    statuses = Counter(node.status for node in core.nodes.values())
    restarts = Counter(each.kind for each in found[:-1])
    values: dict[str, _Values] = {
        "state": ("state", {each.value.lower(): float(each is core.state) for each in State}),
        "generation": ("", {"": core.generation}),
        "members": ("", {"": len(core.members)}),
        "nodes": ("status", {status: statuses[status] for status in get_args(Status)}),
        "restarts_total": ("cause", {kind.value: restarts[kind.value] for kind in FaultKind}),
        "checkpoint_step": ("", {} if core.step is None else {"": core.step}),
        "last_event_timestamp_seconds": ("", {"": last_event}),
        "heartbeat_timestamp_seconds": ("", {"": now}),
    }
    return "".join(_lines(job, name, *values[name]) for name in _METRICS)


def _lines(job: str, metric: str, label: str, values: Mapping[str, float]) -> str:
    kind, words = _METRICS[metric]
    name = f"ascendboot_job_{metric}"
    lines = [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
    for key, value in values.items():
        labels = {"job": job, **({label: key} if label else {})}
        shown = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in labels.items())
        lines.append(f"{name}{{{shown}}} {value:.15g}")
    return "".join(f"{line}\n" for line in lines) if values else ""
