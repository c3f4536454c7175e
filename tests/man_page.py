"""The man page, made from the help of all verbs; `python -m tests.reference_pages` writes it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest import mock

from ascendboot import __version__
from ascendboot.cli.program import namespace
from tests.unit.cli.calls import ended_here

_HEAD = f"""\
.TH ASCENDBOOT 1 "" "ascendboot {__version__}" "User Commands"
.SH NAME
ascendboot \\- turn servers with Ascend NPUs into a training cluster and run jobs on it
.SH SYNOPSIS
.B ascendboot
.I VERB
.RI [ OPTIONS ]
.br
.B ascendboot help
.I VERB
.SH DESCRIPTION
An inventory names the servers.
.B setup
configures and verifies them,
.B train
runs a script on all of their NPUs.
"""
_ROW = re.compile(r"^(?: {2}| {6}(?=--))(\S.*?)(?: {2,}(.*))?$")


def man_page() -> str:
    """Its text in roff."""
    verbs = namespace().task_names
    pages = (f".SH {verb.upper()}\n{''.join(_roff(_help('help', verb)))}" for verb in verbs)
    return f"{_HEAD}{''.join(_roff(_help('--help')))}{''.join(pages)}"


def _help(*words: str) -> str:
    printed, built_in = io.StringIO(), {"XDG_CONFIG_HOME": "/nowhere", "ASCENDBOOT_FORKS": ""}
    with redirect_stdout(printed), mock.patch.dict(os.environ, built_in, COLUMNS="100"):
        ended_here(words)
    return printed.getvalue()


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _roff(text: str) -> Iterator[str]:
    """Examples stay as they are; rows of flags and verbs become tagged paragraphs."""
    usage, _, rest = text.partition("\n\n")
    if "\n" not in usage:
        yield f"{_escaped(usage.removeprefix('Usage: '))}\n"
    for part in rest.split("\n\n"):
        title, _, body = part.partition(":\n")
        if not body.startswith(" "):
            yield f".PP\n{_escaped(' '.join(part.split()))}\n"
        elif title == "Examples":
            lines = "".join(f"{_escaped(line)}\n" for line in body.splitlines())
            yield f".PP\n{title}:\n.nf\n{lines}.fi\n"
        else:
            yield f".SS {_escaped(title)}\n"
            yield from _rows(body)


def _rows(body: str) -> Iterator[str]:
    for line in body.splitlines():
        if row := _ROW.match(line):
            yield f".TP\n.B {_escaped(row[1])}\n{_escaped(row[2] or '')}".rstrip() + "\n"
        else:
            yield f"{_escaped(line.strip())}\n"
