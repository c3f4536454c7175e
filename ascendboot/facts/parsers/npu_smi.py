"""Output of npu-smi."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final, TypeAlias

from ascendboot.errors import ToolError
from ascendboot.facts.parsers.base import Line, ToolBusyError, cells_of, lines_of, some_lines
from ascendboot.model.job import NpuUse
from ascendboot.value import Value

_DEVICE_IN_USE = re.compile(r"dcmi mod\w+ initialized? failed, because the device is used")
_FAILURES = re.compile(
    r"dcmi mod\w+ initialized? failed|npu get board type failed|Failed to execute npu-smi"
    r"|Invalid card id|Error parameter of|Usage: npu-smi"
)


def refuse_failure(text: str, tool: str) -> None:
    """Raises the failure that the tool reports, if any: ToolBusyError or ToolError."""
    for line in lines_of(text):
        words = line.text.strip()
        if _DEVICE_IN_USE.match(words):
            raise ToolBusyError(f"{tool}: {words}")
        if _FAILURES.match(words):
            raise ToolError(f"{tool}: {words}")


# The column sets were seen in hicann/driver `npu_info_print.c` (910A/A2, A2/A3 newer, 950) and in
# the manuals. Columns are found by their headings, so other mixes of these headings are read too.

MAPPING = "npu-smi info -m"
_NO_CARD = "There is no NPU card on this server."
OF_MAPPING = re.compile(rf"\s*(?:NPU ID\s|-?[0-9]+\s|{_NO_CARD})")
_HEADING = re.compile("NPU ID|Slot ID|Chip ID|Chip Logic ID|Chip Phy-ID|Chip Name")
_ID = re.compile(r"[0-9]{1,4}")
_NOT_NPUS = ("Mcu", "3559")
"""Names of other chips on the card: its controller, and a camera processor."""


class Npu(Value, kw_only=True):
    """One NPU as `npu-smi info -m` lists it."""

    npu_id: int
    chip_id: int
    device_id: int
    """The physical id (/dev/davinciN), or the logic id if the tool shows no physical ones."""
    logic_id: int | None = None
    chip_name: str = ""


class NpuMap(Value):
    """All NPUs by physical id, and how many more the tool lists as not usable (NPU ID -1)."""

    npus: tuple[Npu, ...]
    unusable: int = 0

    @property
    def device_ids(self) -> dict[tuple[int, int], int]:
        """The physical ids by NPU id and chip id."""
        return {(npu.npu_id, npu.chip_id): npu.device_id for npu in self.npus}


def parse_mapping(text: str) -> NpuMap:
    """The NPUs in the output of `npu-smi info -m`."""
    refuse_failure(text, MAPPING)
    expected = "a header of NPU ID, Chip ID, Chip Logic ID or Chip Phy-ID, Chip Name"
    header, *rows = some_lines(text, MAPPING, expected, OF_MAPPING)
    if header.text.strip() == _NO_CARD and not rows:
        return NpuMap(())
    columns = _HEADING.findall(header.text)
    has_all = {"NPU ID", "Chip ID"} <= {*columns} and {"Chip Logic ID", "Chip Phy-ID"} & {*columns}
    in_place = columns[:1] == ["NPU ID"] and columns[-1:] == ["Chip Name"]
    is_whole = " ".join(columns).split() == header.text.split()
    if not (has_all and in_place and is_whole and len({*columns}) == len(columns)):
        raise header.not_understood()
    npus, unusable = dict[int, Npu](), 0
    for line in rows:
        words = line.text.strip().split(maxsplit=len(columns) - 1)
        if len(words) != len(columns):
            raise line.not_understood(", ".join(columns))
        cells = dict(zip(columns, words, strict=True))
        if cells["Chip Name"] in _NOT_NPUS:
            continue
        if cells["NPU ID"] == "-1":
            unusable += 1
            continue
        npu = _npu(line, cells)
        if npu.device_id in npus:
            raise line.not_understood(f"device {npu.device_id} only once")
        npus[npu.device_id] = npu
    return NpuMap(tuple(npus[key] for key in sorted(npus)), unusable)


def _npu(line: Line, cells: Mapping[str, str]) -> Npu:
    ids = {name: cell for name, cell in cells.items() if name not in ("Chip Name", "Slot ID")}
    if not all(_ID.fullmatch(cell) for cell in ids.values()):
        raise line.not_understood("numbers for " + ", ".join(ids))
    return Npu(
        npu_id=int(ids["NPU ID"]),
        chip_id=int(ids["Chip ID"]),
        device_id=int(ids["Chip Phy-ID" if "Chip Phy-ID" in ids else "Chip Logic ID"]),
        logic_id=int(ids["Chip Logic ID"]) if "Chip Logic ID" in ids else None,
        chip_name=cells["Chip Name"],
    )


# Seen with drivers 24.1 (A2: no physical ids), 25.3 (A3: `Phy-ID` beside the chip) and in the
# manual of 950 (one id for an NPU). The name of a process is blank if it runs in a container.

TOOL = "npu-smi info"

DeviceIds: TypeAlias = "Mapping[tuple[int, int], int]"
"""The physical ids by NPU id and chip id (`NpuMap.device_ids`), for a table that shows none.
Without either, the NPU's own id is used."""

_NONE: Final[DeviceIds] = {}
_HEADER = re.compile(r"\| NPU(?: ID|\s+Chip)\s*\| Process id\s*\| Process name\s*\|.*\|")
_CHIP = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\|")
_NPU = re.compile(r"\| ([0-9]+)\s+(?![0-9]+\s*\|)[^\s|]")
_ONE_ID = re.compile(r"\| NPU ID \| Name ")
_NPU_OF_ONE_ID = re.compile(r"\| ([0-9]+)\s*\| \S")
_ROW = re.compile(r"\| ([0-9]+)(?:\s+([0-9]+))?\s*\| ([0-9]+)\s*\|.*\|")
_CELSIUS = re.compile(r"\| \S+\s+(-?[0-9]{1,3})\s[^|]*\|\s*$")
_PERCENT = re.compile(r"\| ([0-9]{1,3})\s[^|]*\|\s*$")
_USAGE = re.compile(r"\b([0-9]{1,9})\s*/\s*([0-9]{1,9})\s*\|\s*$")
_FRAME = re.compile(r"[+=-]+|\| No running processes found in NPU [0-9]+\s*\|")
_LAST_FRAME = re.compile(r"\+(?:=+\+){2,}")
"""Below an NPU; the heading of the table of processes follows a frame of `-`."""


class NpuProcess(Value):
    """A process that uses an NPU, by its pid on the host side."""

    device_id: int
    pid: int


class Chip(Value):
    """One NPU: the tool's ids, the physical id (None: unknown), its health and use."""

    npu: int
    chip: int
    device_id: int | None
    health: str
    """As the tool prints it."""
    use: NpuUse


class NpuTable(Value):
    """The table of `npu-smi info`."""

    devices: Mapping[int, Chip]
    """All NPUs by physical id; empty if the table shows them in another form."""
    listed: tuple[NpuProcess, ...] | None
    """In the tool's order; may be empty. None: this npu-smi prints no table of processes."""

    @property
    def health(self) -> dict[int, str]:
        """The health of each device."""
        return {device_id: chip.health for device_id, chip in self.devices.items()}

    @property
    def uses(self) -> dict[int, NpuUse]:
        """How much each device is used."""
        return {device_id: chip.use for device_id, chip in self.devices.items()}

    @property
    def free_memory(self) -> dict[int, int]:
        """The free memory in MB, of devices that show theirs."""
        shown = {device_id: use for device_id, use in self.uses.items() if use.memory_total_mb}
        return {i: use.memory_total_mb - use.memory_used_mb for i, use in shown.items()}

    @property
    def processes(self) -> tuple[NpuProcess, ...]:
        """The processes that use devices; a ToolError if the tool does not print them."""
        if self.listed is None:
            raise ToolError(f"{TOOL} prints no table of processes")
        return self.listed


def parse_table(text: str, device_ids: DeviceIds = _NONE) -> NpuTable:
    """The NPUs and the processes that use them."""
    refuse_failure(text, TOOL)
    lines = some_lines(text, TOOL, "| NPU Chip | Process id | Process name | Process memory |")
    texts = [line.text.strip() for line in lines]
    at = next((n for n, words in enumerate(texts) if _HEADER.fullmatch(words)), None)
    chips = list(_chips(texts[:at], device_ids))
    known = [(chip.device_id, chip) for chip in chips if chip.device_id is not None]
    devices = dict(sorted(known, key=lambda item: item[0]))
    if len(devices) < len(known):
        devices = {}
    if at is None:
        if not chips or not _LAST_FRAME.fullmatch(texts[-1]):
            raise lines[-1].not_understood()
        return NpuTable(devices, None)
    ids = {(chip.npu, chip.chip): device_id for device_id, chip in known}
    processes = []
    for line in lines[at + 1 :]:
        if not _FRAME.fullmatch(line.text.strip()):
            row = line.match(_ROW)
            npu, chip_id = int(row[1]), int(row[2] or 0)
            processes.append(NpuProcess(ids.get((npu, chip_id), npu), int(row[3])))
    return NpuTable(devices, tuple(processes))


def _chips(rows: Sequence[str], device_ids: DeviceIds) -> Iterator[Chip]:
    """Either one row per NPU (950), or a row per NPU and below it one per chip.

    The row of a chip may show its physical id; the health is in the row above.
    """
    has_one_id = any(_ONE_ID.match(row) for row in rows)
    npu, above = 0, ""
    for row, below in zip_longest(rows, rows[1:], fillvalue=""):
        if has_one_id:
            if found := _NPU_OF_ONE_ID.match(row):
                npu = int(found[1])
                device_id = _physical(npu, 0, device_ids)
                yield Chip(npu, 0, device_id, _cell(row, 2), _use(row, below))
        elif found := _NPU.match(row):
            npu, above = int(found[1]), row
        elif found := _CHIP.match(row):
            chip = int(found[1])
            device_id = int(found[2]) if found[2] else _physical(npu, chip, device_ids)
            yield Chip(npu, chip, device_id, _cell(above or row, 1), _use(above, row))


def _use(above: str, row: str) -> NpuUse:
    """The use in the last cells of two rows: `watts celsius …` and `percent … used / total`.

    The last pair is the HBM, which HCCL uses. What does not exist is shown as `-` or NA.
    """
    celsius, percent, usage = _CELSIUS.search(above), _PERCENT.search(row), _USAGE.search(row)
    return NpuUse(
        utilization_percent=int(percent[1]) if percent else None,
        temperature_c=int(celsius[1]) if celsius else None,
        memory_used_mb=int(usage[1]) if usage else 0,
        memory_total_mb=int(usage[2]) if usage else 0,
    )


def _physical(npu: int, chip: int, device_ids: DeviceIds) -> int | None:
    return device_ids.get((npu, chip)) if device_ids else npu


def _cell(row: str, column: int) -> str:
    cells = row.strip("|").split("|")
    return cells[column].strip() if column < len(cells) else ""


# The four rows were seen on an A3 server (npu-smi 25.3); other products do not support the query.
# For a server in no super pod the driver has the id -1, which is printed without its sign
# (hicann/driver `npu_chip_info_ext.c`; mind-cluster's device plugin takes ids below 0 for none).

SPOD_TOOL = "npu-smi info -t spod-info"
_SPOD_NAMES = ("SDID", "Super Pod Size", "Super Pod ID", "Server Index")
OF_SPOD = re.compile(rf"\s+\S|(?:{'|'.join(_SPOD_NAMES)})\s*:")
"""The beginnings of an answer's lines; the tool's warnings begin otherwise."""
_UNSUPPORTED = "This device does not support querying spod-info."
_NO_POD = 2**32 - 1


class SuperPodPlace(Value, kw_only=True):
    """The ids of a chip in a rank table of version 1.2."""

    super_device_id: int
    super_pod_id: int


def parse_spod_info(text: str) -> SuperPodPlace | None:
    """The place of a chip; None: it is in no super pod."""
    refuse_failure(text, SPOD_TOOL)
    expected = f"{', '.join(_SPOD_NAMES)}, each with a number"
    lines = some_lines(text, SPOD_TOOL, expected, OF_SPOD)
    if len(lines) == 1 and lines[0].text.strip() == _UNSUPPORTED:
        return None
    found = cells_of(lines, {"|".join(_SPOD_NAMES): "[0-9]{1,10}"})
    if len(found) != len(_SPOD_NAMES):
        raise lines[-1].not_understood()
    device, pod = int(found["SDID"]), int(found["Super Pod ID"])
    return None if pod == _NO_POD else SuperPodPlace(super_device_id=device, super_pod_id=pod)


# Rows `name : value` of `npu-smi info -t …` for one chip: hicann/driver `npu_info_print.c`, samples
# of 910A servers (mind-cluster, 23.0.7) and of 950's manual. NA stands for what does not exist.

_OF_HEALTH = re.compile(
    r"\s*(?:NPU ID|Chip ID|Health(?: Status)?|Error (?:Code|Information)|)\s*:"
    "|Failed to get error information"
)
_MORE = re.compile(r"\s*:|Failed to get error information")
_HEALTH_VALUES = {
    "NPU ID|Chip ID": _ID.pattern,
    "Health(?: Status)?": "OK|Warning|Alarm|Critical|UNKNOWN",
    "Error Code": r"NA|[0-9A-Fa-f]{4,8}(?:\s+[0-9A-Fa-f]{4,8})*",
    "Error Information": ".*",
}


class DeviceHealth(Value):
    """The health of one NPU, with its error codes."""

    state: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    codes: tuple[str, ...] = ()
    """Hexadecimal, upper case, in the tool's order."""


def parse_device_health(text: str) -> DeviceHealth:
    """The health of one chip in the output of `npu-smi info -t health`."""
    tool = "npu-smi info -t health"
    refuse_failure(text, tool)
    states = _HEALTH_VALUES["Health(?: Status)?"].replace("|", ", ")
    expected = f"Health Status ({states}), Error Code, Error Information"
    lines = some_lines(text, tool, expected, _OF_HEALTH)
    found = cells_of([line for line in lines if not _MORE.match(line.text)], _HEALTH_VALUES)
    state, codes = found.get("Health Status", found.get("Health")), found.get("Error Code")
    if state is None or codes is None or "Error Information" not in found:
        raise lines[-1].not_understood()
    return DeviceHealth(state, () if codes == "NA" else tuple(codes.upper().split()))


_WHICH = "NPU ID|Chip ID|Chip Count"
_ECC = r"(?:HBM|DDR) (?:Single|Double) Bit [A-Za-z -]*(?:Count|Cnt)"
_OF_ECC = re.compile(rf"\s*(?:{_WHICH}|{_ECC})\s*:")


def parse_ecc(text: str) -> Mapping[str, int]:
    """The counts of memory errors of one chip by the tool's names, without rows with NA."""
    tool = "npu-smi info -t ecc"
    refuse_failure(text, tool)
    expected = "rows such as HBM Double Bit Error Count : 0, each name once"
    lines = some_lines(text, tool, expected, _OF_ECC)
    cells = cells_of(lines, {f"{_WHICH}|{_ECC}": "NA|-?[0-9]{1,12}"})
    found = {name: n for name, n in cells.items() if n != "NA" and name not in _WHICH.split("|")}
    if not found:
        raise lines[-1].not_understood()
    return {name: int(number) for name, number in found.items()}
