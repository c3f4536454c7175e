"""What changed on devices, for the cause of a failed job and for a supervised one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ascendboot.facts import query
from ascendboot.facts.device_states import DeviceState
from ascendboot.facts.parsers.hccn_tool import LinkChange, LinkHistory
from ascendboot.facts.parsers.npu_smi import DeviceHealth
from ascendboot.facts.query import CLOCK_COMMAND, NOT_QUERIED, Answered, Unanswered
from ascendboot.jobs.job_report import with_device_changes
from ascendboot.model.job import CauseKind, DeviceChange, JobCause
from ascendboot.readiness.device_changes import at_start, changes_of, device_changes
from ascendboot.readiness.device_faults import DeviceFaults, net_faults, npu_faults, tool_faults
from ascendboot.readiness.queries import DevicePorts, NodeProbe
from ascendboot.supervise.policy import FaultKind
from ascendboot.transport.api import Command, Transport
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport, Rule, framed
from tests.unit.checks.collective.ranks import report
from tests.unit.readiness.found import JOB

DATA = Path(__file__).parents[2] / "data"

UP, DOWN = Answered(value=True), Answered(value=False)
FINE = Answered(DeviceHealth("OK"))
ALARM = Answered(DeviceHealth("Alarm", ("A4025021",)))
WARNING = Answered(DeviceHealth("Warning"))
SILENT = Unanswered("busy", "could not read it: it is busy")
GONE = Unanswered("failed", "could not …: npu-smi info -m does not list this device")
START = DeviceState(health=FINE, link_up=UP)


def flaps(*changes: tuple[int, bool]) -> Answered[LinkHistory]:
    found = tuple(LinkChange(ago, is_up=is_up) for ago, is_up in changes)
    return Answered(LinkHistory(2, None, found))


DURING = flaps((7, True), (8, False), (900, True), (901, False))
NOW_DOWN: dict[str, Any] = {"link_history": flaps((7, False), (90, True)), "link_up": DOWN}
PACKETS = Answered({"roce_rx_err_pkt_num": 3, "nic_tx_all_pkg_num": 9})
MANY_PACKETS = Answered({f"rx_err{i}": 1 for i in range(9)})
MANY_SHOWN = "rx_err0 1, rx_err1 1, rx_err2 1, rx_err3 1"
MEMORY = Answered({"HBM Single Bit Error Count": 4, "HBM Double Bit Error Count": 1})
SINCE = "errors since its driver started:"
WAS_OK = "; at the start it was OK"
ONCE = "its link went down once during the job, last 8 s ago"
UNREACHABLE = "hccn_tool reports its network health as Unreachable"
IS_DOWN = (True, "its link is down")


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        (START, {}, []),
        (START, {"health": FINE, "link_up": UP, "net_health": Answered("Success")}, []),
        (START, {"health": SILENT, "link_up": SILENT, "packets": SILENT}, []),
        (START, {"health": ALARM}, [(True, f"its health is Alarm (A4025021){WAS_OK}")]),
        (DeviceState(), {"health": ALARM}, [(True, "its health is Alarm (A4025021)")]),
        (DeviceState(health=ALARM), {"health": ALARM}, []),
        (START, {"health": WARNING}, [(False, f"its health is Warning{WAS_OK}")]),
        (START, {"health": GONE}, [(True, "npu-smi does not list it any more")]),
        (START, {"link_up": DOWN}, [IS_DOWN]),
        (DeviceState(link_up=DOWN), {"link_up": DOWN}, []),
        (START, NOW_DOWN, [IS_DOWN]),
        (START, {"link_history": DURING}, [(False, ONCE)]),
        (START, {"link_history": flaps((65, True), (66, False))}, []),
        (START, {"net_health": Answered("Unreachable")}, [(False, UNREACHABLE)]),
        (START, {"net_health": Answered("Init")}, []),
        (START, {"net_health": Answered("Fault")}, []),
        (START, {"packets": PACKETS}, [(False, f"{SINCE} roce_rx_err_pkt_num 3")]),
        (START, {"packets": MANY_PACKETS}, [(False, f"{SINCE} {MANY_SHOWN} and 5 more")]),
        (START, {"memory_errors": MEMORY}, [(False, f"{SINCE} HBM Double Bit Error Count 1")]),
    ],
)
def test_what_changed_on_a_device(
    before: DeviceState, now: dict[str, Any], changes: list[tuple[bool, str]]
) -> None:
    assert list(changes_of(before, DeviceState(**now), during_s=60.0)) == changes


def test_the_state_at_the_start_is_what_the_checks_before_it_read() -> None:
    probe = NodeProbe(
        health=Answered({0: "OK", 1: "Warning", 5: "Alarm"}), ports=Answered(DevicePorts({0: UP}))
    )
    job = replace(JOB, devices={"lab-1": {0: None, 1: None}, "lab-2": {3: None}})
    assert at_start(job, {"lab-1": probe, "lab-2": NodeProbe()}) == {
        "lab-1": {0: DeviceState(health=FINE, link_up=UP), 1: DeviceState(health=WARNING)},
        "lab-2": {3: DeviceState()},
    }


def test_a_node_without_an_answer_is_a_note() -> None:
    hosts: Any = {"lab-2": FakeTransport("lab-2", unreachable="no answer within 10 s")}
    before = {"lab-2": {0: START}, "lab-3": {0: START}}
    assert device_changes(before, hosts, during_s=1.0, forks=2) == (
        [],
        [
            "lab-2: its devices were not queried: no answer within 10 s",
            "lab-3: its devices were not queried: there is no connection to it",
        ],
    )


def test_an_answer_that_was_not_understood_is_a_note_beside_the_others() -> None:
    sections = {"killed": "9.0", "0/link": "link status: SIDEWAYS", "1/link": "link status: DOWN"}
    for what, recorded in (("health", "910A-23.0.7"), ("ecc", "910A-manual")):
        text = (DATA / f"npu-smi-{what}" / recorded / "usual.txt").read_text()
        sections |= {f"{id_}/{what}": text for id_ in (0, 1)}
    answers = {CLOCK_COMMAND.argv: "1.0"}
    rules = [lambda _: Answer(framed(sections))]
    hosts: Any = {"lab-1": FakeTransport("lab-1", answers, rules)}
    changes, notes = device_changes({"lab-1": {0: START, 1: START}}, hosts, during_s=1.0, forks=1)
    assert changes == [DeviceChange("lab-1", 1, "its link is down", is_severe=True)]
    (note,) = notes
    assert note.startswith("lab-1: could not read the link of device 0: hccn_tool -i 0 -link -g: ")
    assert "not understood" in note


CAUSE = JobCause(kind=CauseKind.RANK, title="lab-2: rank 3 …", ranks=(3,), nodes=("lab-2",))
FAILED = report(1, cause=CAUSE)  # rank 3 is on device 5 of lab-2
OWN = DeviceChange("lab-2", 5, "its link is down", is_severe=True)
OTHER = DeviceChange("lab-1", 4, "its health is Alarm", is_severe=True)
MILD = DeviceChange("lab-2", 5, "its link went down once")


def explained(*changes: DeviceChange, meaning: str = "", unsure: str = "") -> tuple[str, str]:
    known = replace(CAUSE, meaning=meaning, unsure=unsure)
    found = with_device_changes(replace(FAILED, cause=known), changes, ()).cause
    assert found is not None
    assert found.devices == tuple(map(str, changes))
    return found.meaning, found.unsure


def test_a_severe_change_on_the_device_of_the_rank_explains_what_nothing_else_explains() -> None:
    assert explained(OWN, OTHER) == ("its device failed: its link is down", "")
    assert explained(OWN, meaning="the script has a bug") == ("the script has a bug", "")
    assert explained(MILD) == ("", "")


def test_a_severe_change_elsewhere_makes_the_cause_uncertain() -> None:
    assert explained(OTHER, MILD) == ("", f"{OTHER}: that may have been first")
    assert explained(OTHER, unsure="clocks differ") == ("", "clocks differ")


def test_the_changes_are_lines_of_the_report_and_bounded() -> None:
    many = [replace(MILD, device=device) for device in range(20)]
    cause = with_device_changes(FAILED, many, ["lab-3: …"]).cause
    assert cause is not None
    assert (len(cause.devices), cause.devices[-1]) == (9, "and 12 more")
    assert cause.lines()[1].startswith(f"  devices: {many[0]}; {many[1]}; ")
    assert with_device_changes(FAILED, [], []) == FAILED


def test_without_a_cause_the_changes_are_notes() -> None:
    found = with_device_changes(replace(FAILED, cause=None), [OWN], ["lab-3: …"])
    assert (found.cause, found.notes) == (None, (str(OWN), "lab-3: …"))


HANGS = Unanswered("silent", "could not read the link of device 3: no answer within 5 s")


def health(state: str, *codes: str) -> query.Answer[DeviceHealth]:
    return Answered(DeviceHealth(state, codes))


@pytest.mark.parametrize(
    ("word", "answer", "treatment"),
    [
        ("OK", NOT_QUERIED, None),
        ("Alarm", health("OK"), None),
        ("Alarm", health("Alarm", "A4025021"), "log"),
        ("Alarm", health("Alarm", "80C98000"), "restart"),
        ("Alarm", health("Alarm", "A4025021", "80C98000"), "restart"),
        ("Warning", health("Warning", "80E18405"), "suspect"),
        ("Alarm", health("Alarm", "8C03A000"), "drop"),
        ("Critical", health("Critical", "80E3A201"), "quarantine"),
        ("Alarm", health("Alarm", "DEADBEEF"), "quarantine"),
        ("Warning", health("Warning", "DEADBEEF"), "log"),
        ("Alarm", health("Alarm"), "quarantine"),
        ("Critical", HANGS, "quarantine"),
        ("UNKNOWN", NOT_QUERIED, "log"),
        ("", NOT_QUERIED, "quarantine"),
    ],
)
def test_the_codes_of_a_device_decide_what_happens(
    word: str, answer: query.Answer[DeviceHealth], treatment: str | None
) -> None:
    words = {3: word, 4: "OK"} if word else {4: "OK"}
    states = {3: DeviceState(health=answer), 4: DeviceState()}
    found = list(npu_faults("a-1", 5.0, Answered(words), states))
    assert [fault.severity.treatment for fault in found] == ([treatment] if treatment else [])
    assert {(fault.kind, fault.node, fault.at) for fault in found} <= {
        (FaultKind.NPU_FAULT, "a-1", 5.0)
    }


@pytest.mark.parametrize("words", [HANGS, Answered({})])
def test_without_a_legible_table_no_device_is_ill(words: query.Answer[dict[int, str]]) -> None:
    assert list(npu_faults("a-1", 5.0, words, {3: DeviceState()})) == []


@pytest.mark.parametrize(
    ("word", "down_s", "kind"),
    [
        ("Success", None, None),
        ("Init", None, None),
        ("Receive timeout", None, FaultKind.NET_FAULT),
        ("Fault", None, FaultKind.NET_FAULT),
        ("Socket fail", 19.0, None),
        ("Socket fail", 20.0, FaultKind.LINK_DOWN),
    ],
)
def test_a_device_without_a_network_is_a_fault(
    word: str, down_s: float | None, kind: FaultKind | None
) -> None:
    ports = {3: DeviceState(net_health=Answered(word)), 4: DeviceState(net_health=HANGS)}
    found = net_faults("a-1", 5.0, ports, {} if down_s is None else {3: down_s})
    assert [fault.kind for fault in found] == ([kind] if kind else [])


def test_a_tool_without_an_answer_is_one_fault_of_its_node() -> None:
    busy = Unanswered("busy", "could not read the link of device 2: busy")
    assert list(tool_faults("a-1", 5.0, [NOT_QUERIED, Answered(1), busy])) == []
    (fault,) = tool_faults("a-1", 5.0, [HANGS, HANGS])
    assert (fault.node, fault.severity.treatment, fault.words) == ("a-1", "suspect", HANGS.message)


TABLE = (Path(__file__).parents[2] / "data/npu-smi-info/A2-24.1/usual.txt").read_text()


def look(answers: Iterator[str]) -> Rule:
    """Answers each look of the script with the next state of the link of device 0."""

    def answer(command: Command) -> Answer | None:
        if "link" not in command.argv[4]:
            return None
        sections = {"0/link": next(answers), "0/net_health": "net health status: Success\n"}
        return Answer(framed({"table": TABLE, **sections}))

    return answer


def test_a_link_must_be_down_for_20_s_and_a_node_without_an_answer_stays_as_it_was() -> None:
    needs = replace(JOB, devices={"lab-1": {0: "198.19.1.0"}}, linked={"lab-1": (0,)})
    clock = {CLOCK_COMMAND.argv: "5.0\n"}
    words = ("DOWN", "UP", "DOWN", "DOWN", "DOWN", "UP")
    states = iter([f"link status: {word}\n" for word in words])
    host = FakeTransport("lab-1", answers=clock, rules=[look(states)])
    hosts: dict[str, Transport] = {"lab-1": host}
    faults = DeviceFaults(needs=needs, hosts=hosts, forks=1)

    def kinds(at: float) -> list[str]:
        return [fault.kind.value for fault in faults.of(["lab-1"], at)]

    assert [kinds(at) for at in (0.0, 19.0, 20.0, 39.0)] == [[], [], [], []]
    assert kinds(40.0) == ["link-down"]
    del hosts["lab-1"]
    assert kinds(50.0) == ["link-down"]
    hosts["lab-1"] = host
    host.unreachable = "no answer"
    assert kinds(60.0) == ["link-down"]
    host.unreachable = ""
    assert kinds(70.0) == []
