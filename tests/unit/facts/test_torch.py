"""The program that prints the versions of torch and torch_npu."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ascendboot.facts.node_facts import TORCH

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("npu", [None, "2.1.0.post3"])
def test_the_program_imports_neither(tmp_path: Path, npu: str | None) -> None:
    for name, version in (("torch", "2.1.0"), ("torch_npu", npu)):
        if version is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("raise SystemError\n")
            (tmp_path / name / "version.py").write_text(f"__version__ = {version!r}\n")
    done = asked(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"2.1.0 {npu or '-'}\n")


def test_an_interpreter_without_it_is_named(tmp_path: Path) -> None:
    done = asked(tmp_path)
    assert (done.returncode, done.stderr) == (127, f"there is no torch for {sys.executable}")


def asked(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", TORCH],
        cwd=folder,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
