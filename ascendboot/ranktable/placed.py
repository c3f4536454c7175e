"""Rules of which rank is where: numbers, order, equal servers, and what jobs want of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.problem import Judging
    from ascendboot.ranktable.rule import Level

RINGS = (frozenset(range(4)), frozenset(range(4, 8)))
"""The devices of a 910 server that are joined with each other."""

_SETS = (1, 2, 4, 8)
_OF_ONE_RING = 4
_NAMED = 8


class Row(NamedTuple):
    """A device: its server's and its own position in the document, its rank, its id."""

    server: int
    device: int
    rank: int | None
    device_id: int | None
    super_device_id: object = None

    @property
    def path(self) -> Path:
        """Where it stands."""
        return ("server_list", self.server, "device", self.device)


@dataclass
class PlacedRules:
    """Judges all devices of a `server_list` together."""

    judging: Judging
    rows: list[Row] = field(default_factory=list)
    is_complete: bool = True
    """Whether every server and device could be read: else their numbers tell nothing."""

    def finish(self, servers: Mapping[str, int]) -> None:
        """Note what is wrong; `servers` are the positions of the servers by id."""
        if not self.is_complete:
            return
        by_server: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            by_server[row.server].append(row)
        if all(row.rank is not None for row in self.rows) and rank_ids(self.judging, self.rows):
            self._order(by_server)
            self._mindspore(by_server, servers)
            if len(by_server) > 1 and all(row.device_id is not None for row in self.rows):
                self._equal_devices(by_server)
        self._equal_counts(by_server)
        if self.judging.product in (None, "910"):
            self._device_sets(by_server)

    def _order(self, by_server: Mapping[int, Sequence[Row]]) -> None:
        for server, rows in by_server.items():
            ranks = sorted(_ranks(rows))
            if ranks[-1] - ranks[0] != len(ranks) - 1:
                self.judging.say(
                    "rank-order",
                    ("server_list", server),
                    f"its ranks, {_some(ranks)}, are not one after the other",
                )

    def _mindspore(
        self, by_server: Mapping[int, Sequence[Row]], servers: Mapping[str, int]
    ) -> None:
        if self.judging.job != "mindspore" or len(servers) != len(by_server):
            return
        before = -1
        for name in sorted(servers):
            first = min(_ranks(by_server[servers[name]]))
            if first < before:
                self.judging.say(
                    "mindspore-order",
                    ("server_list", servers[name]),
                    f'"{name}" comes later as text than a server whose ranks are higher',
                )
                return
            before = first

    def _equal_counts(self, by_server: Mapping[int, Sequence[Row]]) -> None:
        counts = Counter(len(rows) for rows in by_server.values())
        if len(counts) < 2:  # noqa: PLR2004  two are needed to differ
            return
        usual = counts.most_common(1)[0][0]
        odd = next(server for server, rows in by_server.items() if len(rows) != usual)
        level: Level = "error" if self.judging.product in ("910", "310p") else "warning"
        others = ", ".join(
            f"{n} {'has' if n == 1 else 'have'} {c}"
            for c, n in sorted(counts.items(), reverse=True)
        )
        self.judging.say(
            "device-count",
            ("server_list", odd, "device"),
            f"servers have different numbers of devices: {others}",
            level=level,
        )

    def _equal_devices(self, by_server: Mapping[int, Sequence[Row]]) -> None:
        first: list[int | None] | None = None
        for server, rows in by_server.items():
            by_rank = sorted(rows, key=lambda row: row.rank or 0)
            devices = [row.device_id for row in by_rank]
            if first is None:
                first = devices
            elif devices != first:
                self.judging.say(
                    "rec-sdk-devices",
                    ("server_list", server, "device"),
                    f"the devices are {_some(devices)}, those of the first server {_some(first)}",
                    level="error" if self.judging.job == "rec-sdk-tf" else "warning",
                )
                return

    def _device_sets(self, by_server: Mapping[int, Sequence[Row]]) -> None:
        level = self.judging.on("910") or "error"
        for server, rows in by_server.items():
            devices = {row.device_id for row in rows if row.device_id is not None}
            count = len(rows)
            if count in _SETS and not _crosses_rings(devices):
                continue
            if self.judging.product is None and (count > max(_SETS) or max(devices, default=0) > 7):  # noqa: PLR2004
                continue  # not a 910 server
            words = (
                f"{_some(sorted(devices))} are of both rings, 0-3 and 4-7"
                if count in _SETS
                else f"{count} devices take part"
            )
            self.judging.say(
                "device-set",
                ("server_list", server, "device"),
                f"{words}; 910 wants 1, 2, 4 or 8 of one ring",
                level=level,
            )


def rank_ids(judging: Judging, rows: Sequence[Row]) -> bool:
    """Whether the ranks are 0 to N-1, each once; what is not was noted."""
    ranks = _ranks(rows)
    size = len(ranks)
    at: dict[int, int] = {}
    for position, rank in enumerate(ranks):
        at.setdefault(rank, position)
    if len(at) == size and max(at, default=0) < size:
        return True
    missing = _some([rank for rank in range(size) if rank not in at])
    for position, rank in enumerate(ranks):
        if rank < size and at[rank] == position:
            continue
        problem = "is there twice" if rank < size else "is too high"
        judging.say(
            "rank-ids",
            (*rows[position].path, "rank_id"),
            f"rank_id {rank} {problem}: {size} ranks are numbered 0 to {size - 1}; missing: "
            f"{missing}",
            index=position,
            value=rank,
        )
    return False


def _ranks(rows: Sequence[Row]) -> list[int]:
    return [row.rank for row in rows if row.rank is not None]


def _crosses_rings(devices: set[int]) -> bool:
    return 1 < len(devices) <= _OF_ONE_RING and not any(devices <= ring for ring in RINGS)


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:_NAMED]))
    return shown if len(values) <= _NAMED else f"{shown}, …"
