"""`npu-smi info -m` and `info -l`: which NPUs a node has.

The column sets were seen in hicann/driver `npu_info_print.c` (910A/A2, A2/A3 newer, 950) and in the
manuals; columns are found by their headings, so a further mix of the same headings is read too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import ToolError
from ascendboot.parse.reading import Line, ToolBusyError, lines_of, nothing_printed, within

MAPPING = "npu-smi info -m"
LIST = "npu-smi info -l"

_HEADINGS = ("NPU ID", "Slot ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")
_HEADER = re.compile(r"\s*NPU ID\s")
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
    in_place = _HEADER.match(header.text) and columns[-1:] == ("Chip Name",)
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
