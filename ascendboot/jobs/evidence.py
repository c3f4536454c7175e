"""Collects the evidence of a failure from events, logs and error files of the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from signal import SIGTERM
from typing import Final, NamedTuple

from ascendboot.errors import NotUnderstoodError
from ascendboot.jobs.error_codes import known_errors, known_words, names_a_peer
from ascendboot.jobs.progress import PRECISION_S, Progress, signal_of
from ascendboot.jobs.stacks import RankView, parse_stacks
from ascendboot.launch.plan import LAUNCHER_LOG, Job, PlannedRank, rank_log, rank_plogs
from ascendboot.model.cluster import NodeClocks
from ascendboot.model.job import RankEnd
from ascendboot.value import Value, replace


class Named(NamedTuple):
    """The ranks and nodes of the job that an output names as missing."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes that are named without a rank."""


NOBODY: Final = Named()


class ErrorKind(Enum):
    """What an error means for its rank."""

    OWN = "own"
    LATE = "late"
    """An error after the rank was ended on purpose: not a cause, maybe the same error."""
    PEER = "peer"
    """Another rank is gone or does not answer."""


class RankError(Value, kw_only=True):
    """The first error that a rank logged; Unix times by the control machine's clock."""

    kind: ErrorKind
    at: float | None = None
    """None where the time is not known."""
    precision_s: float = 0.0
    """The error may have happened up to this much earlier."""
    words: str = ""
    source: str = ""
    missing: Named = NOBODY


class RankEvidence(Value, kw_only=True):
    """The evidence about one rank."""

    rank: int
    node: str
    device: int
    exit_code: int | None = None
    """As a shell reports it; None: its end was not recorded."""
    ended_at: float | None = None
    is_ended_by_us: bool = False
    """Whether it was ended on purpose."""
    is_killed_unseen: bool = False
    """Whether only the launcher recorded its end."""
    is_from_logs: bool = False
    """Whether only its log is known, so that an error in it counts as a failure."""
    out_of_memory: bool = False
    """Whether the kernel ended processes on its node, out of memory, while it ran."""
    error: RankError | None = None
    view: RankView | None = None
    """Where it was when the job was ended; None: unknown."""

    @property
    def own(self) -> RankError | None:
        """An error of its own."""
        return self.error if self.error and self.error.kind is ErrorKind.OWN else None

    @property
    def peer(self) -> RankError | None:
        """Its error about another rank."""
        return self.error if self.error and self.error.kind is ErrorKind.PEER else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return None if self.exit_code is None else signal_of(self.exit_code)

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.exit_code is None:
            return "with no recorded end"
        words = f"with signal {self.signal}" if self.signal else f"with exit code {self.exit_code}"
        return f"and was ended later, {words}" if self.is_ended_by_others else words

    @property
    def is_ended_by_others(self) -> bool:
        """Whether it had an error and was ended later: then its end does not date the failure."""
        return self.is_ended_by_us or (self.own is not None and self.signal == SIGTERM)

    @property
    def has_failed(self) -> bool:
        """Whether it failed, and not because it was ended on purpose."""
        has_error = self.is_from_logs and self.error is not None
        return (bool(self.exit_code) or has_error) and not self.is_ended_by_us

    @property
    def failed_at(self) -> float | None:
        """When it failed: its first error or its end, whichever came first; None: unknown."""
        times = [self.first_error.at]
        if self.exit_code and not self.is_ended_by_others:
            times.append(self.ended_at)
        return min((at for at in times if at is not None), default=None)

    @property
    def first_error(self) -> RankError:
        """Its error; if it has none, one without text that names where its end is recorded."""
        ended_in = "" if self.exit_code is None else "events"
        source = "launcher.log" if self.is_killed_unseen else ended_in
        return self.own or self.peer or RankError(kind=ErrorKind.LATE, source=source)


_LOOKED_AT: Final = 120
"""Only a time at the beginning of a line counts; later ones are part of the text."""
_SLACK_S: Final = 5.0
_OLDEST_S: Final = 400 * 86400.0

_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_FORMS: Final = (
    # CANN's own logs: 2024-03-28-10:25:48.427.201
    re.compile(rf"(?P<Y>\d{{4}})-(?P<M>\d\d)-(?P<D>\d\d)-{_CLOCK}(?:\.(?P<f>\d{{3}}\.\d{{3}}))?"),
    # Python's logging, TensorFlow, ISO 8601, torchrun's table
    re.compile(
        rf"(?P<Y>\d{{4}})[-/](?P<M>\d\d)[-/](?P<D>\d\d)[ T_]{_CLOCK}"
        r"(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
    ),
    # glog: E1120 12:34:56.789012
    re.compile(rf"(?<![A-Za-z0-9])[IWEF](?P<M>\d\d)(?P<D>\d\d) {_CLOCK}\.(?P<f>\d{{3,6}})"),
)


def is_of_a_log(line: str) -> bool:
    """Whether a line has a time or level, or is one of a program that failed; prose has none."""
    has_time = any(form.search(line, 0, _LOOKED_AT) for form in _FORMS)
    return has_time or bool(_OF_A_LOG.match(line) or _STRONG.match(line))


def time_in(line: str, *, zone_s: int | None, until: float | None) -> float | None:
    """Return the time on a line as Unix time by the clock of its node; None if there is none.

    `zone_s` is the offset of local time from UTC there; if it is None, a time without a zone does
    not count. `until` is when the rank ended, by the same clock: times after it, or more than a
    year before it, do not count.
    """
    for form in _FORMS:
        if match := form.search(line, 0, _LOOKED_AT):
            at = _seconds(match.groupdict(), zone_s, until)
            if at is None or until is None or -_OLDEST_S < at - until < _SLACK_S:
                return at
    return None


def _seconds(parts: dict[str, str], zone_s: int | None, until: float | None) -> float | None:
    written, year = parts.get("z"), parts.get("Y")
    if (written or zone_s) is None or (year or until) is None:
        return None
    month, day, hour, minute, second = (int(parts[name]) for name in "MDhms")
    fraction = float("0." + (parts.get("f") or "0").replace(".", ""))
    with suppress(ValueError):  # no such day, hour or zone
        local = timezone(timedelta(seconds=zone_s or 0))
        zone = datetime.strptime(written, "%z").tzinfo if written else local
        this_year = int(year or datetime.fromtimestamp(until or 0.0, zone).year)
        at = datetime(this_year, month, day, hour, minute, second, tzinfo=zone)
        if not year and until is not None and at.timestamp() + fraction >= until + _SLACK_S:
            at = datetime(this_year - 1, month, day, hour, minute, second, tzinfo=zone)
        return at.timestamp() + fraction
    return None


_OWN: Final = re.compile(
    r"(?:[Ll]ocal_?[Uu]serrank|local rank|rankId)\[(\d{1,7})\]"
    r"|\|\s{0,40}[0-9A-Fa-f.:]{2,45}(?:%[\w.-]{1,40})?\((\d{1,7})\)\s{0,40}\|"
    r"\s{0,40}(?:\d{1,20}\s{0,40}\|)?\s{0,40}(?:server|client)"
)
"""The number of the rank that wrote the line."""
_SIZE: Final = re.compile(r"(?:rankSize|rankNum|rankNum is|rank num) ?\[(\d{1,7})\]")
_UNKNOWN_GROUP: Final = "rankSize[0], rankId[0]"
"""HCCL prints this where it does not know the communicator (EI0012 in its manual)."""
_GROUP: Final = re.compile(r"\bgroup_name_\d")
_CONNECTED: Final = re.compile(r"connected rankinfo\[LINE \d{1,5}\]: ([\[\]\d, ]{1,8000})")
_STALLED: Final = re.compile(r"\n(\d+)(!?)")
_WHOLE: Final = re.compile(r"[\[ ,](\d{1,16})(?=[\], ])")


class Peers:
    """Finds ranks and nodes of one job by the names that outputs use."""

    def __init__(
        self, ranks: Sequence[PlannedRank], addresses: Mapping[str, Sequence[str]], size: int = 0
    ) -> None:
        """`addresses` has the names of each node; `size` is that of the job, if larger."""
        self._size = max(size, len(ranks))
        self._by_ip: dict[str, set[int]] = {}
        self._by_device = {(rank.node, rank.device_id): rank.rank for rank in ranks}
        for rank in ranks:
            for ip in filter(None, (rank.device_ip or "").lower().split(",")):
                self._by_ip.setdefault(ip, set()).add(rank.rank)
        self._nodes = {name.lower(): node for node, names in addresses.items() for name in names}

    def named_in(self, text: str, rank: PlannedRank | None) -> Named:
        """Return the ranks and nodes that the output of `rank`, or of the launcher, names missing.

        The address of a device counts before a rank number. Rank numbers belong to a communicator:
        they count only if nothing shows that it is smaller than the job.
        """
        text = text.replace(_UNKNOWN_GROUP, "")
        writers = {int(a or b) for a, b in _OWN.findall(text)}
        sizes = {int(size) for size in _SIZE.findall(text)}
        own = -1 if rank is None else rank.rank
        numbers_count = writers <= {own} and sizes <= {self._size} and not _GROUP.search(text)
        ranks: set[int] = set()
        nodes: set[str] = set()
        forms = (*known_errors().peers, *known_errors().places)
        for match in (found for form in forms for found in form.finditer(text)):
            parts = match.groupdict()
            place = self._at(parts, rank)
            # Horovod marks the stalled ranks for which it ends the job: `3!:`.
            stalled = _STALLED.findall(parts.get("stalled") or "")
            listed = (parts.get("ranks") or "").split(",")
            listed += [rank for rank, mark in stalled if mark] or [rank for rank, _ in stalled]
            if place is not None:
                ranks.add(place)
            elif numbers := [part.strip()[-9:] for part in listed if part]:
                ranks.update(int(n) for n in numbers if numbers_count and n.isdecimal())
            elif node := self._nodes.get((parts.get("host") or "").lower()):
                nodes.add(node)
        if numbers_count and sizes and (connected := _CONNECTED.findall(text)):
            # The root logs who connected; the others did not.
            came = {int(number) for line in connected for number in _WHOLE.findall(line)}
            ranks.update(set(range(self._size)) - came)
        ranks &= set(range(self._size)) - {own}
        return Named(tuple(sorted(ranks)), tuple(sorted(nodes)))

    def _at(self, parts: dict[str, str | None], writer: PlannedRank | None) -> int | None:
        """Return the rank of a device address, or of a device id on a server (or the writer's)."""
        ip = (parts.get("ip") or "").lower()
        of_ip = self._by_ip.get(ip, set())
        if len(of_ip) == 1:
            return next(iter(of_ip))
        device, host = parts.get("device"), parts.get("host") or ip
        own = writer.node if writer and device and not host else None
        node = self._nodes.get(host.lower(), own)
        return None if node is None or not device else self._by_device.get((node, int(device)))


_CALM: Final = 20
"""With more ordinary lines between two errors the first one did not stop the rank."""
_OVERCOME: Final = 200
"""With more ordinary lines after an error the rank continued: the error is not a cause."""
_LONGEST: Final = 300
_MESSAGE_LINES: Final = 6
_TRACEBACK_LINES: Final = 400

_PREFIX: Final = re.compile(r"(?:\[rank\d+\]: ?|\[\d+,\d+\]<std(?:err|out)>: ?)+")
_TRACEBACK: Final = re.compile(r"\s*Traceback \(most recent call last\):")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_GOES_ON: Final = re.compile(r"\s|\[ERROR\] .* ERR\d{5} |\[Error\]|E[A-Z]\d{4}: ")
"""Continuation lines of torch_npu's exceptions: its own code, then CANN's message."""
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d")
_IS_NO_ERROR: Final = re.compile(
    r"\[(?:INFO|DEBUG|EVENT|TRACE|WARNING)\](?: |[A-Z]+\()|\[?[IW]\d{4} \d\d:\d\d:\d\d\."
)
"""Levels of CANN, MindSpore and glog."""
_STRONG: Final = re.compile(
    r"Fatal Python error|Segmentation fault|Bus error|terminate called|core dumped"
    r"|An error occurred in MPI_|Signal: \w+|\S\.py: error: |can't open file|: command not found"
    r"|could not start rank \d+"
)
_WEAK: Final = re.compile(
    r"One or more tensors were submitted to be reduced"
    r"|\[ERROR\]|\[EXCEPTION\]|\bERROR\b|\bCRITICAL\b|\bFATAL\b"
    r"|(?<![A-Za-z0-9])[EF]\d{4} \d\d:\d\d:|: [EF] \S+/"
)
_OF_A_LOG: Final = re.compile(
    r"Traceback |\W{0,3}(?:ERROR|CRITICAL|FATAL|EXCEPTION)\b|.{0,60}\[(?:ERROR|EXCEPTION)\]"
)
_ENDED: Final = re.compile(r"KeyboardInterrupt|SignalException|\bSIGTERM\b|got signal: 15")
"""Errors that ranks log when they are ended."""


class ErrorInLog(Value):
    """One error in a log."""

    words: str
    line: str
    """The line that contains the time, if one does."""
    index: int
    """The place of its first line among the lines."""
    of_a_peer: bool
    trouble: str = ""
    """All lines of this failure; each of them may name a peer."""
    decisive: int = 0
    """The place of the line that tells what failed."""
    offset: int = 0
    """The offset of its first byte in the log."""


class _Found(NamedTuple):
    place: int
    """Of its first line among the lines."""
    text: str
    is_strong: bool
    """False for a line that is only marked as an error."""
    calm: int
    """Ordinary lines before it."""


def error_in(tail: bytes, *, begins_at: int = 0) -> ErrorInLog | None:
    """Return the first error of the last failure in the end of a log, from `begins_at` on."""
    raw_lines = tail.split(b"\n")
    found = error_among([plain_line(raw) for raw in raw_lines], range(len(raw_lines)))
    if found is None:
        return None
    before = sum(len(raw) + 1 for raw in raw_lines[: found.index])
    return replace(found, offset=begins_at + before)


def plain_line(raw: bytes) -> str:
    """Return a line of a log as text, without the prefixes of launchers."""
    line = decoded(raw).rstrip("\r")
    return _PREFIX.sub("", line, count=1) if line.startswith("[") else line


def decoded(raw: bytes) -> str:
    """Return a line as text: UTF-8, or else an encoding of China."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("gb18030", errors="replace")


def error_among(lines: Sequence[str], numbers: Sequence[int]) -> ErrorInLog | None:
    """Return the first error of the last failure among lines of a log; `numbers` are theirs."""
    trouble = _last_trouble(lines, numbers)
    if not trouble:
        return None
    first = next((one for one in trouble if one.is_strong), trouble[0])
    decisive = _decisive([one for one in trouble if one.is_strong]) or first
    around = "\n".join(lines[max(0, trouble[0].place - _CALM) :])
    message = decisive.text.strip().splitlines()
    words, known = first.text.strip().partition("\n")[0], known_words(decisive.text)
    line_known = next((ln.strip() for ln in message if known and known_words(ln) is known), words)
    if line_known != words:
        words = f"{words[: _LONGEST // 2]} … {line_known}"
    line = lines[first.place]
    return ErrorInLog(
        words=words[:_LONGEST],
        line=next((one for one in (line, *message) if _TIME.search(one)), line),
        index=first.place,
        # A line that is only marked as an error counts less than one that names a peer.
        of_a_peer=(known is not None and known.of_a_peer)
        or (
            not (known and known.is_root)
            and names_a_peer(decisive.text if decisive.is_strong else around)
        ),
        trouble=around,
        decisive=decisive.place,
    )


def _decisive(strong: Sequence[_Found]) -> _Found | None:
    """Return the error that tells what failed; None if that is the first.

    It is one that no other rank can cause, or, if the first is vague, the next one that is not.
    """
    known = [(one, known_words(one.text)) for one in strong]
    root = next((one for one, entry in known if entry and entry.is_root), None)
    if root or not known or not (known[0][1] and known[0][1].is_vague):
        return root
    return next((one for one, entry in known if entry and not entry.is_vague), None)


def without_numbers(words: str) -> str:
    """Return `words` without what differs between ranks: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", words)


def _last_trouble(lines: Sequence[str], numbers: Sequence[int]) -> list[_Found]:
    """Return the errors of the last failure; empty if the rank continued after it."""
    trouble: list[_Found] = []
    index, calm, is_chained = 0, 0, False
    while index < len(lines):
        line = lines[index]
        calm += max(0, numbers[index] - numbers[index - 1] - 1) if index else 0
        end, text, is_strong = _error_at(lines, index)
        if end == index:
            is_chained = is_chained or line.startswith(_CHAINED)
            calm += bool(line.strip()) and not line.startswith((*_CHAINED, " ", "\t"))
            index += 1
            continue
        if not (_ENDED.search(text) or (is_chained and trouble)):
            if trouble and calm - trouble[-1].calm > _CALM:
                trouble = []
            trouble.append(_Found(index, text, is_strong, calm))
        is_chained = False
        index = end
    return [one for one in trouble if calm - one.calm <= _OVERCOME]


def _error_at(lines: Sequence[str], at: int) -> tuple[int, str, bool]:
    """Return the line after the error that begins at `at`, its text, and whether it is certain."""
    first = lines[at]
    if _TRACEBACK.match(first):
        last = min(at + _TRACEBACK_LINES, len(lines))
        inside = (" ", "\t")
        at = next(
            (n for n in range(at + 1, last) if lines[n].strip() and lines[n][0] not in inside), last
        )
        if at == last:
            return last, first.strip(), True
    elif _IS_NO_ERROR.match(first):
        return at, "", False
    elif known_words(first) or _STRONG.search(first):
        return at + 1, first, True
    elif not _EXCEPTION.match(first):
        return (at + 1, first, False) if _WEAK.search(first) else (at, "", False)
    end = at + 1
    while end < min(at + _MESSAGE_LINES, len(lines)):
        if not lines[end].strip() or not _GOES_ON.match(lines[end]):
            break
        end += 1
    return end, "\n".join(lines[at:end]), True


TAIL_BYTES: Final = 65_536
"""How much of the end of each log is read; the same in every diagnosis."""
_SECOND: Final = 1.0
_RECENT_S: Final = 3600.0
"""HCCL waits for a peer 1836 s before it reports an error, unless HCCL_EXEC_TIMEOUT is set."""


@dataclass(eq=False)
class Collector:
    """Collects the evidence of one job."""

    plan: Job
    progress: Progress
    folder: Path
    clocks: NodeClocks

    def __post_init__(self) -> None:
        self._peers = Peers(self.plan.ranks, self.plan.addresses)
        ends = ((rank.node, self.progress.ended.get(rank.rank)) for rank in self.plan.ranks)
        self._zones = {node: end.zone_s for node, end in ends if end and end.zone_s is not None}

    def evidence(self, ends: Sequence[RankEnd]) -> list[RankEvidence]:
        """Return the evidence of each rank; `ends` includes what only the launcher reported."""
        return [self._of_rank(rank, end) for rank, end in zip(self.plan.ranks, ends, strict=True)]

    def named_by_launcher(self) -> Named:
        """Return the ranks and nodes that the launcher's log names as missing."""
        tail, _ = tail_of(self.folder / LAUNCHER_LOG)
        return self._peers.named_in(tail.decode(errors="replace").replace("\r", ""), None)

    def _of_rank(self, rank: PlannedRank, end: RankEnd) -> RankEvidence:
        seen, node_rank = self.progress.ended.get(rank.rank), self.plan.nodes.index(rank.node)
        return RankEvidence(
            rank=rank.rank,
            node=rank.node,
            device=rank.device_id,
            exit_code=end.exit_code,
            ended_at=self._ended_at(rank),
            is_ended_by_us=self.progress.was_ended(rank.rank, node_rank),
            is_killed_unseen=seen is None and bool(end.exit_code),
            out_of_memory=seen is not None and seen.out_of_memory,
            error=self._error(rank) if seen is None or seen.exit_code else None,
            view=self._view(rank),
        )

    def _ended_at(self, rank: PlannedRank) -> float | None:
        seen = self.progress.ended.get(rank.rank)
        return None if seen is None else self.clocks.here(rank.node, seen.at)

    def _view(self, rank: PlannedRank) -> RankView | None:
        """Where rank-exec saw a rank when its end began."""
        tail, _ = tail_of(self.folder / f"rank.{rank.rank}.stack")
        with suppress(NotUnderstoodError):  # cut off by the end of its node
            views = parse_stacks(rank.node, tail.decode(errors="replace")) if tail else ()
            return next((view for view in views if view.rank == rank.rank), None)
        return None

    def _error(self, rank: PlannedRank) -> RankError | None:
        """Return the error in the logs of a rank, or else in its error file."""
        filed, ended_at = self._filed(rank), self._ended_at(rank)
        found = [self._logged(rank, rank_log(rank.rank), filed)]
        for path in sorted((self.folder / rank_plogs(rank.rank)).rglob("plog-*.log")):
            error = self._logged(rank, str(path.relative_to(self.folder)), filed)
            # Many errors in a plog stop nothing: only a known one that is recent counts.
            is_recent = error and ended_at and error.at and ended_at - error.at < _RECENT_S
            found += [error] if error and is_recent and known_words(error.words) else []
        return first_error([error for error in found if error is not None]) or filed

    def _logged(self, rank: PlannedRank, name: str, filed: RankError | None) -> RankError | None:
        """Return the error in one file of a rank; an error without a time has that of `filed`."""
        tail, begins_at = tail_of(self.folder / name)
        logged = error_in(tail, begins_at=begins_at)
        if logged is None:
            return None
        zone_s, seen = self._zones.get(rank.node), self.progress.ended.get(rank.rank)
        written = time_in(logged.line, zone_s=zone_s, until=None if seen is None else seen.at)
        if written is None:
            arrivals = self.progress.arrivals.get(name)
            at = None if arrivals is None else arrivals.of(logged.offset)
            precision_s = 0.0 if at is None else PRECISION_S
        else:  # a time without a fraction means any moment of that second
            precision_s = _SECOND if written.is_integer() else 0.0
            at = self.clocks.here(rank.node, written + precision_s)
        at = _earliest(at, self._ended_at(rank))
        node_rank = self.plan.nodes.index(rank.node)
        ending = self.clocks.here(rank.node, self.progress.ending_started(rank.rank, node_rank))
        is_late = at is not None and at - precision_s >= ending
        if at is None and filed is not None:
            at, precision_s = filed.at, filed.precision_s
        kind = ErrorKind.LATE if is_late else ErrorKind.OWN
        return RankError(
            kind=ErrorKind.PEER if logged.of_a_peer else kind,
            at=at,
            precision_s=precision_s,
            words=logged.words,
            source=name,
            missing=self._peers.named_in(logged.trouble, rank) if logged.of_a_peer else NOBODY,
        )

    def _filed(self, rank: PlannedRank) -> RankError | None:
        """Return the error that torchelastic's `@record` wrote; its time is a whole second."""
        try:
            message = json.loads(self.progress.error_files[rank.rank])["message"]
            at = float(message["extraInfo"]["timestamp"]) + _SECOND
            words = str(message["message"])
        except (KeyError, TypeError, ValueError):
            return None
        known = known_words(words)
        of_a_peer = (known is not None and known.of_a_peer) or names_a_peer(words)
        return RankError(
            kind=ErrorKind.PEER if of_a_peer else ErrorKind.OWN,
            at=_earliest(self.clocks.here(rank.node, at), self._ended_at(rank)),
            precision_s=_SECOND,
            words=words.strip().partition("\n")[0],
            source="error file",
            missing=self._peers.named_in(words, rank),
        )


def first_error(errors: Sequence[RankError]) -> RankError | None:
    """Return the first of the errors that several logs of one rank have."""
    if not errors:
        return None
    dated = all(error.at is not None for error in errors)
    first = min(errors, key=lambda one: (one.at or 0.0) if dated else one.kind is ErrorKind.PEER)
    ranks = {rank for error in errors for rank in error.missing.ranks}
    nodes = {node for error in errors for node in error.missing.nodes}
    missing = Named(tuple(sorted(ranks)), tuple(sorted(nodes)))
    return replace(first, missing=missing) if first.kind is ErrorKind.PEER else first


def tail_of(path: Path) -> tuple[bytes, int]:
    """Return the last lines of a log, and their offset; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begins_at = max(0, size - TAIL_BYTES)
            file.seek(begins_at)
            tail = file.read(TAIL_BYTES)
    except (FileNotFoundError, IsADirectoryError):
        return b"", 0
    if begins_at == 0:
        return tail, 0
    first, newline, rest = tail.partition(b"\n")
    return (rest, begins_at + len(first) + 1) if newline else (tail, begins_at)


def shown_time(at: float | None) -> str | None:
    """A Unix time as reports show it, ISO 8601, UTC."""
    when = None if at is None else datetime.fromtimestamp(at, timezone.utc)
    return None if when is None else when.isoformat(timespec="milliseconds")


def _earliest(at: float | None, ended_at: float | None) -> float | None:
    return at if at is None or ended_at is None else min(at, ended_at)
