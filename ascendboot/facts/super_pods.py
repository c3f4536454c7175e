"""Where each chip of an A3 server is in its super pod: half a second each, so asked by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.errors import ToolError
from ascendboot.facts.api import ENDED_BY_TIMEOUT, Fact, part_of, sections_of
from ascendboot.facts.scripts import CALL_TIMEOUT_S, COMMON, VENDOR_TOOLS
from ascendboot.parse import npu_smi, spod_info
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.parse.npu_smi import NpuMap
    from ascendboot.parse.spod_info import SuperPodPlace
    from ascendboot.transport.api import Result

SCRIPT = (
    COMMON
    + VENDOR_TOOLS
    + rf"""
if locate npu-smi /usr/local/bin/npu-smi /usr/local/sbin/npu-smi; then
  section npu-smi 0 "$found"
  for chip in "$@"; do
    tell "$chip" merged timeout -k 1 {CALL_TIMEOUT_S} "$found" info -t spod-info \
      -i "${{chip%/*}}" -c "${{chip#*/}}"
  done
else
  section npu-smi 127 'npu-smi is neither on PATH nor in /usr/local/bin or /usr/local/sbin'
fi
section end 0 ''
"""
)
"""Arguments: CARD/CHIP, each in the numbers of npu-smi."""

_TOOL = "the script that asks for super pods"


def super_pod_question(npus: NpuMap) -> Fact[Mapping[int, SuperPodPlace]]:
    """The places of a node's chips in their super pod, by physical id."""
    chips = {npu.device_id: f"{npu.npu_id}/{npu.chip_id}" for npu in npus.npus}
    command = Command(
        argv=("bash", "-c", SCRIPT, "ascendboot", *chips.values()),
        purpose="ask for the super pod of the NPUs",
        effect=Effect.READ,
        timeout_s=200.0,
    )

    def parse(result: Result) -> Mapping[int, SuperPodPlace]:
        sections = sections_of(result, _TOOL)
        part_of(sections, "npu-smi", _TOOL)
        places = {}
        for device_id, chip in chips.items():
            if chip in sections:
                section = sections[chip]
                npu_smi.refuse_failure(section.text, spod_info.TOOL)
                if section.exit_code in ENDED_BY_TIMEOUT:
                    raise ToolError(f"{spod_info.TOOL}: no answer for device {device_id}")
                # what it does not support it says with an exit code of its own
                places[device_id] = spod_info.parse(section.text)
            else:
                part_of(sections, chip, _TOOL)
        return places

    return Fact("super_pods", command, parse)
