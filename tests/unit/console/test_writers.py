"""Where lines for people go: plain into files and pipes, coloured to terminals."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import threading
import time

import pytest

from ascendboot.console.streams import Writer


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_file_gets_plain_lines() -> None:
    stream = io.StringIO()
    writer = Writer(stream)
    writer.working("Ask")
    writer.line("plain ", ("red", "red"), " [bold]as it is[/bold]")
    writer.rest()
    assert stream.getvalue() == "plain red [bold]as it is[/bold]\n"
    assert not writer.has_colours


@pytest.mark.parametrize(
    ("name", "value", "red"),
    [("TERM", "xterm", "\x1b[31mred\x1b[0m"), ("NO_COLOR", "1", "red"), ("TERM", "dumb", "red")],
)
def test_a_terminal_gets_colours_unless_the_environment_forbids_them(
    name: str, value: str, red: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        writer = Writer(stream)
        writer.line("plain ", ("red", "red"))
        assert os.read(ours, 1000).decode() == f"plain {red}\r\n"
        assert writer.has_colours == (red != "red")
    os.close(ours)


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (80, ["created resources/hccl_json_6p_3_host.json (52", f"{'':30}lines)"]),
        (40, ["created", "      resources/hccl_json_6p_3_host.json", "      (52 lines)"]),
        (0, ["created resources/hccl_json_6p_3_host.json (52 lines)"]),
    ],
)
def test_a_row_fits_a_terminal_and_stays_whole_in_a_pipe(
    columns: int, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns or 80))
    ours, theirs = pty.openpty() if columns else os.pipe()
    with os.fdopen(theirs, "w") as stream:
        words = "created resources/hccl_json_6p_3_host.json (52 lines)"
        assert Writer(stream).fitted(words, 30) == lines
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("trust/authorized_keys, folders", ["", "      trust/authorized_keys, folders"]),
        ("w" * 34 + " and more", ["", f"      {'w' * 34}", "      and more"]),
        ("w" * 35 + " and more", ["w" * 35, "      and more"]),
        ("w" * 13 + " and more", ["w" * 13, "      and more"]),
        ("", [""]),
    ],
)
def test_a_first_word_that_does_not_fit_goes_to_the_next_line(
    words: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        assert Writer(stream).fitted(words, 27) == lines
    os.close(ours)


def test_a_terminal_shows_how_far_a_phase_is() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        writer = Writer(stream)
        writer.progress("of no phase")
        writer.working("Ask")
        writer.progress("12/16 nodes, slowest n7")
        writer.rest()
        shown = ""
        while "\x1b[?25h" not in shown:  # the cursor is shown again at the end
            shown += os.read(ours, 10000).decode()
        assert "Ask … 12/16 nodes, slowest n7" in shown
        assert "of no phase" not in shown
    os.close(ours)


def test_a_thread_that_comes_to_write_waits_until_the_spinner_is_gone() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        writer, stopping, gone = Writer(stream), threading.Event(), threading.Event()
        writer.working("Ask")
        status, seen = writer._status, list[bool]()
        stop = status.stop

        def stop_slowly() -> None:
            stopping.set()
            time.sleep(0.05)
            stop()
            gone.set()

        status.stop = stop_slowly
        first = threading.Thread(target=writer.rest)
        first.start()
        assert stopping.wait(10)
        writer.rest()
        seen.append(gone.is_set())
        first.join()
        assert seen == [True]
    os.close(ours)


def test_force_color_turns_colours_on_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("colours", ["", "1"])
def test_a_non_blocking_stream_gets_everything(colours: str) -> None:
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
def test_characters_that_the_encoding_lacks_are_escaped(colours: str) -> None:
    program = f"""{SCREEN}words = '\\u2713 caf\\u00e9 \\udcff'
screen.say(words), screen.text(words), screen.json(dict(words=words)), screen.error(words)"""
    shown = {}
    for encoding, errors in (("latin-1", ""), ("ascii", ":surrogateescape"), ("utf-8", "")):
        wishes = {"PYTHONIOENCODING": f"{encoding}{errors}", "FORCE_COLOR": colours}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            env={**os.environ, **wishes},
        )
        line, text, document = done.stdout.decode(encoding).split("\n", 2)
        shown[encoding] = line
        assert text == line
        assert line in done.stderr.decode(encoding)
        assert json.loads(document) == {"words": "\u2713 caf\u00e9 \udcff"}
    assert shown == {
        "latin-1": "\\u2713 caf\u00e9 \\udcff",
        "ascii": "\\u2713 caf\\xe9 \\udcff",
        "utf-8": "\u2713 caf\u00e9 \\udcff",
    }
