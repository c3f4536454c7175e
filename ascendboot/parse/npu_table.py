"""`npu-smi info`: which NPUs there are and how they are, and, in its last table, who uses them.

Seen of drivers 24.1 (A2: no physical ids), 25.3 (A3: `Phy-ID` beside the chip) and in the manual
of 950 (one id for an NPU). The name of a process is blank where it runs in a container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from ascendboot.parse.npu_smi import refuse_failure
from ascendboot.parse.reading import lines_of, nothing_printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.parse.reading import Line

TOOL = "npu-smi info"

Health: TypeAlias = Literal["OK", "Warning", "Alarm", "Critical", "UNKNOWN"]
"""As the tool says it; UNKNOWN: the device is not there, or not started."""

_HEALTH: tuple[Health, ...] = get_args(Health)
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
    at = _processes_at(lines)
    chips = _chips(lines[:at])
    ids = {(chip.npu, chip.chip): chip.device_id for chip in chips}
    processes = (_process(line, ids) for line in lines[at + 1 :] if not _is_frame(line))
    return NpuTable(tuple(sorted(chip.device_id for chip in _devices(chips))), tuple(processes))


def parse_health(text: str) -> Mapping[int, Health]:
    """How each device is, by the ids of `NpuTable.device_ids`, in their order.

    Raises:
        ToolBusyError, ToolError: the tool says that it failed.
        NotUnderstoodError: there is no table of processes, or another word for how a device is.
    """
    refuse_failure(text, TOOL)
    lines = lines_of(text)
    chips = _devices(_chips(lines[: _processes_at(lines)]))
    return {chip.device_id: chip.health for chip in sorted(chips, key=lambda c: c.device_id)}


@dataclass(frozen=True)
class _Chip:
    """One NPU, by the tool's own ids and by the one that is taken for the physical id."""

    npu: int
    chip: int
    device_id: int
    row: Line
    word: str
    """In the column Health of that row."""

    @property
    def health(self) -> Health:
        for known in _HEALTH:
            if self.word == known:
                return known
        raise self.row.not_understood(TOOL, f"one of {', '.join(_HEALTH)} as Health")


def _processes_at(lines: Sequence[Line]) -> int:
    """Where the table of processes begins."""
    at = next((n for n, line in enumerate(lines) if _HEADER.fullmatch(line.text.strip())), None)
    if at is not None:
        return at
    raise lines[-1].not_understood(TOOL, _EXPECTED) if lines else nothing_printed(TOOL, _EXPECTED)


def _is_frame(line: Line) -> bool:
    return _FRAME.fullmatch(line.text.strip()) is not None


def _chips(lines: Sequence[Line]) -> tuple[_Chip, ...]:
    if any(_ONE_ID.match(line.text.strip()) for line in lines):
        return tuple(_of_one_id(lines))
    return tuple(_of_two_rows(lines))


def _of_one_id(lines: Sequence[Line]) -> Iterator[_Chip]:
    """Of the form that has one id for an NPU (950)."""
    for line in lines:
        if row := _NPU_OF_ONE_ID.match(line.text.strip()):
            npu = int(row[1])
            yield _Chip(npu, 0, npu, line, _cell(line, 2))


def _of_two_rows(lines: Sequence[Line]) -> Iterator[_Chip]:
    """A row of the NPU and one of its chip, which has the physical id, or the NPU's own counts."""
    above: Line | None = None
    npu = 0
    for line in lines:
        if found := _NPU.match(line.text.strip()):
            npu, above = int(found[1]), line
        elif chip := _CHIP.match(line.text.strip()):
            device_id = npu if chip[2] is None else int(chip[2])
            yield _Chip(npu, int(chip[1]), device_id, above or line, _cell(above or line, 1))


def _cell(line: Line, column: int) -> str:
    cells = line.text.strip().strip("|").split("|")
    return cells[column].strip() if column < len(cells) else ""


def _devices(chips: tuple[_Chip, ...]) -> tuple[_Chip, ...]:
    """All of them; none where two have one id: then they are no devices' ids."""
    return chips if len({chip.device_id for chip in chips}) == len(chips) else ()


def _process(line: Line, device_ids: Mapping[tuple[int, int], int]) -> NpuProcess:
    row = _ROW.fullmatch(line.text.strip())
    if row is None:
        raise line.not_understood(TOOL, _EXPECTED)
    npu, chip = int(row[1]), int(row[2] or 0)
    return NpuProcess(device_ids.get((npu, chip), npu), int(row[3]))
