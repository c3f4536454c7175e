"""A node that is a folder of this machine: every command really runs."""

from __future__ import annotations

import os
import subprocess
from functools import partial

from ascendboot.transport.api import Command
from tests.fake_transport import Answer, FakeTransport


def run_here(command: Command, *, programs: str = "") -> Answer:
    """`programs`: a folder with programs that stand before this machine's own."""
    done = subprocess.run(
        command.argv,
        input=command.stdin,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        check=False,
    )
    return Answer(done.stdout, done.stderr, done.returncode)


def node_here(name: str = "lab-1", programs: str = "") -> FakeTransport:
    return FakeTransport(name, rules=[partial(run_here, programs=programs)])
