"""Nodes and devices from the entries of an inventory."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendboot.inventory import values
from ascendboot.inventory.messages import did_you_mean, no_such
from ascendboot.inventory.schema import DeviceKeys, InventoryKeys, NodeKeys
from ascendboot.inventory.values import (
    NAME,
    NO_IPV6,
    ip_of,
    is_match,
    why_not_address,
    why_not_cluster_ip,
)
from ascendboot.inventory.yaml import Mark, Sheet, described
from ascendboot.model.cluster import Device, Node, SshAccess
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence


@dataclass(frozen=True)
class Layer:
    """Keys of a node and the place of the file in which they stand."""

    keys: NodeKeys
    mark: Mark


@dataclass(frozen=True)
class Entry:
    """A line of `nodes`: one node, or as many as its range stands for."""

    text: str
    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    """By priority: the node itself, its groups, the defaults."""

    @property
    def mark(self) -> Mark:
        """Where the line stands."""
        return self.layers[0].mark

    def value(self, key: str) -> Any:  # noqa: ANN401 (the type of the key)
        """The value of `key` in the first layer that states it, else its default."""
        for layer in self.layers:
            if key in layer.keys.model_fields_set:
                return getattr(layer.keys, key)
        return NodeKeys.model_fields[key].default

    def is_stated(self, key: str) -> bool:
        """Whether `key` is written anywhere for these nodes, right or wrong."""
        return any(key in layer.mark.keys for layer in self.layers)

    def mark_of(self, key: str) -> Mark:
        """Where the value of `key` stands; the line itself where nothing states it."""
        for layer in self.layers:
            if key in layer.keys.model_fields_set:
                return layer.mark.at(key)
        return self.mark

    @property
    def env(self) -> dict[str, str]:
        """The variables of these nodes alone; earlier layers have priority."""
        return {k: v for layer in reversed(self.layers) for k, v in layer.keys.env.items()}

    def each(self, key: str, sheet: Sheet) -> tuple[str, ...] | None:
        """The text of `key` for each node, or None: not stated, or a problem was reported."""
        text = self.value(key)
        return None if text is None else self.share_out(text, self.mark_of(key), sheet)

    def share_out(self, text: str, mark: Mark, sheet: Sheet) -> tuple[str, ...] | None:
        """`text`, a range or not, for each node; None when they are not equally many."""
        single = values.expand(text)
        if len(single) == len(self.names):
            return single
        sheet.report(
            mark,
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
        mark = sheet.mark.at("nodes", text)
        try:
            names = values.expand(text)
        except ValueError as error:
            sheet.report(mark, f"{error}")
            continue
        wrong = next((name for name in names if not is_match(NAME, name)), None)
        if wrong is not None:
            sheet.report(mark, _not_a_name(wrong))
            continue
        yield Entry(text, names, tuple(_layers(sheet, keys, Layer(own, mark))))


def _layers(sheet: Sheet, keys: InventoryKeys, own: Layer) -> Iterator[Layer]:
    defaults = Layer(keys.defaults, sheet.mark.keys.get("defaults", _nowhere(sheet)))
    yield own
    source = own if "groups" in own.keys.model_fields_set else defaults
    for index, name in enumerate(source.keys.groups or ()):
        if name in keys.groups:
            yield Layer(keys.groups[name], sheet.mark.at("groups", name))
        elif name not in sheet.mark.at("groups").keys:
            sheet.report(
                source.mark.at("groups", index),
                no_such("group", name, keys.groups, sheet),
            )
    yield defaults


def _nowhere(sheet: Sheet) -> Mark:
    return type(sheet.mark)(sheet.mark.line)


def _check_groups(sheet: Sheet, keys: InventoryKeys) -> None:
    for name, group in keys.groups.items():
        mark = sheet.mark.at("groups", name)
        if not is_match(NAME, name):
            sheet.report(mark, _not_a_name(name))
        if group.groups is not None:
            sheet.report(mark.at("groups"), "a group takes over no other group; remove this")


def _report_overlaps(sheet: Sheet, entries: tuple[Entry, ...]) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        again: dict[int, list[str]] = {}
        for name in entry.names:
            earlier = first.setdefault(name, entry)
            if earlier is not entry:
                again.setdefault(earlier.mark.line, []).append(name)
        for line, names in again.items():
            are = "are" if len(names) > 1 else "is"
            sheet.report(
                entry.mark, f"{fold(names)} {are} stated twice: here and in line {line}; keep one"
            )


def _not_a_name(text: str) -> str:
    return (
        f"{described(text)} is not a name: use letters, digits, - _ . and at most 64 of them, "
        "a letter or digit first"
    )


_SHOWN = 3
"""So many are named; the rest is counted."""


@dataclass(frozen=True)
class Use:
    """A value, the node or device that has it, and where it stands."""

    value: str
    node: str
    mark: Mark
    identity: Hashable
    """Equal for two ways to write the same."""
    device_id: int | None = None

    @property
    def holder(self) -> str:
        """`node02`, or `node02 device 3`."""
        return self.node if self.device_id is None else f"{self.node} device {self.device_id}"


class Duplicates:
    """Reports values that several nodes have; leaves out what follows from an earlier report."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._reported: set[frozenset[str]] = set()

    def report(self, what: str, uses: Iterable[Use]) -> None:
        """One problem for each set of lines that share values."""
        by_identity: dict[Hashable, list[Use]] = {}
        for one in uses:
            by_identity.setdefault(one.identity, []).append(one)
        by_lines: dict[tuple[int, ...], list[list[Use]]] = {}
        for same in by_identity.values():
            holders = frozenset(one.holder for one in same)
            if len(holders) > 1 and holders not in self._reported:
                self._reported.add(holders)
                by_lines.setdefault(tuple(id(one.mark) for one in same), []).append(same)
        for groups in by_lines.values():
            self._sheet.report(groups[0][-1].mark, _sentence(what, groups))


def _sentence(what: str, groups: Sequence[Sequence[Use]]) -> str:
    values = _some([same[0].value for same in groups])
    first, last = groups[0][0], groups[0][-1]
    times = f"{len(groups[0])} times" if groups[0][2:] else "twice"
    where = f" (line {first.mark.line})" if first.mark.line != last.mark.line else ""
    if len(groups) == 1 and not groups[0][2:]:
        text = f"is given twice: {first.holder}{where} and {last.holder}"
    elif len(groups) == 1:
        text = f"is given {times}: {_holders(groups[0])}"
    else:
        everyone = [one for same in groups for one in same]
        text = f"are each given {times}: {_holders(everyone)}{where}"
    return f"{what} {values} {text}; give each its own"


def _holders(uses: Sequence[Use]) -> str:
    if any(one.device_id is not None for one in uses):
        return _some([one.holder for one in uses])
    return fold({one.node for one in uses})


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"


_LAST_PORT = 65535
_JUMP = re.compile(
    r"(?:[^\s@,:]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:@,\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Draft:
    """One node before its jump and user are resolved."""

    name: str
    entry: Entry
    address: str | None
    cluster_address: str | None
    server_id: str | None
    devices: tuple[Device, ...] | None

    def mark_of(self, *keys: str) -> Mark:
        """Where the first of these keys that has a value stands."""
        return self.entry.mark_of(next(k for k in keys if self.entry.value(k) is not None))


def build_nodes(sheet: Sheet, entries: tuple[Entry, ...]) -> tuple[Node, ...]:
    """The nodes in inventory order; reports contradictions.

    Only when nothing was reported are they all there.
    """
    drafts = [draft for entry in entries for draft in _drafts(sheet, entry)]
    _report_duplicates(sheet, drafts)
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
        sheet.report(entry.mark, "address is missing; write for example `address: 192.0.2.11`")
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
        entry.mark,
        f'cluster_address is missing: the address "{unfit[0]}" {why} address at which the other '
        "nodes reach this one",
    )
    return None


def _devices(sheet: Sheet, entry: Entry) -> list[tuple[Device, ...]] | None:
    """The devices of each node of the line; None where they are not named one by one."""
    items = entry.value("devices")
    if not isinstance(items, list):
        return None
    mark = entry.mark_of("devices")
    keys = [i if isinstance(i, DeviceKeys) else DeviceKeys(device_id=i) for i in items]
    first: dict[int, Mark] = {}
    for key, item in zip(keys, mark.items, strict=True):
        if first.setdefault(key.device_id, item) is not item:
            sheet.report(item, f"device id {key.device_id} is stated twice; keep one")
    columns: list[list[Device]] = []
    for key, item in zip(keys, mark.items, strict=True):
        ips: tuple[str | None, ...] | None = (None,) * len(entry.names)
        if key.device_ip is not None:
            ips = entry.share_out(key.device_ip, item.at("device_ip"), sheet)
        if ips is None:
            return None
        columns.append([Device(key.device_id, ip) for ip in ips])
    return list(zip(*columns, strict=True))


def _report_duplicates(sheet: Sheet, drafts: list[Draft]) -> None:
    duplicates = Duplicates(sheet)
    duplicates.report("address", filter(None, map(_address, drafts)))
    duplicates.report(
        "cluster_address",
        [
            Use(d.cluster_address, d.name, d.mark_of("cluster_address", "address"), ip)
            for d in drafts
            if d.cluster_address is not None and (ip := ip_of(d.cluster_address))
        ],
    )
    duplicates.report(
        "server_id",
        [
            Use(
                d.server_id,
                d.name,
                d.mark_of("server_id", "cluster_address", "address"),
                d.server_id,
            )
            for d in drafts
            if d.server_id is not None
        ],
    )
    duplicates.report("device_ip", _device_ips(drafts))


def _address(draft: Draft) -> Use | None:
    """Nodes behind one forwarding machine share an address, but not with the same port."""
    if draft.address is None:
        return None
    entry = draft.entry
    machine: Hashable = ip_of(draft.address) or draft.address.lower().removesuffix(".")
    identity = (machine, entry.value("port"), entry.value("jump"))
    return Use(draft.address, draft.name, entry.mark_of("address"), identity)


def _device_ips(drafts: list[Draft]) -> Iterator[Use]:
    for draft in drafts:
        marks = draft.entry.mark_of("devices").items
        for device, item in zip(draft.devices or (), marks, strict=False):
            ip = device.device_ip
            if ip is not None:
                yield Use(ip, draft.name, item.at("device_ip"), ip_of(ip), device.device_id)


def _jump(sheet: Sheet, draft: Draft, drafts: dict[str, Draft]) -> str | None:
    """Where to jump, as USER@HOST:PORT; a node's name is resolved."""
    text = draft.entry.value("jump")
    if text is None:
        return None
    mark = draft.entry.mark_of("jump")
    if text in drafts:
        return _through(sheet, draft, drafts[text], mark)
    match = _JUMP.fullmatch(text)
    if match is None or ("@" not in text and "." not in text and ":" not in text):
        hint = did_you_mean(text, drafts, sheet) or "; another machine is written USER@HOST[:PORT]"
        hint += ", an IPv6 address in brackets" if ip_of(text) else ""
        sheet.report(mark, f"no node is called {described(text)}{hint}")
        return None
    reason = why_not_address(match["host"].strip("[]"))
    if reason:
        sheet.report(mark, f"{described(match['host'])} {reason}")
    if match["port"] and not 1 <= int(match["port"]) <= _LAST_PORT:
        sheet.report(mark, f"{match['port']} is not a port; write one from 1 to 65535")
    return str(text)


def _through(sheet: Sheet, draft: Draft, other: Draft, mark: Mark) -> str | None:
    if other is draft:
        if "jump" in draft.entry.mark.keys:
            sheet.report(mark, "a node is not reached through itself; remove this")
        return None  # the jump that holds for all others
    onward = other.entry.value("jump")
    if onward is not None and onward != other.name:
        sheet.report(mark, f"{other.name} is itself reached through {onward}; one jump is the most")
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
            sheet.mark.at("defaults"),
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
