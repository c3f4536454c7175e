"""`train`: flags, leftovers of earlier jobs, and exit codes."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from ascendboot.cli.common import Outputs
from ascendboot.cli.session import Session
from ascendboot.cli.supervise import OnNodes, check_supervised, run_generations
from ascendboot.cli.train import (
    Order,
    _check_with,
    continued,
    free_nodes,
    hang_rules,
    supervision_limits,
)
from ascendboot.cli.verbs import Call, cluster_verb
from ascendboot.console.screen import Screen
from ascendboot.errors import LaunchError, OutputError, UsageError
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.hang import HangRules
from ascendboot.jobs.supervisor import CORRELATE_S
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Cluster, NodeClocks, Parallel
from ascendboot.readiness.checks import Leftover
from ascendboot.readiness.ready import Readiness
from ascendboot.state import Run
from ascendboot.supervise.core import Choice, Core, Launch
from ascendboot.supervise.policy import Limits
from ascendboot.templates import script
from ascendboot.transport.api import Command
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.unit.checks.well import TWO
from tests.unit.launch.request import REQUEST, A, B
from tests.unit.launch.request import node as a_node

OLD = Leftover("old", PurePosixPath("/b/jobs/old"), {"lab-2": (5,)})
LEFT = "lab-2: 1 process is left of job old"
KEEP = Order(script="main.py", grace_s=1.5)
END = replace(KEEP, ends_leftovers=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def node(said: str = "ended 5 sleep 600\n") -> FakeTransport:
    def swept(command: Command) -> str | None:
        return said if command.argv[2] == script("jobs-sweep.sh") else None

    return FakeTransport("lab-2", rules=(swept,))


def freed(order: Order, there: FakeTransport, *problems: str, screen: Screen | None = None) -> None:
    ready = Readiness(
        script=PurePosixPath("/main.py"),
        is_copied=False,
        problems=problems,
        warnings=("lab-1: it is late",),
        leftovers=(OLD,),
        left=(LEFT,),
        clocks=NodeClocks(),
        image={},
    )
    screen = screen or Screen(json_mode=True)
    session = SimpleNamespace(transports={"lab-2": there}, screen=screen, forks=2)
    free_nodes(ready, order, cast("Session", session), "")


STOPPED = "Stopped: the job was not started; nothing was written."


def refusal(order: Order, there: FakeTransport, *problems: str) -> str:
    with pytest.raises(LaunchError) as refused:
        freed(order, there, *problems)
    return str(refused.value)


def test_without_a_terminal_leftovers_are_named_and_not_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    there = node()
    assert refusal(KEEP, there) == f"{LEFT}\n{STOPPED}"
    assert refusal(KEEP, there, "lab-1: no") == f"lab-1: no\n{LEFT}\n{STOPPED}"
    assert refusal(replace(END, plan=True), there) == f"{LEFT}\n{STOPPED}"
    assert there.commands == []
    assert capsys.readouterr().err == "warning: lab-1: it is late\n" * 3


def test_a_warning_is_printed_once_however_often_nodes_are_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen(json_mode=True)
    for _ in range(2):
        with pytest.raises(LaunchError):
            freed(replace(KEEP, plan=True), node(), screen=screen)
    assert capsys.readouterr().err == "warning: lab-1: it is late\n"


def test_with_the_flag_leftovers_are_ended(capsys: pytest.CaptureFixture[str]) -> None:
    there = node()
    freed(END, there)
    assert [command.argv[4:] for command in there.commands] == [("/b/jobs/old", "0", "15")]
    said = "warning: lab-1: it is late\nlab-2: 1 process of job old ended\n"
    assert capsys.readouterr().err == said
    assert refusal(END, node("left 5 python3 main.py\n")) == (
        "lab-2: could not end process 5 of job old: it survived SIGKILL (python3 main.py); "
        f"it may wait for the NPU driver: see dmesg\n{STOPPED}"
    )


@pytest.mark.parametrize(("answer", "ended"), [("y\n", 1), ("Yes\n", 1), ("\n", 0), ("", 0)])
def test_at_a_terminal_the_operator_decides_about_leftovers(
    monkeypatch: pytest.MonkeyPatch, answer: str, ended: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    there = node()
    if ended:
        freed(KEEP, there)
    else:
        assert refusal(KEEP, there) == f"{LEFT}\n{STOPPED}"
    assert len(there.commands) == ended


def test_skipped_checks_are_noted() -> None:
    assert replace(KEEP, skipped=("code", "disk")).notes == (
        "not checked before the start: code, disk",
    )
    assert KEEP.notes == ()


@pytest.mark.parametrize(
    ("timeout", "on_hang", "detach", "rules"),
    [
        (None, "tell", True, HangRules(timeout_s=30 * 60)),
        ("0", "tell", True, HangRules()),
        ("90", "stop", False, HangRules(timeout_s=90, stops=True)),
    ],
)
def test_flags_about_hangs(
    timeout: str | None, on_hang: str, *, detach: bool, rules: HangRules
) -> None:
    assert hang_rules(timeout, on_hang, detach=detach) == rules


NOT_CHECKED = "a job that is started with --detach is not checked for hangs; leave out"


@pytest.mark.parametrize(
    ("timeout", "on_hang", "why"),
    [
        ("soon", "tell", '--hang-timeout: "soon" is not a time such as 90s, 10m, 2h or 1d'),
        ("1.9", "tell", '--hang-timeout: "1.9" is less than 2 s'),
        ("1m", "cry", '--on-hang: "cry" is neither tell nor stop'),
        ("1m", "stop", f"--on-hang stop: {NOT_CHECKED}"),
        (None, "stop", f"--on-hang stop: {NOT_CHECKED}"),
        ("1m", "tell", f"--hang-timeout 1m: {NOT_CHECKED}"),
        ("", "tell", '--hang-timeout: "" is not a time'),
    ],
)
def test_invalid_flags_about_hangs(timeout: str | None, on_hang: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        hang_rules(timeout, on_hang, detach=True)
    assert str(refused.value).startswith(why)


def limits(**flags: Any) -> Limits | None:
    unset = dict.fromkeys(("resume", "elastic"))
    budgets = tuple(flags.pop(n, None) for n in ("min_nodes", "max_restarts", "stable_for"))
    given = {"supervise": False, "others": "", "budgets": budgets, **unset, **flags}
    return supervision_limits(**given)


def test_a_value_that_no_variable_can_have_is_refused_without_a_line_of_yaml(
    tmp_path: Path,
) -> None:
    inventory = tmp_path / "x.yaml"
    inventory.write_text("cluster: x\nnodes: {n-1: {address: 192.0.2.1}}\n")
    with pytest.raises(UsageError) as refused:
        _check_with(inventory, "--env: FOO", {"env": {"FOO": "a\nb"}})
    why = "a text of 2 lines is not a text of one line, a number, or true or false"
    assert str(refused.value) == f"--env: FOO: {why}"


def test_elastic_is_short_for_supervise_with_min_nodes() -> None:
    assert limits(elastic="3") == limits(supervise=True, min_nodes="3")
    assert limits(resume="job") == Limits(min_nodes=1, max_restarts=10, correlate_s=CORRELATE_S)
    assert limits(others="--detach") is None


SHORT = "--elastic 3 is short for --supervise --min-nodes 3; leave out one of the two"
AGAIN = "train itself starts the job again, each time on nodes that it chooses then; leave out one"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"supervise": True}, f"--elastic: does not work with --supervise: {SHORT}"),
        ({"resume": "job"}, f"--elastic: does not work with --resume: {SHORT}"),
        ({"min_nodes": "2"}, f"--elastic: does not work with --min-nodes: {SHORT}"),
        ({"others": "--detach"}, f"--elastic: does not work with --detach: {AGAIN} of the two"),
        ({"elastic": "0"}, '--elastic: "0" is not a whole number of at least 1'),
    ],
)
def test_elastic_with_a_flag_that_does_not_work_with_it(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        limits(**{"elastic": "3", **flags})
    assert str(refused.value) == why


def test_a_job_that_is_continued_keeps_its_limits() -> None:
    with pytest.raises(UsageError, match="--resume: keeps --max-restarts and --stable-for as bef"):
        limits(resume="job", max_restarts="3", stable_for="1m")


HAD = Choice("lab-1", (0,), None, {"X": "77"}, ("60",))


@pytest.mark.parametrize(
    ("had", "stated", "expected", "note"),
    [
        (HAD, Choice(), HAD, "goes on with --nodes lab-1 --devices 0 --env X=77 -- 60"),
        (
            HAD,
            Choice("lab-1", (0,), None, {"X": "7", "Y": "b c"}, ()),
            replace(HAD, variables={"X": "7", "Y": "b c"}, arguments=()),
            "goes on with --nodes lab-1 --devices 0 --env X=7 --env 'Y=b c'",
        ),
        (Choice(arguments=()), Choice(), Choice(arguments=()), ""),
        (None, HAD, HAD, "warning: an earlier version did not keep --nodes, --devices, "),
        (HAD, Choice("lab-[1-2]"), "--nodes: the job that --resume names goes on with lab-1;", ""),
        (HAD, Choice(None, (0, 1)), "--devices: the job that --resume names goes on with 0;", ""),
        (HAD, Choice(launcher="srun"), "--launcher: .* goes on with that of the inventory;", ""),
        (Choice(), Choice(), "--resume: arguments with a secret are not kept; state them", ""),
    ],
)
def test_a_job_that_is_continued_keeps_its_choice(
    had: Choice | None, stated: Choice, expected: Choice | str, note: str
) -> None:
    core = Core(("lab-1",), 1, Parallel(), Limits())
    core.choice = had
    core = Core.from_json(core.to_json())
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            continued(stated, core, TWO)
        return
    choice, said = continued(stated, core, TWO)
    assert choice == expected
    assert said.startswith(note)
    assert bool(said) == bool(note)


def test_a_returned_node_is_used_after_the_time_that_the_operator_states() -> None:
    assert limits(supervise=True, stable_for="20s") == Limits(
        min_nodes=1, max_restarts=10, correlate_s=CORRELATE_S, stable_for_s=20.0
    )
    with pytest.raises(UsageError, match="--stable-for: is only for supervised jobs"):
        limits(stable_for="20s")


OPEN_FILES = """
import resource
from ascendboot.cli.train import allow_open_files
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
allow_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    argv = [sys.executable, "-c", OPEN_FILES]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == "(256, 256)\n"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LaunchError("no script"), 125, "no script"),
        (UsageError("no such node"), 2, "no such node"),
        (OSError(28, "No space"), 125, "this machine: could not be used: No space; make room or"),
        (
            OSError(21, "Is a", "x"),
            125,
            "./x: could not be used: Is a; name a file, or move the fo",
        ),
        (OSError(20, "No", "/x/y"), 125, "/x/y: could not be used: No; name a folder, or move the"),
        (OSError(17, "There", "x"), 125, "./x: could not be used: There; name another, or move it"),
        (OutputError("standard output: could not be written"), 1, "standard output: could not"),
    ],
)
def test_only_a_job_that_was_not_started_gives_125(
    error: Exception, code: int, message: str
) -> None:
    @cluster_verb(help={}, unstarted=lambda _: {})
    def verb(_: Call) -> None:
        raise error

    with pytest.raises(Exit) as ended:
        verb(Context(), inventory=None, forks="1", json=False)
    assert ended.value.code == code
    assert str(ended.value.message).startswith(message)


@pytest.mark.parametrize("flag", ["--min-nodes", "--elastic"])
def test_a_plan_of_a_supervised_job_is_refused_as_its_start(flag: str, tmp_path: Path) -> None:
    nodes = (a_node("a-0", "192.0.2.10"), A, B)
    cluster = Cluster(name="c", nodes=nodes, primary_name="a-0", source="c.yaml")
    generations = OnNodes(
        session=cast("Session", SimpleNamespace(cluster=cluster)),
        job=Run("job-1", tmp_path),
        record=cast("Any", SimpleNamespace(slots=[(each.name, 0, None) for each in nodes])),
        whole=cast("Any", None),
        choice=Choice(),
        ready=cast("Any", None),
        follow=cast("Any", None),
        least_flag=flag,
    )
    check_supervised(generations, Limits(min_nodes=3))
    start = partial(run_generations, interrupts=Interrupts(), outputs=Outputs())
    for refuses in (check_supervised, start):
        with pytest.raises(LaunchError) as refused:
            refuses(generations, Limits(min_nodes=9))
        assert str(refused.value) == (
            "c.yaml: could not supervise the job: 3 nodes of 1 devices: fewer than min_nodes 9; "
            f"release or repair a node; or state a smaller {flag}"
        )


def test_every_generation_has_variables_of_its_own() -> None:
    nodes = tuple(replace(each, leaf="S0") for each in (a_node("a-0", "192.0.2.10"), A, B))
    whole = Cluster(
        name="c", nodes=nodes, primary_name="a-0", source="c.yaml", parallel=Parallel(tp=2)
    )
    session = cast("Session", SimpleNamespace(cluster=whole, transports={}, forks=1))
    generations = OnNodes(
        session=session,
        job=cast("Any", None),
        record=cast("Any", None),
        whole=cast("Any", SimpleNamespace(slots=())),
        choice=Choice(),
        ready=cast("Any", None),
        follow=cast("Any", None),
    )
    request = replace(REQUEST, rank_table=None, master_index=0)
    own = generations._own_resources(request, Launch(2, ("a-1", "a-2"), 0.0))
    written = {file.path.name: file.content for _, file in plan(own).files}
    assert written["MASTER_INDEX"] == b"1\n"
    assert own.variables == {"ASCENDBOOT_GENERATION": "2", "ASCENDBOOT_DP": "2"}
