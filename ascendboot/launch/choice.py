"""Which lines of a job's logs are wanted: of which ranks, since when, and which of those."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ascendboot.errors import UsageError
from ascendboot.model.names import expand
from ascendboot.model.spans import parse_span

if TYPE_CHECKING:
    from ascendboot.launch.record import JobRecord

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COMMA = re.compile(r",(?![^\[]*\])")
_SPAN_END = tuple("smhd")


def chosen_ranks(job: JobRecord, ranks: str | None, nodes: str | None) -> tuple[int, ...]:
    """The ranks that both texts name; None names all.

    Raises:
        UsageError: a rank or a node is none of the job's.
    """
    on = None if nodes is None else _nodes(job, nodes)
    wanted = None if ranks is None else _ranks(ranks, len(job.ranks))
    return tuple(
        planned.rank
        for planned in job.ranks
        if (on is None or planned.node in on) and (wanted is None or planned.rank in wanted)
    )


def chosen_pattern(text: str) -> re.Pattern[str]:
    """What a line must hold to be shown.

    Raises:
        UsageError: it is no regular expression.
    """
    try:
        return re.compile(text)
    except re.error as error:
        where = "" if error.pos is None else f", at character {error.pos + 1}"
        raise UsageError(
            f'logs: --grep: "{text}" is not a regular expression: {error.msg}{where}; '
            "put a backslash before a character that stands for itself"
        ) from error


def chosen_time(text: str, now: datetime) -> datetime:
    """The moment that is meant by `10m`, `2h`, or a date and time; `now` has a time zone.

    Raises:
        UsageError: it is neither.
    """
    try:
        if text.endswith(_SPAN_END):
            return now - timedelta(seconds=parse_span(text))
        # Python reads Z from 3.11 on. Without a zone it is the operator's own time.
        return datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text)).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f'logs: --since: "{text}" is neither a time span such as 30s, 10m, 2h or 1d nor a '
            "time such as 2026-01-31T08:00"
        ) from error


def _nodes(job: JobRecord, text: str) -> set[str]:
    found: set[str] = set()
    for pattern in _COMMA.split(text):
        try:
            names = expand(pattern.strip())
        except ValueError as error:
            raise UsageError(f"logs: --node: {error}") from error
        for name in names:
            if name not in job.nodes:
                raise UsageError(
                    f'logs: --node: "{name}" has no rank of job {job.job_id}; '
                    f"its nodes are {', '.join(job.nodes)}"
                )
        found.update(names)
    return found


def _ranks(text: str, count: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f'logs: --rank: "{part}" is neither a rank nor a range such as 8-15')
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(f'logs: --rank: "{part}" runs backwards; write {last}-{first}')
        if last >= count:
            raise UsageError(
                f'logs: --rank: "{part}" is not within the ranks of the job, 0 to {count - 1}'
            )
        found.update(range(first, last + 1))
    return found
