"""Where lines for people go: plain into files and pipes, coloured to terminals."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ascendboot.console.streams import Writer


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def shown_at_a_terminal() -> str:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        writer = Writer(stream)
        writer.line("plain ", ("red", "red"))
        text = os.read(ours, 1000).decode()
    os.close(ours)
    return text


def test_a_file_gets_plain_lines() -> None:
    stream = io.StringIO()
    writer = Writer(stream)
    writer.work("Ask")
    writer.line("plain ", ("red", "red"), " [bold]as it is[/bold]")
    writer.rest()
    assert stream.getvalue() == "plain red [bold]as it is[/bold]\n"
    assert not writer.shows_colours


def test_a_terminal_gets_colours() -> None:
    assert shown_at_a_terminal() == "plain \x1b[31mred\x1b[0m\r\n"


def test_no_color_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown_at_a_terminal() == "plain red\r\n"


def test_a_terminal_that_has_no_colours_is_not_said_to_show_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        assert Writer(stream).shows_colours
        monkeypatch.setenv("TERM", "dumb")
        assert not Writer(stream).shows_colours
    os.close(ours)


def test_colours_can_be_asked_for_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    Writer(stream).line(("red", "red"))
    assert stream.getvalue() == "\x1b[31mred\x1b[0m\n"


SCREEN = "import sys; from ascendboot.console.screen import Screen; screen = Screen()\n"


def test_plain_lines_need_no_rich() -> None:
    program = f"""{SCREEN}screen.say('words', 'red')
assert not any(name.partition('.')[0] == 'rich' for name in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"words\n"


def test_a_reader_that_has_gone_ends_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    program = f"""{SCREEN}screen.say('one')
sys.stdin.readline()
for _ in range(3):
    screen.say('more')
open({str(kept)!r}, 'w').write('went on')"""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0
    assert kept.read_text() == "went on"


@pytest.mark.parametrize("colours", ["", "1"])
def test_a_stream_that_does_not_wait_gets_all(colours: str) -> None:
    """A terminal may be in that mode by another program that shares it."""
    program = f"""{SCREEN}for number in range(200):
    screen.say(str(number) + ' ' + 'x' * 1000)
screen.text('y' * 300000)"""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "FORCE_COLOR": colours},
    ) as process:
        os.close(theirs)
        assert select.select([ours], [], [], 30)[0]
        time.sleep(0.2)  # it is full now
        with os.fdopen(ours, "rb") as reader:
            *lines, document = reader.read().splitlines()
        assert process.stderr
        assert process.stderr.read() == b""
        assert process.wait(30) == 0
    assert lines == [b"%d " % number + b"x" * 1000 for number in range(200)]
    assert document == b"y" * 300000


@pytest.mark.parametrize("colours", ["", "1"])
def test_what_a_terminal_cannot_show_ends_nothing(colours: str) -> None:
    program = f"""{SCREEN}words = '\\u2713 caf\\u00e9 \\udcff'
screen.say(words), screen.json(dict(words=words))"""
    shown = {}
    for encoding in ("latin-1", "ascii", "utf-8"):
        wishes = {"PYTHONIOENCODING": encoding, "FORCE_COLOR": colours}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env={**os.environ, **wishes},
        )
        line, _, document = done.stdout.decode(encoding).partition("\n")
        shown[encoding] = line
        assert json.loads(document) == {"words": "\u2713 caf\u00e9 \udcff"}
    assert shown == {
        "latin-1": "\\u2713 caf\u00e9 \\udcff",
        "ascii": "\\u2713 caf\\xe9 \\udcff",
        "utf-8": "\u2713 caf\u00e9 \\udcff",
    }
