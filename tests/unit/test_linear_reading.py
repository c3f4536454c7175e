"""What nodes and ranks print, and inventories state, is read in a time that grows with its length.

Each text is small enough to pass all limits in bytes; read in quadratic time it takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from ascendboot.facts.parsers import system
from ascendboot.facts.parsers.base import around
from ascendboot.facts.parsers.npu_smi import OF_MAPPING
from ascendboot.jobs.evidence import error_in
from ascendboot.jobs.loss import LossWatch
from ascendboot.jobs.output import Folded
from ascendboot.model.secrets import is_secret_value, without_secrets


def _fold_blank_lines() -> None:
    folded = Folded(list[bytes]().append, 2)
    folded(b"a:0 | \n" * 150_000)
    folded.close()


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: around("1 \n" * 43_000, OF_MAPPING), id="lines of a vendor tool"),
        pytest.param(
            lambda: system.parse_ip(
                "1: lo: <UP> mtu 1\n" + " inet 192.0.2.1/8 scope host\n" * 36_000
            ),
            id="addresses of an interface",
        ),
        pytest.param(lambda: error_in(4 * (b"a" * 65_536)), id="a log in one line"),
        pytest.param(
            lambda: [*LossWatch(0, "a").look(b"loss  " * 50_000 + b"9" * 500_000 + b"loss nan")],
            id="losses in one line",
        ),
        pytest.param(_fold_blank_lines, id="blank lines of a rank"),
        pytest.param(lambda: without_secrets("A_" * 50_000), id="a long name"),
        pytest.param(lambda: without_secrets("TOKEN_" * 20_000), id="a name like many secrets"),
        pytest.param(lambda: is_secret_value("a+" * 50_000), id="a long value"),
    ],
)
def test_a_large_text_is_read_in_linear_time(read: Callable[[], object]) -> None:
    before = time.process_time()
    read()
    assert time.process_time() - before < 10
