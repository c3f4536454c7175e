"""The stacks of ranks: a node's answer, and the lines about it."""

from __future__ import annotations

import pytest

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.jobs.stacks import RankView, detail_lines, grouped, parse_stacks, place_lines
from ascendboot.value import replace

ANSWER = """\
rank 3 4816 S anon_pipe_read
command /opt/venv/bin/python3 train.py\x20
=thread 4816 (python3 (x)) state S, in anon_pipe_read of the kernel, system call 0 0x3 0x7faf
=file descriptor 3: /data/x
=[<0>] anon_pipe_read+0x366/0x410
spy 0
|Process 4816: /opt/venv/bin/python3 train.py
|Python v3.11.7 (/opt/venv/bin/python3.11)
|
|Thread 4914 (active+gil): "loader"
|    loader (loader.py:4)
|Thread 4816/0x7FAF (idle): "MainThread"
|    all_reduce (torch/distributed/distributed_c10d.py:2810)
|    step (train.py:31)
|    _run (other.py:7)
|    <module> (train.py:57)
rank 2 4711 ? -
command\x20
spy 1
|Error: Permission denied (os error 13)
end
"""


def test_an_answer_is_read_whole() -> None:
    second, third = parse_stacks("a", ANSWER)
    assert (third.rank, third.node, third.pid, third.state) == (3, "a", 4816, "S")
    assert third.wchan == "anon_pipe_read"
    assert third.command == "/opt/venv/bin/python3 train.py"
    assert third.frames[1:] == (
        *(("step (train.py:31)", "train.py"), ("_run (other.py:7)", "other.py")),
        ("<module> (train.py:57)", "train.py"),
    )
    assert third.place == (
        " in all_reduce (torch/distributed/distributed_c10d.py:2810), called in step (train.py:31)"
    )
    assert (second.rank, second.wchan, second.frames) == (2, "", ())
    assert place_lines([second, third], [NodeError("b", "could not be asked: why")]) == [
        "rank 2 on a is in state ?",
        "rank 3 on a waits" + third.place,
        (
            "the Python stack of rank 2 is unknown: py-spy has no permission; it needs root "
            "or ptrace_scope 0, in a container the capability SYS_PTRACE"
        ),
        "b: could not be asked: why",
    ]
    text = "\n".join(detail_lines([second, third]))
    for words in (
        "== rank 3 on a, process 4816: /opt/venv/bin/python3 train.py",
        "    _run (other.py:7)",
        "   thread 4816 (python3 (x)) state S, in anon_pipe_read of the kernel, system call 0 0x3",
        "   file descriptor 3: /data/x",
        "   [<0>] anon_pipe_read+0x366/0x410",
        "== rank 2 on a, process 4711: \n   py-spy has no permission",
    ):
        assert words in text


@pytest.mark.parametrize("text", ["end", ANSWER[:-1], ANSWER])
def test_the_last_newline_may_be_missing(text: str) -> None:
    assert parse_stacks("a", text) == parse_stacks("a", text.rstrip("\n") + "\n")


@pytest.mark.parametrize(
    "text", ["", ANSWER[:-5], "what\nend\n", "|0\nend\n", "end\nend\n", "spy 0\nend\n"]
)
def test_an_answer_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        parse_stacks("a", text)


def view(rank: int, state: str = "S", wchan: str = "", **changes: object) -> RankView:
    made = RankView(rank=rank, node="a", pid=rank + 100, state=state, wchan=wchan)
    return replace(made, **changes)  # a test may change any of them


@pytest.mark.parametrize(
    ("seen", "words"), [(view(0, wchan="pipe_read"), " in pipe_read of the kernel"), (view(0), "")]
)
def test_the_place_of_a_rank_without_python_lines(seen: RankView, words: str) -> None:
    assert seen.place == words


def test_ranks_of_one_place_are_one_line_and_the_odd_ones_come_first() -> None:
    views = [view(n, wchan="futex_wait_queue") for n in range(1000) if n != 7]
    assert [line for _, line in grouped([*views, view(7, "T", "pipe_read")])] == [
        "rank 7 on a is stopped by a signal (state T) in pipe_read of the kernel",
        "ranks 0-6,8-999 wait in futex_wait_queue of the kernel",
    ]


def test_too_many_places_are_counted() -> None:
    lines = place_lines([view(n, wchan=f"call_{n}", spy_code=137) for n in range(20)], [])
    assert len(lines) == 10
    assert lines[8:] == [
        "12 more ranks are in 12 other places",
        (
            "the Python stack of ranks 0-19 is unknown: py-spy gave no answer in time; "
            "the node may be overloaded, try again"
        ),
    ]


def test_why_there_are_no_python_lines() -> None:
    assert view(0).no_stack_reason == "py-spy is neither beside code.python nor on PATH"
    assert view(0, spy_code=0).no_stack_reason == "py-spy found no Python in it"
    odd = view(0, spy_code=1, spy_lines=["Error: Failed to find python", "", "Caused by:"])
    assert odd.no_stack_reason == "py-spy failed: Failed to find python"
