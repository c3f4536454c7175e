"""The state machine, row by row."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest

from ascendboot.errors import AscendbootError
from ascendboot.model.cluster import Parallel
from ascendboot.supervise.core import Action, Core, End, Launch, State, Stop, Wait
from ascendboot.supervise.policy import Fault, FaultKind, Level, Limits

NODES = ("n1", "n2", "n3", "n4")
A = TypeVar("A", Stop, End, Launch)


def only(kind: type[A], actions: tuple[Action, ...]) -> A:
    """The only action, which is of this kind."""
    [action] = actions
    assert isinstance(action, kind), action
    return action


class Job:
    """A core with four nodes of 8 devices, and short ways to drive it."""

    def __init__(self, *nodes: str, **more: Any) -> None:
        self.events: list[Mapping[str, Any]] = []
        more = {"shape": Parallel(tp=8), "limits": Limits(), **more}
        self.core = Core(nodes or NODES, 8, **more, on_event=self.events.append)

    def run(self, at: float = 0.0) -> Job:
        self.core.begin(at)
        self.core.launched(at)
        return self

    def fault(self, kind: FaultKind, at: float, node: str = "", **more: Any) -> tuple[Action, ...]:
        return self.core.fault(Fault(kind=kind, at=at, node=node, **more))

    def again(self, at: float, *unverified: str) -> tuple[Action, ...]:
        """Stopped, and all evidence is there: what comes next."""
        self.core.stopped(at, unverified)
        return self.core.tick(at + 10)

    def state(self) -> State:
        return self.core.state

    def status(self, node: str) -> str:
        return self.core.nodes[node].status

    def restart(self, at: float, kind: FaultKind, node: str = "", **more: Any) -> Launch:
        self.fault(kind, at, node, **more)
        action = only(Launch, self.again(at + 1))
        self.core.launched(action.not_before)
        return action


@pytest.fixture
def job() -> Job:
    return Job().run()


EXIT, DOWN, HANG = FaultKind.RANK_EXIT, FaultKind.NODE_DOWN, FaultKind.HANG
NPU, LINK = FaultKind.NPU_FAULT, FaultKind.LINK_DOWN


def test_preflight_launches_the_nodes_that_pass() -> None:
    job = Job()
    job.core.quarantine(0, ["n2"], "sshd does not answer")
    assert job.core.begin(1) == (Launch(1, ("n1", "n3", "n4"), 1),)
    assert (job.state(), job.core.members) == (State.LAUNCHING, ("n1", "n3", "n4"))
    assert job.core.begin(2) == ()


def test_a_start_that_takes_too_long_is_stopped() -> None:
    job = Job()
    job.core.begin(0)
    stop = only(Stop, job.fault(FaultKind.START_FAILED, 600, "n2"))
    assert (stop.generation, job.state()) == (1, State.STOPPING)


def test_exit_code_0_is_the_end(job: Job) -> None:
    assert job.core.completed(5) == (End(State.DONE, 0, "the job has completed"),)
    assert job.state() is State.DONE
    assert job.core.tick(6) == job.fault(EXIT, 7) == job.core.interrupt(8) == ()


def test_another_exit_code_restarts_on_the_same_nodes_after_a_pause(job: Job) -> None:
    job.core.checkpoint(50, 100)
    only(Stop, job.fault(EXIT, 60, exit_code=1))
    assert job.core.stopped(62, ()) == (Wait(70),)
    assert job.state() is State.DIAGNOSING
    assert job.core.tick(70) == (Launch(2, ("n1", "n2", "n3", "n4"), 75),)
    assert job.core.restarts == 1


def test_a_cause_stops_the_generation_once(job: Job) -> None:
    assert len(job.fault(DOWN, 5, "n3")) == 1
    assert job.fault(DOWN, 5, "n3") == job.fault(EXIT, 6, "n1", rank=0) == ()
    assert job.state() is State.STOPPING


def test_the_next_generation_waits_for_the_last_one_to_be_gone(job: Job) -> None:
    job.fault(DOWN, 5, "n3")
    assert job.core.tick(500) == job.core.checkpoint(501, 9) == job.core.launched(502) == ()
    assert job.core.node_up(503, "n3") == (Wait(803),)
    assert job.state() is State.STOPPING


def test_a_lost_node_is_replaced_by_a_spare() -> None:
    job = Job(limits=Limits(max_nodes=3)).run()
    assert job.core.spares == ("n4",)
    assert job.restart(5, DOWN, "n2").nodes == ("n1", "n3", "n4")
    assert job.status("n2") == "absent"


def test_without_a_legal_world_it_waits_and_gives_up() -> None:
    job = Job("n1", "n2", shape=Parallel(tp=8, pp=2)).run()
    job.fault(DOWN, 5, "n1")
    assert job.again(6, "n1") == (Wait(16 + 270),)
    assert job.state() is State.WAITING
    assert job.core.tick(285) == ()
    end = only(End, job.core.tick(286))
    assert (end.state, end.exit_code) == (State.GAVE_UP, 75)
    assert "1 node of 8 devices: the number of ranks must be a multiple of 16" in end.words


def test_a_repaired_npu_is_waited_for() -> None:
    job = Job("n1", "n2", shape=Parallel(tp=8, pp=2)).run()
    job.fault(NPU, 5, "n1", level=Level.RESTART_NPU)
    job.again(6)
    assert job.core.node_up(100, "n1") == (Wait(400),)
    assert job.core.tick(399) == ()
    assert isinstance(job.core.tick(400)[0], Launch)


def test_it_grows_at_the_next_checkpoint_only(job: Job) -> None:
    job.restart(5, DOWN, "n2")
    assert job.core.node_up(100, "n2") == (Wait(400),)
    assert job.core.tick(399) == ()
    assert job.state() is State.RUNNING
    job.core.tick(400)
    assert job.state() is State.DRAINING
    only(Stop, job.core.checkpoint(500, 77))
    assert job.core.stopped(501, ()) == (Launch(3, ("n1", "n2", "n3", "n4"), 501),)
    assert job.core.restarts == 1


def test_the_quarantine_of_a_node_that_fails_again_doubles_up_to_a_day(job: Job) -> None:
    at, holds = 0.0, []
    for _ in range(11):
        at += 50
        job.fault(LINK, at, "n2")
        job.fault(LINK, at + 1, "n2")
        job.core.node_up(at + 2, "n2")
        until = job.core.nodes["n2"].until
        assert until is not None
        holds.append(until - at - 2)
        at = until
        job.core.tick(at)
    assert holds == [min(300 * 2**n, 86400) for n in range(11)]
    at += 3 * 86400
    job.fault(LINK, at, "n2")
    assert job.core.nodes["n2"].relapses == 0


@pytest.mark.parametrize(
    ("level", "status", "stops"),
    [
        (Level.NOT_HANDLE, "healthy", False),
        (Level.SUB_HEALTH, "suspect", False),
        (Level.PRE_SEPARATE, "suspect", False),
        (Level.RESTART_REQUEST, "healthy", False),
        (Level.RESTART_BUSINESS, "healthy", False),
        (Level.FREE_RESTART_NPU, "soft-quarantine", True),
        (Level.RESTART_NPU, "soft-quarantine", True),
        (Level.SEPARATE_NPU, "quarantined", True),
        (None, "quarantined", True),
    ],
)
def test_each_level_has_its_treatment(
    job: Job, level: Level | None, status: str, *, stops: bool
) -> None:
    actions = job.fault(NPU, 5, "n2", level=level, codes=("DEADBEEF",))
    assert job.status("n2") == status
    assert any(isinstance(action, Stop) for action in actions) is stops


def test_a_restart_level_stops_after_a_minute_on_the_same_nodes(job: Job) -> None:
    assert job.fault(NPU, 5, "n2", level=Level.RESTART_BUSINESS) == (Wait(65),)
    assert job.core.tick(64) == ()
    only(Stop, job.core.tick(65))
    assert job.core.stopped(66, ()) == (Launch(2, NODES, 66),)


def test_a_restart_level_that_clears_is_forgotten(job: Job) -> None:
    job.fault(NPU, 5, "n2", level=Level.RESTART_REQUEST)
    job.core.node_up(40, "n2")
    assert job.core.tick(100) == ()


def test_a_restart_level_that_is_not_seen_any_more_stops_nothing(job: Job) -> None:
    job.fault(NPU, 5, "n2", level=Level.RESTART_REQUEST)
    job.fault(FaultKind.NET_FAULT, 5, "n2")
    first, second = job.core.persisting
    assert job.core.passed(40, first) == ()
    assert job.core.tick(100) == ()
    assert job.core.persisting == (second,)
    assert isinstance(job.core.tick(305)[0], Stop)


def test_a_network_fault_alone_stops_after_five_minutes(job: Job) -> None:
    job.fault(FaultKind.NET_FAULT, 5, "n2")
    assert job.core.tick(304) == ()
    assert isinstance(job.core.tick(305)[0], Stop)
    assert only(Launch, job.core.stopped(306, ())).nodes == ("n1", "n3", "n4")


def test_a_network_fault_explains_a_rank_that_ends(job: Job) -> None:
    job.fault(FaultKind.NET_FAULT, 5, "n2")
    job.fault(EXIT, 100, "n1", rank=3, exit_code=1)
    launch = only(Launch, job.again(101))
    assert (launch.nodes, launch.not_before) == (("n1", "n3", "n4"), 111)


def test_a_suspect_node_is_left_out_next_time_unless_it_is_needed() -> None:
    for shape, nodes in ((Parallel(tp=8), ("n1", "n3", "n4")), (Parallel(tp=8, pp=4), NODES)):
        job = Job(shape=shape).run()
        job.fault(NPU, 5, "n2", level=Level.PRE_SEPARATE)
        assert job.state() is State.RUNNING
        assert job.restart(10, EXIT, "n1", rank=0, exit_code=1).nodes == nodes


def test_a_suspect_node_is_needed_if_jobs_start_only_from_it() -> None:
    def from_n1(names: Sequence[str], count: int, _keep: Sequence[str]) -> tuple[str, ...]:
        return tuple(names)[:count] if "n1" in names else ()

    job = Job(pick=from_n1).run()
    job.fault(NPU, 5, "n1", level=Level.PRE_SEPARATE)
    job.fault(EXIT, 10, "n2", rank=9, exit_code=1)
    assert job.again(11) == (Launch(2, NODES, 26),)


def test_hardware_is_the_cause_even_if_it_is_seen_later(job: Job) -> None:
    job.fault(EXIT, 5, "n1", rank=0, exit_code=1)
    job.core.stopped(7, ())
    job.fault(DOWN, 13, "n4")
    launch = only(Launch, job.core.tick(15))
    assert (launch.nodes, launch.not_before) == (("n1", "n2", "n3"), 15)


def test_ranks_that_end_by_our_stop_are_not_the_cause(job: Job) -> None:
    job.fault(HANG, 5, "n2", rank=9)
    job.fault(EXIT, 7, "n1", rank=0, exit_code=143)
    job.again(8)
    causes = [event["words"] for event in job.events if event["event"] == "cause"]
    assert causes == ["n2: hang of rank 9"]


def test_the_same_failure_twice_needs_an_operator_and_quarantines_nobody(job: Job) -> None:
    job.restart(5, EXIT, "n1", rank=3, exit_code=1)
    job.fault(EXIT, 40, "n1", rank=3, exit_code=1)
    end = only(End, job.again(41))
    assert (end.state, end.exit_code) == (State.NEEDS_OPERATOR, 93)
    assert {now.status for now in job.core.nodes.values()} == {"healthy"}


@pytest.mark.parametrize("ranks", [(3, None), (None, 3)])
def test_a_failure_of_an_unknown_rank_may_be_the_same(
    job: Job, ranks: tuple[int | None, int | None]
) -> None:
    job.restart(5, EXIT, "n1" if ranks[0] else "", rank=ranks[0], exit_code=1)
    job.fault(EXIT, 40, "n1" if ranks[1] else "", rank=ranks[1], exit_code=1)
    assert only(End, job.again(41)).exit_code == 93


@pytest.mark.parametrize(("at", "changed"), [(40, {"rank": 4}), (40, {"exit_code": 2}), (1500, {})])
def test_a_failure_that_differs_or_is_late_is_no_proof_of_a_bug(
    job: Job, at: float, changed: dict[str, int]
) -> None:
    same = {"rank": 3, "exit_code": 1}
    job.restart(5, EXIT, "n1", **same)
    job.restart(at, EXIT, "n1", **{**same, **changed})


def test_the_pause_doubles_until_a_checkpoint() -> None:
    job = Job(limits=Limits(no_progress_limit=99, max_restarts=99)).run()
    at, pauses = 1000.0, []
    for n in range(9):
        launch = job.restart(at, EXIT, "n1", rank=n, exit_code=1)
        pauses.append(launch.not_before - at - 11)
        at += 1000
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    job.core.checkpoint(at, 1)
    assert job.restart(at, EXIT, "n1", rank=77, exit_code=1).not_before == at + 11 + 5


def test_a_node_whose_ranks_fail_twice_is_replaced_but_the_world_does_not_shrink() -> None:
    for most, nodes in ((3, ("n2", "n3", "n4")), (4, NODES)):
        job = Job(limits=Limits(max_nodes=most)).run()
        job.restart(500, EXIT, "n1", rank=1, exit_code=1)
        assert job.restart(1500, EXIT, "n1", rank=2, exit_code=1).nodes == nodes


def test_three_generations_without_a_checkpoint_need_an_operator(job: Job) -> None:
    job.restart(5, HANG)
    job.restart(105, HANG)
    job.fault(HANG, 205)
    end = only(End, job.again(206))
    assert end.exit_code == 93
    assert end.words == "no newer checkpoint in 3 generations; last cause: hang"


def test_the_budget_of_restarts_ends_with_a_retryable_code() -> None:
    job = Job(limits=Limits(max_restarts=2)).run()
    for n in (1, 2):
        job.core.checkpoint(n * 100, n)
        job.restart(n * 100 + 1, HANG)
    job.core.checkpoint(300, 3)
    job.fault(HANG, 301)
    end = only(End, job.again(302))
    assert (end.state, end.exit_code) == (State.GAVE_UP, 75)
    assert end.words == "restarted 2 times, max_restarts is 2; last cause: hang"


@pytest.mark.parametrize("gap", [0, 8, 25])
def test_a_common_cause_restarts_once_on_the_same_nodes(gap: float) -> None:
    job = Job("n1", "n2", "n3", "n4", "n5").run()
    codes = ("80E3A201",)
    job.fault(NPU, 5, "n1", codes=codes)
    job.again(6)
    job.core.launched(17)
    job.fault(NPU, 5 + gap, "n2", codes=codes)
    assert {now.status for now in job.core.nodes.values()} == {"healthy"}
    if job.state() is State.STOPPING:
        job.again(40)
    assert len(job.core.members) >= 4
    assert [e["node"] for e in job.events if e["event"] == "common-cause"] == ["n2"]


def test_a_common_cause_twice_needs_an_operator(job: Job) -> None:
    def both(at: float) -> tuple[Action, ...]:
        job.fault(LINK, at, "n1")
        job.fault(LINK, at + 1, "n2")
        return job.again(at + 2)

    assert isinstance(both(10)[0], Launch)
    job.core.launched(30)
    assert only(End, both(200)).exit_code == 93
    assert {now.status for now in job.core.nodes.values()} == {"healthy"}


def test_half_of_the_nodes_lost_at_once_return_without_quarantine(job: Job) -> None:
    job.fault(DOWN, 5, "n1")
    job.fault(DOWN, 6, "n2")
    assert only(Launch, job.again(7, "n1", "n2")).nodes == ("n3", "n4")
    job.core.launched(20)
    job.core.node_up(30, "n1")
    job.core.node_up(31, "n2")
    assert (job.status("n1"), job.status("n2")) == ("healthy", "healthy")
    assert job.state() is State.DRAINING


def test_a_node_that_could_not_be_verified_is_left_out(job: Job) -> None:
    job.fault(EXIT, 5, "n1", rank=0, exit_code=1)
    assert only(Launch, job.again(6, "n3")).nodes == ("n1", "n2", "n4")
    assert job.core.nodes["n3"].reason.endswith("not verified that generation 1 has ended here")


def test_a_node_that_is_no_member_stops_nothing() -> None:
    job = Job(limits=Limits(max_nodes=3)).run()
    assert job.fault(EXIT, 10, "n4", rank=30) == job.fault(DOWN, 11, "n9") == ()
    assert job.fault(DOWN, 12) == ()  # without the name of its node
    assert job.fault(NPU, 13, "n4", codes=("80E3A201",)) == ()
    assert (job.status("n4"), job.core.spares) == ("quarantined", ())
    assert job.state() is State.RUNNING


def test_a_quarantine_by_the_operator_restarts_without_charge(job: Job) -> None:
    only(Stop, job.core.quarantine(50, ["n2"], "to be repaired"))
    assert job.core.stopped(51, ()) == (Launch(2, ("n1", "n3", "n4"), 51),)
    assert job.core.node_up(60, "n2") == ()
    assert (job.status("n2"), job.core.restarts) == ("quarantined", 0)
    job.core.launched(60)
    job.core.release(70, "n2")
    assert (job.status("n2"), job.state()) == ("healthy", State.DRAINING)


def test_a_resize_shrinks_and_grows_at_checkpoints(job: Job) -> None:
    job.core.resize(10, 2)
    job.core.checkpoint(20, 1)
    assert job.core.stopped(21, ()) == (Launch(2, ("n1", "n2"), 21),)
    job.core.launched(22)
    assert job.state() is State.RUNNING
    job.core.resize(30, 4)
    assert job.state() is State.DRAINING


def test_an_interrupt_stops_all_and_exits_130(job: Job) -> None:
    only(Stop, job.core.interrupt(10))
    assert job.core.interrupt(11) == ()
    assert only(End, job.core.stopped(12, ())).exit_code == 130
    assert only(End, Job().core.interrupt(1)).exit_code == 130  # without ranks at once


def test_the_state_survives_a_new_supervisor(job: Job) -> None:
    job.core.checkpoint(3, 9)
    job.fault(NPU, 5, "n2", codes=("80E3A201",))
    document = json.loads(json.dumps(job.core.to_json()))
    again = Core.from_json(document)
    assert again.to_json() == job.core.to_json()
    stop = only(Stop, again.resume(20, alive=False))
    assert (stop.generation, stop.cause.node) == (1, "n2")
    assert again.stopped(21, ()) == (Launch(2, ("n1", "n3", "n4"), 21),)


def test_a_new_supervisor_continues_or_stops_a_generation(job: Job) -> None:
    document = job.core.to_json()
    assert Core.from_json(document).resume(20, alive=True) == ()
    again = Core.from_json(document)
    only(Stop, again.resume(20, alive=False))
    assert again.stopped(21, ()) == (Launch(2, NODES, 21),)
    assert again.restarts == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"schema": 2}, "schema is 2, not 1"),
        ({"state": "ASLEEP"}, "state of supervision: state: "),
        ({"generation": "x"}, "state of supervision: generation: "),
    ],
)
def test_a_state_file_of_another_form_is_refused(
    job: Job, change: dict[str, object], expected: str
) -> None:
    with pytest.raises(AscendbootError, match=expected):
        Core.from_json({**job.core.to_json(), **change})


def test_every_event_can_be_a_line_of_json(job: Job) -> None:
    job.restart(5, DOWN, "n2")
    assert json.loads(json.dumps(job.events)) == job.events
    assert [event["event"] for event in job.events] == [
        *("preflight", "planning", "launching", "running", "fault", "node-absent", "stopping"),
        *("diagnosing", "cause", "planning", "launching", "running"),
    ]
    assert job.events[4] == {
        "at": 5,
        "event": "fault",
        "generation": 1,
        "state": "RUNNING",
        "node": "n2",
        "words": "n2: node-down",
    }


def test_a_node_that_is_down_stays_so_when_a_later_fault_of_it_has_a_common_cause(job: Job) -> None:
    job.fault(DOWN, 5, "n1")
    job.fault(DOWN, 6, "n2")
    job.again(7)
    job.fault(NPU, 20, "n1", codes=("80E3A201",))
    assert (job.status("n1"), job.status("n2")) == ("absent", "absent")


def test_a_common_cause_that_stops_nothing_is_not_charged_to_a_later_failure(job: Job) -> None:
    for node in ("n1", "n2"):
        job.fault(NPU, 5, node, codes=("npu-tool-hang",))
    assert {now.status for now in job.core.nodes.values()} == {"healthy"}
    job.restart(500, EXIT, "n1", rank=1, exit_code=1)
    job.restart(1500, EXIT, "n2", rank=2, exit_code=1)


def test_the_operator_ends_a_generation_without_charge(job: Job) -> None:
    only(Stop, job.fault(FaultKind.PREEMPTED_BY_OPERATOR, 5, words="new code"))
    assert job.fault(FaultKind.PREEMPTED_BY_OPERATOR, 6) == ()
    assert job.core.stopped(7, ()) == (Launch(2, NODES, 7),)
    assert job.core.restarts == 0


def test_a_thousand_nodes_of_which_some_are_used_only_if_needed_are_planned_quickly() -> None:
    names = tuple(f"n{i}" for i in range(1024))
    job = Job(*names, shape=Parallel(tp=8, pp=1024))
    for name in names[::5]:
        job.core.quarantine(0, [name], "it is slow", status="suspect")
    began = time.process_time()
    assert only(Launch, job.core.begin(1)).nodes == names
    job.fault(DOWN, 2, "n7")
    assert job.again(3)
    assert time.process_time() - began < 2
    assert job.state() is State.WAITING


def test_a_node_that_is_back_before_the_wait_is_used_at_once_if_it_is_needed() -> None:
    job = Job("n1", "n2", shape=Parallel(tp=8, pp=2)).run()
    job.fault(DOWN, 5, "n1")
    job.core.stopped(6, ["n1"])
    job.core.node_up(10, "n1")
    assert job.core.tick(15) == (Launch(2, ("n1", "n2"), 15),)
    job.core.launched(20)
    job.fault(DOWN, 25, "n1")
    job.core.stopped(26, ["n1"])
    job.core.node_up(30, "n1")
    job.core.tick(35)
    assert (job.state(), job.status("n1")) == (State.WAITING, "soft-quarantine")


def test_a_node_found_lost_before_the_ranks_began_is_not_missing_progress() -> None:
    job = Job(*(f"n{n}" for n in range(1, 10)))
    job.core.begin(0)
    for n in range(1, 6):
        job.fault(DOWN, n * 100, f"n{n}")
        assert isinstance(job.again(n * 100 + 1)[0], Launch)
    assert job.core.members == ("n6", "n7", "n8", "n9")
