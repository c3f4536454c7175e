"""The programs that measure the figures start; what they measure takes minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PROGRAMS = sorted(path for path in BENCH.glob("*.py") if path.stem not in ("cat", "common"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_figure_can_be_measured(path: Path) -> None:
    assert path.read_text().startswith("#!/usr/bin/env python3\n")
    argv = [sys.executable, str(path), "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr
