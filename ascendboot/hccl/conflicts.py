"""Variables that are right by themselves and contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.hccl.kinds import Ports
from ascendboot.hccl.variables import why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTRA_ROCE = "HCCL_INTRA_ROCE_ENABLE"
_MODE = "HCCL_OP_EXPANSION_MODE"
_PORTS_OF_BASE = 32
_LONGEST_S = {"AIV": 1091, "CCU_SCHED": 65535, "CCU_MS": 65535}
"""How long HCCL waits in a step at most, by where that is worked out (HCCL's manual, CANN 9)."""


@dataclass(frozen=True)
class Problem:
    """Two or more variables that contradict each other."""

    names: tuple[str, ...]
    """Those concerned; the first that somebody stated is to blame."""
    text: str


def conflicts(env: Mapping[str, str]) -> Iterator[Problem]:
    """What contradicts what in the whole environment of a job; single wrong values are left out."""
    sound = {name: value for name, value in env.items() if why_not(name, value) is None}
    yield from _timeouts(sound)
    yield from _whitelist(sound)
    yield from _roads(sound)
    yield from _ports(sound)


def hccl_ports(env: Mapping[str, str]) -> list[range]:
    """The ports of the host that HCCL will take, where it does not choose them itself."""
    stated = env.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if stated is not None:
        return Ports().ranges(stated) or []
    base = env.get("HCCL_IF_BASE_PORT", "60000")
    if why_not("HCCL_IF_BASE_PORT", base):
        return []
    return [range(int(base), int(base) + _PORTS_OF_BASE)]


def _timeouts(env: Mapping[str, str]) -> Iterator[Problem]:
    """HCCL's manual (debug_thinking): ranks must wait longer for a step than for each other."""
    connect, execute = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"
    wait, step = int(env.get(connect, "120")), int(env.get(execute, "1836"))
    mode = env.get(_MODE, "")
    most = _LONGEST_S.get(mode)
    if most and step > most and execute in env:
        yield Problem(
            (execute, _MODE),
            f"{step} s is more than the {most} s that {_MODE} {mode} allows; write less, or "
            "another mode",
        )
    # there 0 is not for ever, and counts as the most
    in_aiv = mode == "AIV" and (step == 0 or step >= _LONGEST_S[mode])
    if in_aiv:
        step = _LONGEST_S[mode]
    if step and wait >= step:
        why = f", the most in {_MODE} {mode}" if in_aiv else ""
        yield Problem(
            (connect, execute, _MODE) if in_aiv else (execute, connect),
            f"{connect} ({wait} s) must be less than {execute} ({step} s{why}): else ranks give up "
            "a step while others are still being waited for at the start; "
            f"{'lower the first' if in_aiv else 'raise the second or lower the first'}",
        )


def _whitelist(env: Mapping[str, str]) -> Iterator[Problem]:
    if env.get("HCCL_WHITELIST_DISABLE") == "0" and "HCCL_WHITELIST_FILE" not in env:
        yield Problem(
            ("HCCL_WHITELIST_DISABLE",),
            "0 turns the list of allowed addresses on, and HCCL_WHITELIST_FILE does not say which; "
            "state it, or write 1",
        )


def _roads(env: Mapping[str, str]) -> Iterator[Problem]:
    """Inside a server: RoCE or PCIe; both 0 is PCIe, one of them alone is refused (hcomm)."""
    roce, pcie = INTRA_ROCE, "HCCL_INTRA_PCIE_ENABLE"
    if env.get(roce) == "1" and env.get(pcie) == "1":
        yield Problem((roce, pcie), f"{pcie} is 1 as well; set one of the two to 0")
    for name, other in ((roce, pcie), (pcie, roce)):
        if env.get(name) == "0" and other not in env:
            yield Problem((name,), f"0 alone leaves no way between NPUs of a server; set {other}")


def _ports(env: Mapping[str, str]) -> Iterator[Problem]:
    ports, base = "HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_IF_BASE_PORT"
    if ports in env and base in env:
        yield Problem((base, ports), f"{ports} counts before {base}; keep one of the two")
