"""Parsers of one word or one line, properties of values, and changed tables of npu-smi."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers import software, system
from ascendboot.facts.parsers.npu_smi import NpuProcess, parse_table
from ascendboot.facts.parsers.software import Program, Torch
from ascendboot.facts.parsers.system import InterfaceAddress, KernelPorts, System
from ascendboot.model.job import NpuUse

BOOT_ID = "bf898a7f-9fd9-478f-94ef-4a78568b95b2"
NAMES = {
    "hostname": "lab-1\n",
    "uname": "Linux 5.10.0 aarch64\n",
    "user": "root\n",
    "uid": "0\n",
    "home": "/root\n",
}
BUILD = """\
Horovod v0.28.1:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [X] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] MPI
"""


def test_the_names_of_a_system_and_of_a_machine() -> None:
    found = System(hostname="lab-1", arch="aarch64", user="root", uid=0, home="/root")
    assert system.parse_system(**NAMES) == found
    assert system.parse_machine(f"{BOOT_ID}\n", "net:[4026]\n") == f"{BOOT_ID} net:[4026]"
    assert system.parse_epoch("1795250833.853032800\n") == 1795250833.8530328


def test_the_kernels_ports_are_read_from_both_files() -> None:
    assert system.parse_kernel_ports("32768\t60999\n", "\n") == KernelPorts(32768, 60999)
    ports = system.parse_kernel_ports("1024 65535", "60000-60031,61000\n")
    assert ports == KernelPorts(1024, 65535, ((60000, 60031), (61000, 61000)))
    taken = [p for p in (1023, 1024, 59999, 60000, 60031, 60032, 61000, 65535) if ports.may_take(p)]
    assert taken == [1024, 59999, 60032, 65535]


def test_versions_of_horovod_and_torch_are_on_the_last_line() -> None:
    assert software.parse_horovod_version("0.28.1\n") == "0.28.1"
    assert software.parse_horovod_version("a library warns\n0.19.5\n\n") == "0.19.5"
    assert software.parse_torch("2.13.0+cpu -\n") == Torch("2.13.0+cpu")
    both = software.parse_torch("something warns\n2.1.0 2.1.0.post3\n")
    assert both == Torch("2.1.0", "2.1.0.post3")
    assert both.words == "torch 2.1.0, torch_npu 2.1.0.post3"


def test_only_the_controllers_of_horovod_count() -> None:
    assert software.parse_has_mpi(BUILD) is True
    assert software.parse_has_mpi(BUILD.replace("[X] MPI", "[ ] MPI")) is False


def of_names(**changed: str) -> System:
    return system.parse_system(**{**NAMES, **changed})


BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"
RANGE, RESERVED = "/proc/sys/net/ipv4/ip_local_port_range", "60000..60031"
RESERVED_FILE = "/proc/sys/net/ipv4/ip_local_reserved_ports"
CHECK, NO_MPI = "horovodrun --check-build", "Available Controllers:\n[X] Gloo\n"


@pytest.mark.parametrize(
    ("parse", "tool", "line", "expected"),
    [
        (lambda: of_names(hostname="two words"), "hostname", "two words", "one word"),
        (lambda: of_names(uid="root"), "id -u", "root", "a number"),
        (lambda: of_names(home=""), "$HOME", "", "an absolute path"),
        (lambda: of_names(home="root"), "$HOME", "root", "an absolute path"),
        (lambda: system.parse_machine("none", "net:[1]"), BOOT_ID_FILE, "none", "a UUID"),
        (
            lambda: system.parse_machine(BOOT_ID, "mnt:[1]"),
            *("/proc/self/ns/net", "mnt:[1]", "net:[NUMBER]"),
        ),
        (lambda: system.parse_epoch("1.%N"), "date +%s.%N", "1.%N", "SECONDS.NANOSECONDS"),
        (lambda: system.parse_kernel_ports("all", ""), RANGE, "all", "two numbers"),
        (
            lambda: system.parse_kernel_ports("1 2", RESERVED),
            *(RESERVED_FILE, RESERVED, "ports and ranges of ports with commas"),
        ),
        (lambda: software.parse_has_mpi(""), CHECK, "", "Available Controllers:"),
        (lambda: software.parse_has_mpi(NO_MPI), CHECK, "", "MPI among the controllers"),
        *(
            (partial(software.parse_horovod_version, x), "horovodrun --version", x, "a version")
            for x in ("", "Traceback: no module named horovod")
        ),
        *(
            (partial(software.parse_torch, x), "the versions of torch", x, "two versions")
            for x in ("", "Traceback", "2.1.0", "- 2.1.0", "2.1.0 - -")
        ),
    ],
)
def test_unknown_output_is_refused(
    parse: Callable[[], object], tool: str, line: str, expected: str
) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        parse()
    assert str(refused.value) == f'{tool}: line 1 not understood: "{line}"; expected {expected}'


def test_a_controller_in_another_form_is_refused_by_its_line() -> None:
    with pytest.raises(NotUnderstoodError, match=r'line 9 .*"MPI: yes"; expected \[X\] MPI or \[ '):
        software.parse_has_mpi(BUILD.replace("[X] MPI", "MPI: yes"))


def test_network_of_an_address() -> None:
    assert InterfaceAddress("198.18.3.4", 16).network == "198.18.0.0/16"
    assert InterfaceAddress("2001:db8::5", 64).network == "2001:db8::/64"


def test_the_first_numbers_of_a_version() -> None:
    assert Program("/usr/bin/mpirun", "5.0.3").release == (5, 0)
    assert Program("/usr/bin/ssh", "6.6.1p1").release == (6, 6)


DATA = Path(__file__).parents[2] / "data/npu-smi-info"


def recorded(case: str) -> str:
    return (DATA / f"{case}.txt").read_text()


def test_the_health_belongs_to_the_right_chip() -> None:
    rows = recorded("A3-25.3.rc1/busy").split("\n")
    at = next(n for n, row in enumerate(rows) if row.startswith("| 1     5  "))
    rows[at - 1] = rows[at - 1].replace("| OK      ", "| Critical")
    health = parse_table("\n".join(rows)).health
    assert {i for i, word in health.items() if word == "Critical"} == {5}
    of_950 = recorded("950-26.0/usual").replace("| OK     ", "| UNKNOWN")
    assert parse_table(of_950).health == {0: "UNKNOWN"}


@pytest.mark.parametrize("word", ["Alarms", "", "NA", "Not known"])
def test_an_unknown_health_hides_no_other(word: str) -> None:
    text = recorded("A2-24.1/ill").replace("| Alarm    ", f"| {word:9}", 1)
    assert parse_table(text).health == {0: word, 1: "Warning"}


def test_the_mapping_gives_the_physical_ids() -> None:
    text = recorded("A2-24.1/ill").replace("| 1     910B3", "| 2     910B3")
    text = text.replace("| 0     910B3", "| 1     910B3")
    assert parse_table(text, {(1, 0): 0, (2, 0): 1}).health == {0: "Alarm", 1: "Warning"}
    assert parse_table(text, {(2, 0): 1}).health == {1: "Warning"}
    busy = text.replace(
        "| No running processes found in NPU 1" + " " * 60 + "|", "| 2  0 | 77 | x | 1 |"
    )
    assert parse_table(busy, {(1, 0): 0, (2, 0): 1}).processes == (NpuProcess(1, 77),)
    two = recorded("A2-24.1/two_chips_of_one_npu")
    assert parse_table(two, {(0, 0): 0, (0, 1): 1}).health == {0: "OK", 1: "OK"}


def test_physical_ids_of_the_table_take_precedence() -> None:
    ids = {(npu, chip): 99 for npu in range(8) for chip in range(2)}
    assert list(parse_table(recorded("A3-25.3.rc1/busy"), ids).devices) == list(range(16))


def test_devices_without_a_total_show_no_free_memory() -> None:
    text = recorded("A2-24.1/usual")
    assert parse_table(text).free_memory == {0: 62147, 1: 62147}
    text = text.replace("3389 / 65536", "0    / 0    ", 1)
    assert parse_table(text).free_memory == {1: 62147}


@pytest.mark.parametrize(
    ("first", "second", "seen"),
    [
        ("280.1       61 ", "97          0    / 0          62308/ 65536", (97, 61, 62308, 65536)),
        ("-           - ", "NA          0    / 0          0    / 0    ", (None, None, 0, 0)),
        ("14.1        -2 ", "3           1850 / 21527 ", (3, -2, 1850, 21527)),  # of 310P
    ],
)
def test_what_does_not_exist_is_no_number(
    first: str, second: str, seen: tuple[int | None, int | None, int, int]
) -> None:
    text = recorded("A2-24.1/usual").replace("91.5        48 ", first, 1)
    text = text.replace("0           0    / 0          3389 / 65536", second, 1)
    percent, celsius, used_mb, total_mb = seen
    assert parse_table(text).uses[0] == NpuUse(
        utilization_percent=percent,
        temperature_c=celsius,
        memory_used_mb=used_mb,
        memory_total_mb=total_mb,
    )
