"""What runs on nodes with Python 3.7, Rec SDK's, says nothing that only later ones understand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ascendboot.facts.node_facts import TORCH
from ascendboot.readiness.queries import VERSIONS
from ascendboot.templates import script

DEMO = Path(__file__).parents[2] / "examples/little_demo"
PROGRAMS = {
    "the question about torch": TORCH,
    "the question about packages": VERSIONS,
    "the preflight": script("meet.py"),
    "the measurement of devices": script("measure.py"),
    "the program of HCCL Test": script("hccl_test.py"),
    **{path.name: path.read_text() for path in sorted(DEMO.glob("*.py"))},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_for_nodes_are_python_3_7(name: str) -> None:
    ast.parse(PROGRAMS[name], feature_version=(3, 7))
