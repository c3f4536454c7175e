"""Compares a rank table with a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ascendboot.errors import RankTableError
from ascendboot.ranktable import text
from ascendboot.ranktable.fields import number, packed
from ascendboot.ranktable.read import unnumbered_ranks
from ascendboot.ranktable.rules import CALLED, RULE_OF, Job, Problem, Product
from ascendboot.ranktable.text import JsonPath, Source
from ascendboot.ranktable.validate import (
    NAMED,
    PRODUCTS_OF,
    Generation,
    generation_of,
    table_in,
    validate_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.ranktable.formats import LevelRank


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """The address of a device now, and in the file that configures it at boot."""

    device_ip: str | None
    """From hccn_tool; several are joined by commas."""
    in_conf: str | None = None
    """From /etc/hccn.conf; None where the file has none, or was not read."""
    super_device_id: int | None = None


@dataclass(frozen=True, slots=True)
class ServerState:
    """The node that has a server id, and its devices by physical id."""

    node: str
    devices: Mapping[int, DeviceState]
    places: Mapping[int, LevelRank] = field(default_factory=dict)
    """Of 950: the place of each in the network, from the root info."""


def against(
    document: Mapping[str, object], servers: Mapping[str, ServerState]
) -> tuple[Problem, ...]:
    """Where a table contradicts the devices of the nodes."""
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
            found += _differences(server, device, where)
    return tuple(found)


def _devices(
    document: Mapping[str, object],
) -> Iterator[tuple[JsonPath, str, Mapping[str, object], JsonPath]]:
    """Path of the server's id, the id, a device of it, and the path of that."""
    servers = [(path, server, "device") for path, server in _objects(document, "server_list")]
    for path, group in _objects(document, "group_list"):
        instances = _objects(group, "instance_list", path)
        servers += [(where, instance, "devices") for where, instance in instances]
    for path, server, name in servers:
        server_id = server.get("server_id")
        if isinstance(server_id, str):
            for where, device in _objects(server, name, path):
                yield (*path, "server_id"), server_id, device, where


def _objects(
    members: Mapping[str, object], name: str, path: JsonPath = ()
) -> Iterator[tuple[JsonPath, Mapping[str, object]]]:
    """The objects in a list of a document that may be broken anywhere."""
    values = members.get(name)
    for index, value in enumerate(values if isinstance(values, list) else ()):
        if isinstance(value, dict):
            yield (*path, name, index), value


def _differences(
    server: ServerState, device: Mapping[str, object], path: JsonPath
) -> Iterator[Problem]:
    device_id = _number(device.get("device_id"))
    if device_id is None:
        return
    now = server.devices.get(device_id)
    if now is None:
        there = ", ".join(map(str, sorted(server.devices))) or "none"
        text = f"{server.node} has no device {device_id}; it has {there}"
        yield Problem(id="device-gone", level="error", path=(*path, "device_id"), text=text)
        return
    stated = device.get("device_ip")
    where = (*path, "device_ip")
    if isinstance(stated, str) and stated:
        name = f"{server.node} device {device_id}"
        if not _same(stated, now.device_ip):
            own = now.device_ip or "none"
            text = f"the table has {stated}, {name} has {own} (hccn_tool -i {device_id} -ip -g)"
            yield Problem(id="device-ip-stale", level="error", path=where, text=text)
        if now.in_conf and "," not in stated and not _same(now.in_conf, stated):
            text = f"the table has {stated}, /etc/hccn.conf of {name} has {now.in_conf}"
            yield Problem(id="hccn-conf-stale", level="warning", path=where, text=text)
    place = _number(device.get("super_device_id"))
    if None not in (place, now.super_device_id) and place != now.super_device_id:
        text = (
            f"the table has {place}, {server.node} device {device_id} has {now.super_device_id} "
            "(npu-smi info -t spod-info)"
        )
        where = (*path, "super_device_id")
        yield Problem(id="super-device-stale", level="error", path=where, text=text)


def _ranks(document: Mapping[str, object], servers: Mapping[str, ServerState]) -> Iterator[Problem]:
    """Version 2.0 names no servers: an entry belongs to the node with its net instance."""
    holders = {
        (rank.levels[0].net_instance_id, device_id): (server.node, rank)
        for server in servers.values()
        for device_id, rank in server.places.items()
        if rank.levels
    }
    for path, entry in _objects(document, "rank_list") if holders else ():
        rank = _level_rank(entry)
        if rank is None:
            continue
        instance = rank.levels[0].net_instance_id
        holder = holders.get((instance, rank.device_id))
        if holder is None:
            known = ", ".join(dict.fromkeys(name for name, _ in holders))
            text = (
                f'no node has device {rank.device_id} in net instance "{instance}"; the nodes have '
                f"{known}"
            )
            yield Problem(id="server-unknown", level="error", path=path, text=text)
        elif _words(rank) != _words(holder[1]):
            node, own = holder
            only = min(_words(rank) - _words(own), default="less")
            instead = min(_words(own) - _words(rank), default="nothing more")
            text = (
                f"the table has {only}, {node} device {rank.device_id} has {instead} "
                "(/etc/hccl_rootinfo.json)"
            )
            yield Problem(id="level-stale", level="error", path=path, text=text)


def _level_rank(entry: object) -> LevelRank | None:
    """The entry, where it is one and states its net instance."""
    try:
        [rank] = unnumbered_ranks(Source(name="", text="", document={"rank_list": [entry]}))
    except RankTableError:
        return None  # validate reports what is wrong with it
    return rank if rank.levels else None


def _words(rank: LevelRank) -> frozenset[str]:
    """What an entry states, in words for messages."""
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
class FileResult:
    """What is wrong with one file, or why it could not be checked."""

    file: str
    generation: Generation | None = None
    """None where it could not be checked."""
    product: Product | None = None
    """The product that it was checked for."""
    problems: tuple[Problem, ...] = ()
    lines: tuple[int, ...] = ()
    """The line of each problem."""
    message: str = ""
    """Why it could not be checked."""

    @property
    def state(self) -> Literal["valid", "refused", "unreadable"]:
        """The result in a word."""
        if self.generation is None:
            return "unreadable"
        return "refused" if any(p.level == "error" for p in self.problems) else "valid"

    @property
    def exit_code(self) -> int:
        """0 valid, warnings allowed; 1 refused; 2 unreadable, not JSON, not a rank table."""
        return {"valid": 0, "refused": 1, "unreadable": RankTableError.exit_code}[self.state]

    def report_lines(self) -> Iterator[str]:
        """One line per problem, at most eight of a rule, then the summary."""
        if self.generation is None:
            yield self.message
            return
        shown: Counter[str] = Counter()
        total = Counter(problem.id for problem in self.problems)
        for problem, line in zip(self.problems, self.lines, strict=True):
            shown[problem.id] += 1
            if shown[problem.id] <= MOST_SHOWN:
                yield f"{self.file}:{line}: {sentence(problem)}"
            elif shown[problem.id] == MOST_SHOWN + 1:
                more = total[problem.id] - MOST_SHOWN
                yield f"{self.file}: {more} more of {problem.id}; --json shows all"
        yield f"{self.file}: {self._summary()}"

    def to_json(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "file": self.file,
            "verdict": self.state,
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
        of = f"{NAMED[generation]}, checked for {_either(products)}"
        return f"{self.state}: {', '.join([of, *parts])}"


def check_file(
    name: str,
    *,
    product: Product | None = None,
    job: Job | None = None,
    intra_roce: bool = False,
    servers: Mapping[str, ServerState] | None = None,
) -> FileResult:
    """The result for a file; with `servers` also compared with the devices that these have."""
    try:
        read = text.read(name)
        problems = validate_table(read, product=product, job=job, intra_roce=intra_roce)
        document = table_in(read)
        generation = generation_of(document)
        if servers is not None:
            stale = against(document, servers)
            problems = tuple(sorted((*problems, *stale), key=lambda problem: problem.level))
    except RankTableError as error:
        return FileResult(file=name, message=str(error))
    at = text.lines_of(read.text, [problem.path for problem in problems]) if problems else {}
    return FileResult(
        file=name,
        generation=generation,
        product=product,
        problems=problems,
        lines=tuple(at[problem.path] for problem in problems),
    )


def sentence(problem: Problem) -> str:
    """A problem on one line: rule, place, what is wrong, HCCL's message, what to do."""
    message = f' HCCL: "{problem.hccl}".' if problem.hccl else ""
    remedy = RULE_OF[problem.id].remedy
    return f"{problem.level} {problem.id}: {problem.where}: {problem.text}.{message} {remedy}."


def _either(products: tuple[Product, ...]) -> str:
    *most, last = (CALLED[product] for product in products)
    return f"{', '.join(most)} or {last}" if most else last
