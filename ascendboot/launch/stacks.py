"""Where the ranks of a job are: asked of each node in one execution that changes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ascendboot.errors import CommandError, NodeError, NotUnderstoodError
from ascendboot.launch.usage import USAGE
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.pool import on_each

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath

    from ascendboot.transport.api import Result, Transport

STACKS: Final = (
    r"""
job=$1 python=$2 limit=$3
"""
    + USAGE
    + r"""
find_spy() {
  local found
  set -- "${job%/jobs/*}/env/node.env" "$python"  # the inventory may have any other variables
  [ ! -r "$1" ] || . "$1" >/dev/null
  found=$(command -v -- "$2")
  found=${found%/*}/py-spy
  if [ -x "$found" ]; then printf '%s\n' "$found"; else command -v py-spy; fi
}
# Of a process that runs, a look without a pause may come to nothing; the next may not.
ask_spy() {
  local try said code
  for try in 1 2 3; do
    said=$(timeout -k 1 "$limit" "$spy" dump --nonblocking --pid "$1" 2>&1 </dev/null)
    code=$?
    [ "$code" != 0 ] || break
  done
  printf '%s\n%s\n' "$code" "$said" | head -c 200000
}
tell_thread() {
  local line rest fields comm where= call=
  { IFS= read -r line <"$1/stat"; } 2>/dev/null || return 0
  rest=${line##*) }
  comm=${line#*(}
  { IFS= read -r where <"$1/wchan"; IFS= read -r call <"$1/syscall"; } 2>/dev/null
  printf 'thread %s %s %s\n' "${1##*/}" "${rest%% *}" "${comm%)*}"
  [ -z "$where" ] || [ "$where" = 0 ] || printf 'wchan %s\n' "$where"
  [ -z "$call" ] || printf 'syscall %s\n' "$call"
}
tell_rank() {
  local pid=$1 thread line call number=0 target state
  printf 'rank %s %s\n' "${rank_of[$pid]}" "$pid"
  tell_thread "/proc/$pid/task/$pid"
  call=
  { read -r _ call _ </proc/"$pid"/syscall; } 2>/dev/null
  case $call in
    0x[0-9a-f] | 0x[0-9a-f][0-9a-f] | 0x[0-9a-f][0-9a-f][0-9a-f])
      target=$(readlink "/proc/$pid/fd/$((call))" 2>/dev/null) &&
        printf 'file %s\n' "${target//$'\n'/ }" ;;
  esac
  while IFS= read -r line; do printf 'kernel %s\n' "$line"; done 2>/dev/null </proc/"$pid"/stack
  { IFS= read -r line <"/proc/$pid/stat"; } 2>/dev/null
  state=${line##*) }
  # A process that cannot be interrupted may hold what is needed to read its command line.
  [ "${state%% *}" = D ] ||
    printf 'command %s\n' "$({ tr '\0\n' '  ' </proc/"$pid"/cmdline | head -c 400; } 2>/dev/null)"
  for thread in /proc/"$pid"/task/[0-9]*; do
    [ "${thread##*/}" != "$pid" ] || continue
    number=$((number + 1))
    [ "$number" -gt 64 ] || tell_thread "$thread"
  done
  printf 'threads %s\n' "$((number + 1))"
}
if [ -r "$job/events" ]; then
  know_ranks "$job/events"
  spy=$(find_spy </dev/null 2>/dev/null)
  printf 'machine %s\nspy %s\n' "$(uname -m)" "$spy"
  spies=()
  if [ -n "$spy" ]; then
    for pid in "${!rank_of[@]}"; do
      exec {descriptor}< <(ask_spy "$pid")
      spies[pid]=$descriptor
    done
  fi
  for pid in "${!rank_of[@]}"; do
    tell_rank "$pid"
    [ -z "${spies[pid]-}" ] || paste -d '|' /dev/null - <&"${spies[pid]}"
  done
fi
echo end
"""
)
"""Says of each rank of a job that runs on the node where it is; pauses nothing, writes nothing.

Arguments: the job's folder, its python, seconds that py-spy may take for one look. Prints `machine
NAME`, `spy PATH`; then for each rank `rank RANK PID`, `thread TID STATE NAME` of its first thread,
with `wchan`, `syscall` and `file` (what the number in its first argument stands for) where the
kernel tells them, `kernel` with its stack there, `command`, the same of its other threads,
`threads COUNT`, and behind `|` the exit code of py-spy and what it said; `end`."""

_ASK_S: Final = 5.0
_LINE = re.compile(
    r"(machine|spy|rank|thread|wchan|syscall|file|kernel|command|threads|end)(?: (.*))?"
)
_FRAME = re.compile(r" {4}(.+) \((.+?)(?::(\d+))?\)")
_THREAD = re.compile(r'Thread (\d+)(?:/\S+)? \([^()]*\)(?:: ".*")?')


@dataclass
class ThreadView:
    """One thread as the kernel sees it; what it does not tell is empty."""

    tid: int
    state: str
    name: str
    wchan: str = ""
    """The function of the kernel in which it waits."""
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
    """What the first argument of the first thread's call is, if that is an open file."""
    kernel: list[str] = field(default_factory=list)
    command: str = ""
    spied: list[str] = field(default_factory=list)
    """What py-spy said, line by line."""
    spy_code: int | None = None
    """Its exit code; None: there is no py-spy for this rank."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The Python stack of the main thread, innermost first; empty when it is not known."""
        if self.spy_code != 0:
            return ()
        stacks = _stacks(self.spied)
        return stacks.get(str(self.pid)) or next(iter(stacks.values()), ())

    @property
    def why_not_spied(self) -> str:
        """Why its Python lines are not known; empty when they are."""
        if self.spy_code is None:
            return "py-spy is neither beside code.python nor on PATH"
        if self.spy_code == 0:
            return "" if self.frames else "py-spy found no Python in it"
        if self.spy_code in (124, 137):
            return "py-spy gave no answer in time; the node may be overloaded, try again"
        said = [line for line in self.spied if line.strip()]
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
    """Where the ranks of the job in `folder` are, by node; one execution each."""
    command = Command(
        argv=("bash", "-c", STACKS, "stacks", str(folder), python, f"{_ASK_S:g}"),
        purpose=f"see where the ranks of job {folder.name} are",
        effect=Effect.READ,
        timeout_s=60.0,
    )
    return on_each(transports, lambda node: _viewed(transports[node].run(command)), forks=forks)


def parse_stacks(node: str, text: str) -> tuple[RankView, ...]:
    """What `STACKS` said, ranks ascending.

    Raises:
        NotUnderstoodError: a line has an unknown form, or the end is missing.
    """
    views: list[RankView] = []
    machine = ""
    kind = ""
    # Not splitlines: a path or command may hold what only Python takes for an end of line.
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|") and views:
            _take_spied(views[-1], line[1:])
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


def _take_spied(view: RankView, line: str) -> None:
    if view.spy_code is None:
        view.spy_code = int(line)
    else:
        view.spied.append(line)


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
