"""Findings of a collective run: ranks that did not meet, and ranks that differ from the others."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from signal import SIGTERM
from typing import Any, TypeAlias

from ascendboot.checks.finding import Finding, Findings, Level, error, grouped
from ascendboot.errors import NotUnderstoodError
from ascendboot.jobs.start import not_started_anywhere
from ascendboot.launch.plan import rank_log
from ascendboot.model.cluster import Slot
from ascendboot.model.job import CauseKind, JobReport, JobState
from ascendboot.model.names import ranks_named
from ascendboot.model.secrets import is_secret_name, is_secret_value
from ascendboot.value import Value, field, from_json

MARK = "ascendboot-preflight "
PACKAGES = (
    *("torch", "torch_npu", "tensorflow", "tensorflow_cpu", "npu_bridge", "npu_device"),
    *("horovod", "mindspore", "mpi4py", "numpy"),
)
"""The packages that take part in training, by the names of their distributions."""
DOING = {
    "start": "before it loaded the library of the collective",
    "load": "while it loaded the library of the collective",
    "meet": "while it met the others",
    "neighbours": "while it talked with the next node",
    "gather": "in the gather",
    "sum": "in the allreduce",
    "done": "at the very end",
}
_STAGES = ("", *DOING)
"""The stages in their order; empty: the rank has written no note."""


class RankNotes(Value, kw_only=True):
    """The notes in the log of one rank."""

    at: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """As `meet.py` writes them; empty: it did not get so far."""
    digest: str = ""
    """Of the facts as they were written."""
    library: str = ""
    """The library by which it met the others, with its version."""
    digests: tuple[str, ...] = ()
    """What all ranks sent to this one, in the order of the collective."""
    wrong: tuple[float, ...] = ()
    """Place, value and right value of the first wrong number of the sum."""
    failed: str = ""
    """Why it gave up, in the stage `at`."""
    after_s: float = 0.0
    """How long it had been in that stage when it gave up."""
    waited: bool = False
    """It gave up because others had not begun to meet it."""
    silent: int | None = None
    """The rank from which it received nothing."""
    measured: Mapping[str, Any] | None = None
    """What `check --level full` measured on its device; None: nothing."""
    is_late: bool = False
    """It exceeded the limit of the stage, and ended itself."""
    others: tuple[str, ...] = ()
    """The lines of its log that are no notes."""


Slots: TypeAlias = Sequence[Slot]
Notes: TypeAlias = Mapping[int, RankNotes]
Facts: TypeAlias = Mapping[int, Mapping[str, Any]]
Remark: TypeAlias = tuple[tuple[int, ...], str]


def read_notes(folder: Path, ranks: Iterable[int]) -> dict[int, RankNotes]:
    """The notes of each rank from the copies of the logs in a folder; empty without a log."""
    paths = {rank: folder / rank_log(rank) for rank in ranks}
    return {
        rank: rank_notes(path.read_bytes().decode(errors="replace") if path.exists() else "")
        for rank, path in paths.items()
    }


def rank_notes(text: str) -> RankNotes:
    """The notes in the text of a log but an incomplete last line; or a NotUnderstoodError."""
    known: dict[str, Any] = {}
    others = []
    for number, line in enumerate(text.split("\n")[:-1], 1):
        # A library may write text without a line end in front of a note.
        before, mark, rest = line.partition(MARK)
        if before.strip():
            others.append(before)
        if not mark:
            continue
        try:
            note = {name: value for name, value in json.loads(rest).items() if value is not None}
            if "facts" in note:
                known["digest"] = sha256(note["facts"].encode()).hexdigest()
                note["facts"] = json.loads(note["facts"])
            read = from_json(note, RankNotes)
            known |= {name: getattr(read, name) for name in note}
            _STAGES.index(read.at)
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            tool, wanted = "the preflight's notes", "a stage and what belongs to it"
            raise NotUnderstoodError(tool, number, line[:200], wanted) from problem
    is_late = any(line.startswith("Timeout (") for line in others)
    return RankNotes(**known, is_late=is_late, others=tuple(others))


NEEDED = {"mpi": "mpi4py, built with the Open MPI of mpirun", "gloo": "torch with gloo"}
_CONNECT = "Let all ports between the nodes through, and see with check if they reach each other"


def collective_findings(slots: Slots, notes: Notes, report: JobReport, *, by: str) -> Findings:
    """Why the ranks did not meet, or not as they should; nothing if they did."""
    if report.state is JobState.NOT_STARTED:
        lines = report.message.splitlines()
        reasons = [line for line in lines if line != not_started_anywhere(report.job_id)]
        text = f"the preflight could not be run: {'; '.join(reasons)}"
        yield error("preflight-not-run", nodes_of(range(len(slots)), slots), text)
        return
    if report.state in (JobState.INTERRUPTED, JobState.STOPPED):
        return
    meet = _STAGES.index("meet")
    is_behind = any(_STAGES.index(own.at) < meet for own in notes.values())
    # they gave up only because others had not even begun to meet them
    waited = [r for r, own in notes.items() if is_behind and own.at == "meet" and own.waited]
    failed = {rank: own for rank, own in notes.items() if rank not in waited}
    blamed = [*_failures(slots, failed, by), *_ended(slots, notes, report)]
    yield from blamed or _hang(slots, notes, report, waited)
    for own in notes.values():
        given = dict(enumerate(own.digests))
        odd = [rank for rank in given if rank in notes and notes[rank].digest != given[rank]]
        if odd:
            words = "sent other data to the gather than it wrote to its log"
            remedy = "The launcher and the collective number the ranks differently"
            yield _failed(slots, odd, words, remedy)
    wrong = grouped((own.wrong, rank) for rank, own in notes.items() if own.wrong)
    for (place, value, right), ranks in wrong.items():
        words = f"got a wrong sum: number {place:.0f} is {value:g} and should be {right:g}"
        text = f"{ranks_shown(ranks, slots)}: {words}"
        remedy = "Memory or network of these nodes alter data: take them out and test them"
        yield error("preflight-sum", nodes_of(ranks, slots), text, remedy)


def _failed(
    slots: Slots, ranks: Sequence[int], words: str, remedy: str, level: Level = "error"
) -> Finding:
    text = f"{ranks_shown(ranks, slots)}: {words}"
    return Finding("preflight-failed", level, nodes_of(ranks, slots), text, remedy)


def _failures(slots: Slots, notes: Notes, by: str) -> Findings:
    """The ranks that gave up, and those from which another one received nothing."""
    for rank, own in notes.items():
        if own.silent is not None:
            nodes = (slots[rank].node.name, slots[own.silent].node.name)
            text = f"{ranks_shown([rank], slots)} of {nodes[0]}: received nothing from "
            text += f"{ranks_shown([own.silent], slots)} of {nodes[1]} within {own.after_s:.0f} s"
            yield error("preflight-silent", tuple(dict.fromkeys(nodes)), text, _CONNECT)
    failed = {rank: own for rank, own in notes.items() if own.failed and own.silent is None}
    alike = grouped(((own.at, own.failed), rank) for rank, own in failed.items())
    for (at, why), ranks in alike.items():
        remedy = f"Install {NEEDED[by]} there" if at == "load" else _CONNECT
        yield _failed(slots, ranks, f"failed {DOING[at]}: {why}", remedy)


def _ended(slots: Slots, notes: Notes, report: JobReport) -> Findings:
    """The rank that ended first, if it neither noted why nor took too long."""
    end = report.first_failure
    if end is None:
        return
    own = notes[end.rank]
    if own.failed or own.is_late:
        return
    if end.signal == SIGTERM and report.cause and report.cause.kind is CauseKind.LEFT:
        return  # the others missed it, and it was ended with them
    how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
    last = f": {own.others[-1]}" if own.others else ""
    words = f"ended with {how} {DOING.get(own.at, 'before its first note')}{last}"
    yield _failed(slots, [end.rank], words, f"Read its log: {end.log}")


def _hang(slots: Slots, notes: Notes, report: JobReport, waited: Sequence[int]) -> Findings:
    """The ranks that came least far, if the meeting did not end."""
    first = min(_STAGES.index(own.at) for own in notes.values())
    if report.exit_code == 0 and _STAGES[first] == "done":
        return
    behind = [rank for rank, own in notes.items() if _STAGES.index(own.at) == first]
    others = f"{ranks_shown(waited, slots)} timed out waiting" if waited else "no rank failed"
    level: Level = "error"
    if not first:
        words = "did not start: no note in the log" + (f"; {others}" if waited else "")
        remedy = "See whether the node runs, and read the launcher's log"
    elif _STAGES[first] == "done":
        words, remedy = "had the sum, but took too long to end", "Read the launcher's log"
        if all(end.exit_code == 0 for end in report.ranks):
            level = "warning"
    else:
        words, remedy = f"got no further {DOING[_STAGES[first]]}; {others}", _CONNECT
        if first < _STAGES.index("meet"):
            remedy = "See what holds it up on its own node; its log is in the run's folder"
    by_launcher = f" ({'; '.join(report.message.splitlines())})" if report.message else ""
    yield _failed(slots, behind, words + by_launcher, remedy, level)


def ranks_shown(ranks: Collection[int], slots: Slots) -> str:
    """`ranks 8-15`; one rank with its device."""
    if len(ranks) == 1:
        [rank] = ranks
        return f"rank {rank} on device {slots[rank].device_id}"
    return ranks_named(ranks)


def nodes_of(ranks: Collection[int], slots: Slots) -> tuple[str, ...]:
    """Names of the nodes of some ranks, in rank order."""
    return tuple(dict.fromkeys(slots[rank].node.name for rank in sorted(ranks)))


_LISTS = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
_SHOWN = 12
_LONG = 60

_REMEDIES = {
    "preflight-place": "See what sets it on that node, and whether all its ranks run in one place",
    "preflight-rank-table": "Run setup: it writes the same table everywhere",
    "preflight-versions": "Install the same version everywhere",
    "preflight-environment": (
        "Look for it in the container, in set_env.sh and in what starts Python on that node, or"
        " state it under env in the inventory and run setup"
    ),
    "preflight-limits": (
        "Set it alike: limits.conf or the service's LimitMEMLOCK and LimitNOFILE; --ulimit and"
        " --shm-size of a container"
    ),
}


def compare(slots: Slots, notes: Notes, digest: str) -> Findings:
    """Every rank that is not where it should be, or sees something else than most others.

    What the inventory states for a node is compared with that, and not with other nodes. `digest`
    is that of the plan's rank table, empty without one.
    """
    facts = {rank: own.facts for rank, own in notes.items() if own.facts}
    for id_, found in (
        ("preflight-place", _misplaced(slots, facts)),
        ("preflight-rank-table", _tables(slots, facts, digest)),
        ("preflight-versions", _unlike(facts, "versions", "not there")),
        ("preflight-environment", _environments(slots, facts)),
        ("preflight-limits", _unlike(facts, "limits", "not known")),
    ):
        level: Level = "warning" if id_ == "preflight-limits" else "error"
        # equal remarks are about all their ranks, and all remarks about the same ranks one text
        of_words = grouped((words, rank) for ranks, words in found for rank in ranks)
        alike = grouped((tuple(sorted({*ranks})), words) for words, ranks in of_words.items())
        for ranks, remarks in alike.items():
            text = f"{ranks_shown(ranks, slots)}: {'; '.join(remarks)}"
            yield Finding(id_, level, nodes_of(ranks, slots), text, _REMEDIES[id_])


def _misplaced(slots: Slots, facts: Facts) -> Iterator[Remark]:
    """Ranks whose numbers, device or addresses are not the plan's; nodes with several places."""
    for rank, own in facts.items():
        slot = slots[rank]
        counted = dict(pair.split("=", 1) for pair in own["logic_ids"].split(",") if "=" in pair)
        device = counted.get(str(slot.device_id), slot.device_id)
        shown = len({each.device_id for each in slots if each.node == slot.node} | {*slot.others})
        for name, is_, should in (
            ("RANK", own["rank"], rank),
            ("LOCAL_RANK", own["local_rank"], slot.local_rank),
            ("WORLD_SIZE", own["size"], len(slots)),
            ("DEVICE_ID", own["device"], slot.local_rank % shown if own["visible"] else device),
        ):
            if is_ != str(should):
                yield (rank,), f'{name} is "{is_}" and should be {should}'
        for name, address in own["elsewhere"].items():
            yield (rank,), f"{name} is {address}, which no interface of the node has"
    for ranks in grouped((slots[rank].node.name, rank) for rank in facts).values():
        for key, what in (("host", "the host name"), ("container", "the container")):
            yield from differences(what, {rank: facts[rank][key] for rank in ranks}, absent="none")


def _tables(slots: Slots, facts: Facts, digest: str) -> Iterator[Remark]:
    """Ranks that read another rank table than the plan's, or are not where theirs puts them."""
    for rank, own in facts.items():
        table = own["table"]
        if table is None:
            if digest:
                yield (rank,), "RANK_TABLE_FILE is not set"
            continue
        if table["problem"]:
            yield (rank,), f"the rank table cannot be read: {table['problem']}"
            continue
        if table["sha256"] != digest:
            is_ = f"sha256 {table['sha256'][:12]}, not {digest[:12]}"
            yield (rank,), f"the rank table is another: {is_}"
        slot, server, device = slots[rank], table["server"], table["device"]
        if not server and not device:
            yield (rank,), "has no entry in its rank table"
        elif server not in ("", slot.node.server_id) or device not in ("", str(slot.device_id)):
            where = f"device {device}" + (f" of server {server}" if server else "")
            here = f"device {slot.device_id} of {slot.node.server_id}"
            yield (rank,), f"runs on {here}; its rank table says {where}"


def _unlike(facts: Facts, key: str, absent: str) -> Iterator[Remark]:
    values = {rank: own[key] for rank, own in facts.items()}
    for name in sorted(set[str]().union(*values.values())):
        of_name = {rank: of_rank.get(name) for rank, of_rank in values.items()}
        yield from differences(name, of_name, absent=absent)


def _environments(slots: Slots, facts: Facts) -> Iterator[Remark]:
    """The same for variables; what the inventory states for a node is compared with that."""
    values = {rank: own["env"] for rank, own in facts.items()}
    stated = {rank: slots[rank].node.env for rank in facts}
    unset = [own["unset"] for own in facts.values()]
    for name in sorted(set[str]().union(*values.values(), *unset)):
        of_name = {rank: _meant(name, of_rank.get(name)) for rank, of_rank in values.items()}
        should = {
            rank: _meant(name, _as_seen(name, of[name], of_name[rank]))
            for rank, of in stated.items()
            if name in of
        }
        others = {rank: value for rank, value in of_name.items() if rank not in should}
        yield from differences(name, others, absent="not set")
        for rank, value in should.items():
            if of_name[rank] != value:
                where = "its node in the inventory"
                yield (rank,), _difference_text(name, of_name[rank], value, where, "not set")


def _as_seen(name: str, value: str, seen: Any) -> str | dict[str, str]:  # noqa: ANN401
    """A stated value as a rank would note it: of a secret a digest."""
    is_secret = is_secret_name(name) or is_secret_value(value)
    if isinstance(seen, dict) or (seen is None and is_secret):
        return {"digest": sha256(os.fsencode(value)).hexdigest()[:8]}
    return value


def _meant(name: str, value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    """A list of paths without empty and repeated parts: mpirun puts its own before it twice."""
    if name not in _LISTS or not isinstance(value, str):
        return value
    return ":".join(dict.fromkeys(part for part in value.split(":") if part)) or None


def differences(name: str, values: Mapping[int, Any], *, absent: str) -> Iterator[Remark]:
    """The ranks with another value than most, or than rank 0; `absent` stands for None."""
    groups = grouped((repr(values[rank]), rank) for rank in sorted(values))
    if len(groups) <= 1:
        return
    # The first of equals is the group with the lowest rank.
    most = max(groups.values(), key=len)
    rest = f"the other {len(most)}" if len(groups) == 2 else f"{len(most)} others"  # noqa: PLR2004
    for ranks in groups.values():
        if ranks is not most:
            value, usual = values[ranks[0]], values[most[0]]
            yield tuple(ranks), _difference_text(name, value, usual, rest, absent)


def _difference_text(name: str, value: Any, usual: Any, rest: str, absent: str) -> str:  # noqa: ANN401
    if isinstance(value, dict) or isinstance(usual, dict):
        return f"{name} is not that of {rest} (it may be a secret, and is not shown)"
    if value is None:
        return f"{name} is {absent}, {_printable(usual)} on {rest}"
    if usual is None:
        return f"{name} is {_printable(value)}, {absent} on {rest}"
    parts, usual_parts = value.split(":"), usual.split(":")
    if max(len(value), len(usual)) <= _LONG or max(len(parts), len(usual_parts)) < 2:  # noqa: PLR2004
        return f"{name} is {_printable(value)}, {_printable(usual)} on {rest}"
    words = []
    for verb, some, others in (("has", parts, usual_parts), ("lacks", usual_parts, parts)):
        if only := [part for part in some if part not in others]:
            more = [f"{len(only) - _SHOWN} more"] if len(only) > _SHOWN else []
            words.append(f"{verb} {', '.join([*map(_printable, only[:_SHOWN]), *more])}")
    return f"{name} {' and '.join(words) or 'has another order'}, unlike {rest}"


def _printable(value: str) -> str:
    """A value of any process's environment, in a form fit for a terminal."""
    printable = value.encode(errors="backslashreplace").decode()
    words = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in printable)
    words = words if len(words) <= 2 * _LONG else f"{words[: 2 * _LONG]}…"
    return words if words and " " not in words else f'"{words}"'
