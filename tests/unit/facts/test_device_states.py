"""The script that queries the state of devices, run by bash against stand-ins for the tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.device_states import (
    ILL,
    QUESTIONS,
    DeviceState,
    Killed,
    device_state_queries,
    parse_killed,
)
from ascendboot.facts.parsers.hccn_tool import LinkChange
from ascendboot.facts.parsers.npu_smi import DeviceHealth
from ascendboot.facts.query import NOT_QUERIED, Answered, Unanswered, answer_to
from tests.here import Here
from tests.unit.checks.well import value

NEEDED = ("bash", "head", "cat", "timeout", "sleep", "mkdir", "tail", "grep")
DATA = Path(__file__).parents[2] / "data"
MAPPING = (
    "\tNPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n"
    "\t4  0  0  8  Ascend910\n\t4  1  1  9  Ascend910\n\t4  2  -  -  Mcu\n"
)
UP = Answered(value=True)
RECORDED = {
    "health": "npu-smi-health/910A-23.0.7/alarm",
    "ecc": "npu-smi-ecc/910A-manual/errors",
    "link": "hccn_tool-link/A2-A3-source/up",
    "net_health": "hccn_tool-net_health/A2-A3-source/receive_timeout",
    "link_stat": "hccn_tool-link_stat/A2-2025/usual",
    "stat": "hccn_tool-stat/A2-manual/usual",
}


class Stage(Here):
    """A PATH with the stand-ins, which note their arguments, and what the script needs."""

    def answers(self, ids: tuple[int, ...], *questions: str, **options: Any) -> dict[str, Any]:
        facts = device_state_queries(ids, questions or QUESTIONS, **{"within_s": 15, **options})
        (command,) = {fact.command for fact in facts.values()}
        result = self(command).to(command)
        assert result.stderr == b""
        return {name: answer_to(fact, result) for name, fact in facts.items()}

    def states(self, ids: tuple[int, ...], *questions: str) -> Mapping[int, DeviceState]:
        found: Mapping[int, DeviceState] = value(self.answers(ids, *questions)["device_states"])
        return found

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, path="")
    stage.link(*NEEDED)
    (tmp_path / "mapping").write_text(MAPPING)
    for question, recorded in RECORDED.items():
        (tmp_path / question).write_text((DATA / f"{recorded}.txt").read_text())
    note = f'echo "${{0##*/}} $*" >>{tmp_path}/calls'
    which = "case $2 in -m) echo mapping ;; *) echo $3 ;; esac"
    stage.put("npu-smi", f'{note}; cat "{tmp_path}/$({which})"')
    stage.put("hccn_tool", f'{note}; cat "{tmp_path}/${{3#-}}"')
    return stage


def test_every_question_is_answered_for_every_device(stage: Stage) -> None:
    states = stage.states((8, 9))
    assert states[8] == states[9]
    state = states[8]
    assert value(state.health).codes == ("A4025021", "8C03A000", "8C084E00")
    assert (state.link_up, state.net_health) == (UP, Answered("Receive timeout"))
    assert value(state.link_history).changes[0] == LinkChange(2028775, is_up=True)
    assert value(state.packets)["mac_rx_fcs_err_pkt_num"] == 3
    assert value(state.memory_errors)["HBM Double Bit Error Count"] == 1


def test_questions_are_asked_in_their_order_with_the_ids_of_each_tool(stage: Stage) -> None:
    stage.states((8, 9), "health", "net_health")
    assert stage.calls() == [
        "npu-smi info -m",
        "npu-smi info -t health -i 4 -c 0",
        "npu-smi info -t health -i 4 -c 1",
        "hccn_tool -i 8 -net_health -g",
        "hccn_tool -i 9 -net_health -g",
    ]
    (stage.folder / "calls").unlink()
    assert stage.states((8,), "link") == {8: DeviceState(link_up=UP)}
    assert stage.calls() == ["hccn_tool -i 8 -link -g"]


def table_of(stage: Stage, table: str, mapping: str = MAPPING) -> None:
    """Let `npu-smi info` print a table."""
    (stage.folder / "table").write_text(table)
    (stage.folder / "mapping").write_text(mapping)
    note = f'echo "npu-smi $*" >>{stage.folder}/calls'
    which = "case $2 in -m) echo mapping ;; -t) echo health ;; *) echo table ;; esac"
    stage.put("npu-smi", f'{note}; cat "{stage.folder}/$({which})"')


def test_the_health_is_queried_only_of_devices_that_are_not_ok(stage: Stage) -> None:
    usual = (DATA / "npu-smi-info/A2-24.1/ill.txt").read_text().replace("| Alarm  ", "| OK     ")
    mapping = (
        "\tNPU ID  Chip ID  Chip Logic ID  Chip Name\n"
        "\t0  0  0  Ascend 910B3\n\t0  1  -  Mcu\n\t1  0  1  Ascend 910B3\n\t1  1  -  Mcu\n"
    )
    table_of(stage, usual, mapping)
    found = stage.answers((0, 1), ILL)
    assert found["words"] == Answered({0: "OK", 1: "Warning"})
    states = value(found["device_states"])
    assert (states[0].health, value(states[1].health).state) == (NOT_QUERIED, "Alarm")
    assert stage.calls() == ["npu-smi info", "npu-smi info -m", "npu-smi info -t health -i 1 -c 0"]


@pytest.mark.parametrize(
    "table", ["A2-24.1/usual", "A3-25.3.rc1/device_5_missing", "950-26.0/usual"]
)
def test_where_all_devices_are_ok_one_call_is_enough(stage: Stage, table: str) -> None:
    table_of(stage, (DATA / f"npu-smi-info/{table}.txt").read_text())
    words = value(stage.answers((0,), ILL)["words"])
    assert words[0] == "OK"
    assert stage.calls() == ["npu-smi info"]


def test_a_tool_that_hangs_is_silent(stage: Stage) -> None:
    stage.put("npu-smi", "exit 124")  # as timeout(1) ends
    answer = stage.answers((0,), ILL)["words"]
    assert isinstance(answer, Unanswered)
    assert answer.kind == "silent"


def test_950_has_one_id_for_npu_smi_and_another_hccn_tool(stage: Stage) -> None:
    mapping = "\tNPU ID Slot ID Chip ID Chip Phy-ID Chip Name\n\t2 1 0 2 Ascend950\n"
    (stage.folder / "mapping").write_text(mapping)
    (stage.folder / "health").write_text((DATA / "npu-smi-health/950-26.0/usual.txt").read_text())
    state = stage.states((2,), "health", "link")[2]
    assert (state.health, state.link_up) == (Answered(DeviceHealth("OK")), NOT_QUERIED)
    assert stage.calls() == ["npu-smi info -m", "npu-smi info -t health -i 2"]


def test_a_device_that_is_gone_has_no_health(stage: Stage) -> None:
    state = stage.states((8, 10), "health")[10]
    why = "could not read the health of device 10: npu-smi info -m does not list this device"
    assert state.health == Unanswered("failed", why)


@pytest.mark.parametrize(
    ("tool", "question", "field"),
    [("npu-smi", "ecc", "memory_errors"), ("hccn_tool", "stat", "packets")],
)
def test_without_a_tool_the_other_one_is_asked(
    stage: Stage, tool: str, question: str, field: str
) -> None:
    (stage.folder / tool).unlink()
    state = stage.states((8,), "ecc", "stat")[8]
    answers = {"ecc": state.memory_errors, "stat": state.packets}
    assert isinstance(answers.pop(question), Unanswered)
    assert all(isinstance(answer, Answered) for answer in answers.values())
    assert f"{tool} is neither on PATH nor in" in getattr(state, field).message


def test_after_its_time_a_node_makes_no_further_call(stage: Stage) -> None:
    answers = stage.answers((8, 9), "link", within_s=0)
    state = value(answers["device_states"])[9]
    assert "not queried: the devices before took 0 s" in state.link_up.message
    assert not (stage.folder / "calls").exists()


@pytest.mark.parametrize("junk", ["", "Segmentation fault", "link status: SIDEWAYS"])
def test_an_unknown_text_is_an_answer_of_its_own(stage: Stage, junk: str) -> None:
    (stage.folder / "link").write_text(f"{junk}\n")
    found = stage.states((8,), "link", "net_health")[8]
    assert isinstance(found.link_up, Unanswered)
    assert (found.link_up.kind, found.net_health) == ("not-understood", Answered("Receive timeout"))


KERNEL = """\
[   12.500000] Out of memory: Killed process 311 (python3) total-vm:9000kB, anon-rss:10kB
[  100.250000] Memory cgroup out of memory: Killed process 4711 (main.py) total-vm:1kB
[  101.000000] Out of memory: Kill process 12 (dd) score 900 or sacrifice child
"""


def test_processes_that_the_kernel_killed_are_read_from_its_log(stage: Stage) -> None:
    (stage.folder / "kernel").write_text(f"[ 1.0] usb 1-1: new device\n{KERNEL}")
    stage.put("dmesg", f"cat {stage.folder}/kernel")
    found = value(stage.answers((8,), "link", with_killed=True)["killed"])
    seen = [(killed.pid, killed.command) for killed in found]
    assert seen == [(311, "python3"), (4711, "main.py"), (12, "dd")]
    assert parse_killed(f"110.75\n{KERNEL}")[1] == Killed(10.5, 4711, "main.py")

    # The command is filtered and bounded.
    line = f"[ 1.0] Out of memory: Killed process 7 (\x1b[2J{'x' * 90}) total-vm:1kB"
    assert parse_killed(f"9.0\n{line}\n") == (Killed(8.0, 7, "?[2J" + "x" * 28),)
    # Without permission to read the log none is known.
    stage.put("dmesg", "echo 'dmesg: read kernel buffer failed' >&2; exit 1")
    assert stage.answers((8,), "link", with_killed=True)["killed"] == Answered(())


@pytest.mark.parametrize("text", ["", "soon\n", "110.75\nKilled process 3\n"])
def test_another_form_of_the_log_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError):
        parse_killed(text)
