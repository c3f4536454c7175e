"""Selects logs of a job, reads their ends, and finds lines that match."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from ascendboot.errors import NodeError, NotUnderstoodError, UsageError
from ascendboot.jobs.evidence import TAIL_BYTES
from ascendboot.jobs.output import Lines
from ascendboot.launch.plan import Job, JobRecord
from ascendboot.model.names import fold, id_list, names_among, parse_span, ranks_named, runs
from ascendboot.templates import script
from ascendboot.transport.api import Transport, read_script
from ascendboot.transport.pool import results_and_errors

_SPAN_END = tuple("smhd")
_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"
_TAIL: Final = re.compile(
    r"tail (rank\.(\d{1,7})\.(?:stack|plog(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){1,6})"
    r"|[A-Za-z0-9._-]+) (\d{1,15}) ([A-Za-z0-9+/=]+)"
)
_MOST_PLOGS: Final = 3
"""Of each rank; as in `jobs-tails.sh`."""


def chosen_ranks(
    job: JobRecord,
    ranks: str | None,
    nodes: str | None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> tuple[int, ...]:
    """Return the ranks that both selections name, UsageError if none; None selects all."""
    on = None if nodes is None else names_among("logs: --node", nodes, job.nodes, groups)
    wanted = None if ranks is None else id_list("logs: --rank", ranks)
    if unknown := [rank for rank in wanted or () if rank >= len(job.ranks)]:
        last = len(job.ranks) - 1
        raise UsageError(f"logs: --rank: the ranks of the job are 0 to {last}: not {runs(unknown)}")
    there = [each.rank for each in job.ranks if on is None or each.node in on]
    chosen = tuple(rank for rank in there if wanted is None or rank in wanted)
    if not chosen:
        words = f"{fold(on or ())} has {ranks_named(there)}, not {runs(wanted or ())}"
        raise UsageError(f"logs: --rank: {words}")
    return chosen


def chosen_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that a shown line must match."""
    try:
        return re.compile(text)
    except re.error as error:
        where = "" if error.pos is None else f", at character {error.pos + 1}"
        raise UsageError(
            f'logs: --grep: "{text}" is not a regular expression: {error.msg}{where}; '
            "put a backslash before a character that stands for itself"
        ) from error


def chosen_time(text: str, now: datetime) -> datetime:
    """Parse `10m`, `2h`, or a date and time; `now` has a time zone."""
    try:
        if text.endswith(_SPAN_END):
            return now - timedelta(seconds=parse_span(text))
        # Python parses Z from 3.11 on. A time without a zone is local time.
        return datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text)).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f'logs: --since: "{text}" is neither a time span such as 30s, 10m, 2h or 1d nor a '
            "time such as 2026-01-31T08:00"
        ) from error


class MatchingLines(Lines):
    """Only lines that match a pattern."""

    def __init__(self, prefix: bytes, pattern: re.Pattern[str], *, coloured: bool) -> None:
        """`coloured`: matches are shown in red."""
        super().__init__(prefix)
        self._pattern = pattern
        self._coloured = coloured

    def skip(self, count: int) -> bytes:
        """Return the unfinished line; no line about the gap follows."""
        return self._flush()

    def shown(self, block: bytes) -> bytes:
        """Return the lines that match."""
        return b"".join(map(self._matching, block.split(b"\n")))

    def _matching(self, line: bytes) -> bytes:
        text = line.decode(errors="surrogateescape")
        if self._pattern.search(text) is None:
            return b""
        if self._coloured:
            text = self._pattern.sub(lambda m: f"{_RED}{m[0]}{_PLAIN}" if m[0] else "", text)
        return self.behind_prefix(text.encode(errors="surrogateescape"))


def fetch_tails(
    job: Job,
    transports: Mapping[str, Transport],
    place: Path,
    *,
    has_logs: bool = False,
    forks: int,
) -> dict[str, NodeError]:
    """Write the ends of the job's logs into a folder; return the nodes that failed.

    With `has_logs` the folder has the job's own logs, and gets only stacks and CANN's own logs: of
    each rank three at most, those with errors first, then the newest.

    One byte more than the diagnosis reads, so that it begins with the same whole line as in a
    complete log. A hole before them keeps the offsets of the whole log.
    """

    def fetch(node: str) -> None:
        names = () if has_logs else job.logs_on(node)
        ranks = {rank.rank for rank in job.ranks_on(node)}
        command = read_script(
            script("jobs-tails.sh"),
            *(str(job.job_folder), str(TAIL_BYTES + 1), *names),
            purpose=f"read the ends of the logs of job {job.job_id}",
            most_bytes=2 * (TAIL_BYTES + 1) * (1 + len(names) + (1 + _MOST_PLOGS) * len(ranks)),
        )
        result = transports[node].run(command).checked()
        lines = result.lines or ("",)
        tails = [_TAIL.fullmatch(line) for line in lines[:-1]]
        matches = [*tails, lines[-1] == "end"]
        if not all(matches):
            number = [*map(bool, matches)].index(False)
            shown = lines[number][:80]
            raise result.failed(NotUnderstoodError("the logs", number + 1, shown, "tail or end"))
        own = [m for m in tails if m and (m[1] in names or (m[2] and int(m[2]) in ranks))]
        try:
            for tail in own:
                (place / tail[1]).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with (place / tail[1]).open("wb") as file:
                    file.seek(int(tail[3]))
                    file.write(base64.b64decode(tail[4]))
        except (OSError, ValueError) as error:  # ValueError: a node's base64 is damaged
            raise NodeError(node, f"could not write the ends of its logs here: {error}") from error

    return results_and_errors(transports, fetch, forks=forks)[1]
