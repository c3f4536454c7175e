"""Assigns the selected lines of logs to the processes that wrote them, and these to ranks."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import cache
from typing import Final

from ascendboot.doctor.scan import Line, LogFile
from ascendboot.jobs.evidence import decoded
from ascendboot.value import Struct, Value, field

_BUDGET: Final = 12 << 20
"""Bytes of selected lines that are held, over all processes."""
_LEAST: Final = 16 << 10
_MOST_WRITERS: Final = 4096

_STAMP: Final = (
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) )"
    r"(?:std(?:out|err) [FP] )?"
)
_PREFIX: Final = re.compile(
    rf"(?:\[pod/(?P<pod>[\w.-]{{1,253}})/[\w.-]{{1,253}}\] ?)?(?:{_STAMP})?"
    r"(?:(?:\x1b\[[\d;]{1,9}m)?(?P<node>[\w.-]{1,253}):(?P<rank>\d{1,5}) \|(?:\x1b\[0m)? "
    r"|\[(?P<launch>\d{1,9}),(?P<mpi>\d{1,5})\]<std(?:out|err)>: ?"
    r"|\[(?P<gloo>\d{1,5})\]<std(?:out|err)>: ?"
    r"|\[rank(?P<torch>\d{1,5})\]: ?|\[default(?P<local>\d{1,5})\]: ?)?"
)
"""What kubectl, container engines, `logs`, mpirun, horovodrun and PyTorch put before a line."""
_COLOUR: Final = re.compile(r"\x1b\[[\d;]{0,20}m")
_RANKS: Final = ("rank", "mpi", "gloo", "torch")
_PID: Final = re.compile(
    r"\[[A-Z]+\] ?[A-Z_]*\((\d{1,9})[,:]|\[PID: ?(\d{1,9})\]"
    r"|\[?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9} {1,9}(\d{1,9}) "
)
"""The process in a line of CANN, MindSpore, and glog (Caffe, TensorFlow, torchrun)."""
_SECTION: Final = re.compile(r"##### FILE (\S{1,400})$|==> (\S{1,400}) <==$")
"""The heads of several files in one, as `tail` prints them."""
_PLOG: Final = re.compile(r"(.*?)(?:^|/)(?:run|debug)/plog/plog-(\d{1,9})_\d{1,20}\.log(?:\.gz)?$")
_OF_RANK: Final = re.compile(
    r"(?:^|/)(?:rank\.(\d{1,5})\.log|rank\.(\d{1,5})\.plog/[\w./-]{1,400}\.log"
    r"|rank[._-]?(\d{1,5})/(?:stdout|stderr)(?:\.log)?"
    r"|rank[._-]?(\d{1,5})(?:\.(?:log|out|err|txt))|worker_(\d{1,5})\.log)(?:\.gz)?$"
)
_SIZE_AND_RANK: Final = r"\[(?P<size>\d{1,5})\], rank(?:Id)?\[(?P<rank>\d{1,5})\]"
_SERVER: Final = r"(?:.*? server\[(?P<node>[\w.:-]{1,64})(?:%[\w.-]{1,40})?\])?"
_DEVICE: Final = (
    r"(?:.*?phydevId\[(?P<device>\d{1,5})\])?(?:.*?deviceIp\[(?P<ip>[0-9A-Fa-f.:]{2,45})\])?"
)
_IDENTITIES: Final = (
    re.compile(f"SetupAgent rankNum{_SIZE_AND_RANK}{_SERVER}{_DEVICE}"),
    re.compile(f"Entry-HcclCommInitRootInfo(?:Inner)?:ranks{_SIZE_AND_RANK}"),
    re.compile(f"HcclCommInitRootInfo failed.*? rankNum{_SIZE_AND_RANK}{_SERVER}"),
    re.compile(
        rf"(?P<group>groupRank) information is group:\[(?!group_name_).{{1,300}}?"
        rf" rankSize{_SIZE_AND_RANK}"
    ),
    re.compile(r"hccl_world_group\], rank\[(?P<rank>\d{1,5})\], totalRanks\[(?P<size>\d{1,5})\]"),
)
_JOB: Final = re.compile(r"[iI]dentifier\[([^\]]{1,200})\]")


def rank_in_name(path: str) -> int | None:
    """Return the rank that the name of a file states."""
    match = _OF_RANK.search(path)
    return None if match is None else int(next(filter(None, match.groups())))


class LogLine(Value):
    """A line of a process, without prefixes."""

    file: LogFile
    number: int
    text: str
    stamp: str = ""
    """The time before it, of the program that collected it."""


class Writer(Struct):
    """One process, as far as its logs show it."""

    name: str
    """Where its lines are: a file, or a file and what tells its processes apart."""
    budget: int
    rank: int | None = None
    is_named: bool = False
    """Whether a file name or a prefix states the rank."""
    is_of_group: bool = False
    """Whether the rank is that in a communicator, which may be smaller than the job."""
    node: str = ""
    device: int | None = None
    ip: str = ""
    size: int = 0
    """Of its job, as the largest communicator shows it."""
    job: str = ""
    pod: str = ""
    first: list[LogLine] = field(default_factory=list)
    last: deque[LogLine] = field(default_factory=deque)
    started: float | None = None
    _first_bytes: int = 0
    _last_bytes: int = 0

    @property
    def lines(self) -> list[LogLine]:
        """The first and the last of its selected lines."""
        return [*self.first, *self.last]

    def add(self, line: LogLine) -> None:
        """Add a line; of many, those in the middle are dropped."""
        size = len(line.text) + 100
        if self._first_bytes < self.budget // 3:
            self._first_bytes += size
            self.first.append(line)
            return
        self._last_bytes += size
        self.last.append(line)
        while self._last_bytes > self.budget:
            self._last_bytes -= len(self.last.popleft().text) + 100


class Writers:
    """The processes of all files."""

    def __init__(self, files: Sequence[LogFile]) -> None:
        self._budget = max(_LEAST, _BUDGET // max(1, len(files)))
        self._by_key: dict[tuple[str, str], Writer] = {}
        self._section: dict[int, str] = {}

    def add(self, line: Line) -> None:
        """Add a selected line to the process that wrote it."""
        text = decoded(line.raw).rpartition("\r")[2]  # what a progress bar shows last
        if text.startswith(('{"log":', '{"message":')):
            text = _unwrapped(text)
        section = _SECTION.match(text) if _SECTION.match(line.file.opening) else None
        if section is not None:
            self._section[id(line.file)] = section[1] or section[2]
            return
        path = self._section.get(id(line.file), str(line.file.path))
        prefix = _PREFIX.match(text)
        parts = prefix.groupdict() if prefix else {}
        text = text[prefix.end() if prefix else 0 :]
        text = _COLOUR.sub("", text) if "\x1b" in text else text
        writer = self._writer(line, path, parts, text)
        if "rank[" in text or "rankId[" in text:
            _identify(writer, text)
        writer.add(LogLine(line.file, line.number, text, parts.get("stamp") or ""))

    def _writer(self, line: Line, path: str, parts: dict[str, str | None], text: str) -> Writer:
        """Return the process of a line: by its file, its prefix, or the pid in it."""
        of_rank, plog = _named(path)
        rank = next((parts[name] for name in _RANKS if parts.get(name)), None)
        if of_rank is not None:
            # The name of the file counts: a prefix in it may be words of the script.
            key = (path, "")
            rank = next(filter(None, of_rank.groups()))
            parts = {}
        elif plog is not None:
            key = (plog[1], f"process {plog[2]}")
        elif rank is not None:
            who = f"{parts.get('launch') or ''} rank {rank} {parts.get('pod') or ''}"
            key = (path, who.strip())
        else:
            pid = _PID.match(text)
            local = f"local rank {parts['local']}" if parts.get("local") else ""
            named = local or (f"process {pid[pid.lastindex or 0]}" if pid else "")
            key = (path, " ".join(filter(None, (parts.get("pod"), named))))
        if key not in self._by_key and len(self._by_key) >= _MOST_WRITERS:
            key = (path, "")
        writer = self._by_key.get(key)
        if writer is None:
            name = f"{path}, {key[1]}" if key[1] and plog is None else path
            writer = self._by_key[key] = Writer(name, self._budget, started=line.file.started)
            writer.rank, writer.is_named = None if rank is None else int(rank), rank is not None
            writer.node, writer.pod = parts.get("node") or "", parts.get("pod") or ""
        return writer

    def all(self) -> list[Writer]:
        """Return the processes; lines without a pid belong to the only process of their file."""
        for path in {path for path, _ in self._by_key}:
            named = [name for at, name in self._by_key if at == path and name]
            plain = self._by_key.get((path, ""))
            if plain is not None and len(named) == 1 and named[0].startswith("process "):
                writer = self._by_key[path, named[0]]
                merged = sorted((*plain.lines, *writer.lines), key=lambda line: line.number)
                writer.first, writer.last = merged, deque()
                writer.rank = plain.rank if writer.rank is None else writer.rank
                writer.name = path
                del self._by_key[path, ""]
        return list(self._by_key.values())


@cache
def _named(path: str) -> tuple[re.Match[str] | None, re.Match[str] | None]:
    return _OF_RANK.search(path), _PLOG.match(path)


def _unwrapped(text: str) -> str:
    """Return the line in a container engine's JSON log, or the error in torchelastic's file."""
    with suppress(ValueError, TypeError, KeyError):  # cut or of another form: as it is
        entry = json.loads(text)
        if "log" in entry:
            return f"{entry['time']} {entry['log']}".rstrip("\n")
        error = entry["message"]
        at = datetime.fromtimestamp(float(error["extraInfo"]["timestamp"]), timezone.utc)
        return f"{at.isoformat()} {str(error['message']).partition(chr(10))[0]}"
    return text


def _identify(writer: Writer, text: str) -> None:
    """Note the rank, node and device that CANN names in a line of its process."""
    match = next(filter(None, (form.search(text) for form in _IDENTITIES)), None)
    if match is None:
        return
    parts = match.groupdict()
    size, is_group = int(parts["size"]), bool(parts.get("group"))
    if size > writer.size or (size == writer.size and not is_group):
        writer.size = size
        if not writer.is_named:
            writer.rank, writer.is_of_group = int(parts["rank"]), is_group
        writer.node = writer.node or parts.get("node") or ""
        writer.device = int(parts["device"]) if parts.get("device") else writer.device
        writer.ip = parts.get("ip") or writer.ip
        job = _JOB.search(text)
        writer.job = job[1] if job else writer.job
