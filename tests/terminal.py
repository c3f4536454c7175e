"""A terminal: what it shows of a program that takes it for a real one.

`python -m tests.terminal 80 24 'ascendboot status'` prints a screen for the documents.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyte


def shown(
    script: str,
    *,
    columns: int,
    rows: int = 2000,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300.0,
    keys: bytes = b"",
) -> list[str]:
    """Run a bash script in a terminal of this size; return the lines that it shows at the end.

    `keys` are typed ahead.
    """
    environ = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES", "NO_COLOR"}}
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    program = subprocess.Popen(
        ["/usr/bin/setsid", "--ctty", "--wait", "bash", "-c", script],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environ, "TERM": "xterm-256color", **(env or {})},
    )
    os.close(theirs)
    os.write(ours, keys)
    end = time.monotonic() + timeout_s
    try:
        while select.select([ours], [], [], max(0.0, end - time.monotonic()))[0]:
            stream.feed(os.read(ours, 65536))
        program.kill()
        raise TimeoutError(f"{script}: has not ended within {timeout_s:g} s")
    except OSError:  # nobody has the terminal any more
        program.wait()
    finally:
        os.close(ours)
    return [line.rstrip() for line in screen.display]


def printed(argv: Sequence[str], **options: Any) -> str:
    """All that a program prints, as it is, on both streams; they are a terminal."""
    ours, theirs = os.openpty()
    seen = b""
    with subprocess.Popen(argv, **{"stdout": theirs, "stderr": theirs, **options}) as program:
        os.close(theirs)
        with suppress(OSError):  # nobody has the terminal any more
            while block := os.read(ours, 65536):
                seen += block
    os.close(ours)
    assert program.returncode == 0, seen
    return seen.decode()


if __name__ == "__main__":
    width, height, words = sys.argv[1:]
    text = "\n".join(shown(words, columns=int(width), rows=int(height)))
    sys.stdout.write(text.rstrip() + "\n")
