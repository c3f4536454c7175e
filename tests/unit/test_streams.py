"""Streams whose reader is gone, and characters that their encoding has not."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ascendboot.console import Screen
from ascendboot.launch.copies import RankOutput

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_WORDS = 'from ascendboot.console import Screen\nscreen = Screen()\nscreen.{words}("a \\u2713")\n'
_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("words", ["say", "text", "error"])
def test_a_character_that_the_encoding_lacks_is_shown_by_its_number(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WORDS.format(words=words)],
        env={**os.environ, **_ASCII},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"a \\u2713\n")


def problem_of(stream: int, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[], None]) -> str:
    """What becomes of a job's lines where standard output breaks once it was seen what it is."""
    with os.fdopen(stream, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        output = RankOutput(Screen.raw(to_stderr=False))
        break_it()
        output.show(b"x\n")
        monkeypatch.undo()
    return output.problem


def test_a_terminal_that_hung_up_is_a_reader_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, terminal = os.openpty()
    assert "its reader is gone" in problem_of(terminal, monkeypatch, lambda: os.close(ours))


def test_a_disk_that_fails_is_no_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_descriptor: int, _block: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    said = problem_of(file, monkeypatch, lambda: monkeypatch.setattr(os, "write", write))
    assert said == "could not show the output any longer: Input/output error; it is in the logs"
