"""What the screen shows: equal outcomes once, problems first, nothing but JSON with --json."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import sys

import pytest

from ascendboot.cli.train import refused
from ascendboot.console.screen import Screen, folded
from ascendboot.errors import NodeError, NotUnderstoodError, UnreachableError
from ascendboot.model.job import CauseKind, FirstFailure, Followed, JobCause, JobReport, RankEnd
from ascendboot.model.report import Finding, Level, Outcome, Report, StepResult
from ascendboot.value import asdict, replace
from tests.unit.checks.collective.ranks import report


def result(node: str, outcome: Outcome, detail: str = "", diff: str = "") -> StepResult:
    return StepResult(
        node=node, phase="judge", step="facts", outcome=outcome, detail=detail, diff=diff
    )


def test_equal_outcomes_are_folded_and_exceptions_come_first() -> None:
    results = [
        *(result(f"lab-{i}", Outcome.OK, "fit") for i in range(1, 16)),
        result("lab-16", Outcome.BLOCKED, "lab-16: 7 of 8 devices answer"),
        result("lab-3", Outcome.UNREACHABLE, "lab-3: no answer"),
    ]
    assert [(nodes, r.outcome, r.detail) for nodes, r in folded(results)] == [
        ("lab-3", Outcome.UNREACHABLE, "no answer"),
        ("lab-16", Outcome.BLOCKED, "7 of 8 devices answer"),
        ("lab-[1-15]", Outcome.OK, "fit"),
    ]


def test_satisfied_steps_of_a_phase_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        StepResult(node=node, phase="sshd", step=step, outcome=Outcome.OK, detail="as it should be")
        for node in ("a1", "a2")
        for step in ("sshd/host_key", "sshd")
    ]
    Screen().phase("Check the answers", [])  # without results it has no title either
    Screen().phase("Run the cluster's own sshd", results)
    assert capsys.readouterr().out == (
        "Run the cluster's own sshd\n  a[1-2]  ok           sshd/host_key, sshd\n"
    )


ACTIONS = {
    "create env/node.env (3 lines)": "created env/node.env (3 lines)",
    "change sshd/sshd_config (+2 -1)": "changed sshd/sshd_config (+2 -1)",
    "start the cluster's sshd on port 12345": "started the cluster's sshd on port 12345",
    "stop the cluster's sshd": "stopped the cluster's sshd",
    "set the network of devices 0-7": "set the network of devices 0-7",
    "re-create the container": "re-created the container",
}


@pytest.mark.parametrize(("action", "done"), ACTIONS.items())
def test_a_row_names_the_action_and_its_object(action: str, done: str) -> None:
    planned = replace(result("a1", Outcome.WOULD_CHANGE, "is missing"), action=action)
    assert planned.words == f"would {action}"
    assert replace(planned, outcome=Outcome.CHANGED).words == done
    assert replace(planned, outcome=Outcome.FAILED).words == "is missing"


@pytest.mark.parametrize("shows_diffs", [False, True])
def test_a_plan_has_one_line_per_change_and_bodies_on_demand(
    shows_diffs: bool,  # noqa: FBT001
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [
        replace(result(n, Outcome.WOULD_CHANGE, diff=diff), action="change env/node.env (+1 -1)")
        for n, diff in (("a1", "-a\n+b"), ("a2", "-a\n+c"))
    ]
    screen = Screen()
    screen.shows_diffs = shows_diffs
    screen.phase("Write", results)
    row = "  {}  plan         would change env/node.env (+1 -1)"
    diffs = [(row.format("a1"), "      -a", "      +b"), (row.format("a2"), "      -a", "      +c")]
    rows = [line for diff in diffs for line in diff] if shows_diffs else [row.format("a[1-2]")]
    assert capsys.readouterr().out.splitlines() == ["Write", *rows]


ENDS = "\n\r\x0b\x0c\x85\u2028"


@pytest.mark.parametrize("coloured", ["", "1"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: f"{ord(end):04x}")
def test_item_06_no_text_of_a_node_begins_a_line(
    end: str, coloured: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", coloured)
    forged = f"main.py{end}lab-1: nothing is left"
    screen = Screen()
    screen.say(f"  lab-2  {forged}")
    screen.error(f"lab-2: process 7 could not be ended: {forged}")
    screen.errors(str(refused(f"lab-2: {forged}", str(NodeError("lab-3", forged)))))
    screen.error(str(NodeError("lab-4", str(NotUnderstoodError("npu-smi", 1, forged, "a table")))))
    screen.phase("Reach", [result("lab-2", Outcome.FAILED, str(NodeError("lab-2", forged)))])
    screen.errors(str(UnreachableError("lab-2", forged)), style="")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", "".join(capsys.readouterr())).splitlines()
    begins = [line.split()[0].rstrip(":") for line in lines]
    nodes = ["lab-2", "Reach", "lab-2", "lab-2", "lab-2", "lab-3", "Stopped", "lab-4", "lab-2"]
    assert begins == nodes


def test_in_json_mode_standard_output_is_the_document_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = Report(run_id="r", cluster="lab", results=(result("lab-1", Outcome.CHANGED),))
    screen = Screen(json_mode=True)
    screen.phase("Judge", whole.results)
    screen.json(whole.to_json())
    screen.summary(whole, ".ascendboot/runs/r", planned=False)
    streams = capsys.readouterr()
    assert json.loads(streams.out) == whole.to_json()
    assert streams.err.splitlines()[-1] == (
        "lab: 1 thing changed, 0 problems. Kept in .ascendboot/runs/r"
    )


def test_only_a_yes_agrees(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\nYes \nn\n\n"))
    assert [Screen().agrees("Reset lab?") for _ in range(5)] == [True, True, False, False, False]
    assert capsys.readouterr().out == "Reset lab? [y/N]\n" * 5


def finding(level: Level, outcome: Outcome, *nodes: str, detail: str) -> list[StepResult]:
    cause = Finding(detail.replace(" ", "-"), level, nodes, detail, "Do it")
    where = "a[1-2]" if len(nodes) > 1 else nodes[0]
    words = f"{where}: {detail}" if level == "error" else f"{level}: {where}: {detail}"
    return [
        StepResult(node=n, phase="judge", step=cause.id, outcome=outcome, detail=words, cause=cause)
        for n in nodes
    ]


FOUND = (
    result("a3", Outcome.OK, "fit"),
    *finding("info", Outcome.OK, "a1", detail="just so"),
    *finding("warning", Outcome.OK, "a1", "a2", detail="odd clocks"),
    *finding("error", Outcome.BLOCKED, "a1", "a2", detail="link down"),
)


def test_a_warning_is_labelled_and_follows_errors(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().phase("Judge", FOUND)
    assert capsys.readouterr().out.splitlines() == [
        "Judge",
        "  a[1-2]  blocked      link down",
        "  a[1-2]  warning      odd clocks",
        "  a3      ok           fit",
        "  a1      ok           info: a1: just so",
    ]


def test_equal_findings_on_devices_of_a_node_share_a_row() -> None:
    words = [f"device {i} has IP 10.0.0.{i}" for i in range(8)]
    found = [r for text in words for r in finding("warning", Outcome.OK, "a1", detail=text)]
    hot = finding("warning", Outcome.OK, "a1", detail="device 9 is hot")
    rows = folded([replace(each, step="conf") for each in (*found, *hot)])
    first = "device 0 has IP 10.0.0.0 Likewise device 1-7."
    assert [row.detail for _, row in rows] == [first, "device 9 is hot"]


def test_a_check_ends_with_the_number_of_distinct_findings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = result("a4", Outcome.UNREACHABLE, "a4: no answer")
    Screen().verdict(Report(run_id="r", cluster="lab", results=(*FOUND, lost)), "runs/r")
    Screen().verdict(Report(run_id="r", cluster="lab", results=FOUND, interrupted=True), "runs/r")
    assert capsys.readouterr().out.splitlines() == [
        "lab: 2 errors, 1 warning. Kept in runs/r",
        "lab: 1 error, 1 warning, interrupted. Kept in runs/r",
        "Stopped: interrupted; nothing was written on the nodes",
    ]
    Screen().summary(Report(run_id="r", cluster="lab", results=FOUND[:4]), "runs/r", planned=False)
    assert capsys.readouterr().out == (
        "lab: 0 things changed, 0 problems, 1 warning. Kept in runs/r\n"
    )


END = RankEnd(rank=9, node="lab-2", device=1, exit_code=1, signal=None)
TITLE = "lab-2: rank 9 on device 1 failed first, with exit code 1"


def failed(cause: JobCause | None) -> JobReport:
    first = FirstFailure(**asdict(END), message="a\nb\nc\nd\ne", log="x/rank.9.log")
    return report(1, job_id="job-1", first_failure=first, ranks=(END,), duration_s=2.0, cause=cause)


def test_a_failed_job_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    cause = JobCause(
        kind=CauseKind.RANK,
        title=TITLE,
        ranks=(9,),
        nodes=("lab-2",),
        words="w",
        meaning="m",
        remedy="r",
        why="y",
        unsure="u",
        followed=(Followed((0, 1, 2, 5), "ended"),),
    )
    Screen().job(failed(cause), "x")
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 15
    assert shown == [
        TITLE,
        *("  it says: w", "  it means: m", "  to do: r", "  reason: y", "  not certain: u"),
        "  only followed: ranks 0-2,5: ended",
        "  its last lines (x/rank.9.log):",
        *(f"      {letter}" for letter in "abcde"),
        "job job-1 failed after 2.0 s, exit code 1. Logs in x",
    ]
    Screen().job(failed(None), "x")
    assert capsys.readouterr().out.splitlines()[:2] == [TITLE, "  its last lines (x/rank.9.log):"]


def test_the_end_of_a_job_is_wrapped_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours, "rb", buffering=0) as terminal:
        monkeypatch.setattr(sys, "stdout", stream)
        Screen().job(failed(None), ".ascendboot/runs/20260102-030405-train-ab12")
        shown = ""
        while "ab12" not in shown:
            shown += terminal.read(10000).decode()
    assert shown.splitlines()[-3:] == [
        "job job-1 failed after 2.0 s, exit",
        "  code 1. Logs in",
        "  .ascendboot/runs/20260102-030405-train-ab12",
    ]
