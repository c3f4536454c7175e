"""The script that queries the NPUs, run by bash against stand-ins for npu-smi and hccn_tool."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ascendboot.facts.npus import NpuPort, RootInfo, npu_queries
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.parsers.npu_smi import SuperPodPlace
from ascendboot.facts.query import Answer as FactAnswer
from ascendboot.facts.query import Answered, Lack, Unanswered, answer_to
from ascendboot.model.cluster import Device
from ascendboot.transport.api import HANGS
from ascendboot.value import replace
from tests.fake_transport import Answer, framed
from tests.here import Here
from tests.unit.checks import well
from tests.unit.checks.well import network, value

COMMAND = npu_queries()["npus"].command
NEEDED = ("bash", "head", "cat", "timeout", "sleep", "mkdir")

TABLE = (Path(__file__).parents[2] / "data/npu-smi-info/A2-24.1/ill.txt").read_text()
LOGIC = "\tNPU ID  Chip ID  Chip Logic ID  Chip Name\n"
PHYSICAL = "\tNPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n"
TWO = LOGIC + "\t0  0  0  Ascend 910B3\n\t0  1  -  Mcu\n\t1  0  1  Ascend 910B3\n"
FINE = """\
case $3 in
  -ip) echo "ipaddr:198.19.0.$2"; echo netmask:255.255.0.0 ;;
  -link) echo 'link status: UP' ;;
  -tls) echo "dev_id:$2, tls switch[0](0:disable, 1:enable)" ;;
esac
"""


class Stage(Here):
    """A PATH with nothing on it but stand-ins and what the script needs."""

    def npu_smi(self, mapping: str = TWO) -> None:
        for name, text in (("mapping", mapping), ("table", TABLE)):
            (self.folder / name).write_text(text)
        which = "case $2 in -m) echo mapping ;; *) echo table ;; esac"
        self.put("npu-smi", f"cat {self.folder}/$({which})")

    def answers(self, *, seconds: str = "0", **changed: str) -> dict[str, FactAnswer[Any]]:
        """Settings of the script are those given, or short ones."""
        script = f"SECONDS={seconds}\n{COMMAND.argv[2]}"
        settings = {"left": "3", "call_s": "5", "enough": "150", "info": "/nonexistent", **changed}
        for name, value_here in settings.items():
            script, count = re.subn(rf"\b{name}=[^ \n]+", f"{name}={value_here}", script, count=1)
            assert count == 1
        command = replace(COMMAND, argv=("bash", "-c", script))
        result = self(command).to(command)
        assert result.stderr == b""
        return {name: answer_to(fact, result) for name, fact in npu_queries().items()}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path, path="")
    stage.link(*NEEDED)
    stage.npu_smi()
    stage.put("hccn_tool", FINE)
    return stage


BOTH = Answered((network(0, 0), network(0, 1)))


def test_every_device_is_queried_by_its_id(stage: Stage) -> None:
    answers = stage.answers()
    assert answers["device_networks"] == BOTH
    assert answers["health"] == Answered({0: "Alarm", 1: "Warning"})
    npus = value(answers["npus"]).npus
    assert [npu.device_id for npu in npus] == [0, 1]
    assert answers["super_pods"] == Answered({})


@pytest.mark.parametrize(
    ("mapping", "asked"),
    [
        (PHYSICAL + "\t0  0  7  2  Ascend910\n\t0  1  -  -  Mcu\n\t-1  0  3  3  Ascend910\n", [2]),
        ("\tNPU ID Slot ID Chip ID Chip Phy-ID Chip Name\n\t0 9 0 10 x\n\t1 8 0 9 x\n", [9, 10]),
        ("There is no NPU card on this server.\n", []),
        (LOGIC + "\tan NPU is being reset\n\t1  0  1  Ascend 910B3\n", [1]),
    ],
)
def test_ids_are_taken_from_the_right_column(stage: Stage, mapping: str, asked: list[int]) -> None:
    stage.npu_smi(mapping)
    networks = value(stage.answers()["device_networks"])
    assert [found.device_id for found in networks] == asked


A3 = (
    PHYSICAL
    + "".join(f"\t4  {i}  {i}  {8 + i}  Ascend910\n" for i in range(2))
    + "\t4  2  -  -  Mcu\n"
)
SPOD = r"""
printf '\tSDID : %s\n\tSuper Pod Size : 384\n' $((40 << 22 | $5 << 18 | $7 << 16 | $5 * 2 + $7))
printf '\tSuper Pod ID : 7\n\tServer Index : 40\n'
"""


def put_a3(stage: Stage, spod: str) -> None:
    stage.npu_smi(A3)
    stage.put(
        "npu-smi",
        f'echo "$*" >>{stage.folder}/calls\ncase "$2 $3" in "-t spod-info") {spod} ;;\n'
        f'"-m ") cat {stage.folder}/mapping ;; *) cat {stage.folder}/table ;; esac\n',
    )


def test_a3_super_pods_and_their_addresses_are_queried(stage: Stage) -> None:
    put_a3(stage, SPOD)
    vnic = "vnic link status: UP\\nvnic ipaddr: 192.168.2.19$2\\nvnic netmask: 255.255.0.0\\n"
    stage.put("hccn_tool", f'[ $3 != -vnic ] || {{ printf "{vnic}"; exit; }}\n{FINE}')
    answers = stage.answers()
    ids = {8 + i: 40 << 22 | 4 << 18 | i << 16 | 8 + i for i in range(2)}
    places = {i: SuperPodPlace(super_device_id=id_, super_pod_id=7) for i, id_ in ids.items()}
    assert answers["super_pods"] == Answered({i: Answered(place) for i, place in places.items()})
    assert answers["root_info"] == Answered(None)
    networks = (network(0, i, vnic=Answered(f"192.168.2.19{i}")) for i in (8, 9))
    assert answers["device_networks"] == Answered(tuple(networks))
    calls = (stage.folder / "calls").read_text().splitlines()
    assert calls == [
        "info -m",
        *("info -t spod-info -i 4 -c 0", "info -t spod-info -i 4 -c 1", "info"),
    ]


def test_an_a3_server_outside_super_pods(stage: Stage) -> None:
    put_a3(stage, "echo 'This device does not support querying spod-info.'; exit 1")
    assert stage.answers()["super_pods"] == Answered({8: Answered(None), 9: Answered(None)})


@pytest.mark.parametrize(
    ("spod", "kind", "said"),
    [
        ("echo hello", "not-understood", 'line 1 not understood: "hello"'),
        ("echo 'Invalid card id.'; exit 1", "failed", "Invalid card id."),
        ("exec sleep 60", "silent", f"no answer within 10 s; {HANGS}"),
    ],
)
def test_one_chip_without_an_answer_about_its_super_pod(
    stage: Stage, spod: str, kind: str, said: str
) -> None:
    put_a3(stage, f"[ $7 = 0 ] || {{ {spod}; exit; }}; {SPOD}")
    places = value(stage.answers(call_s="2")["super_pods"])
    assert isinstance(places[8], Answered)
    lack = places[9]
    assert (lack.kind, said in lack.message) == (kind, True)
    assert lack.message.startswith("could not read the super pod of device 9: npu-smi info -t spod")


A5 = "\tNPU ID Slot ID Chip ID Chip Phy-ID Chip Name\n\t0 1 0 0 Ascend950PR\n"


def test_root_info_of_a_950_is_read_and_hccn_tool_is_not_run(stage: Stage) -> None:
    stage.npu_smi(A5)
    path, topology = stage.folder / "root.json", stage.folder / "topology.json"
    text = f'{{"version": "2.0", "topo_file_path" : "{topology}"}}'
    path.write_text(text)
    answers = stage.answers(info=str(path))
    assert answers["root_info"] == Answered(RootInfo(text, missing_topology=str(topology)))
    assert answers["device_networks"] == Answered(())
    assert answers["super_pods"] == Answered({})
    topology.touch()
    assert stage.answers(info=str(path))["root_info"] == Answered(RootInfo(text))
    path.unlink()
    assert stage.answers(info=str(path))["root_info"] == Unanswered(
        "missing", f"could not read /etc/hccl_rootinfo.json: {path} does not exist"
    )


def test_two_ports_and_no_ip(stage: Stage) -> None:
    stage.put(
        "hccn_tool",
        'if [ "$3$2" = -ip1 ]; then echo "Get ipconf failed, because no ip was preset there!" >&2\n'
        f"exit 13; fi\n{FINE}"
        '[ "$3" != -ip ] || printf "ipaddr:198.19.1.1\\nnetmask:255.255.0.0\\n"\n',
    )
    addresses = tuple(DeviceAddress(ip, "255.255.0.0") for ip in ("198.19.0.0", "198.19.1.1"))
    networks = stage.answers()["device_networks"]
    assert networks == Answered(
        (network(0, 0, addresses=Answered(addresses)), network(0, 1, addresses=Answered(())))
    )
    assert [found.device_ip for found in value(networks)] == ["198.19.0.0,198.19.1.1", None]


@pytest.mark.parametrize(
    ("device_id", "instead", "kind", "why"),
    [
        (
            *(1, "echo 'link status: ASLEEP'; exit", "not-understood"),
            ': line 1 not understood: "link status: ASLEEP"; expected link status: UP or DOWN',
        ),
        (0, "exec sleep 60", "silent", f": no answer within 10 s; {HANGS}"),
        (0, "exit 5", "failed", " exited 5 and printed nothing"),
    ],
)
def test_a_query_without_an_answer_leaves_the_others(
    stage: Stage, device_id: int, instead: str, kind: Lack, why: str
) -> None:
    stage.put("hccn_tool", f'[ "$2$3" != {device_id}-link ] || {{ {instead}; }}\n{FINE}')
    call = f"hccn_tool -i {device_id} -link -g"
    answer = Unanswered(kind, f"could not read the link of device {device_id}: {call}{why}")
    networks = [network(0, n, **({"link_up": answer} if n == device_id else {})) for n in (0, 1)]
    assert stage.answers(call_s="2")["device_networks"] == Answered(tuple(networks))


def test_a_tool_that_is_busy_for_a_moment_is_retried(stage: Stage) -> None:
    count = stage.folder / "count"
    stage.put(
        "hccn_tool",
        f"echo x >>{count}; case $(cat {count}) in x|x$'\\n'x) "
        f'echo "hccn_tool is busy, please try again."; exit 11;; esac\n{FINE}',
    )
    assert stage.answers()["device_networks"] == BOTH
    assert count.read_text().count("x") == 2 + 2 * 3


def test_a_tool_that_stays_busy_is_retried_for_a_bounded_time(stage: Stage) -> None:
    count = stage.folder / "count"
    stage.put(
        "hccn_tool", f'echo x >>{count}; echo "hccn_tool is busy, please try again."; exit 11\n'
    )
    networks = value(stage.answers()["device_networks"])
    assert [found.link_up for found in networks] == [
        Unanswered(
            "busy",
            f"could not read the link of device {i}: hccn_tool -i {i} -link -g: "
            "hccn_tool is busy, please try again. (retried for 10 s)",
        )
        for i in (0, 1)
    ]
    # retries after 0.1 s and 0.2 s, for all devices together and not for each
    assert count.read_text().count("x") == 2 + 2 * 3


def without_npus(kind: Lack, why: str) -> dict[str, FactAnswer[Any]]:
    return {
        "npus": Unanswered(kind, f"could not list the NPUs: {why}"),
        "health": Unanswered(kind, f"could not read the health of the NPUs: {why}"),
        "free_memory": Unanswered(kind, f"could not read the free memory of the NPUs: {why}"),
        "npu_processes": Unanswered(kind, f"could not list the processes on the NPUs: {why}"),
        "super_pods": Answered({}),
        "unknown_lines": Answered(()),
        "root_info": Answered(None),
        "device_networks": Answered(()),
    }


def test_after_the_time_limit_nothing_more_is_queried(stage: Stage) -> None:
    late = "not queried: the devices before took 0 s"
    assert stage.answers(enough="0") == without_npus("failed", late)


def test_the_time_limit_ignores_changes_of_the_clock(stage: Stage) -> None:
    assert stage.answers(seconds="1000")["device_networks"] == BOTH
    stage.put("hccn_tool", f"sleep 1.1; {FINE}")
    networks = value(stage.answers(enough="1", seconds="-1000")["device_networks"])
    assert "not queried: the devices before took" in networks[1].link_up.message


def calls_of_npu_smi(stage: Stage, instead: str) -> list[str]:
    """The calls of an npu-smi that runs `instead` (`$2` is the option) before it answers."""
    usual = (stage.folder / "npu-smi").read_text().partition("\n")[2]
    stage.put("npu-smi", f'echo "$*" >>{stage.folder}/calls\n{instead}\n{usual}')
    answers = stage.answers(call_s="2")
    assert answers["device_networks"] == BOTH
    assert isinstance(answers["npus"], Answered)
    return (stage.folder / "calls").read_text().splitlines()


def test_a_busy_table_is_queried_last(stage: Stage) -> None:
    busy = f"echo '{BUSY}'"
    once = f"mkdir {stage.folder}/was-busy 2>/dev/null"
    calls = calls_of_npu_smi(
        stage, f"case $2 in -m) ! {once} || {{ {busy}; exit 1; }} ;; *) {busy}; exit 1 ;; esac"
    )
    assert calls[:2] == ["info -m", "info -m"]
    assert set(calls[2:]) == {"info"}


def test_a_hanging_npu_smi_is_not_retried(stage: Stage) -> None:
    calls = calls_of_npu_smi(stage, '[ "$2" ] || exec sleep 60')
    assert calls == ["info -m", "info"]


def test_a_missing_hccn_tool_is_reported(stage: Stage) -> None:
    (stage.folder / "hccn_tool").unlink()
    assert stage.answers()["device_networks"] == Unanswered(
        "missing",
        "could not read the network of the devices: "
        "hccn_tool is neither on PATH nor in /usr/local/Ascend/driver/tools",
    )


@pytest.mark.skipif(Path("/dev/davinci0").exists(), reason="this machine has NPUs")
def test_a_missing_npu_smi_is_reported(stage: Stage) -> None:
    (stage.folder / "npu-smi").unlink()
    nowhere = "npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin"
    assert stage.answers() == without_npus("missing", nowhere)


BROKEN = "dcmi module initialize failed. ret is -8005"
BUSY = "dcmi model initialized failed, because the device is used. ret is -8020"


@pytest.mark.parametrize(
    ("script", "kind", "why"),
    [
        (f"echo '{BROKEN}'; exit 187", "failed", f"npu-smi info -m: {BROKEN}"),
        (f"echo '{BUSY}'", "busy", f"npu-smi info -m: {BUSY}"),
        ("echo 'something new' >&2; exit 9", "failed", "something new"),
    ],
)
def test_a_failing_npu_smi_is_quoted(stage: Stage, script: str, kind: Lack, why: str) -> None:
    stage.put("npu-smi", script)
    assert stage.answers()["npus"] == Unanswered(kind, f"could not list the NPUs: {why}")


def test_warnings_on_stderr_do_not_spoil_the_table(stage: Stage) -> None:
    path = stage.folder / "npu-smi"
    path.write_text(path.read_text() + "echo 'a warning' >&2\n")
    assert isinstance(stage.answers()["npus"], Answered)


def test_a_missing_answer_of_a_device_is_not_understood() -> None:
    stdout = framed({"hccn_tool": "x", "ids": "3"})
    networks = value(answer_to(npu_queries()["device_networks"], Answer(stdout).to(COMMAND)))
    assert networks[0].link_up == Unanswered(
        "not-understood",
        "could not read the link of device 3: the script to query the NPUs: line 2 "
        'not understood: "3/link"; expected a section 3/link',
    )


PORTS = {
    "hccn_conf": "address_3=10.20.0.3\nnetmask_3=255.255.0.0\ntls_enable_3=0\nmtu_4=1500\n",
    "hccn_tool": "x",
    "3/ip": "ipaddr:10.20.0.3\nnetmask:255.255.0.0\n",
    "3/gateway": "Get gateway failed, because no gateway was preset there!\n",
    "3/mtu": "mtu:4200\n",
    "3/tls": "dev_id:3, tls switch[1](0:disable, 1:enable)\n",
}
NOW = {"ip": "10.20.0.3/255.255.0.0", "mtu": "4200", "tls": "1"}
STATED = well.node(1, npu_ports={3: NOW})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, NpuPort(NOW, {"ip": NOW["ip"], "tls": "0"})),
        ({"hccn_conf": ""}, NpuPort(NOW, {})),
        ({"3/ip": "hccn_tool is busy, please try again."}, "failed"),
        ({"root_info": "{}"}, "failed"),  # a 950
    ],
)
def test_ports_are_read_from_the_tool_and_its_file(changed: dict[str, str], expected: Any) -> None:
    fact = npu_queries(STATED)["ports"]
    answer = answer_to(fact, Answer(framed({**PORTS, **changed})).to(fact.command))
    assert answer == Answered({3: expected}) or getattr(answer, "kind", "") == expected


def test_ports_are_queried_only_where_the_inventory_states_them(stage: Stage) -> None:
    stage.put("hccn_tool", f'echo "$*" >>{stage.folder}/calls')
    assert "ports" not in stage.answers()
    assert "-gateway" not in (stage.folder / "calls").read_text()
    stage(npu_queries(STATED)["ports"].command)
    calls = (stage.folder / "calls").read_text().split("\n")
    assert {f"-i 1 -{what} -g" for what in ("gateway", "netdetect", "mtu")} <= {*calls}


LLDP = (Path(__file__).parents[2] / "data/hccn_tool-lldp/910B/usual.txt").read_text()


def neighbours(stage: Stage, *devices: Device) -> FactAnswer[Any]:
    fact = npu_queries(well.node(1, devices=devices), with_lldp=True)["neighbours"]
    return answer_to(fact, stage(fact.command).to(fact.command))


def test_each_device_is_asked_for_its_lldp_neighbour(stage: Stage) -> None:
    (stage.folder / "lldp").write_text(LLDP)
    stage.put("hccn_tool", f'[ "$*" = "-i 1 -lldp -g" ] && cat {stage.folder}/lldp')
    answers = value(neighbours(stage))
    assert value(answers[1]).leaf == "192.0.2.201"
    assert answers[0] == Unanswered(
        "failed",
        "could not read the LLDP neighbour of device 0: hccn_tool -i 0 -lldp -g exited 1 and "
        "printed nothing",
    )
    assert list(answers) == [0, 1]


def test_only_the_devices_that_a_job_uses_are_asked_for_their_lldp_neighbours(stage: Stage) -> None:
    stage.put("hccn_tool", f'echo "$*" >>{stage.folder}/calls')
    assert list(value(neighbours(stage, Device(1)))) == [1]
    calls = (stage.folder / "calls").read_text().splitlines()
    assert [call for call in calls if "lldp" in call] == ["-i 1 -lldp -g"]
    (stage.folder / "calls").unlink()
    stage.answers()
    assert "lldp" not in (stage.folder / "calls").read_text()


@pytest.mark.parametrize("mapping", [TWO, A5], ids=["A2 without hccn_tool", "950"])
def test_where_hccn_tool_cannot_be_asked_there_is_no_lldp(stage: Stage, mapping: str) -> None:
    stage.npu_smi(mapping)
    if mapping == TWO:
        (stage.folder / "hccn_tool").unlink()
    answer = neighbours(stage)
    assert isinstance(answer, Unanswered)
    assert answer.kind == ("missing" if mapping == TWO else "failed")
