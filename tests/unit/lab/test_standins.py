"""The stand-ins print what the recorded tools print: texts, streams, exit codes, columns."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path

import pytest

from ascendboot.facts.parsers import hccn_tool, npu_smi
from ascendboot.facts.parsers.npu_smi import SuperPodPlace
from ascendboot.lab.faults import Fault, Marks
from ascendboot.lab.shape import Product, Shape, world_text
from ascendboot.value import replace
from tests.here import Here

DATA = Path(__file__).parents[2] / "data/lab"
SHAPE = Shape.requested(2, 8, "198.18.0.0/16,198.19.0.0/16")

FAKE_NSENTER = """\
[[ $1 == --net=*/npu/? ]] || exit 99
case $2 in
  ip) echo "2: $7: <BROADCAST,UP> mtu 1500 state $(cat "$FAKES/link") mode DEFAULT" ;;
  ping) cat "$FAKES/ping"; exit "$(cat "$FAKES/ping.code")" ;;
esac
"""
ANSWERED = """\
PING 198.19.2.107 (198.19.2.107) 56(84) bytes of data.
64 bytes from 198.19.2.107: icmp_seq=1 ttl=64 time=0.323 ms
64 bytes from 198.19.2.107: icmp_seq=2 ttl=64 time=0.049 ms
64 bytes from 198.19.2.107: icmp_seq=3 ttl=64 time=0.043 ms
"""


class Node:
    """The world of lab-1 in a folder, with a simulated network."""

    def __init__(self, folder: Path) -> None:
        self.user: int | None = None
        """The user id that runs the tools, if not ours."""
        self.world = folder / "world"
        self.fakes = folder / "fakes"
        for place in (self.world / "faults", self.world / "npu", self.fakes):
            place.mkdir(parents=True)
        (self.world / "world").write_text(world_text(SHAPE, SHAPE.nodes[0]))
        Here(self.fakes).put("nsenter", FAKE_NSENTER)
        self.network(link="UP", ping=ANSWERED)

    def network(self, *, link: str, ping: str, code: int = 0) -> None:
        (self.fakes / "link").write_text(link)
        (self.fakes / "ping").write_text(ping)
        (self.fakes / "ping.code").write_text(str(code))

    def change_world(self, before: str, after: str) -> None:
        path = self.world / "world"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def mark(self, name: str, text: str = "always") -> None:
        (self.world / "faults" / name).write_text(f"{text}\n")

    def run(self, tool: str, *words: str) -> tuple[int, str, str]:
        script = str(resources.files("ascendboot.lab").joinpath("node", tool))
        env = {
            "PATH": f"{self.fakes}:{os.environ['PATH']}",
            "ASCENDBOOT_LAB_WORLD": str(self.world),
            "ASCENDBOOT_LAB_CONF": str(self.world / "hccn.conf"),
            "ASCENDBOOT_LAB_PROC": str(self.world / "proc"),
            "FAKES": str(self.fakes),
        }
        done = subprocess.run(
            ["/bin/bash", script, *words],
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=300,
            user=self.user,
        )
        return done.returncode, done.stdout, done.stderr

    def hccn(self, *words: str) -> tuple[int, str, str]:
        return self.run("hccn_tool", *words)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def understood(node: Node, *words: str) -> str:
    code, out, err = node.run("npu-smi", "info", *words)
    assert (code, err) == (0, "")
    return out


def recorded_failure(beginning: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the real tool for a failure."""
    for line in (DATA / "hccn_tool_failures.txt").read_text().splitlines():
        if line.strip().startswith(beginning):
            match = re.fullmatch(r" (.+?) {2,}(\[stdout\] +)?(\d+)  .*", line)
            assert match, line
            text = match[1].replace(" / ", "\n") + "\n"
            return (int(match[3]), text, "") if match[2] else (int(match[3]), "", text)
    raise AssertionError(beginning)


def recorded_format(option: str) -> re.Pattern[str]:
    """The output of the real tool for an option, as a pattern with its values as groups."""
    for line in (DATA / "hccn_tool_formats.txt").read_text().splitlines():
        if line.strip().startswith(option):
            text = re.split(r" {3,}", line.strip(), maxsplit=1)[1]
            text = re.split(r" {3,}", text)[0]
            pattern = re.escape(text.replace(" \\n ", "\n")).replace("%u", "(\\d+)")
            pattern = pattern.replace("%d", "(\\d+)").replace("%s", "(\\S+)")
            return re.compile(pattern.replace(re.escape("[..]"), r"\[\d+\]") + "\n")
    raise AssertionError(option)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("-ip", ("198.19.1.103", "255.255.0.0")),
        ("-gateway", ("198.19.255.254", "3")),
        ("-netdetect", ("198.19.255.254",)),
        ("-tls", ("3", "0", "0")),
    ],
)
def test_values_have_the_recorded_format(node: Node, option: str, values: tuple[str, ...]) -> None:
    code, out, err = node.hccn("-i", "3", option, "-g")
    match = recorded_format(f"{option} -g").fullmatch(out)
    assert match, out
    assert (code, match.groups(), err) == (0, values, "")


@pytest.mark.parametrize(
    ("link", "code", "option", "text"),
    [
        ("UP", 0, "-link", "link status: UP"),
        ("DOWN", 0, "-link", "link status: DOWN"),
        ("UP", 0, "-net_health", "net health status: Success"),
        ("UP", 1, "-net_health", "net health status: Receive timeout"),
        ("DOWN", 0, "-net_health", "net health status: Socket fail"),
    ],
)
def test_link_and_health_are_those_of_the_real_interface(
    node: Node, link: str, code: int, option: str, text: str
) -> None:
    node.network(link=link, ping="", code=code)
    assert text.partition(": ")[2] in (DATA / "hccn_tool_formats.txt").read_text()
    assert node.hccn("-i", "3", option, "-g") == (0, f"{text}\n", "")


def test_a_ping_that_is_answered_looks_as_recorded(node: Node) -> None:
    command, *recorded = (DATA / "hccn_tool_ping_910B1.txt").read_text().splitlines()
    words = command.replace("29.1.137.205", "198.19.2.107").split()[2:]
    code, out, err = node.hccn(*words)

    def numbers_away(lines: list[str]) -> list[str]:
        return [re.sub(r"[\d.]+", "N", line) for line in lines]

    assert (code, numbers_away(out.splitlines()), err) == (0, numbers_away(recorded), "")
    assert out.splitlines()[1] == "recv seq=0,time=0.323000ms"
    assert out.splitlines()[-1] == recorded[-1]


@pytest.mark.parametrize(
    ("answered", "last"),
    [
        ((), "3 packets transmitted, 0 received, 100.00% packet loss"),
        ((1, 3), "3 packets transmitted, 2 received, 33.33% packet loss"),
    ],
)
def test_a_ping_without_an_answer_fails(node: Node, answered: tuple[int, ...], last: str) -> None:
    lines = ANSWERED.splitlines(keepends=True)
    node.network(link="UP", ping="".join(lines[i] for i in (0, *answered)), code=1)
    code, out, err = node.hccn("-i", "3", "-ping", "-g", "address", "198.19.2.107", "pkt", "64")
    lost = [f"recv time out seq={i}" for i in range(3) if i + 1 not in answered]
    assert (code, err) == (1, "Command execute failed!\n")
    assert [line for line in out.splitlines() if "time out" in line] == lost
    assert out.splitlines()[-1] == last


def test_a_ping_over_a_link_that_is_down(node: Node) -> None:
    node.network(link="DOWN", ping="")
    code, _, text = recorded_failure("Execute failed: Link")
    words = ("-i", "3", "-ping", "-g", "address", "198.19.2.107")
    assert node.hccn(*words) == (code, "device 3 PING 198.19.2.107\n", text)


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (("-i", "8", "-ip", "-g"), "Get invalid device id."),
        (("-i", "x", "-ip", "-g"), "Get invalid device id."),
        (("-i", "100", "-ip", "-g"), "Get invalid device id."),
        (("-i", "3", "-colour", "-g"), "Get invalid major cmd. "),
        (("-x", "3", "-ip", "-g"), "Get invalid major cmd type."),
        (("-i", "3", "-link", "-s", "down"), "The command is not supported"),
        (("-i", "3", "-ip", "-s", "address", "198.19.2.1"), "The total count"),
        (("-i", "3", "-gateway", "-s", "gateway", "198.20.0.1"), "The segment of configured"),
        (("-i", "3", "-ping", "-g", "address", "198.19.2.300"), "The ip address you"),
    ],
)
def test_bad_commands_are_refused_as_recorded(
    node: Node, words: tuple[str, ...], recorded: str
) -> None:
    assert node.hccn(*words) == recorded_failure(recorded)


@pytest.mark.parametrize(
    ("option", "recorded"), [("address", "Get ipconf failed"), ("gateway", "Get gateway failed")]
)
def test_values_never_set_are_reported_as_recorded(node: Node, option: str, recorded: str) -> None:
    node.change_world(f" {option}=198.19", " unset=198.19")
    command = {"address": "-ip", "gateway": "-gateway"}[option]
    assert node.hccn("-i", "3", command, "-g") == recorded_failure(recorded)


def test_what_is_set_is_answered_and_written_as_the_tool_writes_it(node: Node) -> None:
    conf = node.world / "hccn.conf"
    conf.write_text("# by hand\naddress_3=198.19.1.103\naddress_4=198.19.1.104\n")
    ip, gateway = "-ip -s address 198.19.7.3 netmask 255.255.0.0", "-gateway -s gateway 198.19.0.1"
    for words in (ip, gateway, "-mtu -s size 4200", "-tls -s enable 1"):
        assert node.hccn("-i", "3", *words.split()) == (0, "Cmd executed successfully!\n", "")
    assert node.hccn("-i", "3", "-ip", "-g")[1] == "ipaddr:198.19.7.3\nnetmask:255.255.0.0\n"
    assert node.hccn("-i", "3", "-mtu", "-g")[1] == "mtu:4200\n"
    written = "address_3=198.19.7.3 netmask_3=255.255.0.0 gateway_3=198.19.0.1 mtu_3=4200"
    kept = "# by hand\naddress_4=198.19.1.104 "
    assert conf.read_text().split() == f"{kept}{written} tls_enable_3=1".split()


def test_busy_for_a_device_for_some_calls_or_for_all(node: Node) -> None:
    busy, fine = recorded_failure("hccn_tool is busy"), (0, "link status: UP\n", "")

    def answers(device: str) -> list[tuple[int, str, str]]:
        return [node.hccn("-i", device, "-link", "-g") for _ in range(3)]

    node.mark("busy.3", "2")
    assert (answers("4"), answers("3")) == ([fine] * 3, [busy, busy, fine])
    node.mark("busy")
    assert answers("4") == [busy] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_than_root_gets_what_needs_no_namespace() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other users
        Path(folder).chmod(0o755)
        node = Node(Path(folder))
        node.hccn("-i", "0", "-ip", "-g")
        Here(node.fakes).put("nsenter", "exit 1")
        node.user = 65534
        Marks(node.world / "faults").add(Fault(kind="busy", device=3, times=1))
        assert node.hccn("-i", "3", "-ip", "-g") == recorded_failure("hccn_tool is busy")
        address = "ipaddr:198.19.1.103\nnetmask:255.255.0.0\n"
        assert node.hccn("-i", "3", "-ip", "-g") == (0, address, "")
        denied = (12, "", "permission denied: pls check this cmd run permission.\n")
        for words in (("-link", "-g"), ("-ping", "-g", "address", "198.19.2.1")):
            assert node.hccn("-i", "3", *words) == denied


def test_two_calls_at_a_time_are_refused(node: Node) -> None:
    hold = ["flock", str(node.world / "lock"), "bash", "-c", "echo held; read -r _"]
    pipe = subprocess.PIPE
    with subprocess.Popen(hold, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert node.hccn("-i", "0", "-ip", "-g") == recorded_failure("hccn_tool is busy")
        other.communicate("\n")
    assert node.hccn("-i", "0", "-ip", "-g")[0] == 0


def test_a_missing_npu_is_missing_everywhere(node: Node) -> None:
    node.mark("npu-missing.5")
    left = (0, 1, 2, 3, 4, 6, 7)
    assert node.hccn("-i", "5", "-ip", "-g") == recorded_failure("Get invalid device id.")
    mapping = npu_smi.parse_mapping(understood(node, "-m"))
    assert tuple(npu.device_id for npu in mapping.npus) == left
    assert "No running processes found in NPU 5" not in understood(node)


def test_no_npu_at_all_is_a_driver_that_does_not_start(node: Node) -> None:
    node.mark("npu-missing")
    failed = (187, "dcmi module initialize failed. ret is -8005\n", "")
    assert node.run("npu-smi", "info", "-m") == failed


def test_the_mapping_has_the_recorded_columns(node: Node) -> None:
    header = (DATA / "npu-smi_info_m_header.txt").read_text().split("<-")[0].rstrip()
    code, out, err = node.run("npu-smi", "info", "-m")
    first, *rows = out.splitlines()
    assert (code, first, err, len(rows)) == (0, header, "", 16)
    starts = [match.start() for match in re.finditer(r"\S+( \S+)*", header)]
    for row in rows:
        assert [match.start() for match in re.finditer(r"\S+( \S+)*", row)] == starts
    assert rows[6].split() == ["3", "0", "3", "3", "Ascend", "910B3"]
    assert rows[7].split() == ["3", "1", "-", "-", "Mcu"]


def test_the_table_is_drawn_as_recorded(node: Node) -> None:
    """Rules, headings and widths are those of A3; A2 has no Phy-ID and ends an NPU with `=`."""
    recorded = (DATA / "npu-smi_info_A3.txt").read_text().splitlines()
    code, out, err = node.run("npu-smi", "info")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert {len(line) for line in lines} == {len(recorded[0])}
    no_phy_id = recorded[4].replace("Chip  Phy-ID", "Chip        ")
    assert [lines[0], *lines[2:6]] == [recorded[0], *recorded[2:4], no_phy_id, recorded[5]]
    assert lines[1].replace("24.1.0  ", "25.3.rc1") == recorded[1]
    assert lines[12:14] == [
        recorded[6]
        .replace("0     Ascend910", "2     910B3    ")
        .replace("164.0       29", "91.5        48"),
        recorded[7].replace("0     0  ", "0        ").replace("9D", "C3").replace("3142", "3389"),
    ]
    processes = lines.index(recorded[-4])
    assert lines[processes - 1 : processes + 4] == recorded[-5:]


def test_an_npu_works_while_a_rank_has_it(node: Node) -> None:
    idle = npu_smi.parse_table(understood(node)).uses
    rank = node.world / "proc/77/environ"
    rank.parent.mkdir(parents=True)
    rank.write_bytes(b"RANK=1\0DEVICE_ID=1\0HOME=/\0")
    busy = npu_smi.parse_table(understood(node)).uses
    assert [npu for npu in idle if busy[npu] != idle[npu]] == [1]
    assert (busy[1].utilization_percent or 0) >= 80
    assert (busy[1].temperature_c, busy[1].memory_used_mb) == (58, 41912)


def test_health_is_shown_as_recorded(node: Node) -> None:
    text = (DATA / "npu-smi_health_910A.txt").read_text()
    parts = re.split(r"^/usr/local/bin/npu-smi .*\n", text, flags=re.MULTILINE)[1:]
    well, gone, ill = (part.rstrip("\n") + "\n" for part in parts)
    node.mark("npu-alarm.3")
    node.mark("npu-missing.5")
    shown = [node.run("npu-smi", "info", "-t", "health", "-i", i, "-c", "0") for i in "235"]
    assert shown == [(0, well, ""), (0, ill, ""), (1, gone, "")]


def of_hccn(node: Node, question: str) -> str:
    code, out, err = node.hccn("-i", "3", f"-{question}", "-g")
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize(
    ("marks", "link", "counts", "changes"),
    [
        ({}, "UP", (1, 0), [True]),
        ({}, "DOWN", (1, 1), [False, True]),
        ({"link-flaps.3": "2"}, "UP", (3, 2), [True, False, True, False, True]),
        ({"link-flaps": "1", "link-down": "always"}, "DOWN", (2, 2), [False, True, False, True]),
        ({"link-flaps.4": "2"}, "UP", (1, 0), [True]),
        ({"link-flaps": "9"}, "UP", (10, 9), [True, False] * 5),
    ],
)
def test_the_history_of_a_link_counts_its_flaps(
    node: Node, marks: dict[str, str], link: str, counts: tuple[int, int], changes: list[bool]
) -> None:
    node.network(link=link, ping="")
    for name, text in marks.items():
        node.mark(name, text)
    history = hccn_tool.parse("link_stat", of_hccn(node, "link_stat"))
    assert (history.ups, history.downs) == counts
    assert [change.is_up for change in history.changes] == changes
    assert all(-2 <= change.seconds_ago < 600 for change in history.changes)


def test_errors_of_the_network_and_of_the_memory_are_counted(node: Node) -> None:
    ecc = ("-t", "ecc", "-i", "3", "-c", "0")
    packets = hccn_tool.parse("stat", of_hccn(node, "stat"))
    memory = npu_smi.parse_ecc(understood(node, *ecc))
    assert {*packets.values(), *memory.values()} == {0}
    node.mark("packet-errors.3", "12")
    node.mark("ecc-errors", "2")
    assert hccn_tool.parse("stat", of_hccn(node, "stat")) == {**packets, "roce_rx_err_pkt_num": 12}
    assert npu_smi.parse_ecc(understood(node, *ecc))["HBM Double Bit Error Count"] == 2


def test_what_the_tools_report_is_what_the_parsers_read(node: Node) -> None:
    assert hccn_tool.parse("net_health", of_hccn(node, "net_health")) == "Success"
    node.mark("net-health.3")
    assert hccn_tool.parse("net_health", of_hccn(node, "net_health")) == "Receive timeout"
    assert hccn_tool.parse("gateway", of_hccn(node, "gateway")) == "198.19.255.254"
    assert hccn_tool.parse("netdetect", of_hccn(node, "netdetect")) == "198.19.255.254"
    chip = ("-i", "3", "-c", "0")
    assert re.search(r"HBM Usage Rate\(%\) +: 5\n", understood(node, "-t", "usages", *chip))
    assert re.search(r"Temperature \(C\) +: 48\n", understood(node, "-t", "temp", *chip))
    node.mark("npu-alarm.3")
    health = npu_smi.parse_device_health(understood(node, "-t", "health", *chip))
    assert (health.state, health.codes) == ("Alarm", ("A4025021", "8C03A000", "8C084E00"))
    node.mark("npu-alarm.3", "80C98000 A4025021\n")
    health = npu_smi.parse_device_health(understood(node, "-t", "health", *chip))
    assert health.codes == ("80C98000", "A4025021")
    of_product(node, "a5")
    assert re.search(r"Temperature ?\(C\) +: 48\n", understood(node, "-t", "temp", "-i", "3"))


def test_an_alarm_shows_in_the_table(node: Node) -> None:
    node.mark("npu-alarm.3")
    rows = [row.split("|") for row in understood(node).splitlines() if "910B3" in row]
    assert [row[2].strip() for row in rows] == ["OK"] * 3 + ["Alarm"] + ["OK"] * 4
    node.mark("npu-alarm")
    assert understood(node).count("| Alarm         |") == 8


@pytest.mark.parametrize(("mark", "on"), [("tls.6", "00000010"), ("tls", "11111111")])
def test_the_tls_switch_of_a_device_or_of_all_differs(node: Node, mark: str, on: str) -> None:
    node.mark(mark)
    outputs = (node.hccn("-i", str(number), "-tls", "-g")[1] for number in range(8))
    assert "".join(out.split("tls switch[")[1][0] for out in outputs) == on


@pytest.mark.parametrize("seconds", [0, 90, -90])
def test_date_is_off_by_the_fault(node: Node, seconds: int) -> None:
    if seconds:
        node.mark("clock", str(seconds))
    for words in (("+%s",), ("-u", "+%s")):
        assert abs(int(node.run("date", *words)[1]) - time.time() - seconds) < 5
    assert node.run("date", "nonsense")[0] == 1


@pytest.mark.parametrize("words", [("-d", "@5", "+%s"), ("-ud", "@5", "+%s"), ("--date=@5", "+%s")])
def test_date_shows_a_stated_time_without_the_fault(node: Node, words: tuple[str, ...]) -> None:
    node.mark("clock", "90")
    assert node.run("date", *words) == (0, "5\n", "")


@pytest.mark.parametrize("words", [(), ("frobnicate",), ("info", "-x"), ("info", "-t", "colour")])
def test_npu_smi_shows_its_usage_for_anything_else(node: Node, words: tuple[str, ...]) -> None:
    code, out, err = node.run("npu-smi", *words)
    usage = "Usage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]"
    assert (code, out.splitlines()[-1], err) == (1, usage, "")


# ------------------------------------------------------------------------------ other products


def of_product(node: Node, product: Product) -> Node:
    shape = replace(SHAPE, product=product)
    (node.world / "world").write_text(world_text(shape, shape.nodes[0]))
    return node


def test_a3_has_two_npus_on_each_card(node: Node) -> None:
    of_product(node, "a3").mark("npu-missing.5")
    mapping = npu_smi.parse_mapping(understood(node, "-m"))
    assert [(n.npu_id, n.chip_id, n.device_id, n.logic_id) for n in mapping.npus] == [
        (i // 2, i % 2, i, i) for i in (0, 1, 2, 3, 4, 6, 7)
    ]
    assert {n.chip_name for n in mapping.npus} == {"Ascend910"}


def test_the_super_pod_of_a_chip_of_a3_has_the_recorded_rows(node: Node) -> None:
    of_product(node, "a3")
    asked = ("-t", "spod-info", "-i", "1", "-c", "1")
    place = SuperPodPlace(super_device_id=1 << 22 | 1 << 18 | 1 << 16 | 3, super_pod_id=0)
    assert npu_smi.parse_spod_info(understood(node, *asked)) == place
    recorded = (DATA.parent / "npu-smi-spod-info/A3-25.3/usual.txt").read_text()
    assert [row[:34] for row in understood(node, *asked).splitlines()] == [
        row[:34] for row in recorded.splitlines()
    ]
    assert "Invalid card id." in node.run("npu-smi", "info", *asked[:3], "4", "-c", "0")[1]
    assert "Invalid chip id." in node.run("npu-smi", "info", *asked[:3], "1", "-c", "2")[1]
    of_product(node, "a2")
    text = "This device does not support querying spod-info.\n"
    assert node.run("npu-smi", "info", *asked) == (193, text, "")


def test_the_table_of_a3_is_drawn_as_recorded(node: Node) -> None:
    recorded = (DATA / "npu-smi_info_A3.txt").read_text().splitlines()
    lines = understood(of_product(node, "a3")).splitlines()
    assert [lines[0], *lines[2:6]] == [recorded[0], *recorded[2:6]]
    values = re.compile(r"[0-9]+\.[0-9]| [0-9]{2} |[0-9A-F]{2}:00\.0| [0-9]{4} /| - {3}")
    for line, real in zip(lines[6:12], recorded[6:12], strict=True):
        assert line[:31] == real[:31]
        assert len(values.sub("", line)) <= len(real)
    assert lines[8] == recorded[8]
    assert lines[11] == recorded[11]


def test_the_fabric_of_a3_is_pinged_at_the_address_inside_it(node: Node) -> None:
    of_product(node, "a3")
    code, out, err = node.hccn("-i", "3", "-vnic", "-g")
    assert (code, hccn_tool.parse("vnic", out), err) == (0, "198.19.1.103", "")
    ping = ("-i", "3", "-hccs_ping", "-g", "address", "198.19.2.103")
    last = "3 packets transmitted, {}% packets loss\n"
    well = "This pkt ping success!\n" * 3 + last.format("3 received, 0.00")
    assert node.hccn(*ping) == (0, well, "")
    node.network(link="UP", ping="", code=1)
    lost = "This pkt send fail!\n" * 3 + last.format("0 received, 100.00")
    assert node.hccn(*ping) == (1, lost, "")
    of_product(node, "a2")
    unknown = node.hccn("-i", "3", "-no_such_command", "-g")
    assert node.hccn("-i", "3", "-vnic", "-g") == unknown


def test_950_has_slots_and_no_commands_of_the_older_hccn_tool(node: Node) -> None:
    of_product(node, "a5")
    mapping = npu_smi.parse_mapping(understood(node, "-m"))
    assert [(n.npu_id, n.device_id, n.chip_name) for n in mapping.npus] == [
        (i, i, "Ascend950PR") for i in range(8)
    ]
    assert node.hccn("-i", "3", "-ip", "-g") == node.hccn("-i", "3", "-no_such_command", "-g")


def test_an_npu_is_slow_or_does_not_compute_as_marked(node: Node) -> None:
    assert node.run("npu-load", "1") == (0, "1\n", "")
    node.mark("npu-slow.1")
    assert [node.run("npu-load", device)[1] for device in "12"] == ["3\n", "1\n"]
    node.mark("npu-broken.1")
    error = "the stand-in of device 1 is broken (lab.fault npu-broken)\n"
    assert node.run("npu-load", "1")[::2] == (1, error)
