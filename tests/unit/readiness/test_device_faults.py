"""What the states of devices mean for a supervised job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendboot.facts import query
from ascendboot.facts.device_states import DeviceState
from ascendboot.facts.parsers.npu_smi import DeviceHealth
from ascendboot.facts.query import CLOCK_COMMAND, NOT_QUERIED, Answered, Unanswered
from ascendboot.readiness.device_faults import DeviceFaults, net_faults, npu_faults, tool_faults
from ascendboot.supervise.policy import FaultKind
from ascendboot.transport.api import Command, Transport
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport, Rule, framed
from tests.unit.readiness.found import JOB

SILENT = Unanswered("silent", "could not read the link of device 3: no answer within 5 s")


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
        ("Critical", SILENT, "quarantine"),
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


@pytest.mark.parametrize("words", [SILENT, Answered({})])
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
    ports = {3: DeviceState(net_health=Answered(word)), 4: DeviceState(net_health=SILENT)}
    found = net_faults("a-1", 5.0, ports, {} if down_s is None else {3: down_s})
    assert [fault.kind for fault in found] == ([kind] if kind else [])


def test_a_tool_without_an_answer_is_one_fault_of_its_node() -> None:
    busy = Unanswered("busy", "could not read the link of device 2: busy")
    assert list(tool_faults("a-1", 5.0, [NOT_QUERIED, Answered(1), busy])) == []
    (fault,) = tool_faults("a-1", 5.0, [SILENT, SILENT])
    assert (fault.node, fault.severity.treatment, fault.words) == ("a-1", "suspect", SILENT.message)


TABLE = (Path(__file__).parents[2] / "data/npu-smi-info/A2-24.1/usual.txt").read_text()
DOWN, UP = "link status: DOWN\n", "link status: UP\n"


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
    states = iter([DOWN, UP, DOWN, DOWN, DOWN, UP])
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
