"""`npu-smi info -t spod-info`: where a chip of A3 is in its super pod.

The four rows were seen on an A3 server (npu-smi 25.3); other products say that they do not have it.
Of a server in no super pod the driver has the id -1, which is printed without its sign
(hicann/driver `npu_chip_info_ext.c`; mind-cluster's device plugin takes ids below 0 for none).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.parse.npu_smi import OF_LIST, refuse_failure
from ascendboot.parse.reading import lines_of, nothing_printed, within

TOOL = "npu-smi info -t spod-info"

_DEVICE, _POD = "SDID", "Super Pod ID"
_NAMES = (_DEVICE, "Super Pod Size", _POD, "Server Index")
_EXPECTED = f"{', '.join(_NAMES)}, each with a number"
_UNSUPPORTED = "This device does not support querying spod-info."
_NUMBER = re.compile(r"[0-9]{1,10}")
_NO_POD = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class SuperPodPlace:
    """A chip's place: the ids that a rank table of version 1.2 states."""

    super_device_id: int
    super_pod_id: int


def parse(text: str) -> SuperPodPlace | None:
    """The place that the tool tells; None: the chip is in no super pod.

    Raises:
        ToolError: the tool says that it failed.
        NotUnderstoodError: a row is not known, is missing or is there twice.
    """
    refuse_failure(text, TOOL)
    lines = within(lines_of(text), OF_LIST)
    if not lines:
        raise nothing_printed(TOOL, _EXPECTED)
    if len(lines) == 1 and lines[0].text.strip() == _UNSUPPORTED:
        return None
    found: dict[str, int] = {}
    for line in lines:
        name, _, value = (part.strip() for part in line.text.partition(":"))
        if name not in _NAMES or not _NUMBER.fullmatch(value) or name in found:
            raise line.not_understood(TOOL, _EXPECTED)
        found[name] = int(value)
    if len(found) != len(_NAMES):
        raise lines[-1].not_understood(TOOL, _EXPECTED)
    if found[_POD] == _NO_POD:
        return None
    return SuperPodPlace(super_device_id=found[_DEVICE], super_pod_id=found[_POD])
