"""Finds the cause of a job's failure, and the rank that failed first."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import IntEnum
from signal import SIGKILL, SIGTERM
from typing import Final

from ascendboot.jobs.error_codes import Known, known_end, known_of_launcher, known_words
from ascendboot.jobs.evidence import Collector, Named, RankEvidence, shown_time, without_numbers
from ascendboot.jobs.progress import BY_LAUNCHER, OF_A_LOST_LAUNCHER, Progress
from ascendboot.launch.events import ENDING
from ascendboot.launch.plan import Job
from ascendboot.model.job import CauseKind, Followed, JobCause, RankEnd
from ascendboot.model.names import fold, ranks_named
from ascendboot.value import Value, replace

_LOST_BY_SUPERVISOR: Final = re.compile(re.escape(ENDING) + r"(\S+): (?:lost it|no sign of)")
_CHECK_NODE: Final = (
    "check that the node and its container run and have disk space: dmesg -T, docker ps -a, df -h"
)
_MOST_GROUPS: Final = 4
_PAIR: Final = 2
_TOGETHER_S: Final = 2.0
"""Ranks that end without an error, with the same exit code, within this time failed alike."""
_FIRST_KILL_S: Final = 1.0
"""No launcher sends SIGKILL within this time after the first failure."""
_SEE_LOGS: Final = (
    "see the end of their logs, ascendboot check for the links between their devices, and"
    " dmesg on their nodes"
)


def diagnose(
    job: Collector,
    ends: tuple[RankEnd, ...],
    launcher_words: tuple[str, ...],
    lost: tuple[str, ...],
) -> JobCause | None:
    """Return why the job failed; `lost` are the nodes that mpirun lost."""
    plan, progress, cause = job.plan, job.progress, None
    matches = map(_LOST_BY_SUPERVISOR.search, launcher_words)
    if match := next(filter(None, matches), None):
        cause = _lost_nodes(plan, (match[1],), match.string)
    elif lost:
        cause = _lost_nodes(plan, lost, "")
    else:
        cause = first_cause(
            job.evidence(ends),
            job.named_by_launcher(),
            uncertainty_s=2 * job.clocks.uncertainty_s,  # between two nodes
        )
        if cause is None:
            cause = _failed_launcher(plan, progress, launcher_words)
        elif (
            progress.launcher_over
            and progress.launcher_code is None
            and (not cause.words or cause.kind in (CauseKind.LEFT, CauseKind.ONE_OF))
        ):
            # The launcher is gone: signals that ended ranks together with it are no cause.
            signals = {end.signal for end in ends if end.rank in cause.ranks}
            cause = None if signals <= OF_A_LOST_LAUNCHER else cause
    if cause is None:
        return None
    # A node with a full disk may be lost, and its ranks may not log why they fail.
    full = [node for node in cause.nodes if node in progress.full_disks]
    if not full or (cause.meaning and cause.kind is not CauseKind.NODE):
        return cause
    meanings = [*filter(None, [cause.meaning]), f"the disk of {', '.join(full)} is full"]
    return replace(cause, meaning="; ".join(meanings), remedy="free disk space there: df -h")


def first_failure(
    job: Collector, ends: tuple[RankEnd, ...], cause: JobCause | None
) -> tuple[RankEnd, int] | None:
    """Return the rank of the cause, or else the first to fail; and the exit code of the job."""
    progress = job.progress

    def followed(end: RankEnd) -> bool:
        return progress.was_ended(end.rank, job.plan.nodes.index(end.node))

    def ended_at(end: RankEnd) -> tuple[float, int]:
        # Only the launcher reported the end of this rank: then it was the first.
        seen = progress.ended.get(end.rank)
        return (job.clocks.here(end.node, seen.at) if seen else 0.0, end.rank)

    failed = sorted((end for end in ends if end.exit_code), key=ended_at)
    earliest = next((end for end in failed if not followed(end)), None)
    first = earliest
    if cause is not None and cause.kind not in (CauseKind.NODE, CauseKind.ONE_OF):
        first = next((end for end in failed if end.rank in cause.ranks), earliest)
    if first is None:
        return None
    was_ended = followed(first) or first.signal == SIGTERM
    ended_job = earliest if earliest is not None and was_ended else first
    return first, ended_job.exit_code or 1


def _failed_launcher(plan: Job, progress: Progress, words: tuple[str, ...]) -> JobCause | None:
    """Return the cause if no rank failed and the launcher's error is known."""
    code = progress.launcher_code
    known = known_of_launcher(words) if progress.launcher_over and code else None
    if known is None:
        return None
    line, meaning = known
    return JobCause(
        kind=CauseKind.LAUNCHER,
        title=f"{plan.primary}: the launcher failed, with exit code {code}",
        ranks=(),
        nodes=(plan.primary,),
        words=line,
        source="launcher.log",
        meaning=meaning.meaning,
        remedy=meaning.remedy,
        why="no rank failed on its own",
    )


def _lost_nodes(plan: Job, nodes: tuple[str, ...], words: str) -> JobCause:
    ranks = {node: tuple(rank.rank for rank in plan.ranks_on(node)) for node in nodes}
    titles = (
        f"{node}: was lost in the middle of the job, with {ranks_named(ranks[node])}"
        for node in nodes
    )
    others = tuple(rank.rank for rank in plan.ranks if rank.node not in nodes)
    return JobCause(
        kind=CauseKind.NODE,
        title="; ".join(titles),
        ranks=tuple(rank for node in nodes for rank in ranks[node]),
        nodes=nodes,
        words=words,
        source="launcher.log",
        meaning="the launcher lost contact with it",
        remedy=_CHECK_NODE,
        why="none of its ranks recorded an end",
        followed=(Followed(others, "ended with the job"),) if others else (),
    )


class _Blame(IntEnum):
    """How likely a rank is the cause; the lowest value is the likeliest."""

    OWN = 0
    """It failed, and its log does not blame another rank."""
    OWN_WHEN_ENDED = 1
    """Its log has an error without a time, and it was ended on purpose."""
    KILLED = 2
    """SIGKILL ended it at about the time when others failed because they lost it."""
    NONE = 3


def first_cause(
    ranks: Sequence[RankEvidence], launcher: Named | None = None, *, uncertainty_s: float = 0.0
) -> JobCause | None:
    """Return why a job with these ranks failed; None when no rank failed before it was ended.

    `launcher` is what the launcher's log names as missing. `uncertainty_s` is the largest error
    between the times of two nodes.
    """
    blames = {one.rank: _blame(one, ranks) for one in ranks}

    def likelihood(one: RankEvidence) -> tuple[int, float, int]:
        # Such a rank died before all others had ended.
        unknown = float("-inf" if one.is_killed_unseen else "inf")
        return blames[one.rank], unknown if one.failed_at is None else one.failed_at, one.rank

    suspects = sorted(ranks, key=likelihood)
    missed = missing_ranks(ranks, launcher or Named())
    if missed and missed.unsure:
        missed = _by_stacks([one for one in ranks if one.rank in missed.ranks]) or missed
    head, blame = suspects[0], blames[suspects[0].rank]
    if blame is not _Blame.NONE:
        same = _alike(suspects, blames)
        kind = CauseKind.ALIKE if len(same) > 1 else CauseKind.RANK
        own = (one for one in suspects if blames[one.rank] is _Blame.OWN and one not in same)
        why, unsure = _reason(same, blame, next(own, None), uncertainty_s)
        head = same[0]
        is_another = missed and missed.is_named and missed.ranks.isdisjoint(s.rank for s in same)
        if missed and is_another and not unsure:
            unsure = f"{ranks_named(missed.ranks)} may have failed first: {missed.why}"
        error = head.first_error
        meaning, remedy = _explained(head)
    elif missed is not None:
        same = [one for one in suspects if one.rank in missed.ranks]
        kind = CauseKind.ONE_OF if missed.unsure else CauseKind.LEFT
        why, unsure = missed.why, missed.unsure or missed.doubt
        head = same[0]
        error = head.peer or (_first_reporter(missed, ranks) or head).first_error
        meaning, remedy = "", _SEE_LOGS
    else:
        return None
    chosen = {one.rank: one.node for one in sorted(same, key=lambda one: one.rank)}
    return JobCause(
        kind=kind,
        title=_title(kind, same, len(ranks)),
        ranks=tuple(chosen),
        nodes=tuple(dict.fromkeys(chosen.values())),
        device=head.device if len(chosen) == 1 else None,
        at=shown_time(head.failed_at),
        words=error.words,
        source=error.source,
        meaning=meaning,
        remedy=remedy,
        why=why,
        unsure=unsure,
        followed=_followed(one for one in ranks if one.rank not in chosen),
    )


def _blame(one: RankEvidence, ranks: Sequence[RankEvidence]) -> _Blame:
    if one.own is not None or one.is_killed_unseen:
        is_vague = one.is_ended_by_us and one.failed_at is None
        return _Blame.OWN_WHEN_ENDED if is_vague else _Blame.OWN
    if not one.has_failed or one.peer is not None:
        return _Blame.NONE
    # It failed without an error. Launchers end the other ranks by signals, with a delay.
    times = (other.failed_at for other in ranks if other is not one)
    before = min((at for at in times if at is not None), default=None)
    ended_at = one.ended_at
    if one.signal not in BY_LAUNCHER or before is None or ended_at is None or ended_at < before:
        return _Blame.OWN
    at_once = one.signal == SIGKILL and ended_at < before + _FIRST_KILL_S
    return _Blame.KILLED if at_once else _Blame.NONE


def _alike(suspects: Sequence[RankEvidence], blames: Mapping[int, _Blame]) -> list[RankEvidence]:
    """Return the first suspect and the ranks that failed in the same way."""
    first = suspects[0]
    same = []
    if first.own is not None:
        words = without_numbers(first.own.words)
        same = [
            one
            for one in suspects
            if one.error is not None
            and one.peer is None
            and without_numbers(one.error.words) == words
        ]
    elif blames[first.rank] is _Blame.OWN and first.failed_at is not None:
        same = [
            one
            for one in suspects
            if blames[one.rank] is _Blame.OWN
            and one.own is None
            and one.exit_code == first.exit_code
            and one.failed_at is not None
            and one.failed_at - first.failed_at <= _TOGETHER_S
        ]
        same = same if len(same) == len(suspects) else []
    return same if len(same) > 1 else [first]


def _reason(
    same: Sequence[RankEvidence], blame: _Blame, second: RankEvidence | None, uncertainty_s: float
) -> tuple[str, str]:
    """Return why these were chosen, and what makes that uncertain; `second` is the next suspect."""
    head = same[0]
    if blame is _Blame.OWN_WHEN_ENDED:
        return "no other rank logged an error of its own; the time of this error is unknown", ""
    if blame is _Blame.KILLED:
        return "all others only lost a peer; this rank was killed and logged no error", ""
    why, unsure = "no other rank failed on its own", ""
    if head.is_killed_unseen:
        why = "the launcher reported its death; the wrapper that records its end died with it"
    elif second is not None:
        why, unsure = _lead(head, second, uncertainty_s)
    if len(same) > 1:
        why = "they failed in the same way, and no other rank failed before them"
    return why, unsure


def _lead(head: RankEvidence, second: RankEvidence, uncertainty_s: float) -> tuple[str, str]:
    """Return why `head` comes before `second`, and what makes it uncertain."""
    name = f"{second.node}:{second.rank}"
    why = "it logged an error of its own"
    if head.failed_at is None:
        return why, f"the time of its error is unknown; {name} may have failed first"
    if second.failed_at is None:
        return why, f"the time of the error of {name} is unknown"
    gap_s = second.failed_at - head.failed_at
    why = f"{gap_s:.3f} s before {name}, the next rank that failed on its own"
    within_s = second.first_error.precision_s
    within_s += uncertainty_s if second.node != head.node else 0.0
    if gap_s > within_s:
        return why, ""
    return why, f"{name} may have failed first: times are only accurate to {within_s:.3g} s"


def _title(kind: CauseKind, same: Sequence[RankEvidence], size: int) -> str:
    head = same[0]
    names = ranks_named([one.rank for one in same])
    nodes = fold({one.node for one in same})
    at = ""
    if failed_at := shown_time(head.failed_at):
        at = f", at {failed_at[11:23]} UTC"
    if kind is CauseKind.ONE_OF:
        return f"{nodes}: not certain which rank failed first: one of {names}{at}"
    if kind is CauseKind.LEFT:
        how, it = ("was missing", "it") if len(same) == 1 else ("were missing", "them")
        if any(one.peer is not None for one in same):
            how = "did not answer"
        elif all(one.exit_code == 0 for one in same):
            how = "ended with exit code 0"
        return f"{nodes}: {names} {how} while others waited for {it}{at}"
    if kind is CauseKind.RANK:
        return f"{nodes}: {names} on device {head.device} failed first, {head.ending}{at}"
    if len(same) == size:
        how = next((f", {one.ending}" for one in same if not one.is_ended_by_others), "")
        return f"{nodes}: all {size} ranks failed alike{how}{at}"
    return f"{nodes}: {len(same)} of {size} ranks failed alike ({names}){at}"


def _explained(head: RankEvidence) -> tuple[str, str]:
    """Return what its error, or else its end, means, and what to do."""
    known: Known | None = known_words(head.first_error.words)
    if head.own is None and (known is None or known.of_a_peer):
        known = known_end(head.exit_code, out_of_memory=head.out_of_memory) or known
    return ("", "") if known is None else (known.meaning, known.remedy)


def _followed(others: Iterable[RankEvidence]) -> tuple[Followed, ...]:
    """Group the ranks that failed after the cause by how they ended."""
    groups: dict[str, list[int]] = {}
    for one in others:
        if one.exit_code == 0:
            continue
        if one.peer is not None:
            known = known_words(one.peer.words)
            how = "lost a peer" if known is None else known.meaning
        elif one.is_ended_by_us or (one.signal in BY_LAUNCHER and one.own is None):
            how = "ended with the job"
        else:
            how = "no recorded end" if one.exit_code is None else f"failed later, {one.ending}"
        groups.setdefault(how, []).append(one.rank)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))
    shown = [Followed(tuple(ranks), how) for how, ranks in ordered[:_MOST_GROUPS]]
    if rest := sorted(rank for _, ranks in ordered[_MOST_GROUPS:] for rank in ranks):
        shown.append(Followed(tuple(rest), "failed later"))
    return tuple(shown)


class MissingRanks(Value):
    """The ranks that the others lost, and how that is known."""

    ranks: frozenset[int]
    why: str
    unsure: str = ""
    """Why it is unknown which of `ranks` is the cause; empty if all of them are."""
    is_named: bool = False
    """Whether others name them by number or address."""
    doubt: str = ""
    """What makes it uncertain that they are the cause."""


def missing_ranks(ranks: Sequence[RankEvidence], launcher: Named) -> MissingRanks | None:
    """Return the ranks that others lost; None if no rank failed because it lost a peer.

    The first of these that exists: a rank without an error that others name; one that only the
    launcher's log names; one that ended with exit code 0 too early; the only one without an error.
    """
    losers = [one for one in ranks if one.peer is not None]
    quiet = [one for one in ranks if one.peer is None and one.own is None]
    # An error of a rank's own explains why that rank or its node is missing.
    failed = {one.node for one in ranks if one.own is not None}
    of_peers = {one.rank: one.peer.missing for one in losers if one.peer}
    found = _named(of_peers, quiet, explained=failed)
    named = [one for one in ranks if one.rank in launcher.ranks or one.node in launcher.nodes]
    if not found and any(one.has_failed for one in ranks) and not any(one.own for one in named):
        found = _named({-1: launcher}, quiet, by="launcher.log")
    if losers and not found:  # ranks that ended with exit code 0 before any other rank failed
        times = (one.failed_at for one in ranks)
        first = min((at for at in times if at is not None), default=float("-inf"))
        left = [one for one in quiet if one.exit_code == 0 and one.ended_at is not None]
        if early := frozenset(one.rank for one in left if (one.ended_at or 0.0) < first):
            why = "all others failed because they lost a peer, and it had ended before"
            found = MissingRanks(early, why)
    silent = frozenset(one.rank for one in quiet if one.exit_code != 0)
    if not found and len(silent) == 1 and any(one.has_failed for one in losers):
        why = "all others lost a peer, and only this rank logged no error"
        found = MissingRanks(silent, why)
    reports = {rank: missing.ranks for rank, missing in of_peers.items()}
    if found and (circles := _circles(reports)):
        doubt = f"{ranks_named(circles)} report each other missing"
        found = replace(found, doubt=doubt)
    if found or not any(one.has_failed for one in losers):
        return found
    if silent:
        why = f"{ranks_named(reports)} lost a peer, and these logged no error"
        return MissingRanks(silent, why, "the logs do not show which of them was lost")
    return _among_losers(losers, reports)


def _by_stacks(candidates: Sequence[RankEvidence]) -> MissingRanks | None:
    """Return the one that did something else while all other candidates were in a collective."""
    seen = {one.rank: one.view.in_collective if one.view else None for one in candidates}
    others = [rank for rank, is_in in seen.items() if is_in]
    apart = next((one for one in candidates if seen[one.rank] is False), None)
    if apart is None or apart.view is None or not others or len(others) + 1 < len(candidates):
        return None
    who = f"{ranks_named(others)} {'was' if len(others) == 1 else 'were'}"
    why = f"it was{apart.view.place} when the job was ended; {who} in a collective"
    return MissingRanks(frozenset({apart.rank}), why)


def _named(
    named: Mapping[int, Named],
    quiet: Sequence[RankEvidence],
    *,
    explained: Container[str] = (),
    by: str = "",
) -> MissingRanks | None:
    """Return the ranks without an error that others name.

    A name by number or device counts before a name by node, and a name of the nodes `explained`
    does not count. `named` is what each rank names; `by` is the file that names them if no rank
    does.
    """
    by_rank = {n: {one.rank for one in quiet if one.rank in it.ranks} for n, it in named.items()}
    unclear = [one for one in quiet if one.node not in explained]
    by_node = {n: {one.rank for one in unclear if one.node in it.nodes} for n, it in named.items()}
    for names, are_all_meant in ((by_rank, True), (by_node, False)):
        namers = [rank for rank, ranks in names.items() if ranks]
        if not namers:
            continue
        common = set.intersection(*(names[rank] for rank in namers))
        chosen = frozenset(common or set.union(*(names[rank] for rank in namers)))
        who = f"{by or ranks_named(namers)} report{'s' if len(namers) == 1 else ''}"
        if len(chosen) == 1 or (common and are_all_meant):
            it = "it" if len(chosen) == 1 else "them"
            return MissingRanks(chosen, f"{who} {it} missing", is_named=True)
        what = "different ranks missing" if are_all_meant else "their node missing, but no rank"
        return MissingRanks(chosen, f"{who} {what}", "the logs do not show which of them was lost")
    return None


def _among_losers(
    losers: Sequence[RankEvidence], reports: Mapping[int, Sequence[int]]
) -> MissingRanks:
    """Return the one rank that all others name, or all, when every rank lost a peer."""
    for one in losers:
        naming = {rank: named for rank, named in reports.items() if named and rank != one.rank}
        if len(naming) > 1 and all(set(named) == {one.rank} for named in naming.values()):
            why = f"{ranks_named(naming)} report it missing"
            return MissingRanks(frozenset({one.rank}), why)
    others = ranks_named([rank for rank, named in reports.items() if named])
    ends, circles = _ends_of_chains(reports), _circles(reports)
    last = frozenset(rank for rank, named in reports.items() if not named)
    if ends == last and len(last) == 1 and len(reports) > _PAIR:
        why = f"{others} report others missing, and all their reports lead to it"
        return MissingRanks(ends, why)
    if circles and circles == ends and not last and len(circles) < len(reports):
        why = f"{others} report others missing, and all their reports lead to these"
        return MissingRanks(circles, why, "these report each other missing")
    timed = [(one.failed_at, one.rank, one.node) for one in losers if one.failed_at is not None]
    unsure = "the logs do not show which of them was first"
    if timed:
        _, rank, node = min(timed)
        unsure += f"; {node}:{rank} logged its error first"
    ranks = frozenset(one.rank for one in losers)
    return MissingRanks(ranks, "every rank only reports that it lost another", unsure)


def _ends_of_chains(reports: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return where reports lead: a rank that does not report exactly one other, or a circle."""
    ends, done = set[int](), set[int]()
    for start in (rank for rank, named in reports.items() if named):
        chain, at = dict[int, int](), start
        while at not in done and at not in chain and len(reports.get(at, ())) == 1:
            chain[at] = len(chain)
            at = reports[at][0]
        if at in chain:
            ends.update(rank for rank, place in chain.items() if place >= chain[at])
        elif at not in done:
            ends.add(at)
        done.update(chain, (at,))
    return frozenset(ends)


def _circles(reports: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return the ranks that report each other missing, directly or in a circle."""
    return frozenset(end for end in _ends_of_chains(reports) if len(reports.get(end, ())) == 1)


def _first_reporter(missed: MissingRanks, ranks: Iterable[RankEvidence]) -> RankEvidence | None:
    """Return the first rank that lost a peer; one that names the missing ranks comes first."""

    def order(one: RankEvidence) -> tuple[bool, bool, float, int]:
        is_other = missed.ranks.isdisjoint(one.first_error.missing.ranks)
        return is_other, one.failed_at is None, one.failed_at or 0.0, one.rank

    return min((one for one in ranks if one.peer), key=order, default=None)
