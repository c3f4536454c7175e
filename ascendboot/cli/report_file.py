"""`report`: one HTML file about a job, or a bundle with its logs and the output of tools."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ascendboot.cli.known_jobs import KnownJob, known_jobs, now, supervision
from ascendboot.cli.report_page import Known, legible, page, page_values
from ascendboot.cli.session import setup_record_of
from ascendboot.cli.verbs import Call, verb
from ascendboot.doctor.verdict import Layout, examine
from ascendboot.errors import AscendbootError, UsageError
from ascendboot.launch.plan import rank_log, whole_id
from ascendboot.model.cluster import Cluster
from ascendboot.model.files import write_atomically
from ascendboot.model.report import StepResult
from ascendboot.model.secrets import masked, without_secrets
from ascendboot.setup.record import SetupRecord
from ascendboot.state import State
from ascendboot.value import from_json

_OF_SETUP: Final = re.compile(r"\d{8}-\d{6}-(?:setup|check)-[0-9a-f]+")
_NAME: Final = "ascendboot-report-"
_MINE: Final = (b'<meta name="generator" content="ascendboot report">', _NAME.encode())
"""By these a report, and a bundle whose header has its name, are known at their beginning."""
_FIRST: Final = 1 << 16
_LAST: Final = 1 << 18
"""Bytes of the beginning and of the end of each file in a bundle."""
_WHOLE: Final = 1 << 25
"""Bytes of all files in a bundle, before they are compressed."""
_MOST_NAMED: Final = 5
_GAP: Final = b"[ascendboot: %d bytes are left out here]\n"


@verb(
    shared=("inventory", "json"),
    help={
        "job": "The job's id, as printed by train. Default: the last job, otherwise the last setup"
        " or check",
        "run": "Report a run of setup or check instead of a job: its id",
        "output": "The file to write. Default: ascendboot-report-ID.html, or .tar.gz with --bundle",
        "bundle": "Pack the report, logs and the output of tools into one .tar.gz, secrets masked",
        "force": "Overwrite a file that is no report",
        "inventory": "The inventory of the cluster: its leaf switches, and the secrets to mask",
    },
)
def report(
    call: Call,
    *,
    job: str | None = None,
    run: str | None = None,
    output: str | None = None,
    bundle: bool = False,
    force: bool = False,
) -> None:
    """Put what is known of a job into one HTML file.

    Shows the cluster, findings, the cause of a failure, and the times of each
    rank. Reads only files of the control machine: connects to no node.
    Secrets of the inventory, and what looks like one, are masked.

    Examples:
      invoke report
      invoke report --job 20260102-030405-train-7f3a --output fault.html
      invoke report --bundle          with logs and the output of tools
      invoke report --json | jq .report.verdict

    Exit codes: 0 written, 1 a file could not be used, 2 no such job or run, or
    the output is a file that is no report. No node is queried: never 4.
    """
    cluster = call.cluster()
    if job is not None and run is not None:
        raise UsageError("--job: does not work with --run: leave out one of the two")

    def change(text: str) -> str:
        return without_secrets(masked(text, cluster.secrets))

    folders, known = _known(call.state, cluster, job, run)
    values = legible(page_values(known), change)
    name = f"{_NAME}{known.run_id}"
    path = Path(output or f"{name}{'.tar.gz' if bundle else '.html'}")
    _refuse_other(path, force=force)
    left_out: list[dict[str, str]] = []
    content = page(values).encode(errors="replace")
    if bundle:
        own = {"report.html": content, "report.json": json.dumps(values, indent=1).encode()}
        content, left_out = packed(name, own, _files(folders, known), change)
    write_atomically(path, content)
    what = "job" if known.record else "setup or check"
    call.screen.say(f"wrote {path}: of a {what}, {(len(content) + 1023) >> 10} KiB")
    for each in left_out[:_MOST_NAMED]:
        call.screen.say(f"  {each['name']}: {each['why']}", "yellow")
    if (more := len(left_out) - _MOST_NAMED) > 0:
        call.screen.say(f"  and {more} more: see LEFT-OUT.txt in the bundle", "yellow")
    document = {"exit_code": 0, "file": str(path), "left_out": left_out, "report": values}
    call.end(0, document)


def _known(
    state: State, cluster: Cluster, job_id: str | None, run_id: str | None
) -> tuple[dict[str, Path], Known]:
    """Return the folders to pack, by their name in a bundle, and what is known."""
    results_of, results = _results(state, cluster, run_id)
    found: KnownJob | None = None
    if run_id is None:
        try:
            found = known_jobs(state, cluster, job_id)[0]
        except UsageError:
            if job_id is not None or not results_of:
                raise
    folder = found.folder if found else state.runs / results_of
    folders = {"run": state.runs / folder.relative_to(state.runs).parts[0]}
    if results_of:
        folders["check"] = state.runs / results_of
    job = found.final if found else None
    verdict: tuple[str, ...] = ()
    if found is not None and job is None:
        examined = examine([folder], Layout.of_record(found.record), found.record)
        verdict = tuple(line for each in examined.verdicts for line in each.lines())
    applied: SetupRecord | None = None
    with suppress(AscendbootError):  # of another version, or damaged: the rest is worth a report
        applied = setup_record_of(state, cluster)
    asked = cluster.nodes if results_of else ()
    known = Known(
        run_id=found.record.job_id if found else results_of,
        made=now().isoformat(timespec="seconds"),
        cluster=cluster,
        applied=applied,
        record=found.record if found else None,
        job=job,
        verdict=verdict,
        results=results,
        results_of=results_of,
        outputs={node.name: _outputs(folders["check"] / node.name) for node in asked},
        supervised=supervision(folder.parent) if found else None,
        files={str(path.relative_to(folder)): path.stat().st_size for path in _below(folder)},
    )
    return folders, known


def _results(
    state: State, cluster: Cluster, run_id: str | None
) -> tuple[str, tuple[StepResult, ...]]:
    """Return the named or the last run of `setup` or `check` of this cluster, and its results."""
    runs = sorted((path.parent for path in state.runs.glob("*/report.json")), reverse=True)
    known = [folder.name for folder in runs if _OF_SETUP.fullmatch(folder.name)]
    for folder in runs if run_id is None else [state.runs / whole_id(known, run_id)]:
        if folder.parent != state.runs or not _OF_SETUP.fullmatch(folder.name):
            continue
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            document = json.loads((folder / "report.json").read_bytes())
            if document["cluster"] == cluster.name:
                return folder.name, tuple(_step_result(each) for each in document["results"])
    if run_id is not None:
        raise UsageError(
            f'--run: "{run_id}" is no run of setup or check of {cluster.name} in {state.runs}; '
            "ls there shows all runs"
        )
    return "", ()


def _step_result(document: dict[str, Any]) -> StepResult:
    cause = {**document, "text": document["detail"]} if "id" in document else None
    return from_json({**document, "diff": "", "cause": cause}, StepResult)


def _outputs(folder: Path) -> list[str]:
    return [path.read_text(errors="replace") for path in sorted(folder.glob("*.txt"))]


def _refuse_other(path: Path, *, force: bool) -> None:
    """Refuse to overwrite a file that is no report."""
    if force or not path.exists():
        return
    with path.open("rb") as file:
        start = file.read(4096)
    if not any(mark in start for mark in _MINE):
        raise UsageError(f"{path}: exists and is no report; name another --output, or --force")


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder; links are not followed."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _below(path)
        elif path.is_file() and path.name != "lock":
            yield path


def _files(folders: Mapping[str, Path], known: Known) -> list[tuple[str, Path]]:
    """Return the files to pack with their names, the most important first."""
    cause = known.job.cause if known.job else None
    logs = {rank_log(rank) for rank in (cause.ranks if cause else ())}
    found = [
        (f"{name}/{path.relative_to(folder)}", path)
        for name, folder in folders.items()
        for path in _below(folder)
    ]

    def weight(item: tuple[str, Path]) -> tuple[bool, bool, str]:
        path = item[1]
        return path.name not in logs, path.name.startswith("rank."), item[0]

    return sorted(found, key=weight)


def packed(
    name: str, own: Mapping[str, bytes], files: list[tuple[str, Path]], change: Callable[[str], str]
) -> tuple[bytes, list[dict[str, str]]]:
    """Pack our own files as they are and others masked and cut; return what was left out, too."""
    buffer, left_out = io.BytesIO(), list[dict[str, str]]()
    compressed = gzip.GzipFile(f"{name}.tar", mode="w", fileobj=buffer, mtime=0)
    with compressed, tarfile.open(fileobj=compressed, mode="w") as archive:

        def add(member: str, content: bytes) -> None:
            info = tarfile.TarInfo(f"{name}/{member}")
            info.size, info.mode = len(content), 0o600
            archive.addfile(info, io.BytesIO(content))

        for member, content in own.items():
            add(member, content)
        for member, path in files:
            if compressed.tell() + _FIRST + _LAST > _WHOLE:
                left_out.append({"name": member, "why": "the bundle is full"})
                continue
            try:
                content, missing = _ends_of(path)
            except OSError as error:
                why = f"could not be read: {error.strerror or error}"
                left_out.append({"name": member, "why": why})
                continue
            if missing:
                why = f"{missing} bytes in its middle are left out"
                left_out.append({"name": member, "why": why})
            text = change(content.decode(errors="surrogateescape"))
            add(member, text.encode(errors="surrogateescape"))
        lines = [f"{each['name']}: {each['why']}\n" for each in left_out]
        add("LEFT-OUT.txt", "".join(lines or ["nothing\n"]).encode(errors="replace"))
    return buffer.getvalue(), left_out


def _ends_of(path: Path) -> tuple[bytes, int]:
    """Return a file, or whole lines of its beginning and end, and how many bytes are missing."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _FIRST + _LAST:
            return file.read(_FIRST + _LAST), 0
        first = file.read(_FIRST)
        first = first[: first.rfind(b"\n") + 1]
        file.seek(size - _LAST)
        last = file.read(_LAST)
        last = last[last.find(b"\n") + 1 :]
    missing = size - len(first) - len(last)
    return first + _GAP % missing + last, missing
