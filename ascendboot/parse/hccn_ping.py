"""`hccn_tool -i N -ping -g address X` and `-hccs_ping`: whether a device reaches an address.

Texts as in hicann/driver `ds_net_ext.c` (910, A2, A3). The tool ends with an error whenever a
packet is lost, and then says "Command execute failed!" behind what it printed of the packets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import ToolError
from ascendboot.parse.hccn_tool import HccnToolError, refuse_failure
from ascendboot.parse.reading import around, lines_of, nothing_printed, within

if TYPE_CHECKING:
    from ascendboot.parse.reading import Line

_HEAD = re.compile(r"device [0-9]{1,2} PING6? \S+")
_ANSWER = re.compile(r"recv seq=[0-9]+,\s*time=[0-9.]+ms|This pkt ping success!")
_LATE = re.compile(r"recv time out seq\b.*")
_REFUSED = re.compile(
    r"(?:From \S+ (?:icmp_seq=[0-9]+ )?)?(Destination Host Unreachable|Message too long)"
    r"|(This pkt (?:send fail|check recv msg fail|ping not start to send)!)"
)
_SUM = re.compile(
    r"([0-9]+) packets transmitted, ([0-9]+) received, ([0-9]+\.[0-9]{2})% packets? loss"
)
_NO_LOSS = "0.00"
KNOWN = re.compile(
    r"\s*(?:device |recv |From |Destination |Message too long|This pkt |[0-9]+ packets "
    r"|Command execute failed|Cmd execute failed)"
)
"""How the lines of an answer begin."""
_AFTERWARDS = ("Command execute failed!", "Cmd execute failed!")
_EXPECTED = "N packets transmitted, N received, X.XX% packet loss"


@dataclass(frozen=True)
class Ping:
    """How many packets came back, and the tool's own word for what hindered them."""

    sent: int
    received: int
    hindrance: str = ""

    @property
    def is_well(self) -> bool:
        """Every packet came back."""
        return self.sent > 0 and self.received == self.sent and not self.hindrance

    @property
    def seen(self) -> str:
        """What came back, in words."""
        counts = f"{self.sent} packets transmitted, {self.received} received"
        return f"{counts}: {self.hindrance}" if self.hindrance else counts


def parse(text: str, tool: str = "hccn_tool -ping -g") -> Ping:
    """What became of the packets.

    Raises:
        HccnToolError, ToolBusyError: the tool says that it could not send any.
        NotUnderstoodError: a line is not in a known form, or the counts are missing.
    """
    lines = _answer(text, tool)
    sums: list[re.Match[str]] = []
    hindrances: list[str] = []
    failures: list[Line] = []
    for line in lines:
        said = line.text.strip()
        if match := _SUM.fullmatch(said):
            sums.append(match)
        elif match := _REFUSED.fullmatch(said):
            hindrances.append(match[1] or match[2])
        elif said in _AFTERWARDS:
            failures.append(line)
        elif not (_HEAD.fullmatch(said) or _ANSWER.fullmatch(said) or _LATE.fullmatch(said)):
            refuse_failure(said, tool)
            raise line.not_understood(tool, "the answer to a packet, or a failure that is known")
    if len(sums) == 1:
        return _counted(sums[0], hindrances, has_failed=bool(failures))
    if failures:
        raise HccnToolError(tool, "failed", failures[0].text.strip())
    if hindrances:
        raise ToolError(f"{tool}: {hindrances[0]}")
    raise lines[-1].not_understood(tool, _EXPECTED)


def _answer(text: str, tool: str) -> tuple[Line, ...]:
    """The lines of the answer, where the tool says around them nothing of a failure."""
    for line in around(text, KNOWN):
        refuse_failure(line.text.strip(), tool)
    lines = within(lines_of(text), KNOWN)
    if not lines:
        raise nothing_printed(tool, _EXPECTED)
    return lines


def _counted(match: re.Match[str], hindrances: list[str], *, has_failed: bool) -> Ping:
    sent, received = int(match[1]), int(match[2])
    if not hindrances and sent == received and (has_failed or match[3] != _NO_LOSS):
        hindrances = ["the tool calls it a failure all the same"]
    return Ping(sent, received, hindrances[0] if hindrances else "")
