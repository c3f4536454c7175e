"""`npu-smi info -t spod-info`: where a chip of A3 is in its super pod.

The four rows were seen on an A3 server (npu-smi 25.3); other products say that they do not have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ascendboot.errors import ToolError
from ascendboot.parse.npu_smi import refuse_failure
from ascendboot.parse.reading import lines_of, nothing_printed

TOOL = "npu-smi info -t spod-info"

_NAMES = {
    "SDID": "super_device_id",
    "Super Pod Size": "size",
    "Super Pod ID": "super_pod_id",
    "Server Index": "server_index",
}
_EXPECTED = f"{', '.join(_NAMES)}, each with a number"
_UNSUPPORTED = "This device does not support querying spod-info."
_NUMBER = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, kw_only=True)
class SuperPodPlace:
    """A chip's place: the ids that a rank table of version 1.2 states."""

    super_device_id: int
    super_pod_id: int
    size: int
    server_index: int


def parse(text: str) -> SuperPodPlace:
    """The place that the tool tells.

    Raises:
        ToolError: the device is in no super pod, or the tool says that it failed.
        NotUnderstoodError: a row is not known, is missing or is there twice.
    """
    refuse_failure(text, TOOL)
    lines = lines_of(text)
    if not lines:
        raise nothing_printed(TOOL, _EXPECTED)
    found: dict[str, int] = {}
    for line in lines:
        if line.text.strip() == _UNSUPPORTED:
            raise ToolError(f"{TOOL}: {_UNSUPPORTED}")
        name, _, value = (part.strip() for part in line.text.partition(":"))
        if name not in _NAMES or not _NUMBER.fullmatch(value) or _NAMES[name] in found:
            raise line.not_understood(TOOL, _EXPECTED)
        found[_NAMES[name]] = int(value)
    if len(found) != len(_NAMES):
        raise lines[-1].not_understood(TOOL, _EXPECTED)
    return SuperPodPlace(**found)
