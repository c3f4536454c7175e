"""Whom a rank's output names as the peer that it misses, and which rank or node of the job that is.

Forms: HCCL's logs and error codes (hicann/hccl, docs; mind-cluster's test logs), PyTorch's
monitored barrier and stores, gloo's pairs, Open MPI's help texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from ascendboot.launch.plan import LaunchPlan, PlannedRank
    from ascendboot.launch.record import JobRecord

_ADDRESS: Final = r"[0-9A-Fa-f.:]{2,45}"
_ZONE: Final = r"(?:%[\w.-]{1,40})?"
_RANKS: Final = r"\d[\d, ]{0,4000}"
_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        r"Waiting peer rank: (?P<ranks>\d{1,7})",
        rf"[Rr]emote rank:? ?\[(?P<ranks>{_RANKS})\]",
        (
            rf"[Rr]emote_?[Uu]serrank\[(?P<ranks>\d{{1,7}})\]"
            rf"(?:-remote_?[Ii]p_?[Aa]ddr\[(?P<ip>{_ADDRESS}){_ZONE}(?:/(?P<device>\d{{1,5}}))?\])?"
        ),
        rf'List of unconnected ranks: "?\[(?P<ranks>{_RANKS})\]',
        rf"Failed to connect agent\[(?P<ranks>{_RANKS})\]",
        # A row of LINK_ERROR_INFO: dest_ip(rank), with or without its port, then src_ip(rank).
        (
            rf"\|\s{{0,40}}(?P<ip>{_ADDRESS}){_ZONE}\((?P<ranks>\d{{1,7}})\)\s{{0,40}}\|"
            rf"(?:\s{{0,40}}\d{{1,20}}\s{{0,40}}\|)?\s{{0,40}}{_ADDRESS}{_ZONE}\("
        ),
        (
            rf"Peer information: server (?P<host>[^\s,]{{1,253}}), device ID (?P<device>\d{{1,5}}),"
            rf" device IP (?P<ip>{_ADDRESS})"
        ),
        (
            r"remoteIP\{server\[(?P<host>[^\]]{1,253})\],deviceId\[[^\]]{0,45}\],"
            rf"deviceIp\[(?P<ip>{_ADDRESS}){_ZONE}\]"
        ),
        (
            r"(?:rank |Location\[IP/ID\]:)\[(?P<host>[^\]/]{1,253})/(?P<device>\d{1,5})\]"
            r"(?= status\[|, Arrival)"
        ),
        (
            r"fails to connect to dstRank \(server (?P<host>[^\s,]{1,253}), device ID"
            r" (?P<device>\d{1,5})\)"
        ),
        rf"connect server\[(?P<host>{_ADDRESS}){_ZONE} : \d{{1,5}}\] failed",
        r"send/recv from rank (?P<ranks>\d{1,7})",
        rf"Ranks? (?P<ranks>{_RANKS}) failed to pass monitoredBarrier",
    )
)
"""What is only written about a peer that is missed."""
_PLACES: Final = tuple(
    re.compile(form)
    for form in (
        r"(?<!local=)(?<!addr=)\[(?P<host>[\w.:-]{1,253})\]:\d{1,5}(?!\d)",
        r"any network address of \((?P<host>[\w.:-]{1,253}), \d{1,5}\)",
        r"connect\(\) to (?P<host>[\w.-]{1,253})(?::\d{1,5})? failed",
        (
            r"Peer host(?:name)?: {1,40}(?P<host>[\w.-]{1,253})"
            r"(?: {1,10}\(\[\[\d{1,10},\d{1,10}\],(?P<ranks>\d{1,7})\]\))?"
        ),
    )
)
"""Who is at the other end, of whatever a line is about."""
_OWN: Final = re.compile(
    r"(?:[Ll]ocal_?[Uu]serrank|local rank|rankId)\[(\d{1,7})\]"
    r"|\|\s{0,40}[0-9A-Fa-f.:]{2,45}(?:%[\w.-]{1,40})?\((\d{1,7})\)\s{0,40}\|"
    r"\s{0,40}(?:\d{1,20}\s{0,40}\|)?\s{0,40}(?:server|client)"
)
"""By which number the rank goes that writes."""
_SIZE: Final = re.compile(r"(?:rankSize|rankNum|rankNum is|rank num) ?\[(\d{1,7})\]")
_GROUP: Final = re.compile(r"\bgroup_name_\d")
_CONNECTED: Final = re.compile(r"connected rankinfo\[LINE \d{1,5}\]: ([\[\]\d, ]{1,8000})")
_WHOLE: Final = re.compile(r"[\[ ,](\d{1,16})(?=[\], ])")


@dataclass(frozen=True)
class Named:
    """Whom one output names as missing; only what belongs to the job."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    """Where only an address is named: some rank there."""


def names_a_peer(text: str) -> bool:
    """Whether something in these words is only written about a peer that is missed."""
    return any(form.search(text) for form in _FORMS)


class Peers:
    """The ranks and nodes of one job, by what outputs call them."""

    def __init__(self, plan: LaunchPlan | JobRecord) -> None:
        self._size = len(plan.ranks)
        self._by_ip: dict[str, set[int]] = {}
        self._by_device = {(rank.node, rank.device_id): rank.rank for rank in plan.ranks}
        for rank in plan.ranks:
            if rank.device_ip:
                self._by_ip.setdefault(rank.device_ip.lower(), set()).add(rank.rank)
        self._nodes = {
            name.lower(): node for node, names in plan.addresses.items() for name in names
        }

    def named_in(self, text: str, rank: PlannedRank) -> Named:
        """Whom the output of `rank` names as missing.

        An address of a device decides before a number: numbers are those of one communicator.
        They count only where nothing shows that it is another than that of all ranks.
        """
        are_of_the_job = self._numbers_count(text, rank.rank)
        ranks: set[int] = set()
        nodes: set[str] = set()
        for match in _matches(text):
            parts = match.groupdict()
            place = self._at(parts)
            if place is not None:
                ranks.add(place)
            elif parts.get("ranks"):
                ranks |= self._numbers(parts["ranks"]) if are_of_the_job else set()
            elif node := self._nodes.get((parts.get("host") or "").lower()):
                nodes.add(node)
        if are_of_the_job:
            ranks |= self._not_connected(text)
        return Named(tuple(sorted(ranks - {rank.rank})), tuple(sorted(nodes)))

    def _at(self, parts: dict[str, str | None]) -> int | None:
        """The rank of a device's address, or of a server's address and a device id."""
        ip = (parts.get("ip") or "").lower()
        of_ip = self._by_ip.get(ip, set())
        if len(of_ip) == 1:
            return next(iter(of_ip))
        node = self._nodes.get((parts.get("host") or ip).lower())
        device = parts.get("device")
        return None if node is None or not device else self._by_device.get((node, int(device)))

    def _numbers_count(self, text: str, own: int) -> bool:
        owns = {int(a or b) for a, b in _OWN.findall(text)}
        sizes = {int(size) for size in _SIZE.findall(text)}
        return owns <= {own} and sizes <= {self._size} and not _GROUP.search(text)

    def _numbers(self, listed: str | None) -> set[int]:
        numbers = (part.strip() for part in (listed or "").split(","))
        return {n for part in numbers if part.isdigit() and (n := int(part[-9:])) < self._size}

    def _not_connected(self, text: str) -> set[int]:
        """The others than those that came to the root, where it says how many should have."""
        lines = _CONNECTED.findall(text)
        if not lines or not _SIZE.search(text):
            return set()
        came = {int(number) for line in lines for number in _WHOLE.findall(line)}
        return set(range(self._size)) - came


def _matches(text: str) -> Iterator[re.Match[str]]:
    for form in (*_FORMS, *_PLACES):
        yield from form.finditer(text)
