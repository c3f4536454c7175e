"""Compares a rank table with a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ascendboot.errors import RankTableError
from ascendboot.ranktable import text
from ascendboot.ranktable.fields import number, packed
from ascendboot.ranktable.read import unnumbered_ranks
from ascendboot.ranktable.rules import CALLED, RULE_OF, Problem
from ascendboot.ranktable.text import Source
from ascendboot.ranktable.validate import (
    NAMED,
    PRODUCTS_OF,
    generation_of,
    table_in,
    validate_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.ranktable.formats import LevelRank
    from ascendboot.ranktable.rules import Job, Product
    from ascendboot.ranktable.text import JsonPath
    from ascendboot.ranktable.validate import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSeen:
    """What a device, and the file that sets it up at boot, say of its address."""

    device_ip: str | None
    """As hccn_tool tells it; several are joined by commas."""
    in_conf: str | None = None
    """As /etc/hccn.conf has it; None where the file says nothing of it, or was not read."""
    super_device_id: int | None = None


@dataclass(frozen=True, slots=True)
class ServerSeen:
    """A node that has a server's id, and its devices by physical id."""

    node: str
    devices: Mapping[int, DeviceSeen]
    places: Mapping[int, LevelRank] = field(default_factory=dict)
    """Of 950: where each is in the network, by its root info."""


def against(
    document: Mapping[str, object], servers: Mapping[str, ServerSeen]
) -> tuple[Problem, ...]:
    """Where a table contradicts what the nodes say."""
    found = [*_ranks(document, servers)]
    for path, name, device, where in _devices(document):
        server = servers.get(name)
        if server is None:
            known = ", ".join(servers)
            text = f'server_id "{name}" is no node of the cluster; its nodes have {known}'
            problem = Problem(id="server-unknown", level="error", path=path, text=text)
            if problem not in found[-1:]:
                found.append(problem)
        else:
            found += _stale(server, device, where)
    return tuple(found)


def _devices(
    document: Mapping[str, object],
) -> Iterator[tuple[JsonPath, str, Mapping[str, object], JsonPath]]:
    """Path of the server, its id, a device of it, and the path of that."""
    for path, server, name in (*_servers(document), *_instances(document)):
        devices = server.get(name)
        server_id = server.get("server_id")
        for index, device in enumerate(devices if isinstance(devices, list) else ()):
            if isinstance(device, dict) and isinstance(server_id, str):
                yield (*path, "server_id"), server_id, device, (*path, name, index)


def _servers(
    document: Mapping[str, object],
) -> Iterator[tuple[JsonPath, Mapping[str, object], str]]:
    servers = document.get("server_list")
    for index, server in enumerate(servers if isinstance(servers, list) else ()):
        if isinstance(server, dict):
            yield ("server_list", index), server, "device"


def _instances(
    document: Mapping[str, object],
) -> Iterator[tuple[JsonPath, Mapping[str, object], str]]:
    groups = document.get("group_list")
    for at, group in enumerate(groups if isinstance(groups, list) else ()):
        instances = group.get("instance_list") if isinstance(group, dict) else None
        for index, instance in enumerate(instances if isinstance(instances, list) else ()):
            if isinstance(instance, dict):
                yield ("group_list", at, "instance_list", index), instance, "devices"


def _stale(server: ServerSeen, device: Mapping[str, object], path: JsonPath) -> Iterator[Problem]:
    device_id = _number(device.get("device_id"))
    if device_id is None:
        return
    seen = server.devices.get(device_id)
    if seen is None:
        there = ", ".join(map(str, sorted(server.devices))) or "none"
        text = f"{server.node} has no device {device_id}; it has {there}"
        yield Problem(id="device-gone", level="error", path=(*path, "device_id"), text=text)
        return
    stated = device.get("device_ip")
    where = (*path, "device_ip")
    if isinstance(stated, str) and stated:
        name = f"{server.node} device {device_id}"
        if not _same(stated, seen.device_ip):
            own = seen.device_ip or "none"
            text = f"the table has {stated}, {name} has {own} (hccn_tool -i {device_id} -ip -g)"
            yield Problem(id="device-ip-stale", level="error", path=where, text=text)
        if seen.in_conf and "," not in stated and not _same(seen.in_conf, stated):
            text = f"the table has {stated}, /etc/hccn.conf of {name} has {seen.in_conf}"
            yield Problem(id="hccn-conf-stale", level="warning", path=where, text=text)
    place = _number(device.get("super_device_id"))
    if None not in (place, seen.super_device_id) and place != seen.super_device_id:
        text = (
            f"the table has {place}, {server.node} device {device_id} has {seen.super_device_id} "
            "(npu-smi info -t spod-info)"
        )
        where = (*path, "super_device_id")
        yield Problem(id="super-device-stale", level="error", path=where, text=text)


def _ranks(document: Mapping[str, object], servers: Mapping[str, ServerSeen]) -> Iterator[Problem]:
    """Version 2.0 names no servers: an entry is of the node that calls its own network so."""
    holders = {
        (rank.levels[0].net_instance_id, device_id): (server.node, rank)
        for server in servers.values()
        for device_id, rank in server.places.items()
        if rank.levels
    }
    ranks = document.get("rank_list") if holders else None
    for index, entry in enumerate(ranks if isinstance(ranks, list) else ()):
        path: JsonPath = ("rank_list", index)
        told = _level_rank(entry)
        if told is None:
            continue
        holder = holders.get((told.levels[0].net_instance_id, told.device_id))
        if holder is None:
            known = ", ".join(dict.fromkeys(instance for instance, _ in holders))
            instance = told.levels[0].net_instance_id
            text = (
                f'no node has device {told.device_id} in net instance "{instance}"; the nodes have '
                f"{known}"
            )
            yield Problem(id="server-unknown", level="error", path=path, text=text)
        elif _meaning(told) != _meaning(holder[1]):
            node, own = holder
            only = min(_meaning(told) - _meaning(own), default="less")
            instead = min(_meaning(own) - _meaning(told), default="nothing more")
            text = (
                f"the table has {only}, {node} device {told.device_id} has {instead} "
                "(/etc/hccl_rootinfo.json)"
            )
            yield Problem(id="level-stale", level="error", path=path, text=text)


def _level_rank(entry: object) -> LevelRank | None:
    """The entry, where it is one and says in which net instance it is."""
    try:
        [rank] = unnumbered_ranks(Source(name="", text="", document={"rank_list": [entry]}))
    except RankTableError:
        return None  # validate says what is wrong with it
    return rank if rank.levels else None


def _meaning(rank: LevelRank) -> frozenset[str]:
    """What an entry says, as words of which each can be named."""
    return frozenset(
        [f"local_id {rank.local_id}"]
        + [
            f"{address.addr} on {'+'.join(address.ports)} in layer {level.net_layer} of "
            f"{level.net_instance_id}"
            for level in rank.levels
            for address in level.addresses
        ]
    )


def _number(value: object) -> int | None:
    return number(value) if isinstance(value, str) else None


def _same(one: str, other: str | None) -> bool:
    """Whether both are the same addresses, however they are written."""
    if other is None:
        return False
    return [packed(part) or part for part in one.split(",")] == [
        packed(part) or part for part in other.split(",")
    ]


MOST_SHOWN = 8
"""Problems of one rule that are shown; JSON has all."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is wrong with one file, or why it could not be judged."""

    file: str
    generation: Generation | None = None
    """None where it could not be judged."""
    product: Product | None = None
    """The product that it was judged for."""
    problems: tuple[Problem, ...] = ()
    lines: tuple[int, ...] = ()
    """The line of each problem."""
    message: str = ""
    """Why it could not be judged."""

    @property
    def word(self) -> Literal["valid", "refused", "unreadable"]:
        """The verdict in a word."""
        if self.generation is None:
            return "unreadable"
        return "refused" if any(p.level == "error" for p in self.problems) else "valid"

    @property
    def exit_code(self) -> int:
        """0 valid, warnings allowed; 1 refused; 2 unreadable, not JSON, not a rank table."""
        return {"valid": 0, "refused": 1, "unreadable": RankTableError.exit_code}[self.word]

    def report_lines(self) -> Iterator[str]:
        """One line per problem, those of a rule at most eight, and the verdict last."""
        if self.generation is None:
            yield self.message
            return
        told: Counter[str] = Counter()
        total = Counter(problem.id for problem in self.problems)
        for problem, line in zip(self.problems, self.lines, strict=True):
            told[problem.id] += 1
            if told[problem.id] <= MOST_SHOWN:
                yield f"{self.file}:{line}: {sentence(problem)}"
            elif told[problem.id] == MOST_SHOWN + 1:
                more = total[problem.id] - MOST_SHOWN
                yield f"{self.file}: {more} more of {problem.id}; --json shows all"
        yield f"{self.file}: {self._summary()}"

    def to_json(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "file": self.file,
            "verdict": self.word,
            "generation": self.generation,
            "product": self.product,
            "message": self.message,
            "problems": [
                {
                    "id": problem.id,
                    "level": problem.level,
                    "path": problem.where,
                    "line": line,
                    "text": problem.text,
                    "hccl": problem.hccl,
                    "remedy": problem.remedy,
                }
                for problem, line in zip(self.problems, self.lines, strict=True)
            ],
        }

    def _summary(self) -> str:
        levels = Counter(problem.level for problem in self.problems)
        parts = [
            f"{levels[level]} {level}{'' if levels[level] == 1 else 's'}"
            for level in ("error", "warning")
            if levels[level]
        ]
        generation = self.generation or "1.0"
        products: tuple[Product, ...] = (self.product,) if self.product else PRODUCTS_OF[generation]
        of = f"{NAMED[generation]}, judged for {_either(products)}"
        return f"{self.word}: {', '.join([of, *parts])}"


def check_file(
    name: str,
    *,
    product: Product | None = None,
    job: Job | None = None,
    intra_roce: bool = False,
    servers: Mapping[str, ServerSeen] | None = None,
) -> Verdict:
    """The verdict on a file; with `servers` also against the devices that these have."""
    try:
        read = text.read(name)
        problems = validate_table(read, product=product, job=job, intra_roce=intra_roce)
        document = table_in(read)
        generation = generation_of(document)
        if servers is not None:
            stale = against(document, servers)
            problems = tuple(sorted((*problems, *stale), key=lambda problem: problem.level))
    except RankTableError as error:
        return Verdict(file=name, message=str(error))
    at = text.lines_of(read.text, [problem.path for problem in problems]) if problems else {}
    return Verdict(
        file=name,
        generation=generation,
        product=product,
        problems=problems,
        lines=tuple(at[problem.path] for problem in problems),
    )


def sentence(problem: Problem) -> str:
    """A problem on one line: rule, place, what is wrong, HCCL's words, what to do."""
    said = f' HCCL: "{problem.hccl}".' if problem.hccl else ""
    remedy = RULE_OF[problem.id].remedy
    return f"{problem.level} {problem.id}: {problem.where}: {problem.text}.{said} {remedy}."


def _either(products: tuple[Product, ...]) -> str:
    *most, last = (CALLED[product] for product in products)
    return f"{', '.join(most)} or {last}" if most else last
