"""Rows of `status`: the ranks of a running job, for a person."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

from ascendboot.cli import status
from ascendboot.cli.known_jobs import (
    REPEATED,
    Figures,
    FoundJob,
    KnownJob,
    keep_success,
    next_generation,
)
from ascendboot.cli.status import _job_rows, how_it_ended, live_view, node_rows, rank_rows
from ascendboot.errors import UnreachableError
from ascendboot.jobs.probe import JobProbe, RankLoad
from ascendboot.jobs.status import JobStatus, NodeStatus
from ascendboot.model.job import CauseKind, FirstFailure, JobCause, JobState, NpuUse
from ascendboot.supervise.core import State
from ascendboot.supervise.store import Store
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.here import Here
from tests.unit.checks.collective.ranks import report
from tests.unit.cli.calls import called
from tests.unit.jobs.conftest import recorded
from tests.unit.supervise.test_history import a_job

GIB = 1 << 30


def node(
    number: int,
    ranks: range,
    line: str = "step {} loss 0.{}",
    *,
    silent_s: float = 2.0,
    cpu: float = 99.0,
    state: str = "S",
) -> NodeStatus:
    return NodeStatus(
        node=f"atlas-{number}",
        ranks=tuple(ranks),
        alive=tuple(ranks),
        last_lines={rank: line.format(300, rank) for rank in ranks},
        silent_s=dict.fromkeys(ranks, silent_s),
        loads={rank: RankLoad(state, cpu + rank % 3, GIB + rank * (GIB >> 3)) for rank in ranks},
    )


def test_few_ranks_have_a_row_each() -> None:
    nodes = [node(1, range(2)), node(12, range(2, 3), "\x1b[31mred\x1b[0m\tand \x07", cpu=4.0)]
    assert rank_rows(nodes, every=False) == [
        "atlas-1:0   2 s ago   99 %  1.0 GiB | step 300 loss 0.0",
        "atlas-1:1   2 s ago  100 %  1.1 GiB | step 300 loss 0.1",
        "atlas-12:2  2 s ago    6 %  1.2 GiB | red and ?",
    ]


def test_similar_ranks_of_a_thousand_share_a_row() -> None:
    nodes = [node(n, range(8 * n, 8 * n + 8)) for n in range(125) if n != 7]
    late = node(7, range(56, 64), silent_s=4000.0)
    odd = node(7, range(63, 64), "loading shard 7", silent_s=4000.0, cpu=0.0, state="D")
    lines, loads = {**late.last_lines, **odd.last_lines}, {**late.loads, **odd.loads}
    late = replace(late, last_lines=lines, loads=loads)
    assert rank_rows([*nodes, late], every=False) == [
        (
            "atlas-7:63               1 h 6 min ago         0 %              8.9 GiB | "
            "(sleeps uninterruptibly) loading shard 7"
        ),
        (
            "ranks 0-62,64-999  2 s - 1 h 6 min ago  99 - 101 %  1.0 GiB - 125.9 GiB | "
            "step 300 loss 0.0"
        ),
    ]
    assert len(rank_rows([*nodes, late], every=True)) == 1000


def test_too_many_groups_are_counted_and_long_lines_cut() -> None:
    words = [f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)]
    nodes = [node(n, range(n, n + 1), words[n] * 100) for n in range(40)]
    rows = rank_rows(nodes, every=False)
    assert rows[8:] == ["32 more ranks have 32 other last lines; --lines shows all"]
    assert rows[0].endswith("| " + "aa" * 80 + "…")
    assert rank_rows(nodes, every=True)[39].endswith("| " + "bn" * 100)


def test_a_finished_job_shows_its_last_lines_on_request() -> None:
    over = NodeStatus(node="a", ranks=(0, 1), last_lines={0: "bye", 1: ""})
    assert rank_rows([over], every=False) == []
    assert rank_rows([over], every=True) == ["a:0 | bye", "a:1 |"]


def test_jobs_stand_in_columns_beside_supervised_and_damaged_ones() -> None:
    each = {"script": "/w/main.py", "started": "2026-01-02T03:04:05Z"}
    lab = {"job_id": "train-ab12", "nodes": ["lab-1", "lab-2"]}
    rows: list[dict[str, Any]] = [
        {**each, **lab, "state": "running", "exit_code": None},
        {**each, "job_id": "train-ab12.2", "state": "failed", "exit_code": 137, "nodes": ["b"]},
        {"job_id": "train-ff00", "state": "damaged", "exit_code": None, "nodes": (), "problem": ""},
    ]
    one, two, three = _job_rows(rows)
    assert re.fullmatch(r"train-ab12    running      .{7,11} ago +lab-\[1-2\]  main.py", one)
    assert re.fullmatch(r"train-ab12.2  failed \(137\) .{7,11} ago +b          main.py", two)
    assert three == "train-ff00    damaged      "


def use(percent: int | None, celsius: int = 50) -> NpuUse:
    return NpuUse(
        utilization_percent=percent,
        temperature_c=celsius,
        memory_used_mb=(percent or 0) << 10,
        memory_total_mb=64 << 10,
    )


def test_the_numbers_of_nodes_stand_in_columns() -> None:
    pace = {0: 7.5, 1: 4.0}
    nodes = [
        replace(node(1, range(2)), npus={0: use(9), 1: use(97, 61)}, lines_per_s=pace),
        replace(node(12, range(2, 4)), npus={3: use(None)}),
        NodeStatus(node="b", ranks=(4,), problem="off"),
    ]

    def words(node: NodeStatus) -> str:
        return "unreachable" if node.problem else f"{len(node.alive)} up"

    assert node_rows(nodes, words) == [
        "atlas-1   NPU 9 - 97 %  9 - 97 of 64 GiB  50 - 61 °C  12 lines/s | 2 up",
        "atlas-12                     0 of 64 GiB       50 °C             | 2 up",
        "b                                                                | unreachable",
    ]
    assert node_rows(nodes[2:], words) == ["b  unreachable"]
    many = [replace(nodes[0], node=f"c-{n}") for n in range(17)]
    assert node_rows([*many, nodes[2]], words) == [
        "b                                                                 | unreachable",
        "c-[0-16]  NPU 9 - 97 %  9 - 97 of 64 GiB  50 - 61 °C  196 lines/s | 2 up",
    ]


def viewed(place: Path, *nodes: NodeStatus, lost: bool = False) -> FoundJob:
    end = replace(report().ranks[0], exit_code=None)
    ranks = tuple(replace(end, rank=rank) for node in nodes for rank in node.ranks)
    running = replace(report(duration_s=75.0), state=JobState.RUNNING, ranks=ranks)
    status = JobStatus(report=running, nodes=nodes)
    looks = {"a-2": UnreachableError("a-2", "no answer for 12 s")} if lost else {}
    job = KnownJob(recorded(place), place)
    return FoundJob(None, job, status, {}, looks)  # type: ignore[arg-type]  # it connects to nothing


def test_the_live_view_tells_how_the_job_is(tmp_path: Path) -> None:
    first = replace(node(1, range(2)), npus={0: use(9), 1: use(20)}, lines_per_s={0: 0.5})
    lost = NodeStatus(node="a-2", ranks=(2, 3), problem="off")
    assert live_view(viewed(tmp_path, first, lost, lost=True), 80, 10) == [
        "running for 75 s  two  job job-1",
        "main.py, mpirun: 4 ranks on 2 nodes: 2 up, 2 not seen",
        "atlas-1  NPU 9 - 20 %  9 - 20 of 64 GiB  50 °C  0.5 lines/s | 2 up",
        "a-2                                                         | unreachable",
        "a-2: no answer for 12 s",
        "",
        "atlas-1:0  2 s ago   99 %  1.0 GiB | step 300 loss 0.0",
        "atlas-1:1  2 s ago  100 %  1.1 GiB | step 300 loss 0.1",
        "",
        "q: quit",
    ]


@pytest.mark.parametrize(
    ("state", "now", "newest"),
    [
        (None, "DONE, generation 2 on n-[1,3], 1 restart", "g2"),
        ("LAUNCHING", "LAUNCHING, generation 2 on n-[1,3], 1 restart", None),
    ],
)
def test_a_supervised_job_is_watched_from_generation_to_generation(
    tmp_path: Path, state: str | None, now: str, newest: str | None
) -> None:
    core, happened = a_job()
    if state:
        core.state, core.end = State(state), None
    first, second = tmp_path / "g1", tmp_path / "g2"
    first.mkdir()
    second.mkdir()
    recorded(second)
    lost = viewed(first, NodeStatus(node="a-1", ranks=(0,), problem="off"))
    nodes = [SimpleNamespace(name=name) for name in ("a-1", "a-2")]
    cluster = SimpleNamespace(nodes=nodes, source="x.yaml")
    run = SimpleNamespace(secrets=())
    found = replace(lost, session=SimpleNamespace(cluster=cluster, transports={}, forks=1, run=run))
    with Store(tmp_path / "supervise").writing("") as writer:
        writer.state(core.to_json())
        for event in happened:
            writer.event(event)
        later = next_generation(found)
        shown = live_view(found, 80, 12)
        assert (later and later.job.folder.name, found.goes_on) == (newest, state is not None)
    assert shown[2:4] == [f"supervised: {now}", "n-2: absent: node-down: no sign of life"]
    assert shown[4].endswith(" g2 done: the job has completed")


def test_a_node_whose_npus_answer_slowly_is_not_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, asked = Event(), Event()

    def slow(_session: object, _nodes: object) -> dict[str, str]:
        asked.set()
        answered.wait(10)
        return {}

    monkeypatch.setattr(status, "npus_of", slow)
    monkeypatch.setattr(status, "_LATE_S", 0.0)
    cluster = SimpleNamespace(nodes=[SimpleNamespace(name="a-1")], source="x.yaml")
    run = SimpleNamespace(secrets=())
    session = SimpleNamespace(cluster=cluster, transports={}, run=run, unkept=set())
    found = replace(viewed(tmp_path), session=session, looks={"a-1": JobProbe(ranks_alive={0})})
    looks = status._Looks(found, 0.1)
    assert asked.wait(10)
    sleep(0.2)
    looks.over.set()
    errors = looks.found().errors
    answered.set()
    assert "a-1" not in errors


def test_the_live_view_fits(tmp_path: Path) -> None:
    for count in (1, 16, 125):
        names = [f"{chr(97 + n % 26)} step {{}} {{}}" for n in range(count)]
        nodes = [node(n, range(8 * n, 8 * n + 8), line) for n, line in enumerate(names)]
        found = viewed(tmp_path, *nodes)
        for width, height in ((40, 6), (40, 24), (80, 10), (80, 24), (120, 60)):
            lines = live_view(found, width, height)
            assert (len(lines), lines[-1]) == (height, "q: quit")
            assert any(line.endswith("8 up") for line in lines[2:])
            assert ("GiB" in "".join(lines)) == (width > 40)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--interval 3s", "--interval is of no use without --watch"),
        ("--watch --stacks", "--watch cannot show --lines or --stacks"),
        ("--watch --interval 0", "--interval: 0 is too short; the least is 1s"),
    ],
)
def test_a_watch_that_cannot_be_is_refused(tmp_path: Path, flags: str, words: str) -> None:
    done = called(f"status {flags}", tmp_path)
    assert (done.returncode, done.stderr.count(words)) == (2, 1)


WATCHES = """\
from ascendboot.console.screen import Screen
with Screen().live() as live:
    live.show(lambda width, height: ["title \x07", f"{width} {height}", "x" * 500])
    print("quits", live.quits(60))
"""


@pytest.mark.parametrize(("key", "end"), [(b"q", b"quits True"), (b"\x03", b"KeyboardInterrupt")])
def test_a_key_ends_the_view_and_the_terminal_is_as_before(key: bytes, end: bytes) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "20"}
    argv = ["setsid", "--ctty", sys.executable, "-c", WATCHES]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(argv, env=env, **streams) as process:  # type: ignore[call-overload]
        seen = b""
        while "x…".encode() not in seen:
            seen += os.read(ours, 65536)
        os.write(ours, key)
        while end not in seen:
            seen += os.read(ours, 65536)
        process.wait(60)
    assert b"title \\x07" in seen
    assert b"60 20" in seen
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_a_followed_job_tells_its_figures_seldom_and_notes_them(tmp_path: Path) -> None:
    here, told = Here(tmp_path), list[str]()
    table = Path(__file__).parents[2] / "data/npu-smi-info/A2-24.1/usual.txt"
    here.put("npu-smi", f"cat {table}")
    host = FakeTransport("a", rules=[here])
    session = SimpleNamespace(hosts={"a": host}, forks=1, unkept=frozenset())
    figures = Figures(session, {"a": [1], "gone": [0]})  # type: ignore[arg-type]  # what it needs
    figures.count(b"one\ntwo\n")
    with figures.sampled(told.append, every_s=0.2):
        assert session.unkept == REPEATED >= {command.purpose for command in host.commands}
        while len(told) < 2:
            sleep(0.05)
        table = table.with_name("held.txt")
        text = table.read_text().replace("0           0    / 0 ", "97          0    / 0 ")
        here.put("npu-smi", f"cat <<'END'\n{text}\nEND")
        while len(told) < 4:
            sleep(0.05)
    assert re.fullmatch(r"after . s: a NPU 0 %, 3 of 64 GiB, 48 °C; 2.0 lines/s", told[0])
    assert "NPU 97 %" in told[3]
    (note,) = figures.noted(report()).notes
    assert note.startswith("while it ran: a NPU 0 - 97 %, 3 of 64 GiB, 48 °C; ")
    like = {f"n-{i}": [use(90)] for i in range(9)}
    for more, words in [
        ({"m": [use(1)]}, "n-[0-8] NPU 90 %, 90 of 64 GiB, 50 °C; m NPU 1 %, 1 of 64 GiB, 50 °C; "),
        (
            {f"m-{i}": [use(i)] for i in range(9)},
            "18 nodes NPU 0 - 90 %, 0 - 90 of 64 GiB, 50 °C; the least on m-0; ",
        ),
    ]:
        assert figures._words({**like, **more}).startswith(words)
    assert {"query the state of the devices", "read the clock"} == {
        c.purpose for c in host.commands
    }


FIRST = FirstFailure(rank=1, node="atlas-2", device=4, exit_code=3, signal=None, message="", log="")
LOST = JobCause(
    kind=CauseKind.NODE, title="atlas-2: was lost", ranks=(), nodes=("atlas-2",), why="w"
)


@pytest.mark.parametrize(
    ("message", "cause", "lines"),
    [
        ("", None, ["atlas-2: rank 1 failed first"]),
        ("stopped", None, ["stopped", "atlas-2: rank 1 failed first"]),
        ("", LOST, ["atlas-2: was lost", "  reason: w"]),
        ("atlas-2: was lost", LOST, ["atlas-2: was lost", "  reason: w"]),
        ("stopped", LOST, ["stopped", "atlas-2: was lost", "  reason: w"]),
    ],
)
def test_the_end_of_a_job_is_described_without_repetition(
    message: str, cause: JobCause | None, lines: list[str]
) -> None:
    assert how_it_ended(report(3, first_failure=FIRST, message=message, cause=cause)) == lines


def test_a_report_that_cannot_be_kept_is_no_error(tmp_path: Path) -> None:
    running = viewed(tmp_path)
    keep_success(running)
    assert not (tmp_path / "lock").exists()
    over = JobStatus(report=replace(running.status.report, state=JobState.SUCCEEDED), nodes=())
    read_only = KnownJob(running.job.record, Path("/sys"))  # for root, too
    keep_success(replace(running, job=read_only, status=over))


@pytest.mark.parametrize("damaged", ["plan.json", "job.json"])
def test_one_damaged_file_hides_no_other_job(tmp_path: Path, damaged: str) -> None:
    node = "{address: 127.0.0.1, port: 1}"
    (tmp_path / "two.yaml").write_text(f"cluster: two\nnodes: {{a-1: {node}}}\n")
    for number in (1, 2):
        folder = tmp_path / f".ascendboot/runs/job-{number}"
        folder.mkdir(parents=True)
        recorded(folder)
        ended = report(130, job_id=folder.name, state=JobState.INTERRUPTED)
        (folder / "job.json").write_text(json.dumps(ended.to_json()))
    broken = tmp_path / f".ascendboot/runs/job-2/{damaged}"
    broken.write_text("{")
    done = called("jobs --inventory two.yaml", tmp_path)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"job-2  damaged      {broken}: could not be read (")
    assert re.match(r"job-1  interrupted  \d+ d.* ago ", second), second
    assert done.returncode == 1
    row, _ = json.loads(called("jobs --inventory two.yaml --json", tmp_path).stdout)["jobs"]
    assert (row["job_id"], row["state"], row["nodes"]) == ("job-2", "damaged", [])
    shown = called("status --inventory two.yaml", tmp_path)
    assert "job job-1  interrupted" in shown.stdout
    assert f"not looked at: {broken}: could not be read" in shown.stderr
    named = called("status --inventory two.yaml --job job-2", tmp_path)
    assert (named.returncode, str(broken) in named.stderr) == (1, True)


def test_for_an_unknown_id_the_last_jobs_are_named_with_supervised_ones(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        "cluster: two\nnodes: {a-1: {address: 127.0.0.1, port: 1}}\n"
    )
    runs = ("job-1", "job-2/g1", "job-2/g2", "job-3/preflight", "job-4", "job-5/g1")
    for name in runs:
        (tmp_path / ".ascendboot/runs" / name).mkdir(parents=True)
        recorded(tmp_path / ".ascendboot/runs" / name)
    for supervised in ("job-2", "job-5"):
        (tmp_path / f".ascendboot/runs/{supervised}/supervise").mkdir()
    done = called("status --inventory two.yaml --job g2", tmp_path)
    last = "job-5, job-4, job-2 and 1 before"
    words = f'two: no job "g2" was started from here; the last were {last}\n'
    assert (done.returncode, done.stderr) == (2, words)
