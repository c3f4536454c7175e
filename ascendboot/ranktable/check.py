"""Checks the rank table in a file, also against the devices of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable import text
from ascendboot.ranktable.fields import number, packed
from ascendboot.ranktable.formats import FORMATS, Generation, generation_of, table_in
from ascendboot.ranktable.formats.levels import LevelRank, unnumbered_ranks
from ascendboot.ranktable.rules import CALLED, Job, Problem, Product, located, rules
from ascendboot.ranktable.validate import validate_table
from ascendboot.value import Value, as_json, field

JsonPath: TypeAlias = text.JsonPath
JsonObject: TypeAlias = Mapping[str, object]
Place: TypeAlias = tuple[JsonPath, JsonObject]


class DeviceState(Value, kw_only=True):
    """The address of a device now, and in the file that configures it at boot."""

    device_ip: str | None
    """From hccn_tool; several are joined by commas."""
    in_conf: str | None = None
    """From /etc/hccn.conf; None where the file has none, or was not read."""
    super_device_id: int | None = None


class ServerState(Value):
    """The node that has a server id, and its devices by physical id."""

    node: str
    devices: Mapping[int, DeviceState]
    places: Mapping[int, LevelRank] = field(default_factory=dict)
    """Of 950: the place of each in the network, from the root info."""


def against(document: JsonObject, servers: Mapping[str, ServerState]) -> tuple[Problem, ...]:
    """Where a table, which may be broken anywhere, contradicts the devices of the nodes."""
    found = [*_stale_ranks(document, servers)]
    all_lists = dict.fromkeys(known.device_lists for known in FORMATS.values())
    for *outer, inner in filter(None, all_lists):
        objects: list[Place] = [((), document)]
        for name in outer:
            objects = [each for path, of in objects for each in _objects(of, name, path)]
        for path, entry in objects:
            server_id = entry.get("server_id")
            devices = [*_objects(entry, inner, path)] if isinstance(server_id, str) else []
            server = servers.get(str(server_id))
            if server is not None:
                for where, device in devices:
                    found += _stale_members(server, device, where)
            elif devices:
                words = f'server_id "{server_id}" is no node of the cluster; its nodes have '
                words += ", ".join(servers)
                found.append(_problem("server-unknown", (*path, "server_id"), words))
    return tuple(found)


def _problem(rule_id: str, path: JsonPath, words: str) -> Problem:
    return Problem(id=rule_id, level=rules()[rule_id].level, path=path, text=words)


def _objects(members: JsonObject, name: str, path: JsonPath = ()) -> Iterator[Place]:
    values = members.get(name)
    for index, value in enumerate(values if isinstance(values, list) else ()):
        if isinstance(value, dict):
            yield (*path, name, index), value


def _stale_members(server: ServerState, device: JsonObject, path: JsonPath) -> Iterator[Problem]:
    """What the table states of a device, and the node no longer has."""
    device_id = number(device.get("device_id"))
    if device_id is None:
        return
    now = server.devices.get(device_id)
    if now is None:
        there = ", ".join(map(str, sorted(server.devices))) or "none"
        words = f"{server.node} has no device {device_id}; it has {there}"
        yield _problem("device-gone", (*path, "device_id"), words)
        return
    stated, name = device.get("device_ip"), f"{server.node} device {device_id}"
    if isinstance(stated, str) and stated:
        where = (*path, "device_ip")
        if not _same(stated, now.device_ip):
            own = now.device_ip or "none"
            words = f"the table has {stated}, {name} has {own} (hccn_tool -i {device_id} -ip -g)"
            yield _problem("device-ip-stale", where, words)
        if now.in_conf and "," not in stated and not _same(now.in_conf, stated):
            words = f"the table has {stated}, /etc/hccn.conf of {name} has {now.in_conf}"
            yield _problem("hccn-conf-stale", where, words)
    place = number(device.get("super_device_id"))
    if None not in (place, now.super_device_id) and place != now.super_device_id:
        words = f"the table has {place}, {name} has {now.super_device_id}"
        words += " (npu-smi info -t spod-info)"
        yield _problem("super-device-stale", (*path, "super_device_id"), words)


def _stale_ranks(document: JsonObject, servers: Mapping[str, ServerState]) -> Iterator[Problem]:
    """Version 2.0 names no servers: an entry belongs to the node with its net instance."""
    holders = {
        (rank.level_list[0].net_instance_id, device_id): (server.node, rank)
        for server in servers.values()
        for device_id, rank in server.places.items()
        if rank.level_list
    }
    for path, entry in _objects(document, "rank_list") if holders else ():
        try:
            [rank] = unnumbered_ranks({"rank_list": [entry]}, "")
        except RankTableError:
            continue  # validate reports what is wrong with it
        if not rank.level_list:
            continue
        instance = rank.level_list[0].net_instance_id
        node, own = holders.get((instance, rank.device_id), (None, rank))
        only, instead = _words(rank) - _words(own), _words(own) - _words(rank)
        if node is None:
            known = ", ".join(dict.fromkeys(name for name, _ in holders))
            words = f'no node has device {rank.device_id} in net instance "{instance}"'
            yield _problem("server-unknown", path, f"{words}; the nodes have {known}")
        elif only or instead:
            stated, own_words = min(only, default="less"), min(instead, default="nothing more")
            words = f"the table has {stated}, {node} device {rank.device_id} has {own_words}"
            yield _problem("level-stale", path, f"{words} (/etc/hccl_rootinfo.json)")


def _words(rank: LevelRank) -> set[str]:
    return {f"local_id {rank.local_id}"} | {
        f"{address.addr} on {'+'.join(address.ports)} in layer {level.net_layer} of "
        f"{level.net_instance_id}"
        for level in rank.level_list
        for address in level.rank_addr_list
    }


def _same(one: str, other: str | None) -> bool:
    if other is None:
        return False
    first, second = ([packed(part) or part for part in text.split(",")] for text in (one, other))
    return first == second


MOST_SHOWN = 8
"""Problems of one rule that are shown; JSON has all."""


class FileResult(Value, kw_only=True):
    """What is wrong with one file, or why it could not be checked."""

    file: str
    generation: Generation | None = None
    """None where it could not be checked."""
    product: Product | None = None
    """The product that it was checked for."""
    problems: tuple[Problem, ...] = ()
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
        for problem in self.problems:
            shown[problem.id] += 1
            if shown[problem.id] <= MOST_SHOWN:
                yield f"{self.file}:{problem.line}: {sentence(problem)}"
            elif shown[problem.id] == MOST_SHOWN + 1:
                more = total[problem.id] - MOST_SHOWN
                yield f"{self.file}: {more} more of {problem.id}; --json shows all"
        levels = Counter(problem.level for problem in self.problems)
        counts = [f", {n} {level}{'' if n == 1 else 's'}" for level, n in sorted(levels.items())]
        found = FORMATS[self.generation]
        *most, last = (CALLED[p] for p in ((self.product,) if self.product else found.products))
        products = f"{', '.join(most)} or {last}" if most else last
        checked = f"{found.called}, checked for {products}{''.join(counts)}"
        yield f"{self.file}: {self.state}: {checked}"

    def to_json(self) -> dict[str, object]:
        """Everything, for programs."""
        return {
            "file": self.file,
            "verdict": self.state,
            "generation": self.generation,
            "product": self.product,
            "message": self.message,
            "problems": [
                {**as_json(problem), "path": problem.where, "remedy": problem.remedy}
                for problem in self.problems
            ],
        }


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
        if servers is not None:
            stale = against(document, servers)
            problems = tuple(sorted((*problems, *stale), key=lambda problem: problem.level))
    except RankTableError as error:
        return FileResult(file=name, message=str(error))
    generation, found = generation_of(document), located(read.text, problems)
    return FileResult(file=name, generation=generation, product=product, problems=found)


def sentence(problem: Problem) -> str:
    """A problem on one line: rule, place, what is wrong, HCCL's message, what to do."""
    message = f' HCCL: "{problem.hccl}".' if problem.hccl else ""
    where = f"{problem.level} {problem.id}: {problem.where}"
    return f"{where}: {problem.text}.{message} {problem.remedy}."
