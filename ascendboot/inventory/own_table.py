"""The operator's own rank table: checked when the inventory is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from ascendboot.errors import RankTableError
from ascendboot.hccl.variables import INTRA_ROCE
from ascendboot.inventory.cross_checks import environment
from ascendboot.inventory.schema import InventoryKeys
from ascendboot.inventory.yaml import Sheet
from ascendboot.model.cluster import Device, Node, OwnTable
from ascendboot.ranktable.formats.parts import Row
from ascendboot.ranktable.generations import generation_of, table_in, table_of
from ascendboot.ranktable.text import Source, lines_of, read
from ascendboot.ranktable.validate import validate_table

LEVELS = "2.0"
"""The generation that names no servers."""


def use_own_table(
    sheet: Sheet, keys: InventoryKeys, nodes: tuple[Node, ...], file: str
) -> tuple[OwnTable | None, tuple[Node, ...]]:
    """The table in `file`, unchanged, and the nodes with its devices; reports its problems."""
    problems: list[str] = []
    rows: Sequence[Row] = ()
    generation = text = ""
    try:
        source = read(str(Path(file).expanduser()))
        problems += _refusals(source, keys)
        text, generation = source.text, generation_of(table_in(source))
        rows = table_of(source).rows
        unfit = _unfit_levels if generation == LEVELS else _unfit_servers
        problems += [f"{source.name}: {problem}" for problem in unfit(rows, nodes, keys)]
    except RankTableError as error:
        problems = problems or [str(error)]  # a refused table may not be understood, either
    for problem in problems:
        sheet.report(sheet.mark.at("resources", "file"), problem)
    if problems:
        return None, nodes
    if generation == LEVELS:
        devices = ((node.server_id, device) for node in nodes for device in node.devices)
        stated = tuple((server_id, device.device_id, None) for server_id, device in devices)
        return OwnTable(text=text, generation=generation, places=stated), nodes
    places = tuple((row.server, row.device_id, ",".join(row.addresses) or None) for row in rows)
    of_servers: dict[str, list[Device]] = defaultdict(list)
    for server, device_id, device_ip in places:
        of_servers[server].append(Device(device_id, device_ip))
    nodes = tuple(replace(node, devices=tuple(of_servers[node.server_id])) for node in nodes)
    return OwnTable(text=text, generation=generation, places=places), nodes


def _refusals(source: Source, keys: InventoryKeys) -> Iterator[str]:
    """What HCCL, or the profile's training stack, would refuse."""
    # our copy on the nodes has a name, an owner and a mode of its own
    content = replace(source, absolute="", is_symlink=False, mode=0o644)
    found = validate_table(
        content,
        product=None if keys.product == "auto" else keys.product,
        job="rec-sdk-tf" if keys.profile == "rec-sdk-tf" else None,
        intra_roce=environment(keys).get(INTRA_ROCE) == "1",
    )
    problems = [problem for problem in found if problem.level == "error"]
    at = lines_of(source.text, [problem.path for problem in problems]) if problems else {}
    for problem in problems:
        yield f"{source.name}:{at[problem.path]}: {problem.id}: {problem.where}: {problem.text}"


def _unfit_levels(rows: Sequence[Row], nodes: Sequence[Node], keys: InventoryKeys) -> Iterator[str]:
    """Where a table of version 2.0 differs: rank N is the N-th device that the inventory states."""
    if not all(node.devices for node in nodes):
        yield (
            "a table of version 2.0 names no servers; state the `devices` of every "
            "node, in rank order"
        )
        return
    stated = [device.device_id for node in nodes for device in node.devices]
    listed = [row.device_id for row in rows]
    if stated != listed:
        yield f"the device ids are {listed} in rank order, and {stated} in the inventory"
    if keys.primary and keys.primary != nodes[0].name:
        yield (
            f"a table of version 2.0 names no servers: rank 0 is on the first node, "
            f"{nodes[0].name}, which must be the primary"
        )


def _unfit_servers(
    rows: Sequence[Row], nodes: Sequence[Node], keys: InventoryKeys
) -> Iterator[str]:
    """Where the table and the inventory describe different clusters."""
    by_id = {node.server_id: node for node in nodes}
    servers: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        servers[row.server].append(row.device_id)
    for server in servers.keys() - by_id.keys():
        yield f'server_id "{server}" is no node\'s; they have {", ".join(by_id)}'
    for server, node in by_id.items():
        stated, listed = [device.device_id for device in node.devices], servers.get(server)
        if listed is None:
            yield f'{node.name}, whose server_id is "{server}", is not in the table'
        elif stated and stated != listed:
            yield (
                f"{node.name} has the devices {listed} there and {stated} in the inventory; "
                "leave `devices` out, or state the same"
            )
    runs = Counter(server for server, _ in groupby(row.server for row in rows))
    for server, count in runs.items():
        if count > 1:
            yield f'the ranks of "{server}" are not one after the other'
    first, primary = by_id.get(rows[0].server) if rows else None, keys.primary or nodes[0].name
    if first is not None and first.name != primary:
        yield (
            f"rank 0 is on {first.name}, and the primary is {primary}; write "
            f"`primary: {first.name}`"
        )
