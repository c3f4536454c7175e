"""`npu-smi info`: which NPUs there are, and, in the table at its end, who uses them.

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
_CHIP = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\|")
_NPU = re.compile(r"\| ([0-9]+)\s+(?![0-9]+\s*\|)[^\s|]")
_ONE_ID = re.compile(r"\| NPU ID \| Name ")
_NPU_OF_ONE_ID = re.compile(r"\| ([0-9]+)\s*\| \S")
_ROW = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\| ([0-9]+)\s*\|.*\|")
_FRAME = re.compile(r"[+=-]+|\| No running processes found in NPU [0-9]+\s*\|")
_EXPECTED = "| NPU Chip | Process id | Process name | Process memory |"


@dataclass(frozen=True)
class NpuProcess:
    """A process that uses an NPU, by its pid on the host side."""

    device_id: int
    """The physical id; the NPU's own id where the table has no physical ones."""
    pid: int


@dataclass(frozen=True)
class NpuTable:
    """What the tool shows of all NPUs."""

    device_ids: tuple[int, ...]
    """Of all that are there, as in `NpuProcess`; none where the table has them in another form."""
    processes: tuple[NpuProcess, ...]
    """Who uses them, in the tool's order; nobody is a good answer."""


def parse(text: str) -> NpuTable:
    """The NPUs and who uses them.

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
    ids = _ids_by_npu(lines[:at]) or dict(_ids_by_chip(lines[:at]))
    processes = (_process(line, ids) for line in lines[at + 1 :] if not _is_frame(line))
    return NpuTable(_all_of(ids), tuple(processes))


def _is_frame(line: Line) -> bool:
    return _FRAME.fullmatch(line.text.strip()) is not None


def _ids_by_npu(lines: Sequence[Line]) -> dict[tuple[int, int], int]:
    """Of the form that has one id for an NPU (950); nothing of any other."""
    if not any(_ONE_ID.match(line.text.strip()) for line in lines):
        return {}
    rows = (_NPU_OF_ONE_ID.match(line.text.strip()) for line in lines)
    return {(int(row[1]), 0): int(row[1]) for row in rows if row}


def _ids_by_chip(lines: Sequence[Line]) -> Iterator[tuple[tuple[int, int], int]]:
    """By NPU and chip, each with the physical id, or the NPU's own where there is no such."""
    npu = 0
    for line in lines:
        if found := _NPU.match(line.text.strip()):
            npu = int(found[1])
        elif chip := _CHIP.match(line.text.strip()):
            yield (npu, int(chip[1])), npu if chip[2] is None else int(chip[2])


def _all_of(ids: dict[tuple[int, int], int]) -> tuple[int, ...]:
    """The ids in order; none where two chips have one: then they are no devices' ids."""
    found = tuple(sorted(set(ids.values())))
    return found if len(found) == len(ids) else ()


def _process(line: Line, device_ids: dict[tuple[int, int], int]) -> NpuProcess:
    row = _ROW.fullmatch(line.text.strip())
    if row is None:
        raise line.not_understood(TOOL, _EXPECTED)
    npu, chip = int(row[1]), int(row[2] or 0)
    return NpuProcess(device_ids.get((npu, chip), npu), int(row[3]))
