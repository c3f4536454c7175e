"""The files of a supervised job: one writer, atomic state, events that survive a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Core
from ascendboot.supervise.policy import Limits
from ascendboot.supervise.store import Store

SINCE = "2026-11-21T06:00:00Z"


def test_state_and_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "job")
    assert (store.read_state(), store.read_events()) == (None, [])
    with store.writing(SINCE) as writer:
        core = Core(("n1",), 8, Parallel(), Limits(), on_event=writer.event)
        core.begin(1.0)
        writer.state(core.to_json())
    assert store.read_state() == core.to_json()
    assert [event["event"] for event in store.read_events()] == [
        *("preflight", "planning", "launching")
    ]
    assert [path.stat().st_mode & 0o777 for path in (store.state, store.events)] == [0o600] * 2
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in store.folder.iterdir()) == [
        *("events.jsonl", "lock", "state.json")
    ]


def test_a_second_writer_is_refused_and_names_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.writing(SINCE):
        with pytest.raises(UsageError, match=rf"\(host .+, pid \d+, since {SINCE}\)"):  # noqa: SIM117
            with store.writing("later"):
                pytest.fail("two writers")
        assert store.read_events() == []
    with store.writing("later"):
        assert "since later" in (tmp_path / "lock").read_text()


def test_a_killed_writer_holds_no_lock_and_its_torn_line_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from ascendboot.supervise.store import Store\n"
        "with Store(Path(sys.argv[1])).writing('before') as writer:\n"
        "    writer.event({'event': 'one'})\n"
        "    with open(writer.store.events, 'a') as file: file.write('{\"event\": \"tw')\n"
        "    os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == 9
    store = Store(tmp_path)
    assert store.read_events() == [{"event": "one"}]
    with store.writing(SINCE) as writer:
        writer.event({"event": "three"})
    assert store.read_events() == [{"event": "one"}, {"event": "three"}]


@pytest.mark.parametrize("line", ["{", "[]", "", "{} {}", "\x00"])
def test_any_other_broken_line_is_refused(tmp_path: Path, line: str) -> None:
    store = Store(tmp_path)
    store.events.write_text(f"{{}}\n{line}\n{{}}\n")
    with pytest.raises(AscendbootError, match=r"events\.jsonl:2: "):
        store.read_events()


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_broken_state_file_is_refused(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    store.state.write_text(text)
    with pytest.raises(AscendbootError, match=r"state\.json: is not"):
        store.read_state()
