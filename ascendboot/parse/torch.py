"""The versions of torch and torch_npu, as a program of ours finds them on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.reading import lines_of, nothing_printed

TOOL = "the versions of torch"
_VERSIONS = re.compile(r"([0-9]\S*) (-|[0-9]\S*)")


@dataclass(frozen=True)
class Torch:
    """PyTorch of an interpreter; `npu` is the version of torch_npu, None without it."""

    version: str
    npu: str | None = None

    @property
    def words(self) -> str:
        """`torch 2.1.0, torch_npu 2.1.0.post3`."""
        return f"torch {self.version}" + (f", torch_npu {self.npu}" if self.npu else "")


def parse(text: str) -> Torch:
    """The two versions, on the last line: what is imported with a Python may warn before.

    Raises:
        NotUnderstoodError: the last line is something else.
    """
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TOOL, "two versions")
    match = _VERSIONS.fullmatch(lines[-1].text.strip())
    if match is None:
        raise lines[-1].not_understood(TOOL, "two versions")
    return Torch(match[1], None if match[2] == "-" else match[2])
