"""Validates the placement of ranks and the super pods of a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ascendboot.ranktable.fields import (
    cut,
    kind,
    list_of,
    number,
    placeholder,
    taken_by_hccl,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ascendboot.ranktable.rules import Level, TableCheck
    from ascendboot.ranktable.text import JsonPath

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
    def path(self) -> JsonPath:
        """Where it stands."""
        return ("server_list", self.server, "device", self.device)


@dataclass
class PlacedRules:
    """Judges all devices of a `server_list` together."""

    judging: TableCheck
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


def rank_ids(judging: TableCheck, rows: Sequence[Row]) -> bool:
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


MOST_NAME = 127
_LIST = "super_pod_list"

_CHIP_SHIFT, _CHIP_MASK = 18, 0b1111
_DIE_SHIFT, _DIE_MASK = 16, 0b11
_DEVICE_MASK = 0xFFFF


def pod_of_servers(document: Mapping[str, object], judging: TableCheck) -> dict[str, str]:
    """The super pod of each server, by their ids; what is wrong with the list itself is noted."""
    if _LIST not in document:
        judging.say("pods-missing", (), "version 1.2, and no super_pod_list")
        return {}
    pods = list_of(judging, document, _LIST, ())
    of_servers: dict[str, str] = {}
    seen: set[str] = set()
    for index, pod in enumerate(pods or ()):
        path: JsonPath = (_LIST, index)
        if not isinstance(pod, dict):
            words = f"a super pod is {kind(pod)}, not an object"
            judging.say("wrong-type", path, words, name=_LIST)
            continue
        name = _pod_id(pod, path, seen, judging)
        for place, server in enumerate(list_of(judging, pod, "server_list", path) or ()):
            where = (*path, "server_list", place)
            if isinstance(server, dict):
                _server(server, where, name or f"#{index}", of_servers, judging)
            else:
                words = f"a server is {kind(server)}, not an object"
                judging.say("wrong-type", where, words, name="server_list")
    return of_servers


def check_super_pods(
    document: Mapping[str, object],
    rows: Sequence[Row],
    servers: Mapping[str, int],
    pods: Mapping[str, str],
    judging: TableCheck,
) -> None:
    """Note what is wrong with servers and devices in their super pods."""
    if not isinstance(document.get(_LIST), list):
        return
    for name, pod in pods.items():
        if name not in servers:
            words = f'super pod {pod} names "{cut(name)}", which is not in server_list'
            judging.say("pod-server", _place(document, name), words, value=name)
    for name, index in servers.items():
        if name not in pods:
            judging.say(
                "pod-servers",
                ("server_list", index),
                f'"{cut(name)}" is in no super pod',
                value=len(set(pods) & set(servers)),
                other=len(servers),
            )
    pod_of = {index: pods.get(name, "") for name, index in servers.items()}
    _super_devices(rows, pod_of, judging)
    _order(rows, pod_of, judging)


def _pod_id(
    pod: Mapping[str, object], path: JsonPath, seen: set[str], judging: TableCheck
) -> str | None:
    where = (*path, "super_pod_id")
    name = text_of(judging, pod, "super_pod_id", path)
    if name is None or placeholder(judging, name, "super_pod_id", path):
        return None
    if not name:
        judging.say("empty", where, "super_pod_id is empty", hccl="super_pod_id[] is invalid")
        return None
    if len(name.encode()) > MOST_NAME:
        length = len(name.encode())
        words = f"super_pod_id has {length} bytes, and {MOST_NAME} are the most"
        judging.say("too-long", where, words, length=length, most=MOST_NAME)
    if name in seen:
        judging.say("pod-twice", where, f'super pod "{cut(name)}" is there twice', value=name)
        return None
    seen.add(name)
    return name


def _server(
    server: Mapping[str, object],
    path: JsonPath,
    pod: str,
    of_servers: dict[str, str],
    judging: TableCheck,
) -> None:
    name = text_of(judging, server, "server_id", path)
    if name is None or placeholder(judging, name, "server_id", path):
        return
    if name in of_servers:
        words = f'"{cut(name)}" is in two super pods, this one is {pod}'
        judging.say("pod-twice", (*path, "server_id"), words, value=pod)
    of_servers[name] = "" if name in of_servers else pod


def _super_devices(rows: Sequence[Row], pod_of: Mapping[int, str], judging: TableCheck) -> None:
    seen: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        where = (*row.path, "super_device_id")
        text = row.super_device_id
        if text is None:
            words = "super_device_id is missing, and there are super pods"
            judging.say("missing", row.path, words, name="super_device_id")
        elif not isinstance(text, str):
            words = f"super_device_id is {kind(text)}, not a string"
            judging.say("not-a-string", where, words, name="super_device_id")
        elif (value := number(text)) is None:
            if not placeholder(judging, text, "super_device_id", row.path):
                words = f'super_device_id is "{cut(text)}"; a whole number is wanted'
                hccl = "" if taken_by_hccl(text) else None
                judging.say("not-digits", where, words, hccl=hccl, name=where[-1], value=cut(text))
        else:
            pod = pod_of.get(row.server)
            _super_device(value, row, seen[pod] if pod else set(), where, judging)


def _super_device(
    value: int, row: Row, seen: set[int], where: JsonPath, judging: TableCheck
) -> None:
    if value in seen:
        words = f"super_device_id {value} is there twice in its super pod"
        judging.say("super-device-twice", where, words, value=hex(value), pod="")
    seen.add(value)
    if value > _DEVICE_MASK and row.device_id is not None and not _fits(value, row.device_id):
        judging.say(
            "super-device-id",
            where,
            f"super_device_id {value} is of device {value & _DEVICE_MASK}, module "
            f"{value >> _CHIP_SHIFT & _CHIP_MASK}, die {value >> _DIE_SHIFT & _DIE_MASK}; "
            f"the device_id is {row.device_id}",
        )


def _fits(value: int, device_id: int) -> bool:
    chip, die = value >> _CHIP_SHIFT & _CHIP_MASK, value >> _DIE_SHIFT & _DIE_MASK
    return (value & _DEVICE_MASK, chip, die) == (device_id, device_id // 2, device_id % 2)


def _order(rows: Sequence[Row], pod_of: Mapping[int, str], judging: TableCheck) -> None:
    by_pod: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row.rank is not None:
            by_pod[pod_of.get(row.server, "")].append(row.rank)
    for pod, ranks in by_pod.items():
        if pod and max(ranks) - min(ranks) != len(ranks) - 1:
            words = f"the ranks of super pod {cut(pod)} are not one after the other"
            judging.say("pod-order", (_LIST,), words)


def _place(document: Mapping[str, object], name: str) -> JsonPath:
    """Where the list of super pods names a server."""
    pods = document[_LIST]
    for index, pod in enumerate(pods if isinstance(pods, list) else ()):
        for place, server in enumerate(pod.get("server_list") or ()):
            if isinstance(server, dict) and server.get("server_id") == name:
                return (_LIST, index, "server_list", place, "server_id")
    return (_LIST,)
