"""What the health that npu-smi tells of devices means for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding, devices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ascendboot.judge.finding import Level
    from ascendboot.parse.npu_table import Health

_LEVELS: Mapping[Health, Level] = {
    "Critical": "error",
    "Alarm": "error",
    "Warning": "warning",
    "UNKNOWN": "warning",
}


def health_findings(
    id_: str, node: str, used: Collection[int], health: Mapping[int, Health], remedy: str
) -> Iterator[Finding]:
    """Which of the used devices of a node are not well, those of one word together."""
    for word, level in _LEVELS.items():
        ill = sorted(device_id for device_id in used if health.get(device_id) == word)
        if ill:
            yield Finding(
                id=id_,
                level=level,
                nodes=(node,),
                text=f"npu-smi info calls {devices(ill)} {word}, not OK",
                remedy=remedy,
            )
