"""The values of a report page, from what the control machine has of a job."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ascendboot import __version__
from ascendboot.console.screen import folded
from ascendboot.errors import UsageError
from ascendboot.launch.plan import JobRecord
from ascendboot.model.cluster import Cluster
from ascendboot.model.job import CauseKind, JobReport, RankEnd, RankTimes
from ascendboot.model.names import counted, expand_list, fold, id_list, runs, span
from ascendboot.model.report import Outcome, StepResult
from ascendboot.setup.record import SetupRecord
from ascendboot.supervise.history import Supervision, event_line
from ascendboot.templates import installed_templates
from ascendboot.value import Value, as_json, field

_FAILED: Final = (Outcome.FAILED, Outcome.BLOCKED, Outcome.UNREACHABLE)
_DEVICES: Final = re.compile(
    r"(?:([\w.-]{1,64}) )?(?<!has )(?<!have )\bdevices? ([0-9][0-9,-]{0,200})(?: of ([\w.-]+))?"
)
"""A node that stands directly beside its devices is the only one that is meant."""
_LINK: Final = re.compile(r"\blinks?\b")
_VERSION: Final = re.compile(
    r"^@@ (\w+)_version \d+ \d+\n(?:(?!@@ ).*\n)*?(?:v(?=\d))?([A-Za-z_() ]*\d+\.\S.*)$",
    re.MULTILINE,
)
"""The first line with a version: sshd before 9.2 refuses `-V` first, libraries print warnings."""
_ODD: Final = ": not on all nodes"
_DRIVER: Final = re.compile(r"^\| npu-smi \S+ +Version: (\S+)", re.MULTILINE)
_MOST_RANKS: Final = 512
"""Rows of the timeline of ranks; those of the cause come first."""
_MOST_DEVICES: Final = 1024
_MOST_EVENTS: Final = 200
_SHORT_S: Final = 10.0
_LONGEST: Final = 4000
"""Characters of one text on the page."""


class Known(Value, kw_only=True):
    """What the control machine has of one job, or of one run of `setup` or `check`."""

    run_id: str
    made: str
    """When the report was made, ISO 8601, UTC."""
    cluster: Cluster
    applied: SetupRecord | None = None
    record: JobRecord | None = None
    job: JobReport | None = None
    """None: it has no final report here."""
    verdict: Sequence[str] = ()
    """Of `doctor`, where there is no final report."""
    results: Sequence[StepResult] = ()
    results_of: str = ""
    """The run of `setup` or `check` that has these results; empty: there is none."""
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What vendor tools and programs printed in that run, by node."""
    supervised: Supervision | None = None
    files: Mapping[str, int] = field(default_factory=dict)


def page_values(known: Known) -> dict[str, Any]:
    """Return everything that the page shows, as JSON values."""
    findings = _findings(known.results)
    started = re.sub(r"[-:]", "", known.record.started[:19]) if known.record else ""
    when = "before" if known.results_of < started.replace("T", "-") else "after"
    return {
        "run_id": known.run_id,
        "made": known.made,
        "version": __version__,
        "figures": _figures(known, findings),
        "verdict": _verdict(known),
        "cluster": _drawing(known, findings),
        "inventory": _inventory(known),
        "command": known.record.command_line if known.record else "",
        "results_of": known.results_of,
        "results_when": when if known.results_of and known.record else "",
        "findings": findings,
        "timeline": _timeline(known),
        "supervision": _supervision(known),
        "job": known.job.to_json() if known.job else None,
        "files": [{"name": name, "bytes": size} for name, size in sorted(known.files.items())],
    }


def page(values: Mapping[str, Any]) -> str:
    """Return the page as HTML: everything in `values` is text, and nothing in it is run."""
    folder = installed_templates() / "report"
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (folder / "report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    template = environment.get_template("report.html.j2")
    return template.render(values, style=Markup(style), digest=digest)  # noqa: S704 - our own file


def legible(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return JSON values with `change` applied to every text, cut and without control characters.

    Keys are texts of ours, or names of nodes.
    """
    if isinstance(value, str):
        text = change(value)
        shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text[:_LONGEST])
        return shown if len(text) <= _LONGEST else f"{shown}…"
    if isinstance(value, Mapping):
        return {key: legible(of, change) for key, of in value.items()}
    return [legible(item, change) for item in value] if isinstance(value, list | tuple) else value


def _findings(results: Sequence[StepResult]) -> list[dict[str, Any]]:
    found = []
    for names, result in folded(results):
        if result.outcome in _FAILED or result.is_warning:
            cause = result.cause
            remedy = cause.remedy if cause else ""
            text = result.detail.replace(f"{remedy}.", "") if remedy else result.detail
            found.append(
                {
                    "level": "warning" if result.is_warning else "error",
                    "id": cause.id if cause else f"{result.phase}/{result.step}",
                    "nodes": names,
                    "text": text.removesuffix(remedy).strip(),
                    "remedy": remedy,
                }
            )
    return found


def _verdict(known: Known) -> dict[str, Any]:
    """The cause of a failure in parts; `title` is empty if there is none."""
    job = known.job
    if job is None:
        return {"title": "", "rows": [], "lines": list(known.verdict), "output": "", "notes": []}
    cause = job.cause
    rows = [line.strip().partition(": ")[::2] for line in cause.lines()[1:]] if cause else []
    failure = job.first_failure
    title = cause.title if cause else job.beside_cause
    if not title and failure:
        title = f"{failure.node}: rank {failure.rank} failed first"
    return {
        "title": title,
        "rows": [list(row) for row in rows],
        "lines": [job.beside_cause] if cause and job.beside_cause else [],
        "output": failure.message if failure else "",
        "notes": list(job.notes),
    }


def _figures(known: Known, findings: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    record, job = known.record, known.job
    shown: dict[str, object] = {}
    if record is not None:
        shown["state"] = job.state.value.replace("_", " ") if job else "no final report"
        shown["started"] = f"{record.started[:19].replace('T', ' ')} UTC"
        shown |= {"ranks": len(record.ranks), "nodes": len(record.nodes)}
        shown["launcher"] = record.launcher_kind
    if job is not None:
        shown |= {"exit code": job.exit_code, "duration": _took(job.duration_s)}
        shown["ranks that ended with 0"] = sum(end.exit_code == 0 for end in job.ranks)
        silent = [(end.times.silent_s or 0.0, end.rank) for end in job.ranks if end.times]
        if silent and max(silent)[0] > 0:
            shown["longest silence"] = f"{span(max(silent)[0])} (rank {max(silent)[1]})"
    if supervised := known.supervised:
        shown["supervised"] = supervised.core.state.value
        shown["generations"] = len(supervised.generations)
        shown["restarts"] = supervised.core.restarts
    if known.results_of:
        for level in ("error", "warning"):
            shown[f"{level}s found"] = sum(each["level"] == level for each in findings)
    return [[name, str(figure)] for name, figure in shown.items() if figure not in (None, "")]


def _inventory(known: Known) -> list[list[str]]:
    """Rows of name and text: what the inventory states, what setup recorded, versions."""
    cluster, applied = known.cluster, known.applied
    rows = [
        ["cluster", f"{cluster.name}, {counted(len(cluster.nodes), 'node')}"],
        ["inventory", cluster.source],
        ["product", cluster.product],
        ["primary", cluster.primary_name],
        *([f"address of {node.name}", node.address] for node in cluster.nodes[:64]),
        ["containers", ", ".join(sorted({n.container for n in cluster.nodes if n.container}))],
        ["order of ranks", cluster.order_words],
    ]
    if applied is not None:
        rows.append(["set up by", f"ascendboot {applied.version}"])
        rows.append(["launcher of setup", applied.launcher.words])
        rows.append(["port of the cluster's sshd", str(applied.port)])
    versions: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, outputs in known.outputs.items():
        for text in outputs:
            found = [("driver", version) for version in _DRIVER.findall(text)]
            for name, version in (*found, *_VERSION.findall(text)):
                versions[name, version.strip()].add(node)
    everywhere = set().union(*versions.values())
    rows += [
        [f"version of {name}", f"{version} ({fold(nodes)}){_ODD * (nodes != everywhere)}"]
        for (name, version), nodes in sorted(versions.items())
    ]
    return [row for row in rows if row[1]]


def _places(known: Known) -> dict[str, list[tuple[int, int | None]]]:
    """Device and rank by node, in rank order; nodes without a rank come last."""
    slots = [(node, device) for node, device, _ in known.applied.slots] if known.applied else []
    stated = [(n.name, device.device_id) for n in known.cluster.nodes for device in n.devices]
    ranked = [(r.node, r.device_id) for r in known.record.ranks] if known.record else slots
    ranks = {place: rank for rank, place in enumerate(ranked)}
    found: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for node, device in dict.fromkeys([*ranked, *slots, *stated]):
        found[node].append((device, ranks.get((node, device))))
    return {**found, **{n.name: found[n.name] for n in known.cluster.nodes}}


def _bad_devices(
    known: Known, findings: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """The devices that errors name, by node; and those whose link they name."""
    texts: list[tuple[str, str]] = [
        (e["nodes"], e["text"]) for e in findings if e["level"] == "error"
    ]
    cause = known.job.cause if known.job else None
    texts += [text.partition(" ")[::2] for text in (cause.devices if cause else ())]
    devices: dict[str, set[int]] = defaultdict(set)
    links: dict[str, set[int]] = defaultdict(set)
    for nodes, text in texts:
        for before, word, after in _DEVICES.findall(text):
            ids: set[int] = set()
            with suppress(UsageError):
                ids |= {*id_list("devices", word.strip(",-"))}
            names = set(expand_list(nodes.rstrip(":")))
            for node in names & {before, after} or names:
                devices[node] |= ids
                links[node] |= ids if _LINK.search(text) else set()
    return devices, links


def _drawing(known: Known, findings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The nodes in rank order with devices and ranks, the leaf switches, and their links."""
    bad, bad_links = _bad_devices(known, findings)
    levels: dict[str, str] = {}
    for each in findings[::-1]:  # errors come first
        levels |= dict.fromkeys(expand_list(each["nodes"]), each["level"])
    cause = known.job.cause if known.job else None
    if cause is not None and cause.kind is CauseKind.NODE:
        levels |= dict.fromkeys(cause.nodes, "error")
    ends = {end.rank: end for end in known.job.ranks} if known.job else {}
    leaves = known.applied.leaves if known.applied else {}
    by_name = {node.name: node for node in known.cluster.with_leaves(leaves).nodes}
    nodes: list[dict[str, Any]] = []
    links, left = [], 0
    for name, places in _places(known).items():
        if sum(len(node["devices"]) for node in nodes) >= _MOST_DEVICES:
            left += 1
            continue
        devices, leads = [], defaultdict(list)
        for device, rank in places:
            level, words = _rank_level(rank, ends, known)
            if device in bad[name]:
                level, words = "error", f"{words}, named in a finding"
            leaf = by_name[name].leaf_of(device) if name in by_name else None
            if leaf is not None:
                leads[leaf].append(device)
            devices.append({"device": device, "rank": rank, "level": level, "words": words})
        nodes.append({"node": name, "level": levels.get(name, "ok"), "devices": devices})
        for leaf, ids in leads.items():
            level = "error" if bad_links[name] & set(ids) else "ok"
            links.append({"node": name, "leaf": leaf, "devices": runs(ids), "level": level})
    names = sorted({str(link["leaf"]) for link in links})
    return {"name": known.cluster.name, "nodes": nodes, "leaves": names, "links": links} | {
        "left_out": left
    }


def _rank_level(rank: int | None, ends: Mapping[int, RankEnd], known: Known) -> tuple[str, str]:
    """How bad the end of a rank is, and words for it."""
    job = known.job
    if rank is None:
        return "unknown", "no rank"
    first = job.first_failure if job else None
    causes = (*(job.cause.ranks if job and job.cause else ()), *([first.rank] if first else ()))
    end = ends.get(rank)
    code = None if end is None else end.exit_code
    words = "its end is not known" if code is None else f"ended with {code}"
    if rank in causes:
        return "error", f"{words}, the cause"
    return ("unknown" if code is None else "warning" if code else "ok"), words


def _timeline(known: Known) -> dict[str, Any]:
    """One row per rank, in percent of the whole time; without times none."""
    job, record = known.job, known.record
    if job is None or record is None:
        return {"rows": [], "span": "", "ticks": [], "left_out": 0}
    began, whole = _seconds(record.started), max(job.duration_s, 0.001)
    ended = max(
        (_seconds(e.times.ended) - began for e in job.ranks if e.times and e.times.ended),
        default=whole,
    )
    whole = max(whole, ended)

    rows: list[dict[str, Any]] = []
    for end in job.ranks:
        level, words = _rank_level(end.rank, {end.rank: end}, known)
        times = end.times or RankTimes()
        if times.silent_s:
            words = f"{words}; at most {span(times.silent_s)} without output"
        elif times.started and not times.first_output:
            words = f"{words}; no output"
        at: dict[str, float | None] = {"silent": round(100 * (times.silent_s or 0.0) / whole, 2)}
        after = dict.fromkeys(_MOMENTS, "")
        for name in _MOMENTS:
            time, at[name] = getattr(times, name), None
            if time is not None:
                after_s = _seconds(time) - began
                at[name] = round(min(max(100 * after_s / whole, 0.0), 100.0), 2)
                after[name] = f"{after_s:.1f} s"
        place = {"rank": end.rank, "node": end.node, "device": end.device}
        how = {"level": level, "words": words, "exit_code": end.exit_code}
        rows.append({**place, **how, "at": at, "after": after})
    rows.sort(key=lambda row: (row["level"] != "error", row["rank"]))
    shown_rows = sorted(rows[:_MOST_RANKS], key=lambda row: row["rank"])
    ticks = [{"at": 25 * n, "words": f"{whole * n / 4:.3g} s"} for n in range(5)]
    return {
        "rows": shown_rows,
        "span": _took(whole),
        "ticks": ticks,
        "left_out": len(rows) - len(shown_rows),
    }


_MOMENTS: Final = ("started", "first_output", "silent_since", "last_output", "ended")


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _took(seconds: float) -> str:
    return span(seconds) if seconds >= _SHORT_S else f"{seconds:.1f} s"


def _supervision(known: Known) -> dict[str, Any] | None:
    """The generations of a supervised job, in percent of the whole time."""
    found = known.supervised
    if found is None:
        return None
    now = _seconds(known.made)
    shown = [each for each in found.generations if each.started]
    times = [(_seconds(each.started), _seconds(each.ended or known.made)) for each in shown]
    begun = min((start for start, _ in times), default=now)
    whole = max(max((end for _, end in times), default=now) - begun, 0.001)
    rows = [
        as_json(each)
        | {
            "nodes": fold(each.nodes),
            "took": _took(end - start),
            "runs": each.ended is None,
            "left": round(100 * (start - begun) / whole, 2),
            "width": round(max(100 * (end - start) / whole, 0.5), 2),
        }
        for each, (start, end) in zip(shown, times, strict=True)
    ]
    document = found.to_json()
    return {
        **{name: document[name] for name in ("state", "message", "nodes")},
        "rows": rows,
        "span": span(whole),
        "events": [event_line(event) for event in found.events[-_MOST_EVENTS:]],
        "left_out": max(0, len(found.events) - _MOST_EVENTS),
    }
