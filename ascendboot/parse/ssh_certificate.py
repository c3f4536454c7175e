"""`ssh-keygen -L -f FILE` (in UTC): what an SSH certificate says."""

from __future__ import annotations

import re
from calendar import timegm
from time import strptime
from typing import TYPE_CHECKING, Literal

from ascendboot.model.certificate import Certificate, Claims
from ascendboot.parse.reading import Line, lines_of, nothing_printed

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOL = "ssh-keygen -L"
_FINGERPRINT = r"[A-Z0-9-]+ (SHA256:[A-Za-z0-9+/]{43})"
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})"


def parse_certificate(text: str) -> Certificate:
    """The certificate that was printed, in UTC.

    Raises:
        NotUnderstoodError: a line has another form, one is missing, or there is one too many.
    """
    lines = iter(lines_of(text))
    _next(lines, r"\S+:", "FILE:")
    kind = _next(lines, r"Type: \S+ (user|host) certificate", "Type: TYPE host certificate")
    key = _next(lines, rf"Public key: {_FINGERPRINT}", "Public key: TYPE SHA256:…")
    ca = _next(
        lines, rf"Signing CA: {_FINGERPRINT}(?: \(using \S+\))?", "Signing CA: TYPE SHA256:…"
    )
    key_id = _next(lines, r'Key ID: "(.*)"', 'Key ID: "…"')
    _next(lines, r"Serial: [0-9]+", "Serial: NUMBER")
    valid_from, valid_to = _validity(lines)
    principals, line = _list(lines, _line(lines, "Principals:"), "Principals")
    options, line = _list(lines, line, "Critical Options")
    extensions, line = _list(lines, line, "Extensions")
    if line is not None:
        raise line.not_understood(TOOL, "the end")
    which: Literal["user", "host"] = "user" if kind[1] == "user" else "host"
    return Certificate(
        claims=Claims(
            kind=which,
            key=key[1],
            ca=ca[1],
            key_id=key_id[1],
            principals=principals,
            options=options,
            extensions=extensions,
        ),
        valid_from=valid_from,
        valid_to=valid_to,
    )


def _next(lines: Iterator[Line], form: str, expected: str) -> re.Match[str]:
    line = _line(lines, expected)
    match = re.fullmatch(form, line.text.strip())
    if match is None:
        raise line.not_understood(TOOL, expected)
    return match


def _line(lines: Iterator[Line], expected: str) -> Line:
    line = next(lines, None)
    if line is None:
        raise nothing_printed(TOOL, expected)
    return line


def _validity(lines: Iterator[Line]) -> tuple[float | None, float | None]:
    expected = "Valid: from TIME to TIME"
    line = _line(lines, expected)
    form = rf"Valid: (?:forever|from {_TIME} to {_TIME}|after {_TIME}|before {_TIME})"
    match = re.fullmatch(form, line.text.strip())
    if match is None:
        raise line.not_understood(TOOL, expected)
    begin, end, after, before = match.groups()
    try:
        return _epoch(begin or after), _epoch(end or before)
    except ValueError as error:
        raise line.not_understood(TOOL, expected) from error


def _epoch(time: str | None) -> float | None:
    return None if time is None else float(timegm(strptime(time, "%Y-%m-%dT%H:%M:%S")))


def _list(
    lines: Iterator[Line], head: Line | None, name: str
) -> tuple[tuple[str, ...], Line | None]:
    """The entries below the heading `head`, and the line after them.

    Entries stand deeper than headings: a principal may look like anything.
    """
    expected = f"{name}: and its entries"
    if head is None:
        raise nothing_printed(TOOL, expected)
    text = head.text.strip()
    if text == f"{name}: (none)":
        return (), next(lines, None)
    if text != f"{name}:":
        raise head.not_understood(TOOL, expected)
    depth = _depth(head)
    entries: list[str] = []
    for line in lines:
        if _depth(line) <= depth:
            return tuple(entries), line
        entries.append(line.text.strip())
    return tuple(entries), None


def _depth(line: Line) -> int:
    return len(line.text) - len(line.text.lstrip())
