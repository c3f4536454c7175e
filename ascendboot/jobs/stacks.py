"""The Python stacks of running ranks, and what they wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from ascendboot.errors import NodeError, NotUnderstoodError
from ascendboot.model.names import ranks_named
from ascendboot.templates import script
from ascendboot.transport.api import Transport, read_script
from ascendboot.transport.pool import results_and_errors
from ascendboot.value import Struct, field

_SHOWN_PLACES: Final = 8
_SPY_S: Final = 5.0

_VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "R": ("is busy", "are busy"),
    "S": ("waits", "wait"),
    "D": ("sleeps uninterruptibly (state D)", "sleep uninterruptibly (state D)"),
    "T": ("is stopped by a signal (state T)", "are stopped by a signal (state T)"),
    "t": ("is held by a debugger (state t)", "are held by a debugger (state t)"),
    "Z": ("is a zombie (not reaped)", "are zombies (not reaped)"),
}
"""By state of the first thread: the verb for one rank, and for several."""

_NO_SPY: Final = "py-spy is neither beside code.python nor on PATH"
_SPY_REFUSED: Final = "py-spy has no permission"
_REMEDY: Final[Mapping[str, str]] = {
    _NO_SPY: "install it there to see Python lines",
    _SPY_REFUSED: "it needs root or ptrace_scope 0, in a container the capability SYS_PTRACE",
}

_COLLECTIVE: Final = re.compile(
    r"(?i)all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|bcast"
)
_ELSEWHERE: Final = re.compile(r"nanosleep|pipe|read|write|folio|page|inode|nfs|fuse|rpc")
"""Kernel functions of sleep and files. Any other may be a wait for the device or a peer."""
_RANK: Final = re.compile(r"rank (\d+) (\d+) (\S) (\S+)")
_FRAME: Final = re.compile(r" {4}(.+ \((.+?)(?::\d+)?\))")
_THREAD: Final = re.compile(r'Thread (\d+)(?:/\S+)? \([^()]*\)(?:: ".*")?')


class Frame(NamedTuple):
    """One level of a Python stack."""

    text: str
    """`FUNCTION (FILE:LINE)`."""
    file: str


class RankView(Struct, kw_only=True):
    """The state and stacks of one rank."""

    rank: int
    node: str
    pid: int
    state: str
    """Of its first thread, one letter as `ps` shows it."""
    wchan: str = ""
    """The kernel function in which that thread waits; empty: none, or not shown."""
    command: str = ""
    spy_code: int | None = None
    """The exit code of py-spy; None: there is no py-spy."""
    spy_lines: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The Python stack of the main thread, innermost first; empty when unknown."""
        stacks: dict[str, tuple[Frame, ...]] = {}
        thread = ""
        for line in self.spy_lines if self.spy_code == 0 else ():
            if match := _THREAD.fullmatch(line):
                thread = match[1]
                stacks[thread] = ()
            elif thread and (match := _FRAME.fullmatch(line)):
                stacks[thread] += (Frame(*match.groups()),)
        return stacks.get(str(self.pid)) or next(iter(stacks.values()), ())

    @property
    def in_collective(self) -> bool | None:
        """Whether it is in a collective; None: unknown, as it may wait for its device."""
        if any(_COLLECTIVE.search(frame.text.partition(" (")[0]) for frame in self.frames):
            return True
        is_elsewhere = self.state in "Tt" or _ELSEWHERE.search(self.wchan)
        return False if self.frames and is_elsewhere else None

    @property
    def no_stack_reason(self) -> str:
        """Why its Python stack is unknown; empty when it is known."""
        if self.spy_code is None:
            return _NO_SPY
        if self.spy_code == 0:
            return "" if self.frames else "py-spy found no Python in it"
        if self.spy_code in (124, 137):
            return "py-spy gave no answer in time; the node may be overloaded, try again"
        printed = [line.removeprefix("Error: ") for line in self.spy_lines if line.strip()]
        if any("Permission denied" in s or "Operation not permitted" in s for s in printed):
            return _SPY_REFUSED
        return f"py-spy failed: {printed[0] if printed else 'no message'}"

    @property
    def place(self) -> str:
        """Where it is: ` in FUNCTION (FILE:LINE), called in …`; may be empty."""
        if not (frames := self.frames):
            return f" in {self.wchan} of the kernel" if self.wchan else ""
        # The script is the file where the stack begins; shown is its innermost line.
        script_file = next((f.file for f in frames[::-1] if "runpy" not in f.file), "")
        own = next((f for f in frames if f.file == script_file), frames[-1])
        called_in = f", called in {own.text}" if own != frames[0] else ""
        return f" in {frames[0].text}{called_in}"


def grouped(views: Iterable[RankView]) -> list[tuple[tuple[int, ...], str]]:
    """The ranks of each place, and the sentence about them; fewest ranks first."""
    groups: dict[tuple[str, str], list[RankView]] = {}
    for view in views:
        groups.setdefault((view.state, view.place), []).append(view)
    found = []
    for (state, place), members in groups.items():
        ranks = tuple(view.rank for view in members)
        one, several = _VERBS.get(state, (f"is in state {state}", f"are in state {state}"))
        on = f" on {members[0].node} {one}" if len(ranks) == 1 else f" {several}"
        found.append((ranks, f"{ranks_named(ranks)}{on}{place}"))
    return sorted(found, key=lambda group: (len(group[0]), group[0]))


def place_lines(views: Sequence[RankView], problems: Iterable[NodeError]) -> list[str]:
    """A line for each place where ranks are, fewest ranks first; then what is unknown and why."""
    places = grouped(views)
    lines = [line for _, line in places[:_SHOWN_PLACES]]
    if more := places[_SHOWN_PLACES:]:
        count = sum(len(ranks) for ranks, _ in more)
        lines.append(f"{count} more ranks are in {len(more)} other places")
    unknown: dict[str, list[int]] = {}
    for view in views:
        if why := view.no_stack_reason:
            unknown.setdefault(why, []).append(view.rank)
    for why, ranks in unknown.items():
        remedy = f"; {_REMEDY[why]}" if why in _REMEDY else ""
        lines.append(f"the Python stack of {ranks_named(ranks)} is unknown: {why}{remedy}")
    return [*lines, *map(str, problems)]


def detail_lines(views: Iterable[RankView]) -> list[str]:
    """The details of every rank, for a file."""
    lines: list[str] = []
    for view in views:
        lines += ["", f"== rank {view.rank} on {view.node}, process {view.pid}: {view.command}"]
        lines += view.spy_lines if view.spy_code == 0 else [f"   {view.no_stack_reason}"]
        lines += [f"   {line}" for line in view.details]
    return lines


def parse_stacks(node: str, text: str) -> tuple[RankView, ...]:
    """Parse the output of `jobs-stacks.sh`, ranks ascending."""
    views: list[RankView] = []
    # Not splitlines: a path or command may contain other line separators of Python.
    *lines, last = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        kind, _, rest = line.partition(" ")
        if match := _RANK.fullmatch(line):
            rank, pid, state, wchan = match.groups()
            wchan = "" if wchan in ("-", "0") else wchan
            views.append(
                RankView(rank=int(rank), node=node, pid=int(pid), state=state, wchan=wchan)
            )
        elif views and line.startswith("|"):
            views[-1].spy_lines.append(line[1:])
        elif views and line.startswith("="):
            views[-1].details.append(line[1:])
        elif views and kind == "command":
            views[-1].command = rest.strip()
        elif views and kind == "spy" and rest.isdecimal():
            views[-1].spy_code = int(rest)
        else:
            raise NotUnderstoodError("where ranks are", number, line, "a rank, its threads or end")
    if last != "end":
        raise NotUnderstoodError("where ranks are", len(lines) + 1, last, "end")
    return tuple(sorted(views, key=lambda view: view.rank))


def read_stacks(
    transports: Mapping[str, Transport],
    job_folder: PurePosixPath,
    python: str,
    *,
    folder: Path,
    why: str,
    forks: int,
) -> tuple[list[str], Path | None]:
    """Read where the ranks are; return lines, and the file with details (None: not written)."""
    command = read_script(
        script("jobs-stacks.sh"),
        *(str(job_folder), python, f"{_SPY_S:g}"),
        purpose=f"see where the ranks of job {job_folder.name} are",
        timeout_s=60.0,
    )

    def views_on(node: str) -> tuple[RankView, ...]:
        result = transports[node].run(command).checked()
        try:
            return parse_stacks(node, result.text)
        except NotUnderstoodError as error:
            raise result.failed(error) from error

    by_node, errors = results_and_errors(transports, views_on, forks=forks)
    views = sorted(chain.from_iterable(by_node.values()), key=lambda view: view.rank)
    lines = place_lines(views, errors.values())
    now = datetime.now(timezone.utc)
    file = folder / f"{why}-{now:%Y%m%d-%H%M%S}.txt"
    head = f"job {job_folder.name}, {now.isoformat(timespec='seconds')}"
    text = "\n".join((head, *lines, *detail_lines(views), ""))
    try:
        file.write_bytes(text.encode(errors="backslashreplace"))
    except OSError as error:
        return [*lines, f"{file}: could not be written: {error.strerror or error}"], None
    return lines, file
