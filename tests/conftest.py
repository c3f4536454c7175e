"""Options of pytest."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("real servers, with -m hardware")
    group.addoption("--inventory", metavar="FILE", help="inventory of the servers; only read")
    group.addoption("--raw", metavar="FOLDER", help="keeps what the tools print: hardware-raw")
