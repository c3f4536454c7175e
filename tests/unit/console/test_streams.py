"""Streams whose reader is gone, and characters that their encoding has not."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.console.screen import Screen
from ascendboot.console.streams import has_reader, legible_lines
from ascendboot.jobs.output import RankOutput
from tests.terminal import printed


def problem_of(stream: int, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[], None]) -> str:
    """What becomes of a job's lines where standard output breaks once it was seen what it is."""
    with os.fdopen(stream, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        output = RankOutput(Screen.raw(to_stderr=False))
        break_it()
        output.show(b"x\n")
        output.close()
        monkeypatch.undo()
    return output.problem


def test_a_terminal_that_hung_up_counts_as_a_closed_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = os.openpty()
    assert "its reader is gone" in problem_of(terminal, monkeypatch, lambda: os.close(ours))


def test_a_disk_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_descriptor: int, _block: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    said = problem_of(file, monkeypatch, lambda: monkeypatch.setattr(os, "write", write))
    assert said == "could not show the output any longer: Input/output error; see the logs"


HOSTILE = "".join(
    chr(code)
    for code in (
        *(*range(32), 0x7F, *range(0x80, 0xA0), 0x61C, *range(0x200E, 0x2010)),
        *(*range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    )
    if chr(code) not in "\t\n\r"
)
HOSTILE_WORDS = f"safe{HOSTILE}\x1b]52;c;eA==\x07\x1b[2J\x1b[>4;2m\x9b2J\xa0é\u4e2d"
_EVERY_WAY = """\
import sys
from invoke.exceptions import Exit
from ascendboot.console.screen import Screen
from ascendboot.model.report import Outcome, StepResult
from ascendboot.cli.program import _plain_errors
words = {words!r}
for screen in (Screen(), Screen(json_mode=True)):
    screen.shows_diffs = True
    screen.say(words, "yellow"), screen.error(words), screen.text(words)
    screen.json({{"x": words}}), screen.working(words)
    result = dict(node="n", phase="judge", step=words, detail=words, diff=words)
    screen.phase(words, [StepResult(**result, outcome=Outcome.BLOCKED)])
Screen.raw(to_stderr=False)(words.encode() + b"\\n")
try:
    with _plain_errors(): raise Exit(words)
except Exit: pass
"""


@pytest.mark.parametrize("colours", ["NO_COLOR", "_"])
def test_text_of_others_does_not_control_a_terminal(
    colours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(colours, "1")
    shown = printed([sys.executable, "-c", _EVERY_WAY.format(words=HOSTILE_WORDS)])
    # A spinner hides the cursor while it turns, shows it again, and takes its line away.
    ours = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[(?:1A|2K)|\r")
    assert set(ours.sub("", shown)) & set(HOSTILE) == set()
    assert shown.count("safe") >= 18


def test_a_terminal_shows_colours_and_progress_bars_of_ranks() -> None:
    bars = b"n:1 | \x1b[31m 10 %\rn:1 | \x08\x08\x08\r 20 %\t\x1b[0m\n"
    assert legible_lines(bars, "utf-8") == bars.replace(b"\x08", b"")
    hidden = b"n:1 | \x1b[8m%s\nn:2 | plain\n"
    assert legible_lines(hidden % b"x", "utf-8") == hidden % b"x\x1b[0m"
    not_text = b"\xff\x9b2J\n"
    assert legible_lines(not_text, "utf-8") == b"\\xff\\x9b2J\n"
    assert legible_lines(not_text, "latin-1") == b"\xff\\x9b2J\n"


def test_output_for_another_program_is_unchanged(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    line = HOSTILE_WORDS.encode() + b"\n"
    Screen.raw(to_stderr=False)(line)
    assert capfdbinary.readouterr().out == line
    Screen.text(HOSTILE_WORDS)
    assert capfdbinary.readouterr().out == line
    Screen(json_mode=True).json({"x": HOSTILE_WORDS})
    document = capfdbinary.readouterr().out.decode()
    assert json.loads(document) == {"x": HOSTILE_WORDS}
    assert set(document) & set(HOSTILE) == set()


def test_a_pipe_without_a_reader_is_noticed() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        assert has_reader(stream)
        os.close(reads)
        assert not has_reader(stream)
