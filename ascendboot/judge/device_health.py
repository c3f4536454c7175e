"""What the health that npu-smi tells of devices means for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.judge.finding import Finding, devices

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ascendboot.judge.finding import Level

_WELL = "OK"
_LEVELS: Mapping[str, Level] = {
    "Critical": "error",
    "Alarm": "error",
    "Warning": "warning",
    "UNKNOWN": "warning",
}
"""UNKNOWN: the device is not there, or not started."""


def health_findings(
    id_: str, node: str, used: Collection[int], health: Mapping[int, str], remedy: str
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


def not_understood(
    id_: str, node: str, used: Collection[int], health: Mapping[int, str], remedy: str
) -> Iterator[Finding]:
    """The used devices of a node of which another word is said; the others are judged by theirs."""
    known = (_WELL, *_LEVELS)
    words = {i: health[i] for i in sorted(used) if health.get(i, _WELL) not in known}
    if words:
        said = " and ".join(f'"{word}"' for word in dict.fromkeys(words.values()))
        yield Finding(
            id=id_,
            level="warning",
            nodes=(node,),
            text=f"could not see how {devices(tuple(words))} {'is' if len(words) == 1 else 'are'}: "
            f"npu-smi info says {said}, none of {', '.join(known)}",
            remedy=remedy,
        )
