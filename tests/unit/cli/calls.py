"""Calls the program, or a part of it, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ascendboot.cli.program import CarefulExecutor, CarefulProgram, namespace
from ascendboot.inventory.load import load
from ascendboot.setup.record import reach_of
from ascendboot.state import State

MAIN = "from ascendboot.cli.program import main; main()"
AS_OTHERS = f"""
import ctypes, os, sys
for capability in (1, 2):  # DAC_OVERRIDE and DAC_READ_SEARCH: root obeys the modes of files
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-c", {MAIN!r}, *sys.argv[1:]])
"""
AS_INVOKE = "from invoke.main import program; program.run()"


def ended(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", program, *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(argv, check=False, text=True, **streams)


def ended_here(words: Sequence[str]) -> int:
    """Run the program in this process; its exit code."""
    name, verbs = "ascendboot", namespace(words)
    program = CarefulProgram(
        name=name, binary=name, namespace=verbs, executor_class=CarefulExecutor
    )
    try:
        program.run([name, *words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def without_inventory() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "INVENTORY" not in key}


def set_up(inventory: Path) -> None:
    """Record the nodes of the cluster x as `setup` does in the folder of its inventory."""
    reached = {node.name: reach_of(node) for node in load(inventory).nodes}
    State(inventory.parent / ".ascendboot").remember("x", "nodes", reached)


def called(line: str, place: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return ended(MAIN, *line.split(), cwd=place, env=without_inventory(), **options)
