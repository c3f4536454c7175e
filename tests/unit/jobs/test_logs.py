"""Which ranks and lines `logs` prints, and the ends of logs."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ascendboot.errors import CommandError, UnreachableError, UsageError
from ascendboot.jobs import logs
from ascendboot.jobs.evidence import TAIL_BYTES, tail_of
from ascendboot.launch.plan import JobRecord
from ascendboot.templates import script
from tests.fake_transport import FakeTransport
from tests.unit.jobs.test_stop import answering

GROUPS = {"rack2": ["a-2", "a-3"], "rack3": ["a-3"]}
TAIL = base64.b64encode(b"x").decode()
NOW = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("ranks", "nodes", "chosen"),
    [
        (None, None, (0, 1, 2, 3)),
        ("0,2-3", None, (0, 2, 3)),
        (None, "a-2", (2, 3)),
        (None, "a-[1-2]", (0, 1, 2, 3)),
        ("1-2", "a-[2,1]", (1, 2)),
        (None, "a-2, a-1", (0, 1, 2, 3)),
        ("0-2", "@rack2", (2,)),
    ],
)
def test_ranks_of_these_numbers_on_these_nodes(
    job: JobRecord, ranks: str | None, nodes: str | None, chosen: tuple[int, ...]
) -> None:
    assert logs.chosen_ranks(job, ranks, nodes, GROUPS) == chosen


@pytest.mark.parametrize(
    ("ranks", "nodes", "said"),
    [
        ("x", None, '--rank: "x" is not a number or a range such as 0-3'),
        ("2-9", None, "--rank: the ranks of the job are 0 to 3: not 4-9"),
        (None, "a-[1-3]", '--node: there is no "a-3", only a-[1-2]'),
        (None, "a-[1", "--node: "),
        (None, "@rack3", '--node: "@rack3" names none of a-[1-2]'),
        ("0-1", "a-2", "--rank: a-2 has ranks 2-3, not 0-1"),
    ],
)
def test_unknown_ranks_and_nodes_are_refused(
    job: JobRecord, ranks: str | None, nodes: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(f"logs: {said}")):
        logs.chosen_ranks(job, ranks, nodes, GROUPS)


def test_an_invalid_regular_expression_is_refused_with_its_place() -> None:
    said = '"loss(" is not a regular expression: missing ), unterminated subpattern, at character 5'
    with pytest.raises(UsageError, match=re.escape(f"logs: --grep: {said}; put a backslash")):
        logs.chosen_pattern("loss(")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30s", datetime(2026, 1, 31, 11, 59, 30, tzinfo=timezone.utc)),
        ("10m", datetime(2026, 1, 31, 11, 50, tzinfo=timezone.utc)),
        ("2h", datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc)),
        ("1d", datetime(2026, 1, 30, 12, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00+02:00", datetime(2026, 1, 31, 6, 0, tzinfo=timezone.utc)),
        ("2026-01-31T08:00", datetime(2026, 1, 31, 8, 0).astimezone(timezone.utc)),
    ],
)
def test_a_span_or_a_time(text: str, moment: datetime) -> None:
    assert logs.chosen_time(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "10", "10 minutes", "-5m", "yesterday", "999999999d"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"logs: --since: .* is neither a time span"):
        logs.chosen_time(text, NOW)


def test_only_lines_with_a_match_are_shown() -> None:
    lines = logs.MatchingLines(b"n:0 | ", re.compile("(?i)LOSS|^$"), coloured=False)
    shown = lines.feed(b"Loss 1\nhm\n\nlo") + lines.skip(9) + lines.feed(b"ss\n\xffloss")
    assert shown + lines.finish() == b"n:0 | Loss 1\nn:0 | \nn:0 | \xffloss\n"
    assert lines.feed(b"1%\r2% loss\n") == b"n:0 | 1%\rn:0 | 2% loss\n"


def test_matches_are_red_on_a_terminal() -> None:
    lines = logs.MatchingLines(b"n:0 | ", re.compile("[0-9]*"), coloured=True)
    assert lines.feed(b"loss 12\n") == b"n:0 | loss \x1b[1;31m12\x1b[0m\n"


def sent(folder: Path, *names: str) -> str:
    words = (str(folder), str(TAIL_BYTES + 1), *names)
    argv = ("/bin/bash", "-c", script("jobs-tails.sh"), "tails", *words)
    return subprocess.run(argv, capture_output=True, check=True, text=True).stdout


def test_the_end_of_a_log_reads_like_the_whole_log(job: JobRecord, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    for size in (0, 10, TAIL_BYTES, TAIL_BYTES + 1, 3 * TAIL_BYTES):
        (there / "rank.0.log").write_bytes(b"a\xff line\n" * (size // 8))
        answer = sent(there, "rank.0.log", "rank.1.log")
        node = answering("a-1", answer)
        (here / "rank.0.log").write_bytes(b"")
        assert logs.fetch_tails(job, {"a-1": node}, here, forks=4) == {}
        assert tail_of(here / "rank.0.log") == tail_of(there / "rank.0.log")


def test_a_node_without_the_job_has_nothing(tmp_path: Path) -> None:
    assert sent(tmp_path / "gone", "rank.0.log") == "end\n"


def test_nodes_whose_logs_could_not_be_read(job: JobRecord, tmp_path: Path) -> None:
    cut = answering("a-1", f"tail rank.0.log 0 {TAIL}\n")
    gone = FakeTransport("a-2", unreachable="off")
    errors = logs.fetch_tails(job, {"a-1": cut, "a-2": gone}, tmp_path, forks=4)
    assert isinstance(errors["a-1"], CommandError)
    assert str(errors["a-1"]) == (
        "a-1: could not read the ends of the logs of job job-1: the logs: line 1 not understood: "
        f'"tail rank.0.log 0 {TAIL}"; expected tail or end'
    )
    assert isinstance(errors["a-2"], UnreachableError)


def test_a_full_disk_of_the_control_machine_is_reported(job: JobRecord, tmp_path: Path) -> None:
    (tmp_path / "rank.0.log").symlink_to("/dev/full")
    node = answering("a-1", f"tail rank.0.log 0 {TAIL}\nend\n")
    [error] = logs.fetch_tails(job, {"a-1": node}, tmp_path, forks=4).values()
    assert str(error).startswith("a-1: could not write the ends of its logs here: [Errno 28] No sp")


def test_a_file_that_is_none_of_the_job_is_not_written(job: JobRecord, tmp_path: Path) -> None:
    odd = answering("a-1", f"tail other 0 {TAIL}\nend\n")
    assert logs.fetch_tails(job, {"a-1": odd}, tmp_path, forks=4) == {}
    assert not (tmp_path / "other").exists()


def test_of_each_rank_three_plogs_are_read_those_with_errors_first(
    job: JobRecord, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    plogs = there / "rank.0.plog/debug/plog"
    plogs.mkdir(parents=True)
    here.mkdir()
    for number in range(6):
        path = plogs / f"plog-{number}_1.log"
        path.write_bytes(b"[ERROR] HCCL\n" if number == 1 else b"[EVENT] HCCL\n")
        os.utime(path, (number, number))
    (plogs / "plog-a b.log").write_bytes(b"[ERROR] a name that CANN does not give\n")
    (there / "rank.9.plog").mkdir()
    (there / "rank.9.plog/plog-9_1.log").write_bytes(b"[ERROR] of another node\n")
    node = answering("a-1", sent(there))
    assert logs.fetch_tails(job, {"a-1": node}, here, has_logs=True, forks=4) == {}
    found = {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*.log")}
    names = {number: f"rank.0.plog/debug/plog/plog-{number}_1.log" for number in (1, 4, 5)}
    assert found == {
        name: (plogs / f"plog-{number}_1.log").read_bytes() for number, name in names.items()
    }
    assert [name in sent(there) for name in names.values()] == [True] * 3


def test_stacks_of_ranks_of_the_node_come_with_the_plogs(job: JobRecord, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    for name in ("rank.0.stack", "rank.9.stack", "rank.1 .stack"):
        (there / name).write_text("rank 0 7 S -\nend\n")
    node = answering("a-1", sent(there))
    assert logs.fetch_tails(job, {"a-1": node}, here, has_logs=True, forks=4) == {}
    assert [path.name for path in here.iterdir()] == ["rank.0.stack"]


@pytest.mark.parametrize(
    "name", ["rank.0.plog/../../x.log", "rank.0.plog/.x.log", "rank.0.plog//x.log", "/x.log"]
)
def test_a_plog_cannot_be_written_elsewhere(job: JobRecord, tmp_path: Path, name: str) -> None:
    odd = answering("a-1", f"tail {name} 0 {TAIL}\nend\n")
    errors = logs.fetch_tails(job, {"a-1": odd}, tmp_path, has_logs=True, forks=4)
    assert isinstance(errors["a-1"], CommandError)
