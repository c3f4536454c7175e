"""Output of npu-smi."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from ascendboot.errors import ToolError
from ascendboot.facts.parsers.base import Line, ToolBusyError, lines_of, nothing_printed, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The column sets were seen in hicann/driver `npu_info_print.c` (910A/A2, A2/A3 newer, 950) and in
# the manuals; columns are found by their headings, so a further mix of the same headings is read
# too.

MAPPING = "npu-smi info -m"
LIST = "npu-smi info -l"

_HEADINGS = ("NPU ID", "Slot ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")
_BOARD_HEADER = re.compile(r"\s*NPU ID\s")
_HEADING = re.compile("|".join(sorted(_HEADINGS, key=len, reverse=True)))
_EXPECTED_HEADER = "a header of NPU ID, Chip ID, Chip Logic ID or Chip Phy-ID, Chip Name"
_ID = re.compile(r"[0-9]{1,4}")
_NO_CARD = "There is no NPU card on this server."
_DEVICE_IN_USE = re.compile(r"dcmi mod\w+ initialized? failed, because the device is used")
_FAILURES = re.compile(
    r"dcmi mod\w+ initialized? failed|npu get board type failed|Failed to execute npu-smi"
    r"|Invalid card id|Error parameter of|Usage: npu-smi"
)
OF_MAPPING = re.compile(rf"\s*(?:NPU ID\s|-?[0-9]+\s|{_NO_CARD})")
_KEYS = (
    r"(?:Total|Card|Chip) Count|NPU ID|Product Name|Serial Number|SDID|Super Pod (?:Size|ID)"
    r"|Server Index"
)
OF_LIST = re.compile(rf"\s+\S|(?:{_KEYS})\s*:|{_NO_CARD}")
"""How the lines of an answer begin; the tool's warnings begin otherwise."""
_NOT_NPUS = ("Mcu", "3559")
"""Names of chips on the card that are no NPUs: its controller, and a camera processor."""


@dataclass(frozen=True, kw_only=True)
class Npu:
    """One NPU as `npu-smi info -m` lists it."""

    npu_id: int
    chip_id: int
    device_id: int
    """The physical id (/dev/davinciN)."""
    device_id_assumed: bool
    """The tool shows no physical ids here; the logic id stands in for it."""
    logic_id: int | None
    chip_name: str


@dataclass(frozen=True)
class NpuMap:
    """All NPUs by physical id, and how many more the tool lists as not usable (NPU ID -1)."""

    npus: tuple[Npu, ...]
    unusable: int = 0

    @property
    def device_ids(self) -> dict[tuple[int, int], int]:
        """The physical ids by NPU id and chip id."""
        return {(npu.npu_id, npu.chip_id): npu.device_id for npu in self.npus}


@dataclass(frozen=True)
class NpuList:
    """What `npu-smi info -l` counts; `chip_count` in all cards, None where it is not told."""

    npu_ids: tuple[int, ...]
    chip_count: int | None


def parse_mapping(text: str) -> NpuMap:
    """The NPUs in the output of `npu-smi info -m`.

    Raises:
        ToolError: the tool says that it failed.
        NotUnderstoodError: a line is not in a known form, or an id is there twice.
    """
    refuse_failure(text, MAPPING)
    lines = within(lines_of(text), OF_MAPPING)
    if not lines:
        raise nothing_printed(MAPPING, _EXPECTED_HEADER)
    if lines[0].text.strip() == _NO_CARD and len(lines) == 1:
        return NpuMap(())
    columns = _columns(lines[0])
    npus: dict[int, Npu] = {}
    unusable = 0
    for line in lines[1:]:
        cells = _cells(line, columns)
        if cells["Chip Name"] in _NOT_NPUS:
            continue
        if cells["NPU ID"] == "-1":
            unusable += 1
            continue
        npu = _npu(line, cells)
        if npu.device_id in npus:
            raise line.not_understood(MAPPING, f"device {npu.device_id} only once")
        npus[npu.device_id] = npu
    return NpuMap(tuple(npus[key] for key in sorted(npus)), unusable)


def parse_list(text: str) -> NpuList:
    """The cards in the output of `npu-smi info -l`.

    Raises:
        ToolError: the tool says that it failed.
        NotUnderstoodError: a line is not in a known form, or the counts contradict each other.
    """
    refuse_failure(text, LIST)
    lines = within(lines_of(text), OF_LIST)
    if not lines:
        raise nothing_printed(LIST, "Total Count")
    if lines[0].text.strip() == _NO_CARD and len(lines) == 1:
        return NpuList((), 0)
    key, total = _field(lines[0])
    if key not in ("Total Count", "Card Count"):
        raise lines[0].not_understood(LIST, "Total Count or Card Count")
    npu_ids: list[int] = []
    chips: list[int] = []
    for line in lines[1:]:
        key, value = _field(line)
        if key == "NPU ID":
            npu_ids.append(_number(line, value))
        elif key == "Chip Count":
            chips.append(_number(line, value))
        elif key not in ("Product Name", "Serial Number"):
            raise line.not_understood(LIST, "NPU ID, Product Name, Serial Number or Chip Count")
    if _number(lines[0], total) != len(npu_ids):
        raise lines[0].not_understood(LIST, f"a count of {len(npu_ids)}, as many as are listed")
    return NpuList(tuple(npu_ids), sum(chips) if len(chips) == len(npu_ids) else None)


def refuse_failure(text: str, tool: str) -> None:
    """Raise what the tool itself says of its failure; say nothing of text without one.

    Raises:
        ToolBusyError: another program holds the device.
        ToolError: any other failure that the tool is known to print.
    """
    for line in lines_of(text):
        said = line.text.strip()
        if _DEVICE_IN_USE.match(said):
            raise ToolBusyError(f"{tool}: {said}")
        if _FAILURES.match(said):
            raise ToolError(f"{tool}: {said}")


def _columns(header: Line) -> tuple[str, ...]:
    columns = tuple(_HEADING.findall(header.text))
    known = set(columns)
    as_one_text = " ".join(columns).split() == header.text.split()
    needed = {"NPU ID", "Chip ID", "Chip Name"} <= known and known & {
        "Chip Logic ID",
        "Chip Phy-ID",
    }
    in_place = _BOARD_HEADER.match(header.text) and columns[-1:] == ("Chip Name",)
    if not (as_one_text and needed and in_place and len(known) == len(columns)):
        raise header.not_understood(MAPPING, _EXPECTED_HEADER)
    return columns


def _cells(line: Line, columns: tuple[str, ...]) -> dict[str, str]:
    words = line.text.split(maxsplit=len(columns) - 1)
    if len(words) != len(columns):
        raise line.not_understood(MAPPING, ", ".join(columns))
    return dict(zip(columns, (word.strip() for word in words), strict=True))


def _npu(line: Line, cells: dict[str, str]) -> Npu:
    ids = {name: cell for name, cell in cells.items() if name not in ("Chip Name", "Slot ID")}
    if not all(_ID.fullmatch(cell) for cell in ids.values()):
        raise line.not_understood(MAPPING, "numbers for " + ", ".join(ids))
    logic_id = int(ids["Chip Logic ID"]) if "Chip Logic ID" in ids else None
    assumed = "Chip Phy-ID" not in ids
    return Npu(
        npu_id=int(ids["NPU ID"]),
        chip_id=int(ids["Chip ID"]),
        device_id=int(ids["Chip Logic ID" if assumed else "Chip Phy-ID"]),
        device_id_assumed=assumed,
        logic_id=logic_id,
        chip_name=cells["Chip Name"],
    )


def _field(line: Line) -> tuple[str, str]:
    key, colon, value = line.text.partition(":")
    if not colon:
        raise line.not_understood(LIST, "name : value")
    return key.strip(), value.strip()


def _number(line: Line, value: str) -> int:
    if not _ID.fullmatch(value):
        raise line.not_understood(LIST, "a number")
    return int(value)


# Seen of drivers 24.1 (A2: no physical ids), 25.3 (A3: `Phy-ID` beside the chip) and in the
# manual of 950 (one id for an NPU). The name of a process is blank where it runs in a container.

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


def parse_table(text: str, device_ids: DeviceIds = _NONE) -> NpuTable:
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


# The four rows were seen on an A3 server (npu-smi 25.3); other products say that they do not have
# it. Of a server in no super pod the driver has the id -1, which is printed without its sign
# (hicann/driver `npu_chip_info_ext.c`; mind-cluster's device plugin takes ids below 0 for none).

SPOD_TOOL = "npu-smi info -t spod-info"

_DEVICE, _POD = "SDID", "Super Pod ID"
_NAMES = (_DEVICE, "Super Pod Size", _POD, "Server Index")
_SPOD_EXPECTED = f"{', '.join(_NAMES)}, each with a number"
_UNSUPPORTED = "This device does not support querying spod-info."
_NUMBER = re.compile(r"[0-9]{1,10}")
_NO_POD = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class SuperPodPlace:
    """A chip's place: the ids that a rank table of version 1.2 states."""

    super_device_id: int
    super_pod_id: int


def parse_spod_info(text: str) -> SuperPodPlace | None:
    """The place that the tool tells; None: the chip is in no super pod.

    Raises:
        ToolError: the tool says that it failed.
        NotUnderstoodError: a row is not known, is missing or is there twice.
    """
    refuse_failure(text, SPOD_TOOL)
    lines = within(lines_of(text), OF_LIST)
    if not lines:
        raise nothing_printed(SPOD_TOOL, _SPOD_EXPECTED)
    if len(lines) == 1 and lines[0].text.strip() == _UNSUPPORTED:
        return None
    found: dict[str, int] = {}
    for line in lines:
        name, _, value = (part.strip() for part in line.text.partition(":"))
        if name not in _NAMES or not _NUMBER.fullmatch(value) or name in found:
            raise line.not_understood(SPOD_TOOL, _SPOD_EXPECTED)
        found[name] = int(value)
    if len(found) != len(_NAMES):
        raise lines[-1].not_understood(SPOD_TOOL, _SPOD_EXPECTED)
    if found[_POD] == _NO_POD:
        return None
    return SuperPodPlace(super_device_id=found[_DEVICE], super_pod_id=found[_POD])
