"""Parsers of one word or one line, and the properties of the parsers' values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


RANGE, RESERVED = (
    f"/proc/sys/net/ipv4/ip_local_{name}" for name in ("port_range", "reserved_ports")
)
CHECK = "horovodrun --check-build"


@pytest.mark.parametrize(
    ("parse", "texts", "tool", "line", "expected"),
    [
        (
            system.parse_system,
            {**NAMES, "hostname": "two words"},
            "hostname",
            "two words",
            "one word",
        ),
        (system.parse_system, {**NAMES, "uid": "root"}, "id -u", "root", "a number"),
        (system.parse_system, {**NAMES, "home": ""}, "$HOME", "", "an absolute path"),
        (system.parse_system, {**NAMES, "home": "root"}, "$HOME", "root", "an absolute path"),
        (
            *(system.parse_machine, {"boot_id": "none", "namespace": "net:[1]"}),
            *("/proc/sys/kernel/random/boot_id", "none", "a UUID"),
        ),
        (
            *(system.parse_machine, {"boot_id": BOOT_ID, "namespace": "mnt:[1]"}),
            *("/proc/self/ns/net", "mnt:[1]", "net:[NUMBER]"),
        ),
        (
            *(system.parse_epoch, {"text": "1795250833.%N"}),
            *("date +%s.%N", "1795250833.%N", "SECONDS.NANOSECONDS"),
        ),
        (
            *(system.parse_kernel_ports, {"port_range": "all of them", "reserved": ""}),
            *(RANGE, "all of them", "two numbers"),
        ),
        (
            *(system.parse_kernel_ports, {"port_range": "1 2", "reserved": "60000..60031"}),
            *(RESERVED, "60000..60031", "ports and ranges of ports with commas"),
        ),
        (software.parse_has_mpi, {"text": ""}, CHECK, "", "Available Controllers:"),
        (
            *(software.parse_has_mpi, {"text": "Available Controllers:\n[X] Gloo\n"}),
            *(CHECK, "", "MPI among the controllers"),
        ),
        *(
            (
                software.parse_horovod_version,
                {"text": text},
                "horovodrun --version",
                text,
                "a version",
            )
            for text in ("", "Traceback: no module named horovod")
        ),
        *(
            (software.parse_torch, {"text": text}, "the versions of torch", text, "two versions")
            for text in ("", "Traceback", "2.1.0", "- 2.1.0", "2.1.0 - -")
        ),
    ],
)
def test_another_form_is_refused(
    parse: Callable[..., Any], texts: dict[str, str], tool: str, line: str, expected: str
) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        parse(**texts)
    assert str(refused.value) == f'{tool}: line 1 not understood: "{line}"; expected {expected}'


def test_a_controller_in_another_form_is_refused_by_its_line() -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        software.parse_has_mpi(BUILD.replace("[X] MPI", "MPI: yes"))
    assert str(refused.value) == (
        f'{CHECK}: line 9 not understood: "MPI: yes"; expected [X] MPI or [ ] MPI'
    )


def test_network_of_an_address() -> None:
    assert InterfaceAddress("198.18.3.4", 16).network == "198.18.0.0/16"
    assert InterfaceAddress("2001:db8::5", 64).network == "2001:db8::/64"


def test_the_first_numbers_of_a_version() -> None:
    assert Program("/usr/bin/mpirun", "5.0.3").release == (5, 0)
    assert Program("/usr/bin/ssh", "6.6.1p1").release == (6, 6)
