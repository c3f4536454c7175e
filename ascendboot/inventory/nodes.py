"""Nodes and devices from the entries of an inventory."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendboot.inventory import values
from ascendboot.inventory.messages import did_you_mean, no_such
from ascendboot.inventory.schema import DeviceKeys, NodeKeys
from ascendboot.inventory.values import (
    NAME,
    NO_IPV6,
    ip_of,
    is_match,
    why_not_address,
    why_not_cluster_ip,
)
from ascendboot.inventory.yaml import described
from ascendboot.model.cluster import Device, Node, SshAccess
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from ascendboot.inventory.schema import InventoryKeys
    from ascendboot.inventory.yaml import Sheet, Spot


@dataclass(frozen=True)
class Layer:
    """Keys of a node and the place of the file in which they stand."""

    keys: NodeKeys
    spot: Spot


@dataclass(frozen=True)
class Entry:
    """A line of `nodes`: one node, or as many as its range stands for."""

    text: str
    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    """What counts first stands first: the node itself, its groups, the defaults."""

    @property
    def spot(self) -> Spot:
        """Where the line stands."""
        return self.layers[0].spot

    def value(self, key: str) -> Any:  # noqa: ANN401 (the type of the key)
        """What holds for `key`: the first layer that states it, else the key's default."""
        for layer in self.layers:
            if key in layer.keys.model_fields_set:
                return getattr(layer.keys, key)
        return NodeKeys.model_fields[key].default

    def is_stated(self, key: str) -> bool:
        """Whether `key` is written anywhere for these nodes, be it well or badly."""
        return any(key in layer.spot.keys for layer in self.layers)

    def spot_of(self, key: str) -> Spot:
        """Where the value of `key` stands; the line itself where nothing states it."""
        for layer in self.layers:
            if key in layer.keys.model_fields_set:
                return layer.spot.at(key)
        return self.spot

    @property
    def env(self) -> dict[str, str]:
        """The variables of these nodes alone: every one of a layer, unless a former one has it."""
        return {k: v for layer in reversed(self.layers) for k, v in layer.keys.env.items()}

    def each(self, key: str, sheet: Sheet) -> tuple[str, ...] | None:
        """The text of `key` for each node, or None: not stated, or a problem was reported."""
        text = self.value(key)
        return None if text is None else self.share_out(text, self.spot_of(key), sheet)

    def share_out(self, text: str, spot: Spot, sheet: Sheet) -> tuple[str, ...] | None:
        """`text`, a range or not, for each node; None when they are not equally many."""
        single = values.expand(text)
        if len(single) == len(self.names):
            return single
        sheet.report(
            spot,
            f'"{text}" stands for {len(single)}, but {self.text} for {len(self.names)} '
            f"node{'s' if len(self.names) > 1 else ''}; let both stand for equally many",
        )
        return None


def read_entries(sheet: Sheet, keys: InventoryKeys) -> tuple[Entry, ...]:
    """The lines of `nodes` whose names are understood; what is wrong with names is reported."""
    _check_groups(sheet, keys)
    entries = tuple(_entries(sheet, keys))
    _report_overlaps(sheet, entries)
    return entries


def _entries(sheet: Sheet, keys: InventoryKeys) -> Iterator[Entry]:
    for text, own in keys.nodes.items():
        spot = sheet.spot.at("nodes", text)
        try:
            names = values.expand(text)
        except ValueError as error:
            sheet.report(spot, f"{error}")
            continue
        wrong = next((name for name in names if not is_match(NAME, name)), None)
        if wrong is not None:
            sheet.report(spot, _not_a_name(wrong))
            continue
        yield Entry(text, names, tuple(_layers(sheet, keys, Layer(own, spot))))


def _layers(sheet: Sheet, keys: InventoryKeys, own: Layer) -> Iterator[Layer]:
    defaults = Layer(keys.defaults, sheet.spot.keys.get("defaults", _nowhere(sheet)))
    yield own
    source = own if "groups" in own.keys.model_fields_set else defaults
    for index, name in enumerate(source.keys.groups or ()):
        if name in keys.groups:
            yield Layer(keys.groups[name], sheet.spot.at("groups", name))
        elif name not in sheet.spot.at("groups").keys:
            sheet.report(
                source.spot.at("groups", index),
                no_such("group", name, keys.groups, sheet),
            )
    yield defaults


def _nowhere(sheet: Sheet) -> Spot:
    return type(sheet.spot)(sheet.spot.line)


def _check_groups(sheet: Sheet, keys: InventoryKeys) -> None:
    for name, group in keys.groups.items():
        spot = sheet.spot.at("groups", name)
        if not is_match(NAME, name):
            sheet.report(spot, _not_a_name(name))
        if group.groups is not None:
            sheet.report(spot.at("groups"), "a group takes over no other group; remove this")


def _report_overlaps(sheet: Sheet, entries: tuple[Entry, ...]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        again: dict[int, list[str]] = {}
        for name in entry.names:
            earlier = first.setdefault(name, entry)
            if earlier is not entry:
                again.setdefault(earlier.spot.line, []).append(name)
        for line, names in again.items():
            are = "are" if len(names) > 1 else "is"
            sheet.report(
                entry.spot, f"{fold(names)} {are} stated twice: here and in line {line}; keep one"
            )


def _not_a_name(text: str) -> str:
    return (
        f"{described(text)} is not a name: use letters, digits, - _ . and at most 64 of them, "
        "a letter or digit first"
    )


_SHOWN = 3
"""So many are named; the rest is counted."""


@dataclass(frozen=True)
class Given:
    """A value, to whom it is given, and where."""

    value: str
    node: str
    spot: Spot
    identity: Hashable
    """Equal for two ways to write the same."""
    device_id: int | None = None

    @property
    def holder(self) -> str:
        """`node02`, or `node02 device 3`."""
        return self.node if self.device_id is None else f"{self.node} device {self.device_id}"


class Doubles:
    """Reports what is given twice; what follows from something already reported is left out."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._reported: set[frozenset[str]] = set()

    def report(self, what: str, given: Iterable[Given]) -> None:
        """One problem for each set of lines that share values."""
        by_identity: dict[Hashable, list[Given]] = {}
        for one in given:
            by_identity.setdefault(one.identity, []).append(one)
        by_lines: dict[tuple[int, ...], list[list[Given]]] = {}
        for same in by_identity.values():
            holders = frozenset(one.holder for one in same)
            if len(holders) > 1 and holders not in self._reported:
                self._reported.add(holders)
                by_lines.setdefault(tuple(id(one.spot) for one in same), []).append(same)
        for groups in by_lines.values():
            self._sheet.report(groups[0][-1].spot, _sentence(what, groups))


def _sentence(what: str, groups: Sequence[Sequence[Given]]) -> str:
    values = _some([same[0].value for same in groups])
    first, last = groups[0][0], groups[0][-1]
    times = f"{len(groups[0])} times" if groups[0][2:] else "twice"
    where = f" (line {first.spot.line})" if first.spot.line != last.spot.line else ""
    if len(groups) == 1 and not groups[0][2:]:
        text = f"is given twice: {first.holder}{where} and {last.holder}"
    elif len(groups) == 1:
        text = f"is given {times}: {_holders(groups[0])}"
    else:
        everyone = [one for same in groups for one in same]
        text = f"are each given {times}: {_holders(everyone)}{where}"
    return f"{what} {values} {text}; give each its own"


def _holders(given: Sequence[Given]) -> str:
    if any(one.device_id is not None for one in given):
        return _some([one.holder for one in given])
    return fold({one.node for one in given})


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"


_LAST_PORT = 65535
_JUMP = re.compile(
    r"(?:[^\s@,:]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:@,\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Draft:
    """One node with what was found for it so far."""

    name: str
    entry: Entry
    address: str | None
    cluster_address: str | None
    server_id: str | None
    devices: tuple[Device, ...] | None


def build_nodes(sheet: Sheet, entries: tuple[Entry, ...]) -> tuple[Node, ...]:
    """The nodes in inventory order; whatever contradicts is reported.

    Only when nothing was reported are they all there.
    """
    drafts = [draft for entry in entries for draft in _drafts(sheet, entry)]
    _report_doubles(sheet, drafts)
    by_name = {draft.name: draft for draft in drafts}
    jumps = {draft.name: _jump(sheet, draft, by_name) for draft in drafts}
    user = None
    if any(entry.value("user") is None for entry in entries):
        user = _own_login_name(sheet)
    return tuple(
        node for draft in drafts if (node := _node(draft, jumps[draft.name], user)) is not None
    )


def _drafts(sheet: Sheet, entry: Entry) -> Iterator[Draft]:
    addresses = entry.each("address", sheet)
    if not entry.is_stated("address"):
        sheet.report(entry.spot, "address is missing; write for example `address: 192.0.2.11`")
    cluster_addresses = entry.each("cluster_address", sheet)
    if addresses and not entry.is_stated("cluster_address"):
        cluster_addresses = _ips(sheet, entry, addresses)
    server_ids = entry.each("server_id", sheet)
    if not entry.is_stated("server_id"):
        server_ids = cluster_addresses
    devices = _devices(sheet, entry)
    for index, name in enumerate(entry.names):
        yield Draft(
            name=name,
            entry=entry,
            address=addresses[index] if addresses else None,
            cluster_address=cluster_addresses[index] if cluster_addresses else None,
            server_id=server_ids[index] if server_ids else None,
            devices=devices[index] if devices else None,
        )


def _ips(sheet: Sheet, entry: Entry, addresses: tuple[str, ...]) -> tuple[str, ...] | None:
    """The addresses, where all of them are addresses at which nodes can reach each other."""
    unfit = [address for address in addresses if why_not_cluster_ip(address) is not None]
    if not unfit:
        return addresses
    why = f"{NO_IPV6}; state the IPv4" if ip_of(unfit[0]) else "is a host name; state the IP"
    sheet.report(
        entry.spot,
        f'cluster_address is missing: the address "{unfit[0]}" {why} address at which the other '
        "nodes reach this one",
    )
    return None


def _devices(sheet: Sheet, entry: Entry) -> list[tuple[Device, ...]] | None:
    """The devices of each node of the line; None where they are not named one by one."""
    items = entry.value("devices")
    if not isinstance(items, list):
        return None
    spot = entry.spot_of("devices")
    keys = [i if isinstance(i, DeviceKeys) else DeviceKeys(device_id=i) for i in items]
    first: dict[int, Spot] = {}
    for key, item in zip(keys, spot.items, strict=True):
        if first.setdefault(key.device_id, item) is not item:
            sheet.report(item, f"device id {key.device_id} is stated twice; keep one")
    columns: list[list[Device]] = []
    for key, item in zip(keys, spot.items, strict=True):
        ips: tuple[str | None, ...] | None = (None,) * len(entry.names)
        if key.device_ip is not None:
            ips = entry.share_out(key.device_ip, item.at("device_ip"), sheet)
        if ips is None:
            return None
        columns.append([Device(key.device_id, ip) for ip in ips])
    return list(zip(*columns, strict=True))


def _report_doubles(sheet: Sheet, drafts: list[Draft]) -> None:
    doubles = Doubles(sheet)
    doubles.report("address", [g for d in drafts if (g := _address(d)) is not None])
    doubles.report(
        "cluster_address",
        [
            Given(
                draft.cluster_address,
                draft.name,
                _spot_of_first(draft, "cluster_address", "address"),
                ip_of(draft.cluster_address),
            )
            for draft in drafts
            if draft.cluster_address is not None
        ],
    )
    doubles.report(
        "server_id",
        [
            Given(
                draft.server_id,
                draft.name,
                _spot_of_first(draft, "server_id", "cluster_address", "address"),
                draft.server_id,
            )
            for draft in drafts
            if draft.server_id is not None
        ],
    )
    doubles.report("device_ip", _device_ips(drafts))


def _address(draft: Draft) -> Given | None:
    """Nodes behind one forwarding machine share an address, but not with the same port."""
    if draft.address is None:
        return None
    entry = draft.entry
    machine: Hashable = ip_of(draft.address) or draft.address.lower().removesuffix(".")
    identity = (machine, entry.value("port"), entry.value("jump"))
    return Given(draft.address, draft.name, entry.spot_of("address"), identity)


def _device_ips(drafts: list[Draft]) -> Iterator[Given]:
    for draft in drafts:
        spots = draft.entry.spot_of("devices").items
        for device, item in zip(draft.devices or (), spots, strict=False):
            ip = device.device_ip
            if ip is not None:
                yield Given(ip, draft.name, item.at("device_ip"), ip_of(ip), device.device_id)


def _spot_of_first(draft: Draft, *keys: str) -> Spot:
    key = next(key for key in keys if draft.entry.value(key) is not None)
    return draft.entry.spot_of(key)


def _jump(sheet: Sheet, draft: Draft, drafts: dict[str, Draft]) -> str | None:
    """Where to jump, as USER@HOST:PORT; a node's name is resolved."""
    text = draft.entry.value("jump")
    if text is None:
        return None
    spot = draft.entry.spot_of("jump")
    if text in drafts:
        return _through(sheet, draft, drafts[text], spot)
    match = _JUMP.fullmatch(text)
    if match is None or ("@" not in text and "." not in text and ":" not in text):
        hint = did_you_mean(text, drafts, sheet) or "; another machine is written USER@HOST[:PORT]"
        hint += ", an IPv6 address in brackets" if ip_of(text) else ""
        sheet.report(spot, f"no node is called {described(text)}{hint}")
        return None
    reason = why_not_address(match["host"].strip("[]"))
    if reason:
        sheet.report(spot, f"{described(match['host'])} {reason}")
    if match["port"] and not 1 <= int(match["port"]) <= _LAST_PORT:
        sheet.report(spot, f"{match['port']} is not a port; write one from 1 to 65535")
    return str(text)


def _through(sheet: Sheet, draft: Draft, other: Draft, spot: Spot) -> str | None:
    if other is draft:
        if "jump" in draft.entry.spot.keys:
            sheet.report(spot, "a node is not reached through itself; remove this")
        return None  # the jump that holds for all others
    onward = other.entry.value("jump")
    if onward is not None and onward != other.name:
        sheet.report(spot, f"{other.name} is itself reached through {onward}; one jump is the most")
    if other.address is None:
        return None
    host = f"[{other.address}]" if ":" in other.address else other.address
    user = other.entry.value("user")
    return f"{f'{user}@' if user else ''}{host}:{other.entry.value('port')}"


def _own_login_name(sheet: Sheet) -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        sheet.report(
            sheet.spot.at("defaults"),
            f"user is missing, and user id {os.geteuid()} has no login name here; "
            "state `user` in `defaults`",
        )
        return None


def _node(draft: Draft, jump: str | None, own_login_name: str | None) -> Node | None:
    entry = draft.entry
    user = entry.value("user") or own_login_name
    if not (draft.address and draft.cluster_address and draft.server_id and user):
        return None
    identity = entry.value("identity")
    count = entry.value("devices")
    return Node(
        name=draft.name,
        address=draft.address,
        cluster_address=draft.cluster_address,
        server_id=draft.server_id,
        ssh=SshAccess(
            user=user,
            port=entry.value("port"),
            identity=os.path.expanduser(identity) if identity else None,  # noqa: PTH111
            jump=jump,
            fingerprint=entry.value("fingerprint"),
        ),
        container=entry.value("container"),
        engine=entry.value("engine"),
        devices=draft.devices or (),
        device_count=count if isinstance(count, int) else None,
        interface=entry.value("interface"),
        leaf=entry.value("leaf"),
        env=entry.env,
    )
