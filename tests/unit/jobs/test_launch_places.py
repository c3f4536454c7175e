"""What a node says of where its ranks are, as values and in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.jobs.stacks import (
    Frame,
    RankView,
    ThreadView,
    call_words,
    grouped,
    parse_stacks,
    place,
    place_lines,
    whole,
)

ANSWER = """\
machine x86_64
spy /opt/venv/bin/py-spy
rank 3 4816
thread 4816 S python3 (x)
wchan anon_pipe_read
syscall 0 0x3 0x7faf31111910 0x1 0x5560f1ec0260 0x0 0x0 0x7ffca58ae9e0 0x7faf313162ec
file /data/x
kernel [<0>] anon_pipe_read+0x366/0x410
command /opt/venv/bin/python3 train.py\x20
thread 4914 R loader
syscall running
threads 2
|0
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
rank 2 4711
threads 1
|1
|Error: Permission denied (os error 13)
end
"""


def test_an_answer_is_read_whole() -> None:
    second, third = parse_stacks("a", ANSWER)
    assert (third.rank, third.node, third.pid, third.machine) == (3, "a", 4816, "x86_64")
    assert third.threads == [
        ThreadView(
            4816,
            "S",
            "python3 (x)",
            "anon_pipe_read",
            "0 0x3 0x7faf31111910 0x1 0x5560f1ec0260 0x0 0x0 0x7ffca58ae9e0 0x7faf313162ec",
        ),
        ThreadView(4914, "R", "loader", "", "running"),
    ]
    assert (third.command, third.thread_count) == ("/opt/venv/bin/python3 train.py", 2)
    assert third.frames == (
        Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2810),
        Frame("step", "train.py", 31),
        Frame("_run", "other.py", 7),
        Frame("<module>", "train.py", 57),
    )
    assert place(third) == (
        " in all_reduce (torch/distributed/distributed_c10d.py:2810), called in step (train.py:31):"
        " read of /data/x"
    )
    assert (second.rank, second.threads, second.frames) == (2, [], ())
    assert place_lines([second, third], [NodeError("b", "could not be asked: why")]) == [
        "rank 2 on a is in state ?",
        "rank 3 on a waits" + place(third),
        (
            "the Python lines of rank 2 are not known: py-spy may not look into it; it needs root "
            "or ptrace_scope 0, in a container the capability SYS_PTRACE"
        ),
        "b: could not be asked: why",
    ]
    text = "\n".join(whole([second, third]))
    for words in (
        "== rank 3 on a, process 4816: /opt/venv/bin/python3 train.py",
        "    _run (other.py:7)",
        "   thread 4914 (loader) state R, system call running",
        "   the first one is in read of /data/x",
        "   [<0>] anon_pipe_read+0x366/0x410",
        "== rank 2 on a, process 4711: \n   py-spy may not look into it",
    ):
        assert words in text


@pytest.mark.parametrize(
    "text", ["", "end", ANSWER[:-1], ANSWER[:-5], "what\nend\n", "|0\nend\n", "end\nend\n"]
)
def test_an_answer_that_is_not_whole_is_refused(text: str) -> None:
    if text in ("end", ANSWER[:-1]):  # its last newline tells nothing
        parse_stacks("a", text)
        return
    with pytest.raises(NotUnderstoodError):
        parse_stacks("a", text)


def view(rank: int, state: str = "S", syscall: str = "", **changes: object) -> RankView:
    thread = ThreadView(rank + 100, state, "python", "", syscall)
    made = RankView(rank, "a", rank + 100, "aarch64", [thread], 1)
    return replace(made, **changes)  # type: ignore[arg-type]  # a test may change any of them


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (view(0, syscall="63 0x3", file="/data/x"), "read of /data/x"),
        (view(0, syscall="63 0x3", file="pipe:[77]"), "read of a pipe"),
        (view(0, syscall="207 0x3", file="socket:[77]"), "recvfrom of a socket"),
        (view(0, syscall="98 0x3", file="/data/x"), "futex"),  # an address, not a file
        (view(0, syscall="9999 0x3"), "system call 9999"),
        (view(0, syscall="running"), ""),
        (view(0, syscall="-1 0x7ff 0x7ff"), ""),
        (view(0, syscall="63 0x3", machine="riscv64"), "system call 63"),
        (view(0), ""),
    ],
)
def test_the_call_in_which_a_rank_is(seen: RankView, words: str) -> None:
    assert call_words(seen) == words


def test_what_the_kernel_alone_says() -> None:
    seen = view(5, "D")
    seen.threads[0].wchan = "nfs_wait_bit_killable"
    assert grouped([seen]) == [
        (
            (5,),
            "rank 5 on a sleeps uninterruptibly (state D) in nfs_wait_bit_killable of the kernel",
        )
    ]


def test_ranks_of_one_place_are_one_line_and_the_odd_ones_come_first() -> None:
    views = [view(n, syscall="98 0x1") for n in range(1000) if n != 7]
    assert [line for _, line in grouped([*views, view(7, "T", "63 0x3")])] == [
        "rank 7 on a is stopped by a signal (state T) in read",
        "ranks 0-6,8-999 wait in futex",
    ]


def test_too_many_places_are_counted() -> None:
    lines = place_lines([view(n, syscall=str(5000 + n), spy_code=124) for n in range(20)], [])
    assert len(lines) == 10
    assert lines[8:] == [
        "12 more ranks are in 12 other places",
        (
            "the Python lines of ranks 0-19 are not known: py-spy gave no answer in time; "
            "the node may be overloaded, try again"
        ),
    ]


def test_why_there_are_no_python_lines() -> None:
    assert view(0).no_stack_reason == "py-spy is neither beside code.python nor on PATH"
    assert view(0, spy_code=0).no_stack_reason == "py-spy found no Python in it"
    odd = view(0, spy_code=1, spy_lines=["Error: Failed to find python", "", "Caused by:"])
    assert odd.no_stack_reason == "py-spy said: Failed to find python"
    assert view(0, spy_code=137).no_stack_reason == (
        "py-spy gave no answer in time; the node may be overloaded, try again"
    )
