"""The supervisor starts generation after generation until the core ends the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from ascendboot.errors import LaunchError
from ascendboot.jobs.follow import Interrupts
from ascendboot.jobs.job_report import running_report
from ascendboot.jobs.node_watch import NodeWatch
from ascendboot.jobs.progress import Progress
from ascendboot.jobs.supervisor import NotReadyError, Supervisor, faults_of
from ascendboot.launch.plan import LaunchPlan, generation_id, record_folder
from ascendboot.launch.planner import plan
from ascendboot.model.cluster import Parallel
from ascendboot.model.job import CauseKind, FirstFailure, JobCause, JobReport, JobState
from ascendboot.supervise.core import Core, Launch, State
from ascendboot.supervise.policy import Fault, FaultKind, Limits
from tests.unit.launch.request import REQUEST

NODES = ("a-1", "a-2")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def succeeded(made: LaunchPlan, _progress: Progress) -> JobReport:
    report = running_report(made, "", "")
    return replace(report, state=JobState.SUCCEEDED, exit_code=0)


def rank_failed(made: LaunchPlan, _progress: Progress, code: int = 7) -> JobReport:
    failure = FirstFailure(
        rank=0, node="a-1", device=0, exit_code=code, signal=None, message="", log=""
    )
    report = replace(running_report(made, "", ""), first_failure=failure)
    return replace(report, state=JobState.FAILED, exit_code=code)


def lost(node: str) -> Callable[[LaunchPlan, Progress], JobReport]:
    def outcome(made: LaunchPlan, progress: Progress) -> JobReport:
        progress.lost[node] = "no sign of life for 6 s"
        return replace(running_report(made, "", ""), state=JobState.FAILED, exit_code=1)

    return outcome


@dataclass
class Practice:
    """Plays what each generation does, the last outcome again and again."""

    outcomes: Sequence[Callable[[LaunchPlan, Progress], JobReport] | LaunchError]
    returns: bool = False
    steps: Iterator[int] = field(default_factory=lambda: iter(()))
    launches: list[Launch] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    seen: Sequence[Fault] = ()
    may_grow: bool = True

    def plan(self, launch: Launch) -> LaunchPlan:
        self.launches.append(launch)
        outcome = self._outcome
        if isinstance(outcome, LaunchError):
            raise outcome
        return plan(REQUEST)

    def run(self, made: LaunchPlan, progress: Progress) -> JobReport:
        outcome = self._outcome
        assert not isinstance(outcome, LaunchError)
        progress.started |= {rank.rank for rank in made.ranks}
        return outcome(made, progress)

    @property
    def _outcome(self) -> Callable[[LaunchPlan, Progress], JobReport] | LaunchError:
        return self.outcomes[min(len(self.launches), len(self.outcomes)) - 1]

    def stop(self, generation: int) -> Sequence[str]:
        self.stopped.append(generation)
        return ()

    def newest_step(self, _nodes: Sequence[str]) -> int | None:
        return next(self.steps, None)

    def faults(self, nodes: Collection[str], at: float) -> Sequence[Fault]:
        return [replace(fault, at=at) for fault in self.seen if fault.node in nodes]

    def has_returned(self, _node: str) -> bool:
        return self.returns

    def tell(self, words: str) -> None:
        self.told.append(words)


def supervisor(practice: Practice, **limits: float) -> Supervisor:
    clock = Clock()
    limit = Limits(correlate_s=2.0, **limits)  # type: ignore[arg-type]
    core = Core(NODES, 2, Parallel(), limit)
    return Supervisor(
        core=core,
        generations=practice,
        interrupts=Interrupts(),
        clock=clock,
        pause=clock.pause,
    )


def test_a_job_that_succeeds_has_one_generation() -> None:
    practice = Practice([succeeded])
    done = supervisor(practice).run()
    assert (done.end.exit_code, len(practice.launches)) == (0, 1)
    assert done.report is not None
    assert done.report.state is JobState.SUCCEEDED


def test_after_a_failed_rank_the_next_generation_is_on_the_same_nodes_within_10_s() -> None:
    practice = Practice([rank_failed, succeeded])
    watched = supervisor(practice)
    began = watched.clock()
    assert watched.run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, NODES]
    assert watched.clock() - began <= 10.0


def test_without_a_lost_node_the_job_goes_on_and_the_node_may_return() -> None:
    practice = Practice([lost("a-2"), succeeded])
    assert supervisor(practice).run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, ("a-1",)]


def test_a_job_that_needs_all_nodes_waits_for_the_lost_one() -> None:
    practice = Practice([lost("a-2"), succeeded], returns=True)
    assert supervisor(practice, min_nodes=2).run().end.exit_code == 0
    assert [launch.nodes for launch in practice.launches] == [NODES, NODES]
    assert "a-2: answers again" in practice.told


def test_a_job_whose_node_does_not_return_gives_up() -> None:
    done = supervisor(Practice([lost("a-2")]), min_nodes=2).run()
    assert done.end.exit_code == 75


def test_a_job_that_needs_more_nodes_than_there_are_gives_up_without_a_start() -> None:
    practice = Practice([succeeded])
    done = supervisor(practice, min_nodes=3).run()
    assert (done.end.exit_code, done.report, practice.launches) == (75, None, [])
    assert "2 nodes of 2 devices: fewer than min_nodes 3" in done.end.words


def test_a_bug_that_ends_each_generation_in_the_same_way_is_left_to_the_operator() -> None:
    practice = Practice([rank_failed])
    assert supervisor(practice).run().end.exit_code == 93
    assert len(practice.launches) == 2


@pytest.mark.parametrize("gone", [(), ("a-2",)])
def test_a_node_that_is_not_ready_takes_no_part(gone: Sequence[str]) -> None:
    practice = Practice([NotReadyError({"a-2": "no program python3"}, gone), succeeded])
    watched = supervisor(practice)
    assert watched.run().end.exit_code == 0
    assert practice.launches[-1].nodes == ("a-1",)
    assert watched.core.nodes["a-2"].status == ("absent" if gone else "quarantined")


def test_a_job_that_makes_progress_is_not_ended_for_failing_in_the_same_way() -> None:
    practice = Practice([rank_failed, rank_failed, rank_failed, succeeded], steps=count(10, 10))
    assert supervisor(practice).run().end.exit_code == 0
    assert [launch.resume_step for launch in practice.launches] == [None, 10, 20, 30]


def test_ctrl_c_ends_the_job_and_nothing_is_started_again() -> None:
    def interrupted(made: LaunchPlan, _progress: Progress) -> JobReport:
        report = running_report(made, "", "")
        return replace(report, state=JobState.INTERRUPTED, exit_code=130)

    practice = Practice([interrupted])
    assert supervisor(practice).run().end.exit_code == 130
    assert len(practice.launches) == 1


def test_a_supervisor_that_was_killed_is_replaced_by_one_that_ends_its_generation() -> None:
    class Killed(BaseException):
        pass

    def kill(_made: LaunchPlan, _progress: Progress) -> JobReport:
        raise Killed

    first = supervisor(Practice([kill]))
    with pytest.raises(Killed):
        first.run()
    practice = Practice([succeeded])
    second = supervisor(practice)
    second.core = Core.from_json(json.loads(json.dumps(first.core.to_json())), at=5.0)
    assert second.run().end.exit_code == 0
    assert practice.stopped == [1]
    assert [launch.generation for launch in practice.launches] == [2]


def test_ctrl_c_while_a_fault_ends_the_generation_ends_the_job() -> None:
    ill = Fault(kind=FaultKind.NPU_FAULT, at=1001.0, node="a-2", words="device 3 is Alarm")

    def interrupted(made: LaunchPlan, progress: Progress) -> JobReport:
        watched.core.fault(ill)
        watched.interrupts.press()
        progress.interrupted = True
        report = running_report(made, "", "")
        return replace(report, state=JobState.INTERRUPTED, exit_code=130)

    watched = supervisor(Practice([interrupted]))
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


def test_a_device_that_fails_ends_the_generation_and_keeps_its_node_out() -> None:
    ill = Fault(kind=FaultKind.NPU_FAULT, at=0.0, node="a-2", words="device 3 is Alarm")
    watch = running(Practice([succeeded], seen=[ill]))
    kept: list[str] = []
    watch.keep = lambda: kept.append(watch.core.nodes["a-2"].status)
    watch.look(lambda: True, Event())
    assert kept[-1] == "quarantined"
    assert watch.interrupts.why == "npu-fault on a-2: device 3 is Alarm"
    assert watch.core.nodes["a-2"].status == "quarantined"
    assert [type(each) for each in watch.core.stopped(1020.0, ())] == [Launch]


def test_a_job_grows_at_its_next_checkpoint_after_a_node_has_returned() -> None:
    practice = Practice([succeeded], returns=True)
    watch = running(practice)
    watch.look(lambda: True, Event())
    core = watch.core
    core.fault(Fault(kind=FaultKind.NODE_DOWN, at=1011.0, node="a-2"))
    core.stopped(1012.0, ())
    core.tick(1020.0)
    assert core.members == ("a-1",)
    watch.look(lambda: True, Event())
    core.tick(1011.0 + 1000.0)
    assert (core.state, watch.interrupts.why) == (State.DRAINING, "")
    practice.steps = iter([50])
    watch.look(lambda: True, Event())
    assert "the number of nodes changes after this checkpoint" in watch.interrupts.why
    assert core.stopped(2100.0, ())[0].nodes == NODES  # type: ignore[union-attr]


def test_a_job_with_checkpoints_on_local_disks_does_not_take_in_a_node_that_lacks_them() -> None:
    watch = running(Practice([succeeded], returns=True, may_grow=False))
    watch.core.fault(Fault(kind=FaultKind.NODE_DOWN, at=1011.0, node="a-2"))
    watch.core.stopped(1012.0, ())
    watch.core.tick(1020.0)
    watch.look(lambda: True, Event())
    assert watch.core.nodes["a-2"].status == "absent"


def test_what_is_seen_after_the_end_of_a_generation_does_not_count() -> None:
    ill = Fault(kind=FaultKind.NPU_FAULT, at=0.0, node="a-2", words="device 3 is Alarm")
    watch = running(Practice([succeeded], seen=[ill]))
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
