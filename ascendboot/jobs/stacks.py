"""The Python stacks of running ranks, and what they wait for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.model.names import ranks_named
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, Result, Transport
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path, PurePosixPath


_SHOWN_PLACES: Final = 8

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "R": ("is busy", "are busy"),
    "S": ("waits", "wait"),
    "D": ("sleeps uninterruptibly (state D)", "sleep uninterruptibly (state D)"),
    "T": ("is stopped by a signal (state T)", "are stopped by a signal (state T)"),
    "t": ("is held by a debugger (state t)", "are held by a debugger (state t)"),
    "Z": ("is a zombie (not reaped)", "are zombies (not reaped)"),
}
"""By state of the first thread: the verb for one rank, and for several."""

_WITH_FILE: Final = frozenset(
    (
        *("read", "write", "readv", "writev", "pread", "pwrite", "ioctl", "fsync", "fdatasync"),
        *("fcntl", "flock", "connect", "accept", "sendto", "recvfrom", "sendmsg", "recvmsg"),
    )
)
"""Calls whose first argument is an open file."""

_CALLS: Final[Mapping[str, Mapping[int, str]]] = {
    "x86_64": {
        0: "read",
        1: "write",
        7: "poll",
        16: "ioctl",
        17: "pread",
        18: "pwrite",
        19: "readv",
        20: "writev",
        23: "select",
        34: "pause",
        35: "nanosleep",
        42: "connect",
        43: "accept",
        44: "sendto",
        45: "recvfrom",
        46: "sendmsg",
        47: "recvmsg",
        61: "wait4",
        72: "fcntl",
        73: "flock",
        74: "fsync",
        75: "fdatasync",
        130: "rt_sigsuspend",
        202: "futex",
        230: "clock_nanosleep",
        232: "epoll_wait",
        247: "waitid",
        257: "openat",
        262: "stat",
        270: "pselect6",
        271: "ppoll",
        281: "epoll_pwait",
        288: "accept",
        332: "statx",
    },
    "aarch64": {
        22: "epoll_pwait",
        25: "fcntl",
        29: "ioctl",
        32: "flock",
        56: "openat",
        63: "read",
        64: "write",
        65: "readv",
        66: "writev",
        67: "pread",
        68: "pwrite",
        72: "pselect6",
        73: "ppoll",
        79: "stat",
        82: "fsync",
        83: "fdatasync",
        95: "waitid",
        98: "futex",
        101: "nanosleep",
        115: "clock_nanosleep",
        133: "rt_sigsuspend",
        202: "accept",
        203: "connect",
        206: "sendto",
        207: "recvfrom",
        211: "sendmsg",
        212: "recvmsg",
        242: "accept",
        260: "wait4",
        291: "statx",
    },
}
"""Linux's numbers of calls that wait, by machine."""

_REMEDY: Final[Mapping[str, str]] = {
    "py-spy is neither beside code.python nor on PATH": "install it there to see Python lines",
    "py-spy may not look into it": "it needs root or ptrace_scope 0, in a container the capability"
    " SYS_PTRACE",
}


def place_lines(views: Sequence[RankView], problems: Iterable[NodeError]) -> list[str]:
    """A line for each place where ranks are, fewest ranks first; then what is unknown and why."""
    places = grouped(views)
    lines = [line for _, line in places[:_SHOWN_PLACES]]
    if more := places[_SHOWN_PLACES:]:
        count = sum(len(ranks) for ranks, _ in more)
        lines.append(f"{count} more ranks are in {len(more)} other places")
    lines += _without_stacks(views)
    lines += [str(problem) for problem in problems]
    return lines


def grouped(views: Iterable[RankView]) -> list[tuple[tuple[int, ...], str]]:
    """The ranks of each place, and the sentence about them; fewest ranks first."""
    groups: dict[tuple[str, str], list[RankView]] = {}
    for view in views:
        groups.setdefault((_state(view), place(view)), []).append(view)
    ordered = sorted(groups.items(), key=lambda item: (len(item[1]), item[1][0].rank))
    return [
        (tuple(view.rank for view in members), _sentence(state, where, members))
        for (state, where), members in ordered
    ]


def place(view: RankView) -> str:
    """Where a rank is: ` in FUNCTION (FILE:LINE), called in …: read of /data/x`; may be empty."""
    call, frames = call_words(view), view.frames
    if not frames:
        where = call or _kernel_words(view)
        return f" in {where}" if where else ""
    own = _own(frames)
    words = f" in {frames[0]}" + (f", called in {own}" if own != frames[0] else "")
    return f"{words}: {call}" if " of " in call else words


def call_words(view: RankView) -> str:
    """The system call of the first thread: `read of /data/x`; empty: unknown."""
    first = view.threads[0] if view.threads else None
    number = first.syscall.partition(" ")[0] if first is not None else ""
    if not number.isdigit():
        return ""
    name = _CALLS.get(view.machine, {}).get(int(number), f"system call {number}")
    return f"{name} of {_file_words(view.file)}" if view.file and name in _WITH_FILE else name


def whole(views: Iterable[RankView]) -> list[str]:
    """The details of every rank, for a file."""
    lines: list[str] = []
    for view in views:
        lines += ["", f"== rank {view.rank} on {view.node}, process {view.pid}: {view.command}"]
        if view.spy_code == 0:
            lines += view.spy_lines
        else:
            lines.append(f"   {view.no_stack_reason}")
        lines += [f"   {_thread_words(thread)}" for thread in view.threads]
        if hidden := view.thread_count - len(view.threads):
            lines.append(f"   and {hidden} more threads")
        if call := call_words(view):
            lines.append(f"   the first one is in {call}")
        lines += [f"   {line}" for line in view.kernel]
    return lines


def _sentence(state: str, where: str, members: Sequence[RankView]) -> str:
    one, several = _VERBS.get(state, (f"is in state {state}", f"are in state {state}"))
    names = ranks_named([view.rank for view in members])
    if len(members) > 1:
        return f"{names} {several}{where}"
    return f"{names} on {members[0].node} {one}{where}"


def _state(view: RankView) -> str:
    return view.threads[0].state if view.threads else "?"


def _kernel_words(view: RankView) -> str:
    wchan = view.threads[0].wchan if view.threads else ""
    return f"{wchan} of the kernel" if wchan else ""


def _own(frames: Sequence[Frame]) -> Frame:
    """The innermost frame in the file where the stack begins: the script."""
    begin = next((f.file for f in reversed(frames) if "runpy" not in f.file), frames[-1].file)
    return next(frame for frame in frames if frame.file == begin)


def _file_words(target: str) -> str:
    kind = target.partition(":")[0]
    return f"a {kind}" if kind in ("pipe", "socket") else target


def _thread_words(thread: ThreadView) -> str:
    words = f"thread {thread.tid} ({thread.name}) state {thread.state}"
    if thread.wchan:
        words += f", in {thread.wchan} of the kernel"
    return f"{words}, system call {thread.syscall}" if thread.syscall else words


def _without_stacks(views: Iterable[RankView]) -> list[str]:
    reasons: dict[str, list[int]] = {}
    for view in views:
        if why := view.no_stack_reason:
            reasons.setdefault(why, []).append(view.rank)
    return [
        f"the Python lines of {ranks_named(ranks)} are not known: {why}"
        + (f"; {_REMEDY[why]}" if why in _REMEDY else "")
        for why, ranks in reasons.items()
    ]


_ASK_S: Final = 5.0
_LINE = re.compile(
    r"(machine|spy|rank|thread|wchan|syscall|file|kernel|command|threads|end)(?: (.*))?"
)
_FRAME = re.compile(r" {4}(.+) \((.+?)(?::(\d+))?\)")
_THREAD = re.compile(r'Thread (\d+)(?:/\S+)? \([^()]*\)(?:: ".*")?')


@dataclass
class ThreadView:
    """One thread as the kernel shows it; what it does not show is empty."""

    tid: int
    state: str
    name: str
    wchan: str = ""
    """The kernel function in which it waits."""
    syscall: str = ""
    """The number of its call and the arguments, or `running`."""


@dataclass(frozen=True)
class Frame:
    """One level of a Python stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.function} ({where})"


@dataclass
class RankView:
    """Where one rank is."""

    rank: int
    node: str
    pid: int
    machine: str = ""
    threads: list[ThreadView] = field(default_factory=list)
    """The first one first; at most 65."""
    thread_count: int = 0
    file: str = ""
    """The file of the first thread's call, if its first argument is one."""
    kernel: list[str] = field(default_factory=list)
    command: str = ""
    spy_lines: list[str] = field(default_factory=list)
    """The output of py-spy, line by line."""
    spy_code: int | None = None
    """Its exit code; None: there is no py-spy."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The Python stack of the main thread, innermost first; empty when unknown."""
        if self.spy_code != 0:
            return ()
        stacks = _stacks(self.spy_lines)
        return stacks.get(str(self.pid)) or next(iter(stacks.values()), ())

    @property
    def no_stack_reason(self) -> str:
        """Why its Python stack is unknown; empty when it is known."""
        if self.spy_code is None:
            return "py-spy is neither beside code.python nor on PATH"
        if self.spy_code == 0:
            return "" if self.frames else "py-spy found no Python in it"
        if self.spy_code in (124, 137):
            return "py-spy gave no answer in time; the node may be overloaded, try again"
        said = [line for line in self.spy_lines if line.strip()]
        text = " ".join(said)
        if "Permission denied" in text or "Operation not permitted" in text:
            return "py-spy may not look into it"
        return f"py-spy said: {said[0].removeprefix('Error: ')}" if said else "py-spy said nothing"


def gather(
    transports: Mapping[str, Transport],
    folder: PurePosixPath,
    python: str,
    *,
    forks: int,
) -> dict[str, tuple[RankView, ...] | NodeError]:
    """Read where the ranks of the job in `folder` are, by node; one execution each."""
    command = Command(
        argv=("bash", "-c", script("jobs-stacks.sh"), "stacks", str(folder), python, f"{_ASK_S:g}"),
        purpose=f"see where the ranks of job {folder.name} are",
        effect=Effect.READ,
        timeout_s=60.0,
    )
    return on_each(transports, lambda node: _viewed(transports[node].run(command)), forks=forks)


def parse_stacks(node: str, text: str) -> tuple[RankView, ...]:
    """Parse the output of `jobs-stacks.sh`, ranks ascending.

    Raises:
        NotUnderstoodError: a line has an unknown form, or the end is missing.
    """
    views: list[RankView] = []
    machine = ""
    kind = ""
    # Not splitlines: a path or command may hold what only Python takes for an end of line.
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|") and views:
            _add_spy_line(views[-1], line[1:])
            continue
        match = _LINE.fullmatch(line)
        if match is None and kind == "end" and not line:
            break
        if match is None or kind == "end":
            raise NotUnderstoodError("where ranks are", number, line, "a rank, its threads or end")
        kind, rest = match[1], match[2] or ""
        if kind == "machine":
            machine = rest
        elif kind == "rank":
            rank, _, pid = rest.partition(" ")
            views.append(RankView(int(rank), node, int(pid), machine))
        elif kind not in ("spy", "end"):
            _take(views[-1], kind, rest)
    if kind != "end":
        raise NotUnderstoodError("where ranks are", number, line, "end")
    return tuple(sorted(views, key=lambda view: view.rank))


def _viewed(result: Result) -> tuple[RankView, ...]:
    text = result.checked().text
    try:
        return parse_stacks(result.node, text)
    except (NotUnderstoodError, ValueError, IndexError) as error:
        raise CommandError(result.node, f"could not {result.command.purpose}: {error}") from error


def _take(view: RankView, kind: str, rest: str) -> None:
    match kind:
        case "thread":
            tid, state, name = rest.split(" ", 2)
            view.threads.append(ThreadView(int(tid), state, name))
        case "wchan":
            view.threads[-1].wchan = rest
        case "syscall":
            view.threads[-1].syscall = rest
        case "file":
            view.file = rest
        case "kernel":
            view.kernel.append(rest)
        case "command":
            view.command = rest.strip()
        case "threads":
            view.thread_count = int(rest)
        case _:
            pass


def _add_spy_line(view: RankView, line: str) -> None:
    if view.spy_code is None:
        view.spy_code = int(line)
    else:
        view.spy_lines.append(line)


def _stacks(lines: list[str]) -> dict[str, tuple[Frame, ...]]:
    """By number of the thread: its frames, innermost first."""
    stacks: dict[str, tuple[Frame, ...]] = {}
    thread: str | None = None
    for line in lines:
        if match := _THREAD.fullmatch(line):
            thread = match[1]
            stacks[thread] = ()
        elif thread is not None and (match := _FRAME.fullmatch(line)):
            stacks[thread] += (Frame(match[1], match[2], int(match[3] or 0)),)
    return stacks


@dataclass(frozen=True)
class RankStacks:
    """Where the ranks of a job are."""

    lines: tuple[str, ...]
    """A line for each place, rare ones first, and what is unknown."""
    file: Path | None
    """The file with all details; None when it could not be written."""


def read_stacks(
    transports: Mapping[str, Transport],
    job_folder: PurePosixPath,
    python: str,
    *,
    folder: Path,
    why: str,
    forks: int,
) -> RankStacks:
    """Read where the ranks are; details go to `WHY-TIME.txt` in `folder`, that of the run."""
    answers = gather(transports, job_folder, python, forks=forks)
    views: list[RankView] = []
    problems: list[NodeError] = []
    for answer in answers.values():
        if isinstance(answer, NodeError):
            problems.append(answer)
        else:
            views += answer
    views.sort(key=lambda view: view.rank)
    lines = place_lines(views, problems)
    now = datetime.now(timezone.utc)
    file = folder / f"{why}-{now:%Y%m%d-%H%M%S}.txt"
    head = f"job {job_folder.name}, {now.isoformat(timespec='seconds')}"
    words = "\n".join((head, *lines, *whole(views), ""))
    try:
        file.write_bytes(words.encode(errors="backslashreplace"))
    except OSError as error:
        lines.append(f"{file}: could not be kept: {error.strerror or error}")
        return RankStacks(tuple(lines), None)
    return RankStacks(tuple(lines), file)
