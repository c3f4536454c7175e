"""`npu-smi info`: which NPUs there are and how they are, and, in its last table, who uses them.

Seen of drivers 24.1 (A2: no physical ids), 25.3 (A3: `Phy-ID` beside the chip) and in the manual
of 950 (one id for an NPU). The name of a process is blank where it runs in a container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from ascendboot.parse.npu_smi import refuse_failure
from ascendboot.parse.reading import lines_of, nothing_printed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.parse.reading import Line

TOOL = "npu-smi info"

DeviceIds: TypeAlias = "Mapping[tuple[int, int], int]"
"""The physical ids by NPU id and chip id, as `NpuMap.device_ids` has them, for a table that shows
none. Where there are none either, an NPU's own id is taken for the physical one."""

_NONE: Final[DeviceIds] = {}
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
    """The physical id."""
    pid: int


@dataclass(frozen=True)
class NpuTable:
    """What the tool shows of all NPUs."""

    device_ids: tuple[int, ...]
    """Of all that are there, as in `NpuProcess`; none where the table has them in another form."""
    processes: tuple[NpuProcess, ...]
    """Who uses them, in the tool's order; nobody is a good answer."""


def parse(text: str, device_ids: DeviceIds = _NONE) -> NpuTable:
    """The NPUs and who uses them.

    Raises:
        ToolBusyError, ToolError: the tool says that it failed.
        NotUnderstoodError: there is no table of processes, or a row has another form.
    """
    refuse_failure(text, TOOL)
    lines = lines_of(text)
    at = _processes_at(lines)
    chips = _chips(lines[:at], device_ids)
    ids = {(c.npu, c.chip): c.device_id for c in chips if c.device_id is not None}
    processes = (_process(line, ids) for line in lines[at + 1 :] if not _is_frame(line))
    return NpuTable(tuple(_devices(chips)), tuple(processes))


def parse_health(text: str, device_ids: DeviceIds = _NONE) -> Mapping[int, str]:
    """The tool's own word for how each device is, by the ids of `NpuTable.device_ids`.

    Raises:
        ToolBusyError, ToolError: the tool says that it failed.
        NotUnderstoodError: there is no table of processes.
    """
    refuse_failure(text, TOOL)
    lines = lines_of(text)
    chips = _chips(lines[: _processes_at(lines)], device_ids)
    return {device_id: chip.health for device_id, chip in _devices(chips).items()}


@dataclass(frozen=True)
class _Chip:
    """One NPU, by the tool's own ids and by the physical one."""

    npu: int
    chip: int
    device_id: int | None
    """None: the others' are known, and this one's is not."""
    health: str


def _processes_at(lines: Sequence[Line]) -> int:
    """Where the table of processes begins."""
    at = next((n for n, line in enumerate(lines) if _HEADER.fullmatch(line.text.strip())), None)
    if at is not None:
        return at
    raise lines[-1].not_understood(TOOL, _EXPECTED) if lines else nothing_printed(TOOL, _EXPECTED)


def _is_frame(line: Line) -> bool:
    return _FRAME.fullmatch(line.text.strip()) is not None


def _chips(lines: Sequence[Line], device_ids: DeviceIds) -> tuple[_Chip, ...]:
    if any(_ONE_ID.match(line.text.strip()) for line in lines):
        return tuple(_of_one_id(lines, device_ids))
    return tuple(_of_two_rows(lines, device_ids))


def _of_one_id(lines: Sequence[Line], device_ids: DeviceIds) -> Iterator[_Chip]:
    """Of the form that has one id for an NPU (950)."""
    for line in lines:
        if row := _NPU_OF_ONE_ID.match(line.text.strip()):
            npu = int(row[1])
            yield _Chip(npu, 0, _physical(npu, 0, device_ids), _cell(line, 2))


def _of_two_rows(lines: Sequence[Line], device_ids: DeviceIds) -> Iterator[_Chip]:
    """A row of the NPU and one of its chip, which may show the physical id."""
    above: Line | None = None
    npu = 0
    for line in lines:
        if found := _NPU.match(line.text.strip()):
            npu, above = int(found[1]), line
        elif chip := _CHIP.match(line.text.strip()):
            id_ = int(chip[1])
            device_id = int(chip[2]) if chip[2] else _physical(npu, id_, device_ids)
            yield _Chip(npu, id_, device_id, _cell(above or line, 1))


def _physical(npu: int, chip: int, device_ids: DeviceIds) -> int | None:
    return device_ids.get((npu, chip)) if device_ids else npu


def _cell(line: Line, column: int) -> str:
    cells = line.text.strip().strip("|").split("|")
    return cells[column].strip() if column < len(cells) else ""


def _devices(chips: tuple[_Chip, ...]) -> dict[int, _Chip]:
    """All whose id is known, in its order; none where two have one: it is no device's then."""
    known = sorted(((c.device_id, c) for c in chips if c.device_id is not None), key=itemgetter(0))
    return dict(known) if len(dict(known)) == len(known) else {}


def _process(line: Line, device_ids: Mapping[tuple[int, int], int]) -> NpuProcess:
    row = _ROW.fullmatch(line.text.strip())
    if row is None:
        raise line.not_understood(TOOL, _EXPECTED)
    npu, chip = int(row[1]), int(row[2] or 0)
    return NpuProcess(device_ids.get((npu, chip), npu), int(row[3]))
