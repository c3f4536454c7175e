"""Options of pytest, and the environment of all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Not the operator's own: each test has its working directory.
os.environ |= {"ASCENDBOOT_HOME": ".ascendboot", "XDG_CONFIG_HOME": "/dev/null"}
settings.register_profile("busy", deadline=None)  # the machine may be busy
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("real servers, with -m hardware")
    group.addoption("--inventory", metavar="FILE", help="inventory of the servers; only read")
    group.addoption("--raw", metavar="FOLDER", help="keeps what the tools print: hardware-raw")
