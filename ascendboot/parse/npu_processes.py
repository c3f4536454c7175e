"""`npu-smi info`: the table of processes at its end, which says who uses which NPU.

Seen of drivers 24.1 (A2: no physical ids), 25.3 (A3: `Phy-ID` beside the chip) and in the manual
of 950 (one id for an NPU). The name of a process is blank where it runs in a container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.parse.npu_smi import refuse_failure
from ascendboot.parse.reading import lines_of, nothing_printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ascendboot.parse.reading import Line

TOOL = "npu-smi info"
_HEADER = re.compile(r"\| NPU(?: ID|\s+Chip)\s*\| Process id\s*\| Process name\s*\|.*\|")
_CHIP = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\| [0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9]")
_NPU = re.compile(r"\| ([0-9]+)\s+[A-Za-z]")
_ROW = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\| ([0-9]+)\s*\|.*\|")
_FRAME = re.compile(r"[+=-]+|\| No running processes found in NPU [0-9]+\s*\|")
_EXPECTED = "| NPU Chip | Process id | Process name | Process memory |"


@dataclass(frozen=True)
class NpuProcess:
    """A process that uses an NPU, by its pid on the host side."""

    device_id: int
    """The physical id; the NPU's own id where the table has no physical ones."""
    pid: int


def parse(text: str) -> tuple[NpuProcess, ...]:
    """Who uses which device, in the tool's order; nobody is a good answer.

    Raises:
        ToolBusyError, ToolError: the tool says that it failed.
        NotUnderstoodError: there is no table of processes, or a row has another form.
    """
    refuse_failure(text, TOOL)
    lines = lines_of(text)
    at = next((n for n, line in enumerate(lines) if _HEADER.fullmatch(line.text.strip())), None)
    if at is None:
        raise (
            lines[-1].not_understood(TOOL, _EXPECTED) if lines else nothing_printed(TOOL, _EXPECTED)
        )
    device_ids = dict(_device_ids(lines[:at]))
    return tuple(_process(line, device_ids) for line in lines[at + 1 :] if not _is_frame(line))


def _is_frame(line: Line) -> bool:
    return _FRAME.fullmatch(line.text.strip()) is not None


def _device_ids(lines: Sequence[Line]) -> Iterator[tuple[tuple[int, int], int]]:
    """Physical ids by NPU and chip, as far as the upper table has them."""
    npu = 0
    for line in lines:
        if chip := _CHIP.match(line.text.strip()):
            if chip[2] is not None:
                yield (npu, int(chip[1])), int(chip[2])
        elif found := _NPU.match(line.text.strip()):
            npu = int(found[1])


def _process(line: Line, device_ids: dict[tuple[int, int], int]) -> NpuProcess:
    row = _ROW.fullmatch(line.text.strip())
    if row is None:
        raise line.not_understood(TOOL, _EXPECTED)
    npu, chip = int(row[1]), int(row[2] or 0)
    return NpuProcess(device_ids.get((npu, chip), npu), int(row[3]))
