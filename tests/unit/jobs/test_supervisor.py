"""The supervisor starts generation after generation until the core ends the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event
from typing import TypeAlias

import pytest

from ascendboot.errors import LaunchError, UsageError
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.job_report import running_report
from ascendboot.jobs.node_watch import NodeWatch
from ascendboot.jobs.progress import Progress
from ascendboot.jobs.supervisor import NotReadyError, Supervisor, faults_of
from ascendboot.launch.plan import (
    PLAN_FILE,
    Job,
    JobRecord,
    LaunchPlan,
    generation_id,
    record_folder,
)
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Parallel
from ascendboot.model.job import CauseKind, FirstFailure, JobCause, JobReport, JobState
from ascendboot.supervise.core import Action, Core, Launch, State
from ascendboot.supervise.policy import Fault, FaultKind, Limits
from ascendboot.supervise.requests import Inbox, Request, carry_out
from ascendboot.value import replace
from tests.unit.launch.request import REQUEST
from tests.waiting import wait_until

NODES = ("a-1", "a-2")
Outcome: TypeAlias = Callable[[Job, Progress], JobReport]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def ended(made: Job, state: JobState, exit_code: int) -> JobReport:
    return replace(running_report(made, "", ""), state=state, exit_code=exit_code)


def succeeded(made: Job, _progress: Progress) -> JobReport:
    return ended(made, JobState.SUCCEEDED, 0)


def interrupted(made: Job, _progress: Progress) -> JobReport:
    return ended(made, JobState.INTERRUPTED, 130)


def rank_failed(made: Job, _progress: Progress) -> JobReport:
    failure = FirstFailure(
        rank=0, node="a-1", device=0, exit_code=7, signal=None, message="", log=""
    )
    return replace(ended(made, JobState.FAILED, 7), first_failure=failure)


def lost(*nodes: str) -> Outcome:
    def outcome(made: Job, progress: Progress) -> JobReport:
        progress.lost |= dict.fromkeys(nodes, "no sign of life for 6 s")
        return ended(made, JobState.FAILED, 1)

    return outcome


@dataclass
class Practice:
    """Plays what each generation does, the last outcome again and again."""

    outcomes: Sequence[Outcome | LaunchError]
    returns: bool = False
    steps: Iterator[int] = field(default_factory=lambda: iter(()))
    launches: list[Launch] = field(default_factory=list)
    begun: int = 0
    told: list[str] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    found: JobRecord | None = None
    """What of an earlier supervisor's generation can be followed."""
    seen: Sequence[Fault] = ()
    may_grow: bool = True

    def plan(self, launch: Launch) -> LaunchPlan:
        self.launches.append(launch)
        self.begun += 1
        self._outcome()
        return plan(REQUEST)

    def running(self, _generation: int) -> JobRecord | None:
        self.begun += self.found is not None
        return self.found

    def run(self, made: Job, progress: Progress) -> JobReport:
        outcome = self._outcome()
        progress.started |= {rank.rank for rank in made.ranks}
        return outcome(made, progress)

    def _outcome(self) -> Outcome:
        outcome = self.outcomes[min(self.begun, len(self.outcomes)) - 1]
        if isinstance(outcome, LaunchError):
            raise outcome
        return outcome

    def stop(self, generation: int) -> Sequence[str]:
        self.stopped.append(generation)
        return ()

    def newest_step(self, _nodes: Sequence[str]) -> int | None:
        return next(self.steps, None)

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        return [replace(fault, at=at) for fault in self.seen if fault.node in nodes]

    def ready_among(self, nodes: Collection[str]) -> Collection[str]:
        return nodes if self.returns else ()

    def tell(self, words: str) -> None:
        self.told.append(words)


def supervisor(practice: Practice, **limits: float) -> Supervisor:
    clock = Clock()
    limit = Limits(correlate_s=2.0, **limits)  # type: ignore[arg-type]
    core = Core(NODES, 2, Parallel(), limit)
    return Supervisor(
        core=core, generations=practice, interrupts=Interrupts(), clock=clock, pause=clock.pause
    )


def continued(practice: Practice, core: Core) -> Supervisor:
    """The supervisor that begins where another one has left the core."""
    after = supervisor(practice)
    after.core = Core.from_json(json.loads(json.dumps(core.to_json())))
    return after


def npu(node: str, code: str) -> Fault:
    return Fault(kind=FaultKind.NPU_FAULT, at=0.0, node=node, codes=(code,))


ILL = Fault(kind=FaultKind.NPU_FAULT, at=0.0, node="a-2", words="device 3 is Alarm")


@pytest.mark.parametrize(
    ("outcomes", "returns", "least", "exit_code", "launches"),
    [
        ([succeeded], False, 1, 0, [NODES]),
        ([lost("a-2"), succeeded], False, 1, 0, [NODES, ("a-1",)]),
        ([lost("a-2"), succeeded], True, 2, 0, [NODES, NODES]),
        ([lost(*NODES), succeeded], True, 1, 0, [NODES, NODES]),
        ([rank_failed], False, 1, 93, [NODES, NODES]),
        ([interrupted], False, 1, 130, [NODES]),
    ],
    ids=["success", "shrinks", "waits", "return-together", "bug", "ctrl-c"],
)
def test_the_generations_of_a_job_and_its_exit_code(
    outcomes: Sequence[Outcome],
    *,
    returns: bool,
    least: int,
    exit_code: int,
    launches: Sequence[Sequence[str]],
) -> None:
    practice = Practice(outcomes, returns=returns)
    done = supervisor(practice, min_nodes=least).run()
    assert done.end.exit_code == exit_code
    assert [launch.nodes for launch in practice.launches] == launches
    assert done.report is not None
    assert (done.report.state is JobState.SUCCEEDED) == (exit_code == 0)
    assert ("a-2: answers again" in practice.told) == returns


def test_after_a_failed_rank_the_next_generation_is_on_the_same_nodes_within_10_s() -> None:
    practice = Practice([rank_failed, succeeded])
    watched = supervisor(practice)
    began = watched.clock()
    assert watched.run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, NODES]
    assert watched.clock() - began <= 10.0


def test_the_next_generation_is_not_delayed_by_a_look_at_lost_nodes() -> None:
    practice = Practice([lost("a-2"), succeeded])
    practice.ready_among = lambda _: pytest.fail("it takes 10 s")  # type: ignore[assignment]
    assert supervisor(practice).run().end.exit_code == 0
    assert len(practice.launches) == 2


def test_a_job_that_needs_more_nodes_than_there_are_gives_up_without_a_start() -> None:
    practice = Practice([succeeded])
    done = supervisor(practice, min_nodes=3).run()
    assert (done.end.exit_code, done.report, practice.launches) == (75, None, [])
    assert "2 nodes of 2 devices: fewer than min_nodes 3" in done.end.words


@pytest.mark.parametrize("gone", [(), ("a-2",)])
def test_a_node_that_is_not_ready_takes_no_part(gone: Sequence[str]) -> None:
    practice = Practice([NotReadyError({"a-2": "no program python3"}, gone), succeeded])
    watched = supervisor(practice)
    assert watched.run().end.exit_code == 0
    assert practice.launches[-1].nodes == ("a-1",)
    assert watched.core.nodes["a-2"].status == ("absent" if gone else "quarantined")


@pytest.mark.parametrize(
    ("codes", "status"),
    [
        (["80C98000"], "soft-quarantine"),
        (["A4025021"], "soft-quarantine"),
        (["A4025021", "80E3A201"], "quarantined"),
        (["DEADBEEF"], "quarantined"),
        ([], "quarantined"),
    ],
)
def test_a_node_whose_devices_are_not_ready_is_left_out_until_they_are_well_or_it_is_released(
    codes: Sequence[str], status: str
) -> None:
    ill = [npu("a-2", code) for code in codes]
    practice = Practice([NotReadyError({"a-2": "device 0 is Alarm"}, ()), succeeded], seen=ill)
    watched = supervisor(practice)
    assert watched.run().end.exit_code == 0
    assert practice.launches[-1].nodes == ("a-1",)
    assert watched.core.nodes["a-2"].status == status


def test_a_job_that_makes_progress_is_not_ended_for_failing_in_the_same_way() -> None:
    practice = Practice([rank_failed, rank_failed, rank_failed, succeeded], steps=count(10, 10))
    assert supervisor(practice).run().end.exit_code == 0
    assert len(practice.launches) == 4


def resumed(practice: Practice) -> Supervisor:
    """The supervisor after one that was killed while the first generation ran."""

    def kill(_made: Job, _progress: Progress) -> JobReport:
        raise SystemExit

    first = supervisor(Practice([kill]))
    with pytest.raises(SystemExit):
        first.run()
    return continued(practice, first.core)


def test_a_supervisor_that_was_killed_is_replaced_by_one_that_ends_its_generation() -> None:
    practice = Practice([succeeded])
    assert resumed(practice).run().end.exit_code == 0
    assert practice.stopped == [1]
    assert [launch.generation for launch in practice.launches] == [2]


@pytest.mark.parametrize(
    ("outcomes", "launched", "stopped", "restarts"),
    [
        ([succeeded], [], [], 0),
        ([rank_failed, succeeded], [2], [], 1),
        ([lost("a-2"), succeeded], [2], [], 1),
        ([LaunchError("job-1.g1: could not be followed"), succeeded], [2], [1], 0),
    ],
)
def test_a_generation_that_runs_is_followed_by_the_next_supervisor(
    job: JobRecord,
    outcomes: Sequence[Outcome | LaunchError],
    launched: Sequence[int],
    stopped: Sequence[int],
    restarts: int,
) -> None:
    practice = Practice(outcomes, found=job)
    after = resumed(practice)
    assert after.run().end.exit_code == 0
    assert [launch.generation for launch in practice.launches] == launched
    assert (practice.stopped, after.core.restarts) == (stopped, restarts)


def test_ctrl_c_while_a_fault_ends_the_generation_ends_the_job() -> None:
    def faulty(made: Job, progress: Progress) -> JobReport:
        watched.core.fault(replace(ILL, at=1001.0))
        watched.interrupts.press()
        progress.interrupted = True
        return interrupted(made, progress)

    watched = supervisor(Practice([faulty]))
    assert watched.run().end.exit_code == 130


def test_ctrl_c_ends_the_wait_for_a_node() -> None:
    watched = supervisor(Practice([lost("a-2")]), min_nodes=2)
    watched.pause = lambda _seconds: watched.interrupts.press()
    assert watched.run().end.exit_code == 130


def running(practice: Practice, **limits: float) -> NodeWatch:
    """The watch over a generation on both nodes."""
    watched = supervisor(practice, **limits)
    watched.core.begin(1000.0)
    clock = Clock()
    clock.now = 1010.0
    return NodeWatch(
        core=watched.core, nodes=practice, interrupts=watched.interrupts, clock=clock, every_s=0.0
    )


def look(watch: NodeWatch) -> None:
    watch.look(lambda: True, Event())


def without_a_2(watch: NodeWatch) -> Core:
    """Its core, after the next generation was launched without a node that was lost."""
    watch.core.fault(Fault(kind=FaultKind.NODE_DOWN, at=1011.0, node="a-2"))
    watch.core.stopped(1012.0, ())
    watch.core.tick(1020.0)
    return watch.core


def test_a_device_that_fails_ends_the_generation_and_keeps_its_node_out() -> None:
    watch = running(Practice([succeeded], seen=[ILL]))
    kept: list[str] = []
    watch.keep = lambda: kept.append(watch.core.nodes["a-2"].status)
    look(watch)
    assert kept[-1] == "quarantined"
    assert watch.interrupts.why == "a-2: npu-fault: device 3 is Alarm"
    assert watch.core.nodes["a-2"].status == "quarantined"
    assert [type(each) for each in watch.core.stopped(1020.0, ())] == [Launch]


def test_faults_of_several_nodes_in_one_look_are_seen_together() -> None:
    watch = running(Practice([succeeded], seen=[npu(node, "8C03A000") for node in NODES]))
    look(watch)
    assert watch.interrupts.why == "a-1: npu-fault (8C03A000)"
    assert {state.reason for state in watch.core.nodes.values()} == {"a common cause"}
    [launch] = watch.core.stopped(1020.0, ())
    assert isinstance(launch, Launch)
    assert launch.nodes == NODES


def test_a_job_grows_at_its_next_checkpoint_after_a_node_has_returned() -> None:
    practice = Practice([succeeded], returns=True)
    watch = running(practice)
    look(watch)
    core = without_a_2(watch)
    assert core.members == ("a-1",)
    look(watch)
    watch.clock.pause(1000.0)  # type: ignore[attr-defined]
    practice.steps = iter([50])
    look(watch)
    assert core.state is State.STOPPING
    assert "the number of nodes changes after this checkpoint" in watch.interrupts.why
    assert core.stopped(2100.0, ())[0].nodes == NODES  # type: ignore[union-attr]


def shrunk(practice: Practice) -> NodeWatch:
    """The watch over a generation that goes on without a node, which has returned since."""
    watch = running(practice)
    without_a_2(watch)
    watch.clock.pause(20.0)  # type: ignore[attr-defined]
    look(watch)
    assert watch.core.nodes["a-2"].status == "soft-quarantine"
    return watch


def test_a_node_that_is_lost_again_while_it_is_held_must_be_ready_for_longer() -> None:
    practice = Practice([succeeded], returns=True)
    watch = shrunk(practice)
    practice.returns = False
    look(watch)
    assert watch.core.nodes["a-2"].status == "absent"
    practice.returns = True
    look(watch)
    assert watch.core.nodes["a-2"].until == watch.clock() + 2 * Limits().stable_for_s
    assert watch.core.generation == 2


def test_a_node_that_is_lost_before_the_job_takes_it_in_does_not_stop_the_job() -> None:
    practice = Practice([succeeded], returns=True)
    watch = shrunk(practice)
    watch.core.tick(1010.0 + 1000.0)
    assert watch.core.state is State.DRAINING
    practice.returns, practice.steps = False, iter([50])
    look(watch)
    assert (watch.core.state, watch.interrupts.why) == (State.RUNNING, "")


def test_a_spare_that_is_lost_is_known_before_it_is_needed() -> None:
    practice = Practice([succeeded])
    watch = running(practice, max_nodes=1)
    assert watch.core.spares == ("a-2",)
    look(watch)
    assert watch.core.nodes["a-2"].status == "absent"
    assert "spare" in watch.core.nodes["a-2"].reason
    assert (watch.core.state, watch.interrupts.why) == (State.RUNNING, "")
    practice.returns = True
    look(watch)
    watch.clock.pause(400.0)  # type: ignore[attr-defined]
    look(watch)
    assert (watch.core.state, watch.core.spares) == (State.RUNNING, ("a-2",))


def test_a_job_with_checkpoints_on_local_disks_does_not_take_in_a_node_that_lacks_them() -> None:
    watch = running(Practice([succeeded], returns=True, may_grow=False))
    without_a_2(watch)
    look(watch)
    assert watch.core.nodes["a-2"].status == "absent"


def test_a_fault_that_passes_does_not_stop_the_generation_and_one_that_lasts_does() -> None:
    slow, logged = npu("a-2", "80C98000"), npu("a-1", "A4025021")
    events: list[Mapping[str, object]] = []
    practice = Practice([succeeded], seen=[slow, logged])
    watch = running(practice)
    watch.core = Core(NODES, 2, Parallel(), Limits(), on_event=events.append)
    watch.core.begin(1000.0)
    clock = watch.clock
    assert isinstance(clock, Clock)
    for _ in range(3):
        look(watch)
        clock.now += 10.0
    practice.seen = [logged]
    look(watch)
    clock.now += 60.0
    look(watch)
    assert watch.interrupts.why == ""
    assert [event["event"] for event in events if event["node"]] == ["fault", "fault", "passed"]
    practice.seen = [slow, logged]
    for _ in range(7):
        look(watch)
        clock.now += 10.0
    assert watch.interrupts.why == "a-2: npu-fault (80C98000)"
    assert watch.core.nodes["a-2"].status == "healthy"


def test_a_suspect_member_is_not_made_ready_while_its_ranks_run() -> None:
    practice = Practice([succeeded], seen=[npu("a-2", "npu-tool-hang")])
    practice.ready_among = lambda nodes: pytest.fail("it runs ranks") if nodes else ()  # type: ignore[method-assign]
    watch = running(practice)
    for _ in range(2):
        look(watch)
    assert watch.core.nodes["a-2"].status == "suspect"
    assert watch.interrupts.why == ""


def test_what_is_seen_after_the_end_of_a_generation_does_not_count() -> None:
    watch = running(Practice([succeeded], seen=[ILL]))
    over = Event()
    over.set()
    watch.look(lambda: True, over)
    assert watch.core.nodes["a-2"].status == "healthy"


def test_a_node_that_the_launcher_lost_is_the_fault() -> None:
    made = plan(REQUEST)
    cause = JobCause(kind=CauseKind.NODE, title="a-2: was lost", ranks=(2, 3), nodes=("a-2",))
    report = replace(rank_failed(made, Progress()), cause=cause)
    (fault,) = faults_of(report, Progress(), 5.0)
    assert (fault.kind, fault.node, fault.at) == (FaultKind.NODE_DOWN, "a-2", 5.0)


def test_other_ends_of_a_generation_have_kinds_of_their_own() -> None:
    report = rank_failed(plan(REQUEST), Progress())
    kinds: Mapping[JobState, FaultKind] = {
        JobState.HUNG: FaultKind.HANG,
        JobState.NOT_STARTED: FaultKind.START_FAILED,
        JobState.FAILED: FaultKind.RANK_EXIT,
    }
    for state, kind in kinds.items():
        assert [f.kind for f in faults_of(replace(report, state=state), Progress(), 0.0)] == [kind]
    bare = replace(report, first_failure=None)
    assert faults_of(bare, Progress(), 0.0)[0].exit_code == 7


def test_the_folder_of_a_generation_is_in_that_of_its_job() -> None:
    runs = Path("runs")
    assert record_folder(runs, generation_id("job-1", 3)) == runs / "job-1" / "g3"
    assert record_folder(runs, "job-1.preflight") == runs / "job-1" / "preflight"
    assert record_folder(runs, "job-1") == runs / "job-1"
    assert record_folder(runs, "../job-1") is None


def test_a_part_of_an_id_is_enough_if_no_other_job_has_it(tmp_path: Path) -> None:
    for name in ("20260102-030405-train-ab12", "20260102-030406-train-cd34"):
        (tmp_path / name / "g1").mkdir(parents=True)
        (tmp_path / name / "g1" / PLAN_FILE).touch()
    assert record_folder(tmp_path, "cd34.g1") == tmp_path / name / "g1"
    assert record_folder(tmp_path, "20260102-030406") == tmp_path / name
    assert record_folder(tmp_path, "cd") == tmp_path / name
    with pytest.raises(UsageError, match=r'^"2026" may be \S+-ab12 or \S+-cd34; write more'):
        record_folder(tmp_path, "2026")


def asked(watched: Supervisor | NodeWatch, folder: Path, request: Request) -> str:
    """Hand over a request; its id."""
    inbox = Inbox(folder)

    def requested() -> Sequence[Action]:
        return inbox.carry_out(watched.core, watched.clock(), lambda _words: None)

    watched.requested = requested
    return inbox.hand_over(request)


def test_a_request_while_a_generation_runs_ends_it(tmp_path: Path) -> None:
    watch = running(Practice([succeeded]))
    watch.every_s = 1000.0
    asked(watch, tmp_path, Request(verb="quarantine", nodes=("a-2",), reason="loud"))
    with watch.watching(lambda: True):
        wait_until(lambda: bool(watch.interrupts.why))
    assert watch.interrupts.why == "a-2: quarantined: loud"
    assert watch.core.stopped(1020.0, ())[0].nodes == ("a-1",)  # type: ignore[union-attr]


def test_a_request_after_the_end_of_a_generation_is_left_to_the_supervisor(tmp_path: Path) -> None:
    watch = running(Practice([succeeded]))
    asked(watch, tmp_path, Request(verb="quarantine", nodes=("a-2",)))
    over = Event()
    over.set()
    watch._reported(watch.requested, over)
    assert watch.core.nodes["a-2"].status == "healthy"


def test_a_request_starts_a_job_that_waits_for_a_node(tmp_path: Path) -> None:
    practice = Practice([lost("a-2"), succeeded])
    watched = supervisor(practice, min_nodes=2)
    asked(watched, tmp_path, Request(verb="release", nodes=("a-2",)))
    requested = watched.requested
    watched.requested = lambda: requested() if watched.core.state is State.WAITING else ()
    assert watched.run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, NODES]
    assert watched.clock() < 1010.0


def test_a_request_before_a_delayed_start_changes_its_nodes(tmp_path: Path) -> None:
    practice = Practice([rank_failed, succeeded])
    watched = supervisor(practice)
    asked(watched, tmp_path, Request(verb="quarantine", nodes=("a-1",)))
    requested = watched.requested
    watched.requested = lambda: requested() if watched.core.generation == 2 else ()
    assert watched.run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, ("a-2",)]
    assert practice.stopped == [2]


@pytest.mark.parametrize("state", [State.WAITING, State.LAUNCHING])
def test_stop_between_two_generations_ends_the_job(tmp_path: Path, state: State) -> None:
    practice = Practice([lost("a-2") if state is State.WAITING else rank_failed, succeeded])
    watched = supervisor(practice, min_nodes=2)
    asked(watched, tmp_path, Request(verb="stop"))
    requested = watched.requested
    here = (state, 1 if state is State.WAITING else 2)
    core = watched.core
    watched.requested = lambda: requested() if (core.state, core.generation) == here else ()
    done = watched.run()
    assert (done.end.state, done.end.exit_code) == (State.GAVE_UP, 130)
    assert [launch.nodes for launch in practice.launches] == [NODES]


def test_stop_while_the_nodes_are_checked_starts_nothing(tmp_path: Path) -> None:
    practice = Practice([lambda _made, _progress: pytest.fail("it was started")])
    watched = supervisor(practice)
    asked(watched, tmp_path, Request(verb="stop"))
    requested = watched.requested
    watched.requested = lambda: requested() if practice.launches else ()
    done = watched.run()
    assert (done.end.exit_code, done.report, len(practice.launches)) == (130, None, 1)


def test_a_generation_counts_as_running_as_soon_as_its_ranks_have_begun() -> None:
    watch = running(Practice([succeeded]))
    watch.every_s = 1000.0
    with watch.watching(lambda: True):
        wait_until(lambda: watch.core.state is State.RUNNING)


@pytest.mark.parametrize("state", [State.RUNNING, State.WAITING])
def test_what_was_changed_without_a_supervisor_counts_for_the_next_one(state: State) -> None:
    core = Core(NODES, 2, Parallel(), Limits(min_nodes=1 if state is State.RUNNING else 2))
    core.begin(1000.0)
    core.launched(1000.0)
    request = Request(verb="quarantine", nodes=("a-2",), reason="loud")
    nodes: tuple[str, ...] = ("a-1",)
    if state is State.WAITING:
        core.quarantine(1000.0, ["a-2"], "loud")
        core.stopped(1000.0, ())
        request, nodes = Request(verb="release", nodes=("a-2",)), NODES
    assert core.state is state
    carry_out(core, core.at, request)
    practice = Practice([succeeded])
    assert continued(practice, core).run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [nodes]
