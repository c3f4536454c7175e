"""Parsers of one word or one line, and the properties of the parsers' values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers import software, system
from ascendboot.facts.parsers.software import Program, Torch
from ascendboot.facts.parsers.system import InterfaceAddress, KernelPorts, System

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
