"""The time that a line of a log begins with, whatever wrote it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Final

_LOOKED_AT: Final = 120
"""A time stands at the beginning of a line; later ones are part of what it says."""
_SLACK_S: Final = 5.0
_OLDEST_S: Final = 400 * 86400.0

_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_FORMS: Final = (
    # CANN's own logs: 2024-03-28-10:25:48.427.201
    re.compile(rf"(?P<Y>\d{{4}})-(?P<M>\d\d)-(?P<D>\d\d)-{_CLOCK}(?:\.(?P<f>\d{{3}}\.\d{{3}}))?"),
    # Python's logging, TensorFlow, ISO 8601, torchrun's table
    re.compile(
        rf"(?P<Y>\d{{4}})[-/](?P<M>\d\d)[-/](?P<D>\d\d)[ T_]{_CLOCK}"
        r"(?:[.,](?P<f>\d{1,6}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
    ),
    # glog: E1120 12:34:56.789012
    re.compile(rf"(?<![A-Za-z0-9])[IWEF](?P<M>\d\d)(?P<D>\d\d) {_CLOCK}\.(?P<f>\d{{3,6}})"),
)


def time_in(line: str, *, zone_s: int | None, until: float | None) -> float | None:
    """Seconds since 1970 by the clock that wrote it; None where the line tells no time.

    `zone_s` is how far the local time there is ahead of UTC; None: not known, then a time without
    a zone is none. `until` is when the rank ended, by the same clock: what claims to be later, or
    older than a year, is no time of this job.
    """
    for form in _FORMS:
        match = form.search(line, 0, _LOOKED_AT)
        if match is None:
            continue
        at = _seconds(match.groupdict(), zone_s, until)
        if at is None or until is None or -_OLDEST_S < at - until < _SLACK_S:
            return at
    return None


def _seconds(parts: dict[str, str | None], zone_s: int | None, until: float | None) -> float | None:
    zone = _zone(parts.get("z"), zone_s)
    if zone is None:
        return None
    year = parts.get("Y")
    if year is not None:
        return _timestamp(int(year), parts, zone)
    if until is None:
        return None
    this = datetime.fromtimestamp(until, zone).year
    candidates = (_timestamp(number, parts, zone) for number in (this, this - 1))
    return next((at for at in candidates if at is not None and at < until + _SLACK_S), None)


def _zone(written: str | None, zone_s: int | None) -> timezone | None:
    if written == "Z":
        return timezone.utc
    if written:
        hours, minutes = int(written[1:3]), int(written[-2:])
        sign = -1 if written[0] == "-" else 1
        return timezone(sign * timedelta(hours=hours, minutes=minutes))
    return None if zone_s is None else timezone(timedelta(seconds=zone_s))


def _timestamp(year: int, parts: dict[str, str | None], zone: timezone) -> float | None:
    month, day, hour, minute, second = (int(parts[name] or 0) for name in "MDhms")
    fraction = (parts.get("f") or "0").replace(".", "")
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    return whole.timestamp() + float(f"0.{fraction}")
