"""Ctrl-C while a node accepts the connection and never greets."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendboot.inventory.load import load
from ascendboot.setup.record import digest
from ascendboot.state import State
from ascendboot.templates import digest as templates_digest
from ascendboot.value import as_json, replace
from tests.engine.test_ready import applied

pytestmark = pytest.mark.integration

STOPPED = "Stopped: interrupted before the job was started; nothing was written.\n"
ONCE = "press Ctrl-C again to abort"
PATIENT = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in background
from ascendboot.transport import connection
connection.HANDSHAKE_S = 6000
from ascendboot.cli.program import main; main()
"""
"""The server may take longer to greet than the test waits, so only Ctrl-C can end the program."""


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def inventory(tmp_path: Path, mute: socket.socket) -> Path:
    port = mute.getsockname()[1]
    file = tmp_path / "mute.yaml"
    file.write_text(f"cluster: mute\nnodes: {{n-1: {{address: 127.0.0.1, port: {port}}}}}\n")
    return file


def pressed(inventory: Path, mute: socket.socket, *words: str, presses: int) -> tuple[int, str]:
    """The exit code and messages of a program that is interrupted while it connects."""
    command = [sys.executable, "-c", PATIENT, *words]
    with subprocess.Popen(
        command,
        cwd=inventory.parent,
        env={**os.environ, "ASCENDBOOT_INVENTORY": str(inventory)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as call:
        assert call.stderr is not None
        try:
            with mute.accept()[0]:
                said = ""
                for _ in range(presses):
                    call.send_signal(signal.SIGINT)
                    said += call.stderr.readline()
                said += call.communicate(timeout=300)[1]
        finally:
            call.kill()
    return call.returncode, said


@pytest.mark.parametrize(
    "words", [["setup"], ["setup", "--plan"], ["check"], ["reset", "--yes"]], ids=" ".join
)
def test_the_second_ctrl_c_ends_at_once(
    inventory: Path, mute: socket.socket, words: list[str]
) -> None:
    code, said = pressed(inventory, mute, *words, presses=2)
    first, last = said.splitlines()
    kept = "what was changed stays, and the next run goes on from there"
    if words[-1] in ("check", "--plan"):
        kept = "nothing was written on the nodes"
    assert (code, first.split("; ")[-1], last) == (130, ONCE, f"Stopped: interrupted; {kept}.")


def test_verbs_that_only_read_end_at_the_first_ctrl_c_and_say_that_nothing_was_written(
    inventory: Path, mute: socket.socket
) -> None:
    port = mute.getsockname()[1]
    for words, what in (
        (["ranktable.write"], "nothing"),
        (["init", f"127.0.0.1:{port}", "--yes"], "no inventory"),
    ):
        said = f"Stopped: {what} was written.\n"
        assert pressed(inventory, mute, *words, presses=1) == (130, said)


def test_train_ends_at_the_first_ctrl_c_before_the_job_starts(
    inventory: Path, mute: socket.socket
) -> None:
    cluster = load(inventory)
    digests = {"inventory_digest": digest(cluster), "templates": templates_digest()}
    record = replace(
        applied(), cluster=cluster.name, **digests, slots=(("n-1", 0, None),), nodes={}
    )
    State(inventory.parent / ".ascendboot").remember(cluster.name, "applied", as_json(record))
    assert pressed(inventory, mute, "train", "main.py", presses=1) == (130, STOPPED)
