"""Which ports Linux gives to outgoing connections."""

from __future__ import annotations

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers.system import KernelPorts, parse_kernel_ports


def test_both_files_are_read() -> None:
    assert parse_kernel_ports("32768\t60999\n", "\n") == KernelPorts(32768, 60999)
    ports = parse_kernel_ports("1024 65535", "60000-60031,61000\n")
    assert ports == KernelPorts(1024, 65535, ((60000, 60031), (61000, 61000)))
    taken = [p for p in (1023, 1024, 59999, 60000, 60031, 60032, 61000, 65535) if ports.may_take(p)]
    assert taken == [1024, 59999, 60032, 65535]


@pytest.mark.parametrize(
    ("port_range", "reserved", "message"),
    [
        (
            "all of them",
            "",
            (
                '/proc/sys/net/ipv4/ip_local_port_range: line 1 not understood: "all of them"; '
                "expected two numbers"
            ),
        ),
        (
            "1 2",
            "60000..60031",
            (
                "/proc/sys/net/ipv4/ip_local_reserved_ports: line 1 not understood: "
                '"60000..60031"; expected ports and ranges of ports with commas'
            ),
        ),
    ],
)
def test_another_form_is_refused(port_range: str, reserved: str, message: str) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        parse_kernel_ports(port_range, reserved)
    assert str(refused.value) == message
