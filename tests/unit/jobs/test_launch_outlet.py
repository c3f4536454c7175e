"""A reader who does not read, or is gone, holds up nothing that has to end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ascendboot.jobs.output import ROOM, OutputWriter

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stuck:
    """A sink that takes its first block and never comes back until told."""

    def __init__(self) -> None:
        self.entered, self.goes_on = threading.Event(), threading.Event()
        self.taken: list[bytes] = []

    def __call__(self, block: bytes) -> None:
        self.taken.append(block)
        self.entered.set()
        self.goes_on.wait(30)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.goes_on.set()


def test_blocks_come_in_order_and_all_of_them() -> None:
    taken: list[bytes] = []
    outlet = OutputWriter(taken.append, is_hurried=lambda: False)
    blocks = [b"%d\n" % i for i in range(1000)]
    for block in blocks:
        outlet(block)
    assert outlet.close() is None
    assert taken == blocks


def test_without_a_hurry_a_reader_has_all_the_time(stuck: Stuck) -> None:
    outlet = OutputWriter(stuck, is_hurried=lambda: False)
    outlet(b"a\n")
    outlet(b"b\n")
    assert stuck.entered.wait(10)
    threading.Timer(0.5, stuck.goes_on.set).start()
    assert outlet.close() is None
    assert stuck.taken == [b"a\n", b"b\n"]


def test_in_a_hurry_a_reader_who_does_not_read_is_given_up(stuck: Stuck) -> None:
    hurry = threading.Event()
    outlet = OutputWriter(stuck, is_hurried=hurry.is_set)
    outlet(b"x" * (ROOM + 1))
    began = time.monotonic()
    threading.Timer(0.2, hurry.set).start()
    with pytest.raises(TimeoutError, match="its reader takes nothing"):
        outlet(b"more")
    assert str(outlet.close()) == "its reader takes nothing"
    assert time.monotonic() - began < 3


def test_a_reader_who_is_gone_is_said_at_the_end() -> None:
    def sink(_: bytes) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    outlet = OutputWriter(sink, is_hurried=lambda: False)
    outlet(b"a\n")
    assert str(outlet.close()) == "[Errno 32] Broken pipe"
    with pytest.raises(BrokenPipeError):
        outlet(b"b\n")


PROGRAM = """
import sys
from ascendboot.console.screen import Screen
from ascendboot.jobs.output import OutputWriter
outlet = OutputWriter(Screen.raw(to_stderr=False), is_hurried=lambda: True)
outlet(b"x" * 200_000)
sys.stderr.write(f"{outlet.close()}\\n")
"""


@pytest.mark.parametrize(
    ("is_open", "said"),
    [(True, b"its reader takes nothing\n"), (False, b"[Errno 32] Broken pipe\n")],
)
def test_a_program_ends_in_order_whatever_became_of_its_reader(
    *, is_open: bool, said: bytes
) -> None:
    """No hang in a full pipe, no traceback and no exit code of Python's own for a closed one."""
    read, write = os.pipe()
    if not is_open:
        os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    os.close(write)
    if is_open:
        os.close(read)
    assert (done.returncode, done.stderr) == (0, said)
