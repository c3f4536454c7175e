"""Where ranks wait, in words: ranks of one place together, the odd ones first; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ascendboot.model.names import ranks_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ascendboot.errors import NodeError
    from ascendboot.launch.stacks import Frame, RankView, ThreadView

_SHOWN_PLACES: Final = 8

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "R": ("is busy", "are busy"),
    "S": ("waits", "wait"),
    "D": ("sleeps uninterruptibly (state D)", "sleep uninterruptibly (state D)"),
    "T": ("is stopped by a signal (state T)", "are stopped by a signal (state T)"),
    "t": ("is held by a debugger (state t)", "are held by a debugger (state t)"),
    "Z": ("has ended and nobody asked how", "have ended and nobody asked how"),
}
"""By state of the first thread: what one rank does, and what several do."""

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


def told(views: Sequence[RankView], problems: Iterable[NodeError]) -> list[str]:
    """A line for each place where ranks are, fewest ranks first; then what is not known and why."""
    places = grouped(views)
    lines = [line for _, line in places[:_SHOWN_PLACES]]
    if more := places[_SHOWN_PLACES:]:
        count = sum(len(ranks) for ranks, _ in more)
        lines.append(f"{count} more ranks are in {len(more)} other places")
    lines += _not_spied(views)
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
    """The call in which the first thread of a rank is: `read of /data/x`; empty: not known."""
    first = view.threads[0] if view.threads else None
    number = first.syscall.partition(" ")[0] if first is not None else ""
    if not number.isdigit():
        return ""
    name = _CALLS.get(view.machine, {}).get(int(number), f"system call {number}")
    return f"{name} of {_file_words(view.file)}" if view.file and name in _WITH_FILE else name


def whole(views: Iterable[RankView]) -> list[str]:
    """All that is known of every rank, for a file."""
    lines: list[str] = []
    for view in views:
        lines += ["", f"== rank {view.rank} on {view.node}, process {view.pid}: {view.command}"]
        if view.spy_code == 0:
            lines += view.spied
        else:
            lines.append(f"   {view.why_not_spied}")
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
    """The innermost frame in the file of the script, where the stack begins."""
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


def _not_spied(views: Iterable[RankView]) -> list[str]:
    reasons: dict[str, list[int]] = {}
    for view in views:
        if why := view.why_not_spied:
            reasons.setdefault(why, []).append(view.rank)
    return [
        f"the Python lines of {ranks_named(ranks)} are not known: {why}"
        + (f"; {_REMEDY[why]}" if why in _REMEDY else "")
        for why, ranks in reasons.items()
    ]
