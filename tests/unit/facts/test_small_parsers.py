"""Readers of one word, and what the parsers' values say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.parsers import system
from ascendboot.facts.parsers.software import OpenMpi
from ascendboot.facts.parsers.system import InterfaceAddress

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT_ID = "bf898a7f-9fd9-478f-94ef-4a78568b95b2"


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (system.parse_hostname, "lab-1\n", "lab-1"),
        (system.parse_user, "root\n", "root"),
        (system.parse_uid, "0\n", 0),
        (system.parse_home, "/root\n", "/root"),
        (system.parse_boot_id, f"{BOOT_ID}\n", BOOT_ID),
        (system.parse_namespace, "net:[4026531833]\n", "net:[4026531833]"),
        (system.parse_epoch, "1795250833.853032800\n", 1795250833.8530328),
    ],
)
def test_one_word(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (
            system.parse_hostname,
            "two words",
            'hostname: line 1 not understood: "two words"; expected one word',
        ),
        (system.parse_uid, "root", 'id -u: line 1 not understood: "root"; expected a number'),
        (system.parse_home, "", '$HOME: line 1 not understood: ""; expected an absolute path'),
        (
            system.parse_home,
            "root",
            '$HOME: line 1 not understood: "root"; expected an absolute path',
        ),
        (
            system.parse_boot_id,
            "none",
            '/proc/sys/kernel/random/boot_id: line 1 not understood: "none"; expected a UUID',
        ),
        (
            system.parse_namespace,
            "mnt:[1]",
            '/proc/self/ns/net: line 1 not understood: "mnt:[1]"; expected net:[NUMBER]',
        ),
        (
            system.parse_epoch,
            "1795250833.%N",
            'date +%s.%N: line 1 not understood: "1795250833.%N"; expected SECONDS.NANOSECONDS',
        ),
    ],
)
def test_another_word_is_refused(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        parse(text)
    assert str(refused.value) == message


def test_network_of_an_address() -> None:
    assert InterfaceAddress("198.18.3.4", 16).network == "198.18.0.0/16"
    assert InterfaceAddress("2001:db8::5", 64).network == "2001:db8::/64"


def test_major_version() -> None:
    assert OpenMpi("/usr/bin/mpirun", "5.0.3").major == 5
