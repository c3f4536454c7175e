"""Rank tables of version 2.0, those of 950: ranks with their places in the network's layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, NoReturn

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import Members, cut, kind, packed
from ascendboot.ranktable.formats import parts
from ascendboot.ranktable.formats.placement import has_all_ranks
from ascendboot.ranktable.formats.servers import RankTable
from ascendboot.ranktable.text import JsonPath, from_text
from ascendboot.value import Struct, field, force_setattr, replace


class Address(parts.Part, kw_only=True):
    """An address of a rank in one net instance, and the ports of the device that have it."""

    addr_type: str
    addr: str
    ports: tuple[str, ...] = ()


class NetLevel(parts.Part, kw_only=True):
    """What a rank has in one layer of the network."""

    numbers_are_text: ClassVar[bool] = False
    last: ClassVar[str] = "rank_addr_list"

    net_layer: parts.Number
    net_instance_id: str
    rank_addr_list: tuple[Address, ...] = ()


class LevelRank(parts.Part, kw_only=True):
    """One rank: its device and its place in each layer."""

    numbers_are_text: ClassVar[bool] = False
    last: ClassVar[str] = "level_list"

    rank_id: parts.Number
    local_id: parts.Number
    device_id: parts.Number
    level_list: tuple[NetLevel, ...] = ()


class LevelTable(parts.Table, kw_only=True):
    """A table of version 2.0."""

    called: ClassVar[str] = "2.0"
    derived: ClassVar[frozenset[str]] = frozenset({"status", "version", "rank_count"})

    rank_list: tuple[LevelRank, ...] = ()

    def __post_init__(self) -> None:
        ranks = sorted(self.rank_list, key=lambda rank: rank.rank_id)
        force_setattr(self, "rank_list", tuple(ranks))

    @property
    def rows(self) -> tuple[parts.Row, ...]:
        """The ranks that the entries state."""
        return tuple(
            parts.Row(
                rank=rank.rank_id,
                server=rank.level_list[0].net_instance_id if rank.level_list else "",
                device_id=rank.device_id,
                addresses=tuple(
                    f"{level.net_layer}:{address.addr}"
                    for level in rank.level_list
                    for address in level.rank_addr_list
                ),
                local_id=rank.local_id,
                others=rank.others,
            )
            for rank in self.rank_list
        )

    def document(self) -> dict[str, object]:
        """The table with its version and count."""
        head = {"version": "2.0", "rank_count": len(self.rank_list)}
        return {**head, **super().document()}

    @property
    def other_members(self) -> Mapping[str, Mapping[str, object]]:
        """Everything of each layer of each rank."""
        return {
            f"rank {rank.rank_id} layer {level.net_layer}": {
                "net_instance_id": level.net_instance_id,
                **level.others,
                **{
                    address.addr: (address.addr_type, address.ports, *address.others.items())
                    for address in level.rank_addr_list
                },
            }
            for rank in self.rank_list
            for level in rank.level_list
        }

    def to_servers(self) -> NoReturn:
        """It states no servers."""
        raise parts.LackingError("server_id and device_ip of each device")

    def only(self, ranks: Sequence[int]) -> LevelTable:
        """These ranks in this order, renumbered from 0."""
        known = {rank.rank_id: rank for rank in self.rank_list}
        return replace(self, rank_list=_numbered([known[rank] for rank in ranks]))

    @classmethod
    def merged(cls, tables: Sequence[parts.Table]) -> LevelTable:
        """The ranks of all, renumbered from 0."""
        own = [table for table in tables if isinstance(table, cls)]
        ranks = [rank for table in own for rank in table.rank_list]
        return replace(own[0], rank_list=_numbered(ranks))


def _numbered(ranks: Sequence[LevelRank]) -> tuple[LevelRank, ...]:
    return tuple(replace(one, rank_id=rank) for rank, one in enumerate(ranks))


def _from_servers(_table: RankTable) -> NoReturn:
    raise parts.LackingError(
        "local_id and, for each net_layer, net_instance_id and rank_addr_list with the ports of "
        "each address; only the servers of 950 tell them: ranktable.write"
    )


def _from_members(members: Sequence[parts.Member]) -> LevelTable:
    devices = [(member.server_id, device) for member in members for device in member.devices]
    missing = [f"{name} device {one.device_id}" for name, one in devices if one.place is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        why = f"what is missing is local_id and level_list of {missing[0]}{more}"
        where = "the servers of 950 have them in /etc/hccl_rootinfo.json"
        raise RankTableError(f"could not write version 2.0: {why}; {where}")
    places = [one.place for _, one in devices if isinstance(one.place, LevelRank)]
    return LevelTable(rank_list=_numbered(places))


def unnumbered_ranks(document: object, name: str) -> tuple[LevelRank, ...]:
    """The entries of a `rank_list` without ranks; all get 0. `name` names the file."""
    entries = document.get("rank_list", []) if isinstance(document, dict) else []
    if isinstance(entries, list):
        entries = [{**one, "rank_id": 0} if isinstance(one, dict) else one for one in entries]
    return parts.understood(LevelTable, {"rank_list": entries}, name).rank_list


# HCCL itself reads the root info where ranks find each other without a rank table, and takes the
# topology file from it where there is one (hcomm `rank_info_detect_client.cc`,
# `communicator_impl.cc`): a rank table's entries without `rank_id`.
def device_places(text: str, name: str) -> Mapping[int, LevelRank]:
    """The entry of each device in a root info, by physical id; RankTableError if it is none."""
    source = from_text(name, text)
    document = source.document if isinstance(source.document, dict) else {}
    version = document.get("version")
    if version != "2.0":
        found = f'"{cut(version)}"' if isinstance(version, str) else "not stated as text"
        raise RankTableError(f'{name}: version is {found}, and HCCL of 950 reads "2.0" alone')
    if not isinstance(document.get("topo_file_path"), str):
        raise RankTableError(f"{name}: topo_file_path is missing, which HCCL of 950 wants")
    ranks = unnumbered_ranks(document, name)
    if document.get("rank_count") != len(ranks):
        count = document.get("rank_count")
        raise RankTableError(f"{name}: rank_count is {count}, and rank_list has {len(ranks)}")
    places = {rank.device_id: rank for rank in ranks}
    if len(places) != len(ranks):
        raise RankTableError(f"{name}: a device_id is there twice")
    return places


BACKUP_LOCAL_ID = 64
MOST_LEVELS = 8
NET_TYPES = ("TOPO_FILE_DESC", "CLOS", "1DMESH", "2DMESH", "A3_SERVER", "A2_AX_SERVER")
ADDRESS_TYPES = ("EID", "IPV4", "IPV6")
MOST_PORT = 32

_DRAFT = {"level", "id", "fabric_type", "rank_addr_type", "rank_addrs"}
_EID = re.compile(r"[0-9a-fA-F]{32}")
_PORT = re.compile(r"[0-9]+/[0-9]+|d2h")
_BYTES = {"IPV4": 4, "IPV6": 16}


class _Seen(Struct):
    """What must be unique or alike among ranks."""

    numbers: list[int] = field(default_factory=list)
    local_ids: set[int] = field(default_factory=set)
    replaced: list[tuple[int, Members]] = field(default_factory=list)
    places: dict[tuple[str, int], JsonPath] = field(default_factory=dict)
    """The rank that has a local id in a net instance of layer 0."""
    sizes: dict[tuple[int, str], int] = field(default_factory=dict)
    addresses: dict[str, JsonPath] = field(default_factory=dict)


def _check(root: Members) -> None:
    ranks = root.filled_list("rank_list")
    count = root.integer("rank_count", least=1, most=65536)
    detour = root.values.get("detour", "")
    if detour not in ("true", "false", ""):
        words = f'detour is {kind(detour)}; the strings "true" and "false" are known'
        root.report("not-among", "detour", words)
    if ranks is None:
        return
    root.count("rank_count", count, len(ranks), "rank_list has")
    if _is_draft(ranks):
        words = "level, id, fabric_type and rank_addrs are the words of an old draft of 2.0"
        path = ("rank_list", 0, "level_list")
        root.check.report("legacy-draft", path, words, value="net_layer")
        return
    seen = _Seen()
    entries = [*root.objects("rank_list", "a rank")]
    for rank in entries:
        _check_rank(rank, seen)
    if len(seen.numbers) == len(ranks):
        has_all_ranks(entries, seen.numbers)
    for position, (value, rank) in enumerate(seen.replaced):
        words = ""
        if position:
            words = "a second backup; one is the most"
        elif value in seen.local_ids:
            words = f"local_id {value} is replaced, and a rank still has it"
        if words:
            rank.report("replaced", "replaced_local_id", words, value=value)


def _is_draft(ranks: Sequence[object]) -> bool:
    for rank in ranks:
        levels = rank.get("level_list") if isinstance(rank, dict) else None
        for level in levels if isinstance(levels, list) else ():
            if isinstance(level, dict) and _DRAFT & level.keys():
                return "net_layer" not in level
    return False


def _check_rank(rank: Members, seen: _Seen) -> None:
    number = rank.integer("rank_id")
    if number is not None:
        seen.numbers.append(number)
    local = rank.integer("local_id", most=BACKUP_LOCAL_ID)
    if local == BACKUP_LOCAL_ID:
        replaced = rank.integer("replaced_local_id", most=BACKUP_LOCAL_ID - 1)
        if replaced is not None:
            seen.replaced.append((replaced, rank))
    elif local is not None:
        seen.local_ids.add(local)
    rank.check_highest(rank.integer("device_id"), 64, "950")
    for name in ("device_port", "host_port"):
        rank.port(name)
    _check_levels(rank, local, seen)
    if "control_plane" in rank:
        values = rank.values["control_plane"]
        if isinstance(values, dict):
            plane = Members(rank.check, values, (*rank.path, "control_plane"))
            _typed_address(plane)
            plane.integer("listen_port", least=1, most=65536)
        else:
            words = f"control_plane is {kind(values)}, not an object"
            rank.report("wrong-type", "control_plane", words)


def _check_levels(rank: Members, local: int | None, seen: _Seen) -> None:
    levels = rank.filled_list("level_list")
    if levels is not None and len(levels) > MOST_LEVELS:
        name, count, most = "level_list", len(levels), MOST_LEVELS
        words = f"{name} has {count}, and {most} are the most"
        size = f"{name} size"
        rank.report("out-of-range", name, words, name=size, value=count, least=1, most=most)
    before = -1
    for level in rank.objects("level_list", "a level"):
        layer = _check_level(level, local, seen)
        if layer is not None and layer <= before:
            level.report("layers", "net_layer", f"net_layer {layer} stands after {before}")
        before = before if layer is None else layer


def _check_level(level: Members, local: int | None, seen: _Seen) -> int | None:
    """Return its layer."""
    layer = level.integer("net_layer", most=7)
    instance = level.string("net_instance_id", least=1, most=1024)
    if "net_type" in level:
        level.word("net_type", NET_TYPES, "netType")
    if "net_attr" in level:
        level.string("net_attr")
    addresses = level.sized("rank_addr_list", "rank_addrs", 0, 24)
    for address in level.objects("rank_addr_list", "an address"):
        _check_address(address, seen)
    if layer is None or instance is None:
        return layer
    size = None if addresses is None else len(addresses)
    if size is not None and seen.sizes.setdefault((layer, instance), size) != size:
        words = f'net instance "{cut(instance)}" of layer {layer} has {size} addresses here, '
        words += f"{seen.sizes[layer, instance]} at an earlier rank"
        level.report("instance-addresses", "rank_addr_list", words, value=instance)
    if layer == 0 and local is not None:
        rank = level.path[:2]
        if seen.places.setdefault((instance, local), rank) != rank:
            words = f'local_id {local} is there twice in net instance "{cut(instance)}"'
            level.check.report("local-id-twice", (*rank, "local_id"), words)
    return layer


def _check_address(address: Members, seen: _Seen) -> None:
    text = _typed_address(address)
    if text is not None:
        first = seen.addresses.setdefault(text, address.path)
        # a rank may use an address on several levels
        if first[:2] != address.path[:2]:
            words = f"addr {text} is that of rank_list[{first[1]}], too"
            address.report("address-twice", "addr", words, level="warning")
    if "plane_id" in address:
        address.string("plane_id", most=1024)
    for path, port in address.strings("ports", "a port", 1, 16, is_set=True):
        if not _PORT.fullmatch(port) or len(port) > MOST_PORT:
            words = f'port "{cut(port)}" is not DIE/PORT, such as 0/4, and not d2h'
            address.check.report("not-among", path, words, name="port")
    if "backup_addr" not in address:
        return
    of = address.values.get("addr_type")
    for path, backup in address.strings("backup_addr", "a backup address", 0, 16):
        if of not in _BYTES or not _is_address(str(of), backup):
            words = f'backup address "{cut(backup)}" is no {cut(str(of))} of IPV4 and IPV6'
            address.check.report("address", path, words, value=cut(backup))


def _typed_address(members: Members) -> str | None:
    address_type = members.word("addr_type", ADDRESS_TYPES, "addrType")
    text = members.string("addr", least=1, most=256)
    if text is None or address_type is None or _is_address(address_type, text):
        return text if address_type else None
    form = ", 32 hex digits" if address_type == "EID" else ""
    words = f'addr "{cut(text)}" is no {address_type}{form}'
    members.report("address", "addr", words, value=cut(text))
    return None


def _is_address(address_type: str, text: str) -> bool:
    if address_type == "EID":
        return _EID.fullmatch(text) is not None
    address = packed(text)
    return address is not None and len(address) == _BYTES[address_type]


FORMAT = parts.Format(
    called="version 2.0",
    products=("a5",),
    list_name="rank_list",
    table=LevelTable,
    check=_check,
    from_servers=_from_servers,
    from_members=_from_members,
    is_v2=True,
)
