"""What is said before a job, and what becomes of what earlier jobs left."""

from __future__ import annotations

import io
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from ascendboot.cli.launch import StartRules, free_nodes, start_rules
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError
from ascendboot.model.cluster import NodeClocks
from ascendboot.readiness.ready import Readiness
from ascendboot.readiness.requirements import Leftover
from ascendboot.templates import script
from ascendboot.transport.fake import FakeTransport

if TYPE_CHECKING:
    from ascendboot.transport.api import Command

OLD = Leftover("old", PurePosixPath("/b/jobs/old"), {"lab-2": (5,)})
LEFT = "lab-2: 1 process is left of job old"
KEEP = StartRules(skipped=(), ends_leftovers=False)
END = StartRules(skipped=(), ends_leftovers=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def node(said: str = "ended 5 sleep 600\n") -> FakeTransport:
    def swept(command: Command) -> str | None:
        return said if command.argv[2] == script("jobs-sweep.sh") else None

    return FakeTransport("lab-2", rules=(swept,))


def settled(
    rules: StartRules, there: FakeTransport, *problems: str, planning: bool = False
) -> None:
    ready = Readiness(
        script=PurePosixPath("/main.py"),
        is_copied=False,
        problems=problems,
        warnings=("lab-1: it is late",),
        leftovers=(OLD,),
        left=(LEFT,),
        clocks=NodeClocks(),
        image={},
    )
    screen = Screen(json_mode=True)
    free_nodes(ready, {"lab-2": there}, rules, screen, planning=planning, grace_s=1.5, forks=2)


def refusal(rules: StartRules, there: FakeTransport, *problems: str, planning: bool = False) -> str:
    with pytest.raises(LaunchError) as refused:
        settled(rules, there, *problems, planning=planning)
    return str(refused.value)


def test_without_a_terminal_leftovers_are_named_and_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    there = node()
    assert refusal(KEEP, there) == f"{LEFT}\nThe job was not started."
    assert refusal(KEEP, there, "lab-1: no") == f"lab-1: no\n{LEFT}\nThe job was not started."
    assert refusal(END, there, planning=True) == f"{LEFT}\nThe job was not started."
    assert there.commands == []
    assert capsys.readouterr().err == "warning: lab-1: it is late\n" * 3


def test_with_the_flag_they_are_ended(capsys: pytest.CaptureFixture[str]) -> None:
    there = node()
    settled(END, there)
    assert [command.argv[4:] for command in there.commands] == [("/b/jobs/old", "0", "15")]
    said = "warning: lab-1: it is late\nlab-2: 1 process of job old ended\n"
    assert capsys.readouterr().err == said
    assert refusal(END, node("left 5 python3 main.py\n")) == (
        "lab-2: could not end process 5 of job old: it survived SIGKILL (python3 main.py); "
        "it may wait for the NPU driver: see dmesg\nThe job was not started."
    )


@pytest.mark.parametrize(("answer", "ended"), [("y\n", 1), ("Yes\n", 1), ("\n", 0), ("", 0)])
def test_at_a_terminal_the_operator_is_asked(
    monkeypatch: pytest.MonkeyPatch, answer: str, ended: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    there = node()
    if ended:
        settled(KEEP, there)
    else:
        assert refusal(KEEP, there) == f"{LEFT}\nThe job was not started."
    assert len(there.commands) == ended


def test_what_is_skipped_is_noted() -> None:
    assert start_rules("disk,code", stop_leftovers=True) == StartRules(
        skipped=("code", "disk"), ends_leftovers=True
    )
    assert start_rules("disk,code", stop_leftovers=True).notes == (
        "not checked before the start: code, disk",
    )
    assert KEEP.notes == ()
