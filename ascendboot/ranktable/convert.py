"""Makes rank tables: of other generations, of several, of hostfiles, of the nodes' devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.formats import FORMATS, Generation, servers
from ascendboot.ranktable.formats.parts import Converted, LackingError, Member, Table
from ascendboot.ranktable.rules import CALLED, Product
from ascendboot.value import Value, replace

Order: TypeAlias = Literal["given", "server-id"]
ORDERS: tuple[Order, ...] = ("given", "server-id")

_HOST = re.compile(
    r"(?P<host>[^\s#=]+)(?:\s+slots\s*=\s*(?P<slots>[0-9]{1,9}))?(?P<rest>[^#]*)(#.*)?"
)
_SLOTS = re.compile(r"^[\w.:-]+\s+slots\s*=\s*[0-9]", re.MULTILINE)


def convert(table: Table, generation: Generation) -> Converted:
    """The same ranks in another generation; RankTableError if that needs more."""
    same = table.generation == generation
    return Converted(table) if same else _from_server_list(table, generation)


def _from_server_list(table: Table, generation: Generation) -> Converted:
    try:
        return FORMATS[generation].from_servers(table.to_servers())
    except LackingError as lacking:
        words = f"could not be converted from {table.generation} to {generation}"
        raise RankTableError(f"{words}: what is missing is {lacking}") from None


def in_order(table: Table, order: Order) -> Table:
    """The table with its servers in another order; RankTableError if it states none."""
    if order == "given":
        return table
    if not isinstance(table, servers.RankTable):
        raise RankTableError(f"--order {order}: {table.generation} states no order of servers")
    by_id = sorted(table.server_list, key=lambda server: server.server_id)
    return replace(table, server_list=servers.numbered(by_id))


def merge(tables: Sequence[Table]) -> Table:
    """One table with the ranks of all, renumbered from 0; RankTableError if that cannot be."""
    generations = sorted({table.generation for table in tables})
    merged = type(tables[0]).merged(tables) if len(generations) == 1 else None
    if merged is None:
        words = f"could not be merged: the tables are {' and '.join(generations)}"
        raise RankTableError(f"{words}; convert all of them to one version first")
    return merged


def subset(table: Table, ranks: Sequence[int]) -> Table:
    """Some ranks of a table in this order, renumbered from 0; RankTableError if it lacks one."""
    if lacking := sorted({*ranks} - {row.rank for row in table.rows}):
        raise RankTableError(f"could not be reduced: it has no rank {lacking[0]}")
    return table.only(ranks)


class Host(Value):
    """A host that a hostfile may name: its `server_id`, and the addresses of its devices."""

    server_id: str
    devices: Mapping[int, str | None]


def is_hostfile(text: str) -> bool:
    """Whether somewhere in it a host has slots, as in no rank table."""
    return _SLOTS.search(text) is not None


def from_hostfile(text: str, name: str, hosts: Mapping[str, Host]) -> servers.RankTable:
    """A table of version 1.0 for the hosts of a hostfile; RankTableError if one is not known.

    A host with `slots=N` gets its first N devices. `hosts` has each host under all its names.
    """
    found = []
    for line_number, line in enumerate(text.splitlines(), 1):
        line = line.strip()  # noqa: PLW2901
        if not line or line.startswith("#"):
            continue
        match = _HOST.fullmatch(line)
        host = None if match is None else hosts.get(match["host"])
        if match is None:
            problem = f'"{line}" is not understood; expected HOST slots=N'
        elif host is None:
            known = ", ".join(hosts) or "none"
            problem = f"the devices of {match['host']} are not known; known are those of {known}. "
            problem += f"Give its hccn.conf: --hccn-conf {match['host']}=FILE"
        elif (slots := int(match["slots"] or len(host.devices))) > len(host.devices):
            problem = f"{match['host']} has {len(host.devices)} devices, and slots is {slots}"
        else:
            devices = tuple(
                servers.RankedDevice(device_id=device, device_ip=address, rank_id=0)
                for device, address in sorted(host.devices.items())[:slots]
            )
            found.append(servers.Server(server_id=host.server_id, device=devices))
            continue
        raise RankTableError(f"{name}:{line_number}: {problem}")
    return servers.RankTable(server_list=servers.numbered(found))


def generation_for(product: Product | None, members: Sequence[Member]) -> Generation:
    """The generation for a product; RankTableError if only some servers are in super pods."""
    in_pods = [member for member in members if member.super_pod_id is not None]
    if product == "a3" and in_pods:
        if len(in_pods) < len(members):
            others = ", ".join(m.server_id for m in members if m.super_pod_id is None)
            why = f"{in_pods[0].server_id} is in a super pod, and {others} is not"
            remedy = "write one for servers that are in super pods, or say --to 1.0"
            raise RankTableError(f"could not write a rank table: {why}; {remedy}")
        return "1.2"
    return next((name for name, known in FORMATS.items() if product in known.products), "1.0")


def build(
    members: Sequence[Member], generation: Generation, order: Order, product: Product | None
) -> Table:
    """Ranks server by server; RankTableError if the product reads no such table."""
    wanted = FORMATS[generation]
    if product is not None and product not in wanted.products:
        readers = " and ".join(CALLED[reader] for reader in wanted.products)
        words = f"it is for {readers}, and the NPUs are of {CALLED[product]}"
        raise RankTableError(f"could not write {wanted.called}: {words}")
    if order == "server-id":
        members = sorted(members, key=lambda member: member.server_id)
    if wanted.from_members is not None:
        return wanted.from_members(members)
    return _from_server_list(servers.from_members(members), generation).table
