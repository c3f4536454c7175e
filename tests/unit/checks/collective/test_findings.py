"""Findings of a preflight, by which library its ranks meet, and its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascendboot.checks.collective.findings import (
    RankNotes,
    collective_findings,
    compare,
    differences,
    rank_notes,
    read_notes,
)
from ascendboot.checks.collective.run import chosen_way, lacks, no_library, preflight_plan
from ascendboot.checks.finding import Findings
from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.plan import LaunchRequest
from ascendboot.model.job import FirstFailure, JobReport, JobState
from ascendboot.model.names import fold
from ascendboot.value import asdict, replace
from templates.scripts.meet import shown
from tests.fake_transport import Answer, FakeTransport
from tests.unit.checks.collective.ranks import (
    DIGEST,
    SLOTS,
    all_well,
    digest,
    end,
    facts,
    log,
    report,
)
from tests.unit.checks.well import alike
from tests.unit.launch.request import BASE, REQUEST, TORCHRUN


def test_the_log_of_a_rank_that_finished() -> None:
    text = (
        "a warning of a library\n"
        + log(0, {"at": "load"}, {"at": "meet"}, {"library": "MPI 3"}, {"at": "neighbours"})
        + "no line end here "
        + log(0, {"at": "sum"}, {"digests": ["a", "b"], "wrong": None}).partition("\n")[2]
        + log(0, {"after_s": 5.0}, {"at": "done"}).partition("\n")[2]
    )
    assert rank_notes(text) == RankNotes(
        at="done",
        facts=facts(0),
        digest=digest(0),
        library="MPI 3",
        digests=("a", "b"),
        after_s=5.0,
        others=("a warning of a library", "no line end here "),
    )


def test_logs_of_a_failed_a_late_and_a_cut_off_rank() -> None:
    failed = {"failed": "ImportError: x", "silent": None, "after_s": 1.5}
    one = rank_notes(log(1, {"at": "load"}, failed))
    assert (one.at, one.failed, one.after_s, one.is_late) == ("load", "ImportError: x", 1.5, False)
    late = rank_notes(log(1, {"at": "meet"}) + "Timeout (0:01:00)!\nThread 0x1:\n")
    assert (late.at, late.is_late) == ("meet", True)
    assert rank_notes(log(1)[:-20]) == RankNotes()


@pytest.mark.parametrize(
    "note", ['{"at": "lunch"}', "[]", '{"hungry": 1}', '{"after_s": "late"}', '{"facts": 1}', "x"]
)
def test_an_unknown_note_is_refused(note: str) -> None:
    with pytest.raises(NotUnderstoodError):
        rank_notes(f"ascendboot-preflight {note}\n")


def test_a_rank_without_a_log_has_no_notes(tmp_path: Path) -> None:
    (tmp_path / "rank.1.log").write_text(log(1))
    assert read_notes(tmp_path, [0, 1]) == {0: RankNotes(), 1: rank_notes(log(1))}


def lines(findings: Findings) -> str:
    """A line per finding: id, level, nodes and text."""
    return "\n".join(f"{f.id} {f.level} {fold(f.nodes)}: {f.text}" for f in findings)


def at(stage: str, ranks: Iterable[int] = range(4), **changes: Any) -> dict[int, RankNotes]:
    """The notes of ranks whose last stage is this one."""
    return {rank: replace(all_well()[rank], at=stage, **changes) for rank in ranks}


def ended(rank: int, exit_code: int, signal: int | None = None, **changes: Any) -> JobReport:
    """The report of a preflight that this rank ended first."""
    failure = FirstFailure(**asdict(end(rank, exit_code, signal)), message="", log="rank.log")
    return report(exit_code, first_failure=failure, **changes)


NO_NOTES = RankNotes()
EXPIRED = "DistStoreError: Timed out after 31 seconds"
TIMED_OUT = at("meet", failed=EXPIRED, after_s=30.5, waited=True)
FAILED = "preflight-failed error"
LATE = "lab-2: ranks 2-3"
NOT_STARTED = (
    "lab-2: could not prepare job j: no rank table /t; run setup\n"
    "job job.preflight: not started on any node"
)


@pytest.mark.parametrize(
    ("notes", "ended", "expected"),
    [
        (at("done") | at("done", [0], digests=("0", "1", "2", "3")), report(), ""),
        (
            dict.fromkeys(range(4), NO_NOTES),
            report(125, state=JobState.NOT_STARTED, message=NOT_STARTED),
            "preflight-not-run error lab-[1-2]: … lab-2: could not …: no rank table /t; run setup",
        ),
        (at("meet"), report(130, state=JobState.INTERRUPTED), ""),
        (at("meet"), report(130, state=JobState.STOPPED), ""),
        (
            at("neighbours", [0], failed="SilentError: …", silent=2, after_s=10.2)
            | at("gather", [1, 2, 3]),
            report(3),
            "preflight-silent … rank 0 on device 4 of lab-1: … rank 2 … of lab-2 within 10 s",
        ),
        (
            at("done", [0]) | at("load", [1, 3], failed="ImportError: no lib") | {2: NO_NOTES},
            report(3),
            f"{FAILED} lab-[1-2]: ranks 1,3: failed while it loaded …: ImportError: no lib",
        ),
        (
            at("sum", range(3)) | at("sum", [3], others=("Bus error",)),
            ended(3, 137, 9),
            f"{FAILED} lab-2: rank 3 on device 5: ended with signal 9 in the allreduce: Bus error",
        ),
        (
            at("gather", is_late=True) | dict.fromkeys((2, 3), NO_NOTES),
            ended(0, 1, message="gone"),
            f"{FAILED} {LATE}: did not start: no note in the log (gone)",
        ),
        (
            at("gather", is_late=True) | at("meet", (2, 3)),
            ended(0, 1, message="gone"),
            f"{FAILED} {LATE}: got no further while it met the others; no rank failed (gone)",
        ),
        (
            TIMED_OUT | {3: NO_NOTES},
            ended(0, 3),
            f"{FAILED} lab-2: rank 3 … did not start: …; ranks 0-2 timed out waiting",
        ),
        (
            TIMED_OUT | at("load", [3]),
            ended(0, 3),
            f"{FAILED} lab-2: rank 3 … while it loaded …; ranks 0-2 timed out waiting",
        ),
        (
            TIMED_OUT,
            ended(0, 3),
            f"{FAILED} lab-[1-2]: ranks 0-3: failed while it met the others: {EXPIRED}",
        ),
        (
            at("load", [0]) | at("meet", (1, 2, 3), failed="ImportError: no lib", after_s=0.2),
            report(3),
            f"{FAILED} lab-[1-2]: ranks 1-3: failed while it met the others: ImportError: no lib",
        ),
        (
            at("done"),
            report(143, message="asked to end"),
            "preflight-failed warning lab-[1-2]: ranks 0-3: had the sum, but … (asked to end)",
        ),
        (
            at("done"),
            report(1, ranks=tuple(end(rank, 1) for rank in range(4))),
            f"{FAILED} lab-[1-2]: ranks 0-3: had the sum, but took too long to end",
        ),
        (
            at("done", wrong=(7.0, 69.0, 70.0)) | at("done", [2, 3]),
            report(),
            "preflight-sum error lab-1: ranks 0-1: … number 7 is 69 and should be 70",
        ),
        (
            at("done", [0], digests=("0", "1", "3", "2")) | at("done", [1, 2, 3]),
            report(),
            f"{FAILED} {LATE}: sent other data to the gather than it wrote to its log",
        ),
    ],
)
def test_why_ranks_did_not_meet(
    notes: Mapping[int, RankNotes], ended: JobReport, expected: str
) -> None:
    assert alike(lines(collective_findings(SLOTS, notes, ended, by="gloo")), expected)


VALUES = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "120", "600", "/usr/bin:/bin", "/opt/a:" * 20, "a b", "\udc80", "\x1b[2J"]
    ),
    st.text(st.characters(exclude_characters="\u2460\u2461\u2462"), max_size=200),
    st.builds(
        lambda digest: {"digest": digest}, st.text("\u2460\u2461\u2462", min_size=1, max_size=8)
    ),
)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(0, 40), VALUES, min_size=1))
def test_every_rank_is_named_that_has_another_value_than_most(values: dict[int, Any]) -> None:
    named = [rank for ranks, _ in differences("NAME", values, absent="not set") for rank in ranks]
    counts = Counter(repr(value) for value in values.values())
    leads = max(counts.values())
    unnamed = set(values) - set(named)
    assert len(named) == len(set(named))
    assert len({repr(values[rank]) for rank in unnamed}) == 1
    assert len(unnamed) == leads
    if list(counts.values()).count(leads) > 1:
        first = min(r for r in values if counts[repr(values[r])] == leads)
        assert first in unnamed


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.integers(0, 9), VALUES, min_size=2))
def test_words_are_fit_for_a_terminal_and_show_no_secret(values: dict[int, Any]) -> None:
    for _, words in differences("NAME", values, absent="not set"):
        assert words.startswith("NAME ")
        assert words.isprintable()
        words.encode()
        for value in values.values():
            if isinstance(value, dict):
                assert value["digest"] not in words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0: "600", 1: "120"}, [((1,), "T is 120, 600 on the other 1")]),
        ({0: "600", 1: "600", 2: None}, [((2,), "T is not set, 600 on the other 2")]),
        ({0: None, 1: "a b"}, [((1,), 'T is "a b", not set on the other 1')]),
        (
            {0: "1", 1: "1", 2: "2", 3: "3"},
            [((2,), "T is 2, 1 on 2 others"), ((3,), "T is 3, 1 on 2 others")],
        ),
        (
            {0: {"digest": "ab"}, 1: {"digest": "cd"}},
            [((1,), "T is not that of the other 1 (it may be a secret, and is not shown)")],
        ),
        (
            {0: ":".join(f"/usr/{i}" for i in range(20)), 1: "/opt/x:/usr/0"},
            [
                (
                    (1,),
                    (
                        f"T has /opt/x and lacks {', '.join(f'/usr/{i}' for i in range(1, 13))}, "
                        "7 more, unlike the other 1"
                    ),
                )
            ],
        ),
        (
            {0: f"/a:/b:{'/c' * 60}", 1: f"/b:/a:{'/c' * 60}"},
            [((1,), "T has another order, unlike the other 1")],
        ),
    ],
)
def test_differences_in_words(values: dict[int, Any], words: list[tuple[Any, str]]) -> None:
    assert list(differences("T", values, absent="not set")) == words


TABLE = facts(3)["table"]
ENV = {**facts(2)["env"], "HCCL_CONNECT_TIMEOUT": "120", "HCCL_X": "1"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        (
            {
                "env": {2: ENV, 3: ENV},
                "versions": {1: {"Python": "3.7.5"}},
                "limits": {3: {**facts(3)["limits"], "ulimit -l": "64"}},
            },
            (
                "preflight-versions error lab-1: … mpi4py is not there, 4.0.3 on the other 3\n"
                "preflight-environment error lab-2: ranks 2-3: HCCL_CONNECT_TIMEOUT is 120, 600 on "
                "the other 2; HCCL_X is 1, not set on the other 2\n"
                "preflight-limits warning lab-2: … ulimit -l is 64, unlimited on the other 3"
            ),
        ),
        (
            # mpirun puts its own folder in front twice
            {"env": {r: {"PATH": "/usr/bin:/usr/bin" + ":" * (r > 1)} for r in range(4)}},
            "",
        ),
        (
            {
                "device": {1: "7"},
                "local_rank": {2: "1"},
                "elsewhere": {r: {"HCCL_IF_IP": "192.0.2.9"} for r in (2, 3)},
                "container": {3: "0123456789ab"},
            },
            (
                'preflight-place error lab-1: rank 1 on device 5: DEVICE_ID is "7" and … be 5\n'
                'preflight-place error lab-2: rank 2 on device 4: LOCAL_RANK is "1" and … be 0\n'
                "preflight-place error lab-2: ranks 2-3: HCCL_IF_IP is 192.0.2.9, which no …\n"
                'preflight-place error lab-2: rank 3 … container is 0123456789ab, "" on the other 1'
            ),
        ),
        (
            {
                "visible": dict.fromkeys(range(4), "4,5"),
                "device": {rank: str(slot.local_rank) for rank, slot in enumerate(SLOTS)},
            },
            "",
        ),
        (
            {
                "table": {
                    0: {**TABLE, "server": "", "device": ""},
                    1: None,
                    2: {**TABLE, "sha256": "", "problem": "no such file"},
                    3: {**TABLE, "sha256": "e" * 64, "device": "7"},
                }
            },
            (
                "preflight-rank-table error lab-1: rank 0 … has no entry in its rank table\n"
                "preflight-rank-table error lab-1: rank 1 … RANK_TABLE_FILE is not set\n"
                "preflight-rank-table error lab-2: rank 2 … cannot be read: no such file\n"
                f"preflight-rank-table error lab-2: rank 3 … sha256 {'e' * 12}, not {'d' * 12}; "
                "runs on device 5 of 198.18.0.2; … says device 7 of server 198.18.0.2"
            ),
        ),
        ({"table": {3: {**TABLE, "server": ""}}}, ""),
    ],
)
def test_ranks_that_differ(changes: dict[str, dict[int, Any]], expected: str) -> None:
    assert alike(lines(compare(SLOTS, all_well(**changes), DIGEST)), expected)


@pytest.mark.parametrize("silent", [(3,), range(4)], ids=["one", "all"])
def test_ranks_without_notes_are_not_compared(silent: Iterable[int]) -> None:
    notes = all_well() | dict.fromkeys(silent, NO_NOTES)
    assert lines(compare(SLOTS, notes, DIGEST)) == ""


def test_a_rank_is_compared_with_what_the_inventory_states_for_its_node() -> None:
    own = {"HCCL_CONNECT_TIMEOUT": "1200", "LD_LIBRARY_PATH": "/opt/a:/opt/b", "HCCL_KEY": "k"}
    two = replace(SLOTS[2].node, env={**own, "MINE": "x"})
    slots = [*SLOTS[:2], *(replace(slot, node=two) for slot in SLOTS[2:])]
    usual = facts(0)["env"]
    seen = {**usual, **own, "HCCL_KEY": shown("HCCL_KEY", "k"), "LD_LIBRARY_PATH": "/opt/a:/opt/b:"}
    as_stated = all_well(env={2: seen, 3: seen})
    assert [*compare(slots, as_stated, DIGEST)] == []
    assert [found.nodes for found in compare(SLOTS, as_stated, DIGEST)] == [("lab-2",)]
    [found] = compare(slots, all_well(env={2: seen, 3: usual}), DIGEST)
    assert found.text == (
        "rank 3 on device 5: HCCL_CONNECT_TIMEOUT is 600, 1200 on its node in the inventory; "
        "HCCL_KEY is not that of its node in the inventory (it may be a secret, and is not shown); "
        "LD_LIBRARY_PATH is not set, /opt/a:/opt/b on its node in the inventory"
    )


NONE: frozenset[str] = frozenset()
MPI, GLOO = frozenset({"mpi"}), frozenset({"gloo"})
MPI4PY = "mpi4py for python3. It needs mpi4py, built with the Open MPI of mpirun"


@pytest.mark.parametrize(
    ("request_", "lacking", "way"),
    [
        (REQUEST, {"a-1": NONE, "a-2": NONE}, "mpi"),
        (REQUEST, {"a-1": NONE, "a-2": MPI}, "mpi"),
        (REQUEST, {"a-1": MPI, "a-2": MPI}, "gloo"),
        (REQUEST, {"a-1": MPI, "a-2": MPI | GLOO}, "gloo"),
        (REQUEST, {"a-1": MPI | GLOO, "a-2": MPI | GLOO}, "mpi"),
        (REQUEST, {"a-1": MPI}, "gloo"),
        (REQUEST, {}, "mpi"),
        (TORCHRUN, {"a-1": GLOO, "a-2": GLOO}, "gloo"),
    ],
)
def test_the_first_way_that_any_node_has(
    request_: LaunchRequest, lacking: Mapping[str, Collection[str]], way: str
) -> None:
    assert chosen_way(request_, lacking) == way


def answering(node: str, answer: Answer) -> FakeTransport:
    return FakeTransport(node, rules=[lambda _: answer])


LACKS = Answer("a notice of sitecustomize\nlacks mpi4py\n")


def test_the_libraries_that_each_node_lacks_are_read_between_other_lines() -> None:
    no_python = Answer(stderr="exec: python3: not found", exit_code=127)
    answers = {"a-1": LACKS, "a-2": Answer(""), "a-3": no_python}
    nodes = {name: answering(name, answer) for name, answer in answers.items()}
    assert lacks(REQUEST, nodes, forks=4) == {"a-1": MPI, "a-2": NONE}
    assert lacks(TORCHRUN, nodes, forks=4) == {"a-1": NONE, "a-2": NONE}


@pytest.mark.parametrize(
    ("way", "lacking", "words"),
    [
        ("gloo", {"a-1": GLOO, "a-2": GLOO}, "torch for python3. It needs torch with gloo"),
        ("mpi", {"a-1": MPI | GLOO, "a-2": MPI | GLOO}, f"{MPI4PY} (or torch, for gloo)"),
        ("mpi", {"a-1": MPI | GLOO, "a-2": MPI, "a-3": NONE}, MPI4PY),
        ("mpi", {"a-1": NONE, "a-2": GLOO}, ""),
    ],
)
def test_nodes_without_the_library_are_named(
    way: str, lacking: Mapping[str, Collection[str]], words: str
) -> None:
    found = no_library(way, "python3", lacking)
    message = (
        f"a-[1-2]: the preflight could not be run: no module {words}; install it there, or state "
        "another code.python."
    )
    assert (found and found.message) == (message if words else None)


TABLE_HERE = BASE / "resources/hccl_json_4p_2_host.json"
CHIEF = {"CM_CHIEF_IP": "192.0.2.11", "CM_CHIEF_PORT": "60001"}


@pytest.mark.parametrize(
    ("request_", "by", "meeting_point"),
    [
        (REQUEST, "mpi", ""),
        (replace(REQUEST, meeting=TORCHRUN.meeting), "gloo", ""),
        (replace(REQUEST, rank_table=None, meeting=TORCHRUN.meeting), "mpi", "192.0.2.11/61000"),
        (replace(REQUEST, rank_table=None, chief=CHIEF), "mpi", "192.0.2.11/60001"),
        (TORCHRUN, "gloo", "192.0.2.11/61000"),
        (replace(TORCHRUN, rank_table=TABLE_HERE), "gloo", "192.0.2.11/61000"),
    ],
)
def test_the_port_that_must_be_free(request_: LaunchRequest, by: str, meeting_point: str) -> None:
    made = preflight_plan(replace(request_, notes=("checks not made: disk",)), by)
    assert (made.request.meeting_point, made.notes) == (meeting_point, ())
