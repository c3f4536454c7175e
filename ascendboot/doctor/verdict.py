"""Finds what failed first in a job from the logs of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from ascendboot.doctor.scan import logs_in, selected_lines
from ascendboot.doctor.writers import Writer, Writers, rank_in_name
from ascendboot.errors import UsageError
from ascendboot.jobs.diagnosis import first_cause
from ascendboot.jobs.error_codes import known_words
from ascendboot.jobs.evidence import (
    ErrorKind,
    Peers,
    RankError,
    RankEvidence,
    error_among,
    first_error,
    is_of_a_log,
    without_numbers,
)
from ascendboot.jobs.progress import codes_of_killed
from ascendboot.launch.plan import JobRecord, PlannedRank
from ascendboot.model.job import CauseKind, Followed, JobCause
from ascendboot.model.names import ranks_named
from ascendboot.ranktable.formats import table_of
from ascendboot.ranktable.text import read
from ascendboot.value import Value, field, replace

_UNNAMED: Final = 10_000_000
"""From here on numbers stand for processes whose rank is unknown."""
_NUMBER: Final = re.compile(r"\b1\d{7}(?:-1\d{7})?\b")
_NODE_LOG: Final = re.compile(r".{0,60}?\bkernel: |\[ *\d{1,9}\.\d{6}\] |.{0,60}?\bsystemd\[1\]: ")
_LAUNCHER: Final = re.compile(r"(?:^|/)(?:launcher|agent\.\d{1,6})\.log$")
_FIRST_END: Final = re.compile(
    r"Process name: \[\[\d{1,9},\d{1,5}\],(\d{1,5})\]\s{1,9}Exit code: {1,9}(\d{1,3})\b"
)
"""The first process to fail and its exit code, as mpirun (4.1) prints it."""
_LEAST_S: Final = 2.0
_MOST_CANDIDATES: Final = 4
_DAY_S: Final = 86400.0
_PROSE: Final = "its line has no time, level, process or rank: it may only describe an error"


class Layout(Value):
    """The ranks of a job and the names of its nodes, as far as they are known."""

    ranks: tuple[PlannedRank, ...] = ()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""
    """The file that states them; empty: the logs."""

    @classmethod
    def of_record(cls, record: JobRecord) -> Layout:
        """The layout of a job of ascendboot."""
        return cls(record.ranks, record.addresses, f"job {record.job_id}")

    @classmethod
    def of_table(cls, name: str) -> Layout:
        """The layout in a rank table; RankTableError if the file is none."""
        rows = table_of(read(name)).rows
        ranks = (
            PlannedRank(r.rank, r.server, r.device_id, r.device_id, ",".join(r.addresses))
            for r in rows
        )
        return cls(tuple(ranks), {row.server: (row.server,) for row in rows}, name)

    def contradiction(self, writers: Sequence[Writer]) -> str:
        """Return why these logs are of another job; empty if nothing shows that."""
        by_rank = {rank.rank: rank for rank in self.ranks}
        for one in writers if self.ranks else ():
            stated = by_rank.get(-1 if one.rank is None else one.rank)
            if one.rank is not None and stated is None:
                return f"it has no rank {one.rank}, and {one.name} is of that rank"
            if one.size > len(self.ranks):
                return f"it has {len(self.ranks)} ranks, and {one.name} is of {one.size}"
            ip = stated.device_ip if stated else None
            if one.ip and ip and one.ip not in ip.split(",") and one.ip != "0.0.0.0":  # noqa: S104
                return f"its rank {one.rank} has the device address {ip}, and {one.name} {one.ip}"
        return ""


_OF_A_REPORT: Final = {"source", "devices", "losses"}
"""What only the report of a job states of its cause."""


class Verdict(Value, kw_only=True):
    """What failed first in one job."""

    cause: JobCause
    place: str
    """FILE:LINE of its words."""

    @property
    def known_id(self) -> str:
        """The known error that explains it; empty: none does."""
        known = known_words(self.cause.words)
        return known.id if known else ""

    @property
    def certainty(self) -> str:
        """How sure it is, in one word."""
        if self.cause.kind is CauseKind.ONE_OF:
            return "undecided"
        return "likely" if self.cause.unsure else "certain"

    @classmethod
    def of_report(cls, cause: JobCause, folder: Path) -> Verdict:
        """The verdict that the report of a job has, with the line of its words."""
        path = folder / cause.source
        words = cause.words.partition(" … ")[0].encode()
        found = 0
        if words and cause.source and path.is_file():
            with path.open("rb") as lines:
                found = max((n for n, line in enumerate(lines, 1) if words in line), default=0)
        return cls(cause=cause, place=f"{path}:{found}" if found else "")

    def lines(self) -> list[str]:
        """The verdict as text."""
        title, *details = self.cause.lines()
        place = [f"  place: {self.place}"] if self.place else []
        return [title, *place, *details, f"  how sure: {self.certainty}"]

    def to_json(self) -> dict[str, object]:
        """The verdict as documented in the reference of `doctor --json`."""
        cause = {k: v for k, v in self.cause.to_json().items() if k not in _OF_A_REPORT}
        known = {"place": self.place, "known_error": self.known_id or None}
        return {**cause, **known, "certainty": self.certainty}


def jobs_among(writers: Sequence[Writer]) -> list[list[Writer]]:
    """Divide processes into jobs; those that name no job belong to all, or are one.

    Communicators of one job have different names; they are one job unless a rank is in both.
    """
    jobs: list[list[Writer]] = []
    for one in (one for one in writers if one.job):
        fits = (
            its
            for its in jobs
            if one.job in {m.job for m in its}
            or (one.size in {m.size for m in its} and one.rank not in {m.rank for m in its})
        )
        if (members := next(fits, None)) is None:
            jobs.append(members := [])
        members.append(one)
    others = [one for one in writers if not one.job]
    if len(jobs) <= 1:
        return [[*writers]]
    apart: dict[str, list[Writer]] = {}
    for one in others:
        if one.rank is not None and one.lines:
            apart.setdefault(one.name.partition(", ")[0], []).append(one)
    unknown = [one for one in others if one.rank is None]
    return [[*job, *unknown] for job in (*jobs, *apart.values())]


class Examination:
    """The evidence in the logs of one job."""

    def __init__(
        self, writers: Sequence[Writer], layout: Layout, paths: Iterable[str], uncertainty_s: float
    ) -> None:
        """`paths` are those of all files, also without an error."""
        self._uncertainty_s = uncertainty_s
        self._logged = {rank_in_name(path) for path in paths} | {one.rank for one in writers}
        """The ranks of which there is a log."""
        self._unlogged: set[int] = set()
        """The ranks that mpirun names as the first that ended, without a log."""
        self._launchers = [one for one in writers if _LAUNCHER.search(one.name)]
        ranked = [one for one in writers if one not in self._launchers]
        self._of_group = _ranks_of_groups(ranked)
        ends = (one.rank + 1 for one in ranked if one.rank is not None)
        self._size = max(0, len(layout.ranks), *(one.size for one in ranked), *ends)
        self._is_stated = bool(layout.ranks)
        ranks = {rank.rank: rank for rank in (layout.ranks or _seen_ranks(ranked))}
        addresses = {node: list(names) for node, names in layout.addresses.items()}
        for one in ranked:
            rank = ranks.get(-1 if one.rank is None else one.rank)
            if one.node and rank is not None:
                addresses.setdefault(rank.node, [rank.node]).append(one.node)
        self._ranks = ranks
        self._peers = Peers(tuple(ranks.values()), addresses, self._size)
        self.hints: list[str] = []
        """What logs of the nodes themselves show."""
        self._names: dict[int, str] = {}
        self._unmarked: set[str] = set()
        """The places of errors whose lines have no mark of a log."""
        self._errors = self._collect(ranked)

    def _collect(self, writers: Sequence[Writer]) -> dict[int, list[RankError]]:
        """Return the errors by rank; processes of unknown rank get numbers of their own."""
        found: dict[int, list[RankError]] = {}
        for number, one in enumerate(writers, _UNNAMED):
            error = self._error(one)
            if error is not None and _NODE_LOG.match(error.words):
                self.hints.append(f"{error.source}: {error.words}")
            elif error is not None:
                rank = number if one.rank is None else one.rank
                self._names[rank] = one.name
                found.setdefault(rank, []).append(error)
        return found

    def _error(self, one: Writer) -> RankError | None:
        """Return the error in the lines of a process; if it went on after it, that one."""
        lines = one.lines
        texts = [line.text for line in lines]
        numbers = [0]
        for before, line in pairwise(lines):
            gap = line.number - before.number if line.file is before.file else 1
            numbers.append(numbers[-1] + max(1, gap))
        logged = error_among(texts, numbers) or error_among(texts, range(len(texts)))
        if logged is None:
            return None
        first, decisive = lines[logged.index], lines[logged.decisive]
        at = first.file.time_in(first.stamp or logged.line)
        place = f"{decisive.file.path}:{decisive.number}"
        is_known = one.rank is not None or ", " in one.name or first.stamp
        if not (is_known or is_of_a_log(first.text) or is_of_a_log(decisive.text)):
            self._unmarked.add(place)
        found = RankError(
            kind=ErrorKind.OWN,
            at=at,
            precision_s=1.0 if at is not None and at.is_integer() else 0.0,
            words=_legible(logged.words),
            source=place,
        )
        if not logged.of_a_peer:
            return found
        n = one.rank
        writer = None if n is None else self._ranks.get(n, PlannedRank(n, "", -1, -1))
        missing = self._peers.named_in(logged.trouble, writer)
        return replace(found, kind=ErrorKind.PEER, missing=missing)

    def evidence(self) -> list[RankEvidence]:
        """Return the evidence of each rank, and of each process of unknown rank with an error."""
        texts = [" ".join(line.text for line in one.lines) for one in self._launchers]
        ends = {int(rank): int(code) for text in texts for rank, code in _FIRST_END.findall(text)}
        # Without its log nothing shows whether it only lost another rank.
        self._unlogged = ends.keys() - self._logged
        ends = {rank: code for rank, code in ends.items() if rank in self._logged}
        ends |= codes_of_killed(texts)
        found = []
        for rank in sorted({*self._errors, *ends, *range(self._size)}):
            place = self._ranks.get(rank)
            found.append(
                RankEvidence(
                    rank=rank,
                    node=place.node if place else self._names.get(rank, "unknown"),
                    device=place.device_id if place else -1,
                    exit_code=ends.get(rank),
                    is_from_logs=True,
                    error=first_error(self._errors.get(rank, ())),
                )
            )
        return found

    def verdict(self) -> Verdict | None:
        """Return what failed first; None if no log has an error."""
        if evidence := self.evidence():
            text = "\n".join(line.text for one in self._launchers for line in one.lines)
            named = self._peers.named_in(text, None)
            cause = first_cause(evidence, named, uncertainty_s=self._uncertainty_s)
            if cause is not None:
                return self._described(cause, evidence)
        if self.hints:
            place, _, words = self.hints[0].partition(": ")
            return _plain_verdict(place, words, "a log of the node itself shows it")
        error = next(filter(None, map(self._error, self._launchers)), None)
        if error is None:
            return None
        return _plain_verdict(error.source, error.words, "no rank failed on its own")

    def _described(self, cause: JobCause, evidence: Sequence[RankEvidence]) -> Verdict:
        """Name ranks by node and device, and processes of unknown rank by their files."""
        chosen = [one for one in evidence if one.rank in cause.ranks]
        head = next((one for one in chosen if one.first_error.words == cause.words), chosen[0])
        is_lone = len(evidence) == 1 and head.peer is not None
        unsure = self._doubts(cause, head, evidence)
        times = [one.error.at for one in evidence if one.error and one.error.at is not None]
        if head.rank >= _UNNAMED:
            why = "this log has the first error of its own" if head.own else ""
            cause = replace(cause, why=why, followed=())
            unsure = ["the logs do not show which of them was first"] if cause.unsure else []
        else:
            # Without the numbers that stand for processes of unknown rank.
            groups = ((tuple(r for r in f.ranks if r < _UNNAMED), f.how) for f in cause.followed)
            followed = tuple(Followed(ranks, how) for ranks, how in groups if ranks)
            cause = replace(cause, why=_NUMBER.sub("others", cause.why), followed=followed)
        shown = (one.error for one in evidence if one.error and one.error.words == cause.words)
        error = next(shown, head.first_error)
        title = self._title(cause.kind, chosen, is_lone=is_lone)
        is_vague = is_lone
        if times and (days := (max(times) - min(times)) / _DAY_S) > 1:
            unsure.append(f"the errors are {days:.0f} days apart: they may be of several jobs")
            if not is_lone and head.rank >= _UNNAMED:
                is_vague, title = True, f"not certain: {title}"
        if error.source in self._unmarked:
            unsure.append(_PROSE)
            is_vague, title = True, f"{self._name(head)}: not certain that it is a log"
        known = known_words(error.words)
        described = replace(
            cause,
            kind=CauseKind.ONE_OF if is_vague else cause.kind,
            title=title,
            ranks=tuple(rank for rank in cause.ranks if rank < _UNNAMED),
            nodes=tuple(dict.fromkeys(one.node for one in chosen if one.rank in self._ranks)),
            device=None if cause.device == -1 else cause.device,
            words=error.words,
            source=error.source.rpartition(":")[0] if error.words else "",
            meaning=cause.meaning or (known.meaning if known else ""),
            remedy=cause.remedy or (known.remedy if known else ""),
            why="it is the only log" if is_lone else cause.why,
            unsure="; ".join(unsure),
        )
        return Verdict(cause=described, place=error.source if error.words else "")

    def _doubts(
        self, cause: JobCause, head: RankEvidence, evidence: Sequence[RankEvidence]
    ) -> list[str]:
        doubts = [cause.unsure] if cause.unsure else []
        if _NUMBER.search(cause.unsure):
            doubts = ["a log of unknown rank may have the first error"]
        is_by_number = head.rank < _UNNAMED and not self._is_stated
        is_by_others = cause.kind in (CauseKind.LEFT, CauseKind.ONE_OF)
        if is_by_number and (is_by_others or head.rank in self._of_group):
            doubts.append(
                f"the rank numbers are those of the largest group in the logs, of {self._size}"
                " ranks; --rank-table names the ranks of the job"
            )
        absent = [n for n in cause.ranks if n < _UNNAMED and n not in self._logged]
        reports = [{*one.peer.missing.ranks} for one in evidence if one.peer]
        named = set[int]().union(*reports).intersection(*filter(None, reports))
        quiet = any(one.error is None and one.rank not in cause.ranks for one in evidence)
        if cause.kind is CauseKind.LEFT and absent and (quiet or not named.issuperset(absent)):
            doubts.append(f"there is no log of {ranks_named(absent)}")
        if not is_by_others and (unlogged := sorted(self._unlogged - {*cause.ranks})):
            doubts.append(f"{ranks_named(unlogged)} ended first, and there is no log of it")
        if cause.kind is CauseKind.LEFT and head.peer is not None:
            doubts.append("it lost a peer itself")
        return doubts

    def _title(self, kind: CauseKind, chosen: Sequence[RankEvidence], *, is_lone: bool) -> str:
        names = [self._name(one) for one in chosen[:_MOST_CANDIDATES]]
        if len(chosen) > _MOST_CANDIDATES:
            known = [one.rank for one in chosen if one.rank < _UNNAMED]
            rest = f"{len(chosen) - len(known)} logs" if len(known) < len(chosen) else ""
            names = [part for part in (known and ranks_named(known), rest) if part]
        who = ", ".join(names)
        if is_lone:
            return f"{who}: lost another rank, which the log does not name"
        if kind is CauseKind.ONE_OF:
            return f"not certain which rank failed first: one of {who}"
        if kind is CauseKind.LEFT:
            missing = all(one.error is None for one in chosen)
            how = "and logged no error" if missing else "and lost a peer itself"
            return f"{who}: did not answer while others waited, {how}"
        if len(chosen) > 1:
            return f"{who}: failed alike"
        ending = "" if chosen[0].exit_code is None else f", {chosen[0].ending}"
        return f"{who}: failed first{ending}"

    def _name(self, one: RankEvidence) -> str:
        if one.rank >= _UNNAMED:
            return self._names[one.rank]
        place = self._ranks.get(one.rank)
        if place is None:
            return f"rank {one.rank}"
        device = "" if place.device_id < 0 else f", device {place.device_id}"
        return f"rank {one.rank} (node {place.node}{device})" if place.node else f"rank {one.rank}"


def _ranks_of_groups(writers: Sequence[Writer]) -> set[int]:
    """Return the ranks known only in a communicator; clear them if two processes have the same."""
    of_group = [one for one in writers if one.is_of_group and one.rank is not None]
    ranks = {one.rank for one in of_group if one.rank is not None}
    if len(ranks) == len(of_group):
        return ranks
    for one in of_group:
        one.rank, one.size = None, 0
    return set()


def _plain_verdict(place: str, words: str, why: str) -> Verdict:
    known = known_words(words)
    source = place.rpartition(":")[0]
    cause = JobCause(
        kind=CauseKind.LAUNCHER,
        title=f"{source}: has the only error",
        ranks=(),
        nodes=(),
        words=words,
        source=source,
        meaning=known.meaning if known else "",
        remedy=known.remedy if known else "",
        why=why,
        unsure="no log of a rank has an error",
    )
    return Verdict(cause=cause, place=place)


def _seen_ranks(writers: Iterable[Writer]) -> list[PlannedRank]:
    seen = {}
    for one in writers:
        if one.rank is not None and (one.node or one.device is not None or one.pod):
            device = -1 if one.device is None else one.device
            seen[one.rank] = PlannedRank(one.rank, one.node or one.pod, device, device, one.ip)
    return list(seen.values())


class Examined(Value):
    """What the logs of one or several jobs show."""

    verdicts: tuple[Verdict, ...]
    """One for each job that failed."""
    notes: tuple[str, ...]
    files: int


def examine(places: Sequence[Path], layout: Layout, record: JobRecord | None = None) -> Examined:
    """Read all logs in these files and folders, and find what failed first in each job."""
    logs = logs_in(places)
    if not logs.files:
        raise UsageError(f"doctor: {', '.join(map(str, places))}: has no logs; name their files")
    gathered = Writers(logs.files)
    for line in selected_lines(logs.files):
        gathered.add(line)
    writers = gathered.all()
    notes = [*logs.notes, *(f"{f.path}: {f.problem}" for f in logs.files if f.problem)]
    notes += [
        f"{f.path}: {f.left_out} lines with errors in its middle were not examined"
        for f in logs.files
        if f.left_out
    ]
    verdicts, paths = [], [str(file.path) for file in logs.files]
    jobs = jobs_among(writers)
    if len(jobs) > 1:
        notes.append(f"the logs are of {len(jobs)} jobs: their ranks and communicators differ")
    for members in jobs:
        used = layout
        if why := layout.contradiction(members):
            notes.append(f"{layout.source}: not used, it is of another job: {why}")
            used = Layout()
        starts = [one.started for one in members if one.started is not None]
        # Processes of a job start together: how far they seem apart is how far clocks may differ.
        clocks_s = max(_LEAST_S, max(starts, default=0.0) - min(starts, default=0.0))
        clocks_s = 2 * record.clocks.uncertainty_s if record else clocks_s
        found = Examination(members, used, paths, uncertainty_s=clocks_s)
        if verdict := found.verdict():
            verdicts.append(verdict)
            hints = (hint for hint in found.hints if not hint.startswith(verdict.place))
            notes += [f"a log of a node shows {hint}" for hint in hints]
    # Files without a selected line whose names differ by numbers from those of the others.
    named = {one.name.partition(", ")[0] for one in writers}
    forms = {without_numbers(name) for name in named}
    quiet = [path for path in paths if path not in named and without_numbers(path) in forms]
    if quiet and verdicts:
        notes.append(f"without any error: {', '.join(quiet)}")
    return Examined(tuple(verdicts), tuple(_legible(note) for note in notes), len(logs.files))


def _legible(words: str) -> str:
    """Return words of a log without control characters."""
    return "".join(c if c.isprintable() else "?" for c in words)
