"""A run's connections: what is kept of them, and how they end."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ascendboot.cli.session import Session
from ascendboot.model.cluster import Cluster, Node, SshAccess
from ascendboot.state import State
from ascendboot.transport.api import Command, Effect, Result
from tests.fake_transport import FakeTransport
from tests.waiting import wait_until


def node(name: str, address: str) -> Node:
    ssh = SshAccess(user="root")
    return Node(name=name, address=address, cluster_address=address, server_id=name, ssh=ssh)


CLUSTER = Cluster(
    name="two",
    nodes=(node("n-1", "192.0.2.1"), node("n-2", "192.0.2.2")),
    primary_name="n-1",
    source="two.yaml",
)
RESULT = Result(
    node="n-1",
    command=Command(argv=("true",), purpose="do nothing", effect=Effect.READ),
    exit_code=0,
    stdout=b"",
    stderr=b"",
    duration_s=0.1,
)


def test_an_answer_that_cannot_be_kept_is_noted_once_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State(tmp_path)
    run = state.new_run("train")
    (run.folder / "n-1").write_text("in the way of the folder")
    with Session.opened(CLUSTER, state, run, accept_new=False, forks=2) as session:
        session.keep(RESULT)
        session.keep(RESULT)
    assert session.problem == (
        "could not keep every command in the run's folder: "
        f"[Errno 17] File exists: '{run.folder}/n-1'"
    )
    log = (run.folder / "run.log").read_text()
    assert log.count("could not keep every command") == 1
    assert capsys.readouterr().err == ""


def test_item_02_of_a_large_output_the_beginning_is_kept(tmp_path: Path) -> None:
    state = State(tmp_path)
    run = state.new_run("check")
    with Session.opened(CLUSTER, state, run, accept_new=False, forks=2) as session:
        session.keep(replace(RESULT, stdout=b"x" * 100_000))
    kept = (run.folder / "n-1/01.txt").read_text()
    assert kept.count("x") == 65_536 + 1  # and the one of "exit"
    assert "\n--- 34464 bytes more are not kept\n" in kept


def test_item_03_who_is_waited_for_stands_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.login_session.REPORT_AFTER_S", 0.0)
    state = State(tmp_path)
    run = state.new_run("check")
    said = ""

    def has_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said != ""

    with (
        Session.opened(CLUSTER, state, run, accept_new=False, forks=2) as session,
        session.waits.of("n-1", "list the NPUs"),
        session.waits.of("n-2", "list the NPUs"),
    ):
        wait_until(has_said)
    assert said.startswith("n-[1-2]: still waiting to list the NPUs: no progress for ")


def test_a_log_on_a_full_disk_says_nothing_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State(tmp_path)
    run = state.new_run("train")
    (run.folder / "run.log").symlink_to("/dev/full")
    with Session.opened(CLUSTER, state, run, accept_new=False, forks=2):
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


def test_all_connections_end_at_once(tmp_path: Path) -> None:
    state, all_close = State(tmp_path), threading.Barrier(2)
    hosts = {node.name: SlowToClose(node.name, all_close) for node in CLUSTER.nodes}
    with Session.opened(CLUSTER, state, state.new_run("x"), accept_new=False, forks=2) as session:
        session.hosts.update(hosts)
    assert [host.is_closed for host in hosts.values()] == [True, True]
