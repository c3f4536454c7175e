"""The versions of torch and torch_npu."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.node_facts import TORCH
from ascendboot.facts.parsers.software import Torch, parse

if TYPE_CHECKING:
    from pathlib import Path


def test_versions() -> None:
    assert parse("2.13.0+cpu -\n") == Torch("2.13.0+cpu")
    assert parse("something warns\n2.1.0 2.1.0.post3\n") == Torch("2.1.0", "2.1.0.post3")
    assert Torch("2.1.0", "2.1.0.post3").words == "torch 2.1.0, torch_npu 2.1.0.post3"


@pytest.mark.parametrize("text", ["", "Traceback", "2.1.0", "- 2.1.0", "2.1.0 - -"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstoodError, match="expected two versions"):
        parse(text)


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
