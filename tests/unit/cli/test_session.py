"""A run's connections: what is kept of them, and how they end."""

from __future__ import annotations

import getpass
import logging
import os
import signal
import sys
import termios
import threading
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest

from ascendboot.cli.common import on_interrupt
from ascendboot.cli.session import Session
from ascendboot.console.screen import Screen
from ascendboot.errors import InterruptedRunError
from ascendboot.state import Run, State
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.login import KeyFiles
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport
from tests.unit.checks.well import TWO
from tests.waiting import wait_until

NOTHING = Command(argv=("true",), purpose="do nothing", effect=Effect.READ)
RESULT = Answer().to(NOTHING, "lab-1")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return State(tmp_path).new_run("check")


def opened(run: Run) -> AbstractContextManager[Session]:
    state = State(run.folder.parents[1])
    screen = Screen(json_mode=True)
    return Session.opened(TWO, state, run, accept_new=False, forks=2, screen=screen)


def test_messages_about_host_keys_name_the_inventory(run: Run) -> None:
    with opened(run) as session:
        assert session.host_keys.inventory == TWO.source


def test_a_question_waits_until_the_spinner_is_gone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(Screen, "rest", lambda _screen: seen.append("rest"))
    monkeypatch.setattr(getpass, "getpass", seen.append)
    _, theirs = os.openpty()
    with os.fdopen(theirs) as terminal, opened(run) as session:
        monkeypatch.setattr(sys, "stdin", terminal)
        session._ask("Password")
    assert seen[:2] == ["rest", "Password: "]


@pytest.mark.parametrize("sudo", ["ask", "none"])
def test_ctrl_c_at_a_question_ends_the_verb_and_the_terminal_is_as_before(
    sudo: Literal["ask", "none"], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(getpass, "getpass", partial(_pressed, is_over))
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    node = replace(TWO.primary, ssh=replace(TWO.primary.ssh, sudo=sudo))
    with os.fdopen(theirs) as terminal, opened(run) as session:
        monkeypatch.setattr(sys, "stdin", terminal)
        # A passphrase is asked for in the thread of a node, the password for sudo before.
        session.__dict__["_opener"] = Mock(
            side_effect=lambda _: session._ask(""), key_files=KeyFiles(session._ask)
        )
        with (
            on_interrupt(pytest.fail, session.screen, "waiting"),
            pytest.raises(InterruptedRunError, match="Stopped: interrupted; nothing was written"),
        ):
            session.connect_hosts([node])
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
    is_over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("node"):
            thread.join(60)


def _pressed(is_over: threading.Event, _prompt: str) -> str:
    """Ctrl-C while the terminal shows nothing of what is typed, as getpass makes it."""
    raw = termios.tcgetattr(sys.stdin)
    raw[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, raw)
    os.kill(os.getpid(), signal.SIGINT)
    is_over.wait(300)
    return ""


def test_an_answer_that_cannot_be_kept_is_noted_once(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.folder / "lab-1").write_text("in the way of the folder")
    with opened(run) as session:
        session.keep(RESULT)
        session.keep(RESULT)
    assert session.problem == (
        "could not keep every command in the run's folder: "
        f"[Errno 17] File exists: '{run.folder}/lab-1'"
    )
    log = (run.folder / "run.log").read_text()
    assert log.count("could not keep every command") == 1
    assert capsys.readouterr().err == ""


def test_item_02_the_beginning_of_a_large_output_is_kept(run: Run) -> None:
    with opened(run) as session:
        session.keep(replace(RESULT, stdout=b"x" * 100_000))
    kept = (run.folder / "lab-1/01.txt").read_text()
    assert kept.count("x") == 65_536 + 1  # and the one of "exit"
    assert "\n--- 34464 bytes more are not kept\n" in kept


def test_item_03_nodes_that_make_no_progress_are_named_on_the_screen(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.login_session.REPORT_AFTER_S", 0.0)
    said = ""

    def has_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said != ""

    with (
        opened(run) as session,
        session.waits.of("lab-1", "list the NPUs"),
        session.waits.of("lab-2", "list the NPUs"),
    ):
        wait_until(has_said)
    assert said.startswith("lab-[1-2]: still waiting to list the NPUs: no progress for ")


def test_a_log_on_a_full_disk_prints_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (run.folder / "run.log").symlink_to("/dev/full")
    with opened(run):
        logging.getLogger("ascendboot.test").warning("lost")
    assert capsys.readouterr().err == ""


class SlowToClose(FakeTransport):
    """Closes when all others are closing too."""

    def __init__(self, node: str, all_close: threading.Barrier) -> None:
        super().__init__(node)
        self.all_close = all_close

    def close(self) -> None:
        self.all_close.wait(timeout=300)
        super().close()


def test_connections_are_closed_in_parallel(run: Run) -> None:
    all_close = threading.Barrier(2)
    hosts = {node.name: SlowToClose(node.name, all_close) for node in TWO.nodes}
    with opened(run) as session:
        session.hosts.update(hosts)
    assert [host.is_closed for host in hosts.values()] == [True, True]
