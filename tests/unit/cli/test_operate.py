"""The verbs that change a supervised job, with and without a running supervisor."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.cli.known_jobs import supervised_run
from ascendboot.cli.operate import ANSWER_S, Ask
from ascendboot.console.screen import Screen
from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.state import State as Folder
from ascendboot.supervise.core import Core, State
from ascendboot.supervise.policy import Limits
from ascendboot.supervise.requests import Request
from ascendboot.supervise.store import Store
from tests.terminal import printed
from tests.unit.cli.calls import MAIN, called

QUARANTINE = Request(verb="quarantine", nodes=("n-2",), reason="loud")


def job(place: Path, job_id: str = "job-1") -> tuple[Store, Core]:
    """A supervised job whose first generation runs on two nodes."""
    store = Store(place / f".ascendboot/runs/{job_id}/supervise")
    with store.writing("before") as writer:
        core = Core(("n-1", "n-2"), 8, Parallel(), Limits(), on_event=writer.event)
        core.begin(0.0)
        core.launched(1.0)
        writer.state(core.to_json())
    return store, core


def ask(store: Store, work: Callable[[], object]) -> Ask:
    """Calls `work` where the verb would wait."""
    times = iter(range(1000))

    def pause(_seconds: float) -> None:
        work()

    return Ask(store, "job-1", Screen(json_mode=True), clock=lambda: next(times), pause=pause)


def test_without_a_supervisor_the_state_is_changed_and_counts_later(tmp_path: Path) -> None:
    store, _ = job(tmp_path)
    answer = ask(store, pytest.fail)(QUARANTINE)
    assert answer.words.startswith("quarantined n-2\n")
    assert "this counts from train SCRIPT --resume job-1 on" in answer.words
    core = Core.from_json(store.read_state() or {})
    assert (core.nodes["n-2"].status, core.state) == ("quarantined", State.STOPPING)
    assert store.read_events()[-1]["event"] == "stopping"


def test_a_supervisor_answers_and_the_verb_changes_nothing_itself(tmp_path: Path) -> None:
    store, core = job(tmp_path)
    before, words = store.read_state(), list[str]()
    with store.writing("now"):
        answer = ask(store, lambda: store.inbox.carry_out(core, 2.0, words.append))(QUARANTINE)
    assert [answer.words] == words == ["quarantined n-2"]
    assert store.read_state() == before


def test_a_supervisor_that_does_not_answer_never_gets_the_request(tmp_path: Path) -> None:
    store, _ = job(tmp_path)
    with store.writing("now"), pytest.raises(AscendbootError) as raised:
        ask(store, lambda: None)(QUARANTINE)
    assert f"no answer within {ANSWER_S:g} s; the request was withdrawn" in str(raised.value)
    assert list(store.inbox.folder.iterdir()) == []


def test_a_supervisor_that_takes_a_request_and_ends_is_reported(tmp_path: Path) -> None:
    store, _ = job(tmp_path)

    def take() -> None:
        for path in store.inbox.folder.iterdir():
            path.unlink()

    with store.writing("now"), pytest.raises(AscendbootError, match="took the request and gave no"):
        ask(store, take)(QUARANTINE)


def test_if_the_supervisor_ends_first_the_state_is_changed_without_it(tmp_path: Path) -> None:
    store, _ = job(tmp_path)
    holding = store.writing("now")
    holding.__enter__()
    answer = ask(store, lambda: holding.__exit__(None, None, None))(QUARANTINE)
    assert "no train supervises job-1 now" in answer.words
    assert list(store.inbox.folder.iterdir()) == []


def test_stop_waits_until_the_supervisor_has_ended_the_generation(tmp_path: Path) -> None:
    store, core = job(tmp_path)
    states = list[State]()
    with store.writing("now") as writer:

        def work() -> None:
            actions = store.inbox.carry_out(core, 2.0, lambda _: writer.state(core.to_json()))
            if not actions and core.state is State.STOPPING:
                core.stopped(3.0, ())
                writer.state(core.to_json())
            states.append(core.state)

        words = ask(store, work).end()
    assert words == "stop was requested; nothing is started again"
    assert states == [State.STOPPING, State.GAVE_UP]


def test_stop_is_no_success_while_a_generation_may_run(tmp_path: Path) -> None:
    store, core = job(tmp_path)
    with store.writing("now") as writer:
        asking = ask(
            store, lambda: store.inbox.carry_out(core, 2.0, lambda _: writer.state(core.to_json()))
        )
        with pytest.raises(AscendbootError, match="after 60 s its train still ends it; see status"):
            asking.end()
    with store.writing("now"), pytest.raises(AscendbootError, match="no answer within 60 s"):
        ask(store, lambda: None).end()


def test_a_supervisor_of_another_version_refuses_stop(tmp_path: Path) -> None:
    store, core = job(tmp_path)

    def work() -> None:
        for path in store.inbox.folder.glob("*.json"):
            path.write_text('{"verb": "unknown"}')
        store.inbox.carry_out(core, 2.0, pytest.fail)

    with (
        store.writing("now"),
        pytest.raises(UsageError, match=r"^job-1: .* is not of this version"),
    ):
        ask(store, work).end()


def test_stop_without_a_supervisor_is_the_end_also_for_resume(tmp_path: Path) -> None:
    store, _ = job(tmp_path)
    assert ask(store, pytest.fail).end() == "stop was requested; nothing is started again"
    core = Core.from_json(store.read_state() or {})
    assert core.state is State.GAVE_UP
    assert core.end is not None
    assert core.resume(9.0, alive=False) == (core.end,)
    assert [event["event"] for event in store.read_events()[-3:]] == [
        "interrupt",
        "stopping",
        "gave_up",
    ]


def test_a_job_that_has_ended_is_not_changed_and_its_events_are_all_shown(tmp_path: Path) -> None:
    store, core = job(tmp_path)
    core.completed(2.0)
    with store.writing("now") as writer:
        writer.state(core.to_json())
    with pytest.raises(UsageError, match="has ended or is being ended: the job has completed"):
        ask(store, pytest.fail)(QUARANTINE)
    ended = called("events --follow --json", tmp_path)
    assert ended.returncode == 0
    found = [json.loads(line)["event"] for line in ended.stdout.splitlines()]
    assert found == ["preflight", "planning", "launching", "running", "done"]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("quarantine n-9", 2, 'quarantine: there is no "n-9", only n-[1-2]\n'),
        ("quarantine @odd", 2, "no inventory is named: "),
        ("quarantine @odd -i x.yaml", 0, "quarantined n-1\n"),
        ("resize 0", 2, 'resize: "0" is not a whole number of at least 1'),
        ("resize 9", 0, "at most 9 nodes\n"),
        ("release n-[1-2] --job job-1.g1", 0, "released n-[1-2]\n"),
        ("release n-1 --job job-7", 2, 'no supervised job "job-7" was started from here'),
        ("quarantine n-2 --json", 0, '"job_id": "job-1"'),
        ("events", 0, "g1 running: all ranks have begun"),
        ("events --job job-0", 0, "g1 launching: 2 nodes: n-[1-2]"),
    ],
)
def test_each_verb_ends_with_its_code(tmp_path: Path, line: str, code: int, words: str) -> None:
    job(tmp_path, "job-0")
    job(tmp_path)
    nodes = 'nodes: {"n-[1,3]": {address: "192.0.2.[1,3]", groups: [odd]}}'
    (tmp_path / "x.yaml").write_text(f"cluster: x\n{nodes}\ngroups: {{odd: {{user: ann}}}}\n")
    ended = called(line, tmp_path)
    assert (ended.returncode, words in ended.stdout + ended.stderr) == (code, True), ended


def test_without_a_supervised_job_the_verbs_show_how_to_start_one(tmp_path: Path) -> None:
    ended = called("events", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == (
        "no supervised job was started from here; start one with train --supervise\n"
    )


def test_the_job_that_is_supervised_now_comes_before_a_later_one(tmp_path: Path) -> None:
    running, _ = job(tmp_path, "job-0")
    job(tmp_path, "job-1")
    state = Folder(tmp_path / ".ascendboot")
    assert supervised_run(state).run_id == "job-1"
    with running.writing("now"):
        assert supervised_run(state).run_id == "job-0"
    assert supervised_run(state, "job-0.g12").run_id == "job-0"


def test_a_terminal_gets_events_in_lines_that_fit_it_and_a_pipe_each_in_one(tmp_path: Path) -> None:
    store, core = job(tmp_path)
    time = "2026-01-02T03:04:05"
    with store.writing("before") as writer:
        core.on_event = lambda event: writer.event({"time": time, **event})
        core.quarantine(2.0, ["n-1", "n-2"], "the fans of both are loud and hot since yesterday")
    argv = [sys.executable, "-c", MAIN, "events"]
    wide, narrow = (
        printed(argv, cwd=tmp_path, env={**os.environ, "TERM": "xterm", "COLUMNS": columns})
        for columns in ("80", "40")
    )
    assert wide.splitlines()[-2:] == [
        f"{time} g1 stopping: n-[1-2]: quarantined: the fans of both are loud",
        "                       and hot since yesterday",
    ]
    assert narrow.splitlines()[-4:] == [
        f"{time} g1 stopping:",
        "      n-[1-2]: quarantined: the fans of",
        "      both are loud and hot since",
        "      yesterday",
    ]
    whole = "the fans of both are loud and hot since yesterday"
    assert called("events", tmp_path).stdout.splitlines()[-1] == (
        f"{time} g1 stopping: n-[1-2]: quarantined: {whole}"
    )


def test_a_reader_that_exits_ends_the_following(tmp_path: Path) -> None:
    job(tmp_path)
    reads, writes = os.pipe()
    os.close(reads)
    ended = called("events --follow", tmp_path, stdout=writes)
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_takes_the_request_back(tmp_path: Path) -> None:
    store, core = job(tmp_path)

    def press() -> None:
        raise KeyboardInterrupt

    with store.writing("now"), pytest.raises(KeyboardInterrupt):
        ask(store, press)(QUARANTINE)
    assert store.inbox.carry_out(core, 2.0, lambda _words: None) == ()
    assert core.nodes["n-2"].status == "healthy"
