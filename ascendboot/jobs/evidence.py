"""Evidence of a failure: from events, logs and error files of the ranks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ascendboot.jobs.error_codes import code_in, is_of_a_peer, known_words
from ascendboot.jobs.progress import PRECISION_S, Progress
from ascendboot.launch.plan import JobRecord, LaunchPlan, PlannedRank, rank_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ascendboot.launch.events import RankEnded
    from ascendboot.model.cluster import NodeClocks
    from ascendboot.model.job import RankEnd


class Kind(Enum):
    """What a piece of evidence says about its rank."""

    ENDED = "ended"
    """It ended with `exit_code` before it was being ended."""
    ENDED_BY_US = "ended by us"
    """It ended with `exit_code` after the ranks of its node were being ended on purpose."""
    KILLED = "killed"
    """The launcher recorded that a signal ended it; its own record is missing."""
    OWN = "own"
    """It logged an error of its own."""
    LATE = "late"
    """It logged an error when it was already being ended."""
    PEER = "peer"
    """It logged that another rank is gone or does not answer."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One observation of one rank."""

    kind: Kind
    rank: int
    at: float | None = None
    """Seconds since 1970 by the operator's clock; None where the time is not known."""
    precision_s: float = 0.0
    """It may have happened so much earlier."""
    exit_code: int | None = None
    words: str = ""
    source: str = ""
    blames: tuple[int, ...] = ()
    """Ranks that its output names as missing."""
    blamed_nodes: tuple[str, ...] = ()
    """Nodes on which it misses some rank."""
    out_of_memory: bool = False
    """The kernel ended processes for want of memory on its node while it ran."""


_LOOKED_AT: Final = 120
"""A time stands at the beginning of a line; later ones are part of the text."""
_SLACK_S: Final = 5.0
_OLDEST_S: Final = 400 * 86400.0

_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_FORMS: Final = (
    # CANN's own logs: 2024-03-28-10:25:48.427.201
    re.compile(rf"(?P<Y>\d{{4}})-(?P<M>\d\d)-(?P<D>\d\d)-{_CLOCK}(?:\.(?P<f>\d{{3}}\.\d{{3}}))?"),
    # Python's logging, TensorFlow, ISO 8601, torchrun's table
    re.compile(
        rf"(?P<Y>\d{{4}})[-/](?P<M>\d\d)[-/](?P<D>\d\d)[ T_]{_CLOCK}"
        r"(?:[.,](?P<f>\d{1,6}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
    ),
    # glog: E1120 12:34:56.789012
    re.compile(rf"(?<![A-Za-z0-9])[IWEF](?P<M>\d\d)(?P<D>\d\d) {_CLOCK}\.(?P<f>\d{{3,6}})"),
)


def time_in(line: str, *, zone_s: int | None, until: float | None) -> float | None:
    """Seconds since 1970 by the clock that wrote it; None where the line tells no time.

    `zone_s` is how far the local time there is ahead of UTC; None: not known, then a time without
    a zone is none. `until` is when the rank ended, by the same clock: what claims to be later, or
    older than a year, is no time of this job.
    """
    for form in _FORMS:
        match = form.search(line, 0, _LOOKED_AT)
        if match is None:
            continue
        at = _seconds(match.groupdict(), zone_s, until)
        if at is None or until is None or -_OLDEST_S < at - until < _SLACK_S:
            return at
    return None


def _seconds(parts: dict[str, str | None], zone_s: int | None, until: float | None) -> float | None:
    zone = _zone(parts.get("z"), zone_s)
    if zone is None:
        return None
    year = parts.get("Y")
    if year is not None:
        return _timestamp(int(year), parts, zone)
    if until is None:
        return None
    this = datetime.fromtimestamp(until, zone).year
    candidates = (_timestamp(number, parts, zone) for number in (this, this - 1))
    return next((at for at in candidates if at is not None and at < until + _SLACK_S), None)


def _zone(written: str | None, zone_s: int | None) -> timezone | None:
    if written == "Z":
        return timezone.utc
    if written:
        hours, minutes = int(written[1:3]), int(written[-2:])
        sign = -1 if written[0] == "-" else 1
        return timezone(sign * timedelta(hours=hours, minutes=minutes))
    return None if zone_s is None else timezone(timedelta(seconds=zone_s))


def _timestamp(year: int, parts: dict[str, str | None], zone: timezone) -> float | None:
    month, day, hour, minute, second = (int(parts[name] or 0) for name in "MDhms")
    fraction = (parts.get("f") or "0").replace(".", "")
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None
    return whole.timestamp() + float(f"0.{fraction}")


# Forms: HCCL's logs and error codes (hicann/hccl, docs; mind-cluster's test logs), PyTorch's
# monitored barrier and stores, gloo's pairs, Open MPI's help texts.

_ADDRESS: Final = r"[0-9A-Fa-f.:]{2,45}"
_ZONE: Final = r"(?:%[\w.-]{1,40})?"
_RANKS: Final = r"\d[\d, ]{0,4000}"
_PEER_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        r"Waiting peer rank: (?P<ranks>\d{1,7})",
        rf"[Rr]emote rank:? ?\[(?P<ranks>{_RANKS})\]",
        (
            rf"[Rr]emote_?[Uu]serrank\[(?P<ranks>\d{{1,7}})\]"
            rf"(?:-remote_?[Ii]p_?[Aa]ddr\[(?P<ip>{_ADDRESS}){_ZONE}(?:/(?P<device>\d{{1,5}}))?\])?"
        ),
        rf'List of unconnected ranks: "?\[(?P<ranks>{_RANKS})\]',
        rf"Failed to connect agent\[(?P<ranks>{_RANKS})\]",
        # A row of LINK_ERROR_INFO: dest_ip(rank), with or without its port, then src_ip(rank).
        (
            rf"\|\s{{0,40}}(?P<ip>{_ADDRESS}){_ZONE}\((?P<ranks>\d{{1,7}})\)\s{{0,40}}\|"
            rf"(?:\s{{0,40}}\d{{1,20}}\s{{0,40}}\|)?\s{{0,40}}{_ADDRESS}{_ZONE}\("
        ),
        (
            rf"Peer information: server (?P<host>[^\s,]{{1,253}}), device ID (?P<device>\d{{1,5}}),"
            rf" device IP (?P<ip>{_ADDRESS})"
        ),
        (
            r"remoteIP\{server\[(?P<host>[^\]]{1,253})\],deviceId\[[^\]]{0,45}\],"
            rf"deviceIp\[(?P<ip>{_ADDRESS}){_ZONE}\]"
        ),
        (
            r"(?:rank |Location\[IP/ID\]:)\[(?P<host>[^\]/]{1,253})/(?P<device>\d{1,5})\]"
            r"(?= status\[|, Arrival)"
        ),
        (
            r"fails to connect to dstRank \(server (?P<host>[^\s,]{1,253}), device ID"
            r" (?P<device>\d{1,5})\)"
        ),
        rf"connect server\[(?P<host>{_ADDRESS}){_ZONE} : \d{{1,5}}\] failed",
        r"send/recv from rank (?P<ranks>\d{1,7})",
        rf"Ranks? (?P<ranks>{_RANKS}) failed to pass monitoredBarrier",
    )
)
"""Messages about a missing peer."""
_PLACES: Final = tuple(
    re.compile(form)
    for form in (
        r"(?<!local=)(?<!addr=)\[(?P<host>[\w.:-]{1,253})\]:\d{1,5}(?!\d)",
        r"any network address of \((?P<host>[\w.:-]{1,253}), \d{1,5}\)",
        r"connect\(\) to (?P<host>[\w.-]{1,253})(?::\d{1,5})? failed",
        (
            r"Peer host(?:name)?: {1,40}(?P<host>[\w.-]{1,253})"
            r"(?: {1,10}\(\[\[\d{1,10},\d{1,10}\],(?P<ranks>\d{1,7})\]\))?"
        ),
    )
)
"""The other end of a connection."""
_OWN: Final = re.compile(
    r"(?:[Ll]ocal_?[Uu]serrank|local rank|rankId)\[(\d{1,7})\]"
    r"|\|\s{0,40}[0-9A-Fa-f.:]{2,45}(?:%[\w.-]{1,40})?\((\d{1,7})\)\s{0,40}\|"
    r"\s{0,40}(?:\d{1,20}\s{0,40}\|)?\s{0,40}(?:server|client)"
)
"""The number of the rank that writes."""
_SIZE: Final = re.compile(r"(?:rankSize|rankNum|rankNum is|rank num) ?\[(\d{1,7})\]")
_GROUP: Final = re.compile(r"\bgroup_name_\d")
_CONNECTED: Final = re.compile(r"connected rankinfo\[LINE \d{1,5}\]: ([\[\]\d, ]{1,8000})")
_WHOLE: Final = re.compile(r"[\[ ,](\d{1,16})(?=[\], ])")


@dataclass(frozen=True)
class Named:
    """The ranks and nodes of the job that an output names as missing."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    """Where only an address is named: some rank there."""


def names_a_peer(text: str) -> bool:
    """Whether the text is a message about a missing peer."""
    return any(form.search(text) for form in _PEER_FORMS)


class Peers:
    """Finds ranks and nodes of one job by the names that outputs use."""

    def __init__(self, plan: LaunchPlan | JobRecord) -> None:
        self._size = len(plan.ranks)
        self._by_ip: dict[str, set[int]] = {}
        self._by_device = {(rank.node, rank.device_id): rank.rank for rank in plan.ranks}
        for rank in plan.ranks:
            if rank.device_ip:
                self._by_ip.setdefault(rank.device_ip.lower(), set()).add(rank.rank)
        self._nodes = {
            name.lower(): node for node, names in plan.addresses.items() for name in names
        }

    def named_in(self, text: str, rank: PlannedRank) -> Named:
        """The ranks and nodes that the output of `rank` names as missing.

        An address of a device decides before a number: numbers are those of one communicator.
        They count only where nothing shows that it is another than that of all ranks.
        """
        are_of_the_job = self._numbers_count(text, rank.rank)
        ranks: set[int] = set()
        nodes: set[str] = set()
        for match in _matches(text):
            parts = match.groupdict()
            place = self._at(parts)
            if place is not None:
                ranks.add(place)
            elif parts.get("ranks"):
                ranks |= self._numbers(parts["ranks"]) if are_of_the_job else set()
            elif node := self._nodes.get((parts.get("host") or "").lower()):
                nodes.add(node)
        if are_of_the_job:
            ranks |= self._not_connected(text)
        return Named(tuple(sorted(ranks - {rank.rank})), tuple(sorted(nodes)))

    def _at(self, parts: dict[str, str | None]) -> int | None:
        """The rank of a device's address, or of a server's address and a device id."""
        ip = (parts.get("ip") or "").lower()
        of_ip = self._by_ip.get(ip, set())
        if len(of_ip) == 1:
            return next(iter(of_ip))
        node = self._nodes.get((parts.get("host") or ip).lower())
        device = parts.get("device")
        return None if node is None or not device else self._by_device.get((node, int(device)))

    def _numbers_count(self, text: str, own: int) -> bool:
        owns = {int(a or b) for a, b in _OWN.findall(text)}
        sizes = {int(size) for size in _SIZE.findall(text)}
        return owns <= {own} and sizes <= {self._size} and not _GROUP.search(text)

    def _numbers(self, listed: str | None) -> set[int]:
        numbers = (part.strip() for part in (listed or "").split(","))
        return {n for part in numbers if part.isdigit() and (n := int(part[-9:])) < self._size}

    def _not_connected(self, text: str) -> set[int]:
        """The ranks that did not connect to the root, where it logs how many should have."""
        lines = _CONNECTED.findall(text)
        if not lines or not _SIZE.search(text):
            return set()
        came = {int(number) for line in lines for number in _WHOLE.findall(line)}
        return set(range(self._size)) - came


def _matches(text: str) -> Iterator[re.Match[str]]:
    for form in (*_PEER_FORMS, *_PLACES):
        yield from form.finditer(text)


_CALM: Final = 20
"""So many ordinary lines between two errors: the first was overcome before the second came."""
_OVERCOME: Final = 200
"""So many ordinary lines after an error: the rank went on, it is no cause."""
_LONGEST: Final = 300
_MESSAGE_LINES: Final = 6

_PREFIX: Final = re.compile(r"(?:\[rank\d+\]: ?|\[\d+,\d+\]<std(?:err|out)>: ?)+")
_TRACEBACK: Final = re.compile(r"\s*Traceback \(most recent call last\):")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_GOES_ON: Final = re.compile(r"\s|\[ERROR\] .* ERR\d{5} |\[Error\]|E[A-Z]\d{4}: ")
"""Lines by which torch_npu's exceptions go on: its own code, then CANN's with its solution."""
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d")
_STRONG: Final = re.compile(
    r"Fatal Python error|Segmentation fault|Bus error|terminate called|core dumped"
    r"|An error occurred in MPI_|Signal: \w+|\S\.py: error: |can't open file|: command not found"
    r"|could not start rank \d+"
)
_WEAK: Final = re.compile(
    r"\[ERROR\]|\bERROR\b|\bCRITICAL\b|\bFATAL\b|(?<![A-Za-z0-9])[EF]\d{4} \d\d:\d\d:|: [EF] \S+/"
)
_ENDED: Final = re.compile(r"KeyboardInterrupt|SignalException|\bSIGTERM\b|got signal: 15")
"""What ranks log when they are ended."""


@dataclass(frozen=True)
class ErrorInLog:
    """One error in a log."""

    words: str
    line: str
    """The line of it on which a time stands, if one does."""
    offset: int
    """Of its first byte in the log."""
    of_a_peer: bool
    trouble: str = ""
    """Everything around it that belongs to this trouble: whom it names may stand in any line."""


@dataclass
class _Found:
    said: ErrorInLog
    line: int
    """Number of its first line."""
    strong: bool
    calm_before: int
    """Ordinary lines since the error before it."""
    calm_after: int = 0


def error_in(tail: bytes, *, begins_at: int = 0) -> ErrorInLog | None:
    """The first error of the last trouble in the end of a log; None where it tells of none.

    `begins_at` is where in the log `tail` begins. What came before twenty ordinary lines is another
    trouble; what is followed by two hundred is none.
    """
    lines = _lines(tail, begins_at)
    found = [f for f in _errors(lines) if f.calm_after <= _OVERCOME]
    trouble: list[_Found] = []
    for one in reversed(found):
        trouble.insert(0, one)
        if one.calm_before > _CALM:
            break
    if not trouble:
        return None
    strong = [one for one in trouble if one.strong]
    said = (strong or trouble)[0].said
    text = "\n".join(line for _, line in lines[max(0, trouble[0].line - _CALM) :])
    # Lines that are only marked as errors say less than one that names a peer.
    of_a_peer = said.of_a_peer or (not strong and names_a_peer(text))
    return replace(said, of_a_peer=of_a_peer, trouble=text)


def without_numbers(words: str) -> str:
    """`words` without what differs between ranks that fail alike: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", words)


def _errors(lines: list[tuple[int, str]]) -> list[_Found]:
    found: list[_Found] = []
    number, calm, chained = 0, 0, False
    while number < len(lines):
        offset, line = lines[number]
        took, text, strong = _error_at([text for _, text in lines[number : number + 400]])
        if not took:
            chained = chained or line.startswith(_CHAINED)
            if line.strip() and not line.startswith((*_CHAINED, " ", "\t")):
                calm += 1
            number += 1
            continue
        if not (_ENDED.search(text) or (chained and found)):
            found.append(_Found(_error_of(text, line, offset), number, strong, calm))
            for before in found[:-1]:
                before.calm_after += calm
            calm = 0
        chained = False
        number += took
    for one in found:
        one.calm_after += calm
    return found


def _lines(tail: bytes, begins_at: int) -> list[tuple[int, str]]:
    lines, offset = [], begins_at
    for raw in tail.split(b"\n"):
        text = raw.decode(errors="replace").rstrip("\r")
        lines.append((offset, _PREFIX.sub("", text, count=1) if text.startswith("[") else text))
        offset += len(raw) + 1
    return lines


def _error_at(lines: list[str]) -> tuple[int, str, bool]:
    """How many lines the error takes that begins with the first, its text, whether it is sure."""
    first = lines[0]
    if _TRACEBACK.match(first):
        return _traceback(lines)
    if is_of_a_peer(first) or known_words(first) or code_in(first) or _STRONG.search(first):
        return 1, first, True
    if _EXCEPTION.match(first):
        return _with_message(lines, 0)
    return (1, first, False) if _WEAK.search(first) else (0, "", False)


def _traceback(lines: list[str]) -> tuple[int, str, bool]:
    for number, line in enumerate(lines[1:], 1):
        if line.strip() and not line.startswith((" ", "\t")):
            return _with_message(lines, number)
    return len(lines), lines[0].strip(), True


def _with_message(lines: list[str], number: int) -> tuple[int, str, bool]:
    """The exception on this line and what it goes on to say."""
    text = [lines[number]]
    for line in lines[number + 1 : number + _MESSAGE_LINES]:
        if not line.strip() or not _GOES_ON.match(line):
            break
        text.append(line)
    return number + len(text), "\n".join(text), True


def _error_of(text: str, line: str, offset: int) -> ErrorInLog:
    first, *rest = lines = text.strip().splitlines()
    known = known_words(text)
    line_known = next((one.strip() for one in lines if known and known_words(one) is known), first)
    words = first if line_known == first else f"{first[: _LONGEST // 2]} … {line_known}"
    return ErrorInLog(
        words=words[:_LONGEST],
        line=next((one for one in (line, first, *rest) if _TIME.search(one)), line),
        offset=offset,
        of_a_peer=is_of_a_peer(text) or names_a_peer(text),
    )


TAIL_BYTES: Final = 65_536
"""Only so much of the end of each log is read, so that every diagnosis sees the same."""
_SECOND: Final = 1.0


class Collector:
    """Collects the evidence of one job."""

    def __init__(
        self,
        plan: LaunchPlan | JobRecord,
        progress: Progress,
        *,
        folder: Path,
        clocks: NodeClocks,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._folder = folder
        self._clocks = clocks
        self._peers = Peers(plan)
        self._zones = {
            rank.node: end.zone_s
            for rank in plan.ranks
            if (end := progress.ended.get(rank.rank)) is not None and end.zone_s is not None
        }

    def evidence(self, ends: tuple[RankEnd, ...]) -> Iterator[Evidence]:
        """All evidence; `ends` with what only the launcher saw."""
        for rank, end in zip(self._plan.ranks, ends, strict=True):
            seen = self._progress.ended.get(rank.rank)
            if seen is not None:
                yield self._ended(rank, seen)
            elif end.exit_code:
                yield Evidence(
                    kind=Kind.KILLED, rank=rank.rank, exit_code=end.exit_code, source="launcher.log"
                )
            if seen is None or seen.exit_code:
                yield from self._words(rank, seen)

    def _ended(self, rank: PlannedRank, seen: RankEnded) -> Evidence:
        by_us = self._progress.was_ended(rank.rank, self._plan.nodes.index(rank.node))
        return Evidence(
            kind=Kind.ENDED_BY_US if by_us else Kind.ENDED,
            rank=rank.rank,
            at=self._on_our_clock(rank, seen.at),
            exit_code=seen.exit_code,
            source="events",
            out_of_memory=seen.out_of_memory,
        )

    def _words(self, rank: PlannedRank, seen: RankEnded | None) -> Iterator[Evidence]:
        filed = self._error_file(rank)
        said = self._error_in_log(rank)
        if said is not None:
            at, precision_s = self._time(rank, seen, said)
            late = at is not None and at - precision_s >= self._ending_started(rank)
            if at is None and filed is not None:
                at, precision_s = filed.at, filed.precision_s
            yield Evidence(
                kind=Kind.PEER if said.of_a_peer else Kind.LATE if late else Kind.OWN,
                rank=rank.rank,
                at=at,
                precision_s=precision_s,
                words=said.words,
                source=rank_log(rank.rank),
                **self._blames(said.trouble, rank) if said.of_a_peer else {},
            )
        elif filed is not None:
            yield filed

    def _error_in_log(self, rank: PlannedRank) -> ErrorInLog | None:
        path = self._folder / rank_log(rank.rank)
        tail, begins_at = tail_of(path, since=self._progress.log_begins.get(rank.rank, 0))
        return error_in(tail, begins_at=begins_at)

    def _time(
        self, rank: PlannedRank, seen: RankEnded | None, said: ErrorInLog
    ) -> tuple[float | None, float]:
        """When it was logged, and by how much that may be too late."""
        ended = None if seen is None else self._on_our_clock(rank, seen.at)
        zone_s = self._zones.get(rank.node)
        written = time_in(said.line, zone_s=zone_s, until=None if seen is None else seen.at)
        if written is not None:
            whole = _SECOND if written.is_integer() else 0.0  # then it was within that second
            return _not_after(self._on_our_clock(rank, written + whole), ended), whole
        arrivals = self._progress.arrivals.get(rank_log(rank.rank))
        came = None if arrivals is None else arrivals.of(said.offset)
        return (None, 0.0) if came is None else (_not_after(came, ended), PRECISION_S)

    def _error_file(self, rank: PlannedRank) -> Evidence | None:
        """What torchelastic's `@record` wrote; its time is a whole second."""
        try:
            message = json.loads(self._progress.error_files[rank.rank])["message"]
            at = float(message["extraInfo"]["timestamp"]) + _SECOND
            words = str(message["message"])
        except (KeyError, TypeError, ValueError):
            return None
        seen = self._progress.ended.get(rank.rank)
        ended = None if seen is None else self._on_our_clock(rank, seen.at)
        return Evidence(
            kind=Kind.PEER if is_of_a_peer(words) or names_a_peer(words) else Kind.OWN,
            rank=rank.rank,
            at=_not_after(self._on_our_clock(rank, at), ended),
            precision_s=_SECOND,
            words=words.strip().partition("\n")[0],
            source="error file",
            **self._blames(words, rank),
        )

    def _blames(self, text: str, rank: PlannedRank) -> dict[str, Any]:
        named = self._peers.named_in(text, rank)
        return {"blames": named.ranks, "blamed_nodes": named.nodes}

    def _ending_started(self, rank: PlannedRank) -> float:
        """When it was being ended: errors from then on are no cause."""
        node_rank = self._plan.nodes.index(rank.node)
        return self._on_our_clock(rank, self._progress.ending_started(rank.rank, node_rank))

    def _on_our_clock(self, rank: PlannedRank, at: float) -> float:
        return self._clocks.here(rank.node, at)


def tail_of(path: Path, *, since: int = 0) -> tuple[bytes, int]:
    """The end of a log from the beginning of a line on, and where it begins.

    `since` is where the rank began for the last time: what stands before is not read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begins_at = max(since, size - TAIL_BYTES)
            file.seek(begins_at)
            tail = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return b"", 0
    if begins_at == since:
        return tail, begins_at
    first, newline, rest = tail.partition(b"\n")
    return (rest, begins_at + len(first) + 1) if newline else (tail, begins_at)


def _not_after(at: float, ended: float | None) -> float:
    return at if ended is None else min(at, ended)
