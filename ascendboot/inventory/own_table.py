"""The operator's own rank table: checked when the inventory is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import RankTableError
from ascendboot.hccl.variables import INTRA_ROCE
from ascendboot.inventory.cross_checks import environment
from ascendboot.model.cluster import Device, Node, OwnTable
from ascendboot.ranktable.generations import generation_of, table_in, table_of
from ascendboot.ranktable.text import Source, lines_of, read
from ascendboot.ranktable.validate import validate_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.inventory.schema import InventoryKeys
    from ascendboot.inventory.yaml import Sheet
    from ascendboot.ranktable.formats.parts import Row
    from ascendboot.ranktable.rules import Job

LEVELS = "2.0"


def read_own_table(sheet: Sheet, keys: InventoryKeys, nodes: tuple[Node, ...]) -> OwnTable | None:
    """The table that `resources.file` names, as it stands; what is wrong with it is reported."""
    if keys.resources.file is None:
        return None
    mark = sheet.mark.at("resources", "file")
    path = Path(keys.resources.file).expanduser()
    try:
        source = read(str(path))
        problems = _problems(source, keys, nodes)
    except RankTableError as error:
        sheet.report(mark, str(error))
        return None
    for problem in problems:
        sheet.report(mark, problem)
    if problems:
        return None
    return OwnTable(
        text=source.text,
        generation=generation_of(table_in(source)),
        places=_places(source, nodes),
    )


def _places(source: Source, nodes: tuple[Node, ...]) -> tuple[tuple[str, int, str | None], ...]:
    rows = table_of(source).rows
    if generation_of(table_in(source)) != LEVELS:
        return tuple((row.server, row.device_id, ",".join(row.addresses) or None) for row in rows)
    return tuple(
        (node.server_id, device.device_id, None) for node in nodes for device in node.devices
    )


def with_devices(nodes: tuple[Node, ...], own: OwnTable | None) -> tuple[Node, ...]:
    """The nodes with the devices of the table, in rank order: what else they have is not used."""
    if own is None or own.generation == LEVELS:
        return nodes
    devices: dict[str, list[Device]] = {}
    for server, device_id, device_ip in own.places:
        devices.setdefault(server, []).append(Device(device_id, device_ip))
    return tuple(replace(node, devices=tuple(devices[node.server_id])) for node in nodes)


def _problems(source: Source, keys: InventoryKeys, nodes: tuple[Node, ...]) -> list[str]:
    refusals = list(_refusals(source, keys))
    try:
        return [
            *refusals,
            *(f"{source.name}: {problem}" for problem in _unfit(source, keys, nodes)),
        ]
    except RankTableError:
        if refusals:
            return refusals  # they name the reason
        raise


def _refusals(source: Source, keys: InventoryKeys) -> Iterator[str]:
    """What HCCL, or the profile's training stack, would refuse."""
    product = None if keys.product == "auto" else keys.product
    job: Job | None = "rec-sdk-tf" if keys.profile == "rec-sdk-tf" else None
    # our copy on the nodes has a name, an owner and a mode of its own
    content = replace(source, absolute="", is_symlink=False, mode=0o644)
    roce = environment(keys).get(INTRA_ROCE) == "1"
    found = validate_table(content, product=product, job=job, intra_roce=roce)
    problems = [problem for problem in found if problem.level == "error"]
    at = lines_of(source.text, [problem.path for problem in problems]) if problems else {}
    for problem in problems:
        yield f"{source.name}:{at[problem.path]}: {problem.id}: {problem.where}: {problem.text}"


def _unfit(source: Source, keys: InventoryKeys, nodes: Sequence[Node]) -> Iterator[str]:
    """Where the table and the inventory describe different clusters."""
    rows = table_of(source).rows
    if generation_of(table_in(source)) == LEVELS:
        yield from _unfit_levels(rows, nodes, keys)
        return
    by_id = {node.server_id: node for node in nodes}
    servers = list(dict.fromkeys(row.server for row in rows))
    for server in servers:
        if server not in by_id:
            known = ", ".join(by_id)
            yield f'server_id "{server}" is no node\'s; they have {known}'
    for server, node in by_id.items():
        if server not in servers:
            yield f'{node.name}, whose server_id is "{server}", is not in the table'
    yield from _order(rows, by_id, keys)
    for server in servers:
        yield from _devices(server, rows, by_id)


def _unfit_levels(rows: Sequence[Row], nodes: Sequence[Node], keys: InventoryKeys) -> Iterator[str]:
    """Version 2.0 names no servers: rank N is the N-th device that the inventory states."""
    if not all(node.devices for node in nodes):
        yield (
            "a table of version 2.0 names no servers; state the `devices` of every "
            "node, in rank order"
        )
        return
    stated = [device.device_id for node in nodes for device in node.devices]
    listed = [row.device_id for row in rows]
    if stated != listed:
        yield (f"the device ids are {listed} in rank order, and {stated} in the inventory")
    if keys.primary and keys.primary != nodes[0].name:
        yield (
            f"a table of version 2.0 names no servers: rank 0 is on the first node, "
            f"{nodes[0].name}, which must be the primary"
        )


def _order(rows: Sequence[Row], by_id: Mapping[str, Node], keys: InventoryKeys) -> Iterator[str]:
    changes = Counter(
        row.server
        for row, before in zip(rows, (None, *rows), strict=False)
        if before is None or before.server != row.server
    )
    for server, count in changes.items():
        if count > 1:
            yield f'the ranks of "{server}" are not one after the other'
    first = by_id.get(rows[0].server) if rows else None
    primary = keys.primary or next(iter(by_id.values())).name
    if first is not None and first.name != primary:
        yield (
            f"rank 0 is on {first.name}, and the primary is {primary}; write "
            f"`primary: {first.name}`"
        )


def _devices(server: str, rows: Sequence[Row], by_id: Mapping[str, Node]) -> Iterator[str]:
    stated = [device.device_id for device in by_id[server].devices] if server in by_id else []
    listed = [row.device_id for row in rows if row.server == server]
    if stated and stated != listed:
        yield (
            f"{by_id[server].name} has the devices {listed} there and {stated} in "
            "the inventory; leave `devices` out, or state the same"
        )
