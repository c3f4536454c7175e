"""`doctor`: find what failed first, from any logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ascendboot.cli.known_jobs import SUPERVISE_FOLDER, final_report
from ascendboot.cli.verbs import Call, verb
from ascendboot.doctor.verdict import Examined, Layout, Verdict, examine
from ascendboot.errors import UsageError
from ascendboot.jobs.error_codes import known_errors
from ascendboot.launch.plan import JobRecord, read_record, record_folder
from ascendboot.model.names import counted
from ascendboot.state import State

_MOST_NOTES = 20


@verb(
    positional=[],
    iterable=["path"],
    bare="path",
    help={
        "path": "A file or folder with logs; also without the flag. Default: the folder of --job",
        "job": "A job that was started from here, by its id: its logs, ranks and clocks",
        "rank-table": "The rank table of the job: it names rank, node and device by address",
    },
)
def doctor(
    call: Call, path: list[str], job: str | None = None, rank_table: str | None = None
) -> None:
    """Find what failed first in the logs of any job.

    Reads files and folders, also compressed with gzip: logs of ranks, plogs of
    CANN, output of mpirun, torchrun or kubectl. Names rank, node and device of
    the first error, and what to do. Connects to no node.

    Examples:
      invoke doctor train.log
      invoke doctor ~/ascend/log --rank-table hccl.json
      invoke doctor --job 20260102-030405-train-7f3a
      invoke doctor worker-*.log.gz --json

    Exit codes: 0 examined, 1 a file could not be used, 2 no such file, job or
    rank table.
    """
    screen = call.screen
    known_errors()  # an invalid file of the operator is reported before the logs are read
    record, places = _places(path, job)
    layout = Layout.of_record(record) if record else Layout()
    if rank_table is not None:
        layout = Layout.of_table(rank_table)
    reported = None
    if record and len(places) == 1 and places[0].is_dir():
        reported = final_report(places[0])
    if reported and reported.cause:
        verdict = Verdict.of_report(reported.cause, places[0])
        found = Examined((verdict,), reported.notes, len(list(places[0].glob("*.log"))))
    else:
        found = examine(places, layout, record)
    lines = [line for verdict in found.verdicts for line in verdict.lines()]
    for line in () if call.json else lines or [f"no error found in {counted(found.files, 'file')}"]:
        screen.say(line)
    for note in found.notes[:_MOST_NOTES]:
        screen.say(note, "yellow")
    if len(found.notes) > _MOST_NOTES:
        screen.say(f"and {len(found.notes) - _MOST_NOTES} more remarks: see --json", "yellow")
    document = {
        "exit_code": 0,
        "files": found.files,
        "verdicts": [verdict.to_json() for verdict in found.verdicts],
        "notes": list(found.notes),
    }
    call.end(0, document)


def _places(path: Sequence[str], job: str | None) -> tuple[JobRecord | None, list[Path]]:
    """Return the record of the job, if there is one, and the files or folders to read."""
    places = [Path(name) for name in path]
    folder = record_folder(State.here().runs, job) if job is not None else None
    if folder is not None and not (folder / SUPERVISE_FOLDER).is_dir():
        folder = folder if read_record(folder) else None  # other runs are no jobs
    if job is not None and folder is None:
        raise UsageError(f'doctor: no job "{job}" was started from here; name the files instead')
    if folder is not None:
        places = places or [folder]
    if not places:
        raise UsageError("doctor: nothing to read; name files or folders, or a job with --job")
    folder = folder or (places[0] if len(places) == 1 and places[0].is_dir() else None)
    return (None if folder is None else read_record(folder)), places
