"""Nodes and devices from the entries of an inventory."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ascendboot.inventory import values
from ascendboot.inventory.messages import did_you_mean, no_such
from ascendboot.inventory.schema import ContainerKeys, DeviceKeys, InventoryKeys, NodeKeys
from ascendboot.inventory.yaml import Mark, Sheet, described
from ascendboot.model.cluster import SSH_PORT, Creation, Device, Node, SshAccess
from ascendboot.model.names import counted, expand, fold, path_here
from ascendboot.value import Value, replace

_LAST_PORT = 65535
_JUMP = re.compile(
    r"(?:[^\s@,:]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:@,\[\]]+)(?::(?P<port>[0-9]{1,5}))?"
)
_SHOWN = 3
"""Messages name this many values; the rest is counted."""


class Layer(NamedTuple):
    """Keys of a node, and where they stand in the file."""

    keys: NodeKeys
    mark: Mark


class Entry(Value):
    """A line of `nodes`: one node, or as many as its range stands for."""

    text: str
    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    """By priority: the node itself, its groups, the defaults."""

    @property
    def mark(self) -> Mark:
        """The place of the line."""
        return self.layers[0].mark

    @property
    def env(self) -> dict[str, str]:
        """The variables of these nodes alone; earlier layers have priority."""
        return {k: v for layer in reversed(self.layers) for k, v in layer.keys.env.items()}

    @property
    def created(self) -> ContainerKeys | None:
        """The description of a container that setup creates."""
        stated = self.value("container")
        return stated if isinstance(stated, ContainerKeys) else None

    def value(self, key: str) -> Any:  # noqa: ANN401 (the type of the key)
        """The value of `key` in the first layer that states it, else its default."""
        layer = self._layer(key)
        return getattr(layer.keys, key) if layer else NodeKeys.model_fields[key].default

    def mark_of(self, *keys: str) -> Mark:
        """The place of the first of these keys that is stated; the line itself if none is."""
        layers = ((key, self._layer(key)) for key in keys)
        return next((layer.mark.at(key) for key, layer in layers if layer), self.mark)

    def is_stated(self, key: str) -> bool:
        """Whether `key` is written anywhere for these nodes, valid or not."""
        return any(key in layer.mark.keys for layer in self.layers)

    def each(self, key: str, sheet: Sheet) -> tuple[str, ...] | None:
        """The text of `key` for each node, or None: not stated, or a problem was reported."""
        text = self.value(key)
        return None if text is None else self.share_out(text, self.mark_of(key), sheet)

    def share_out(self, text: str, mark: Mark, sheet: Sheet) -> tuple[str, ...] | None:
        """`text`, a range or not, for each node; reports and returns None for another number."""
        single = expand(text)
        if len(single) == len(self.names):
            return single
        both = f'"{text}" stands for {len(single)}, but {self.text} for '
        both += counted(len(self.names), "node")
        sheet.report(mark, f"{both}; let both stand for equally many")
        return None

    def _layer(self, key: str) -> Layer | None:
        return next((x for x in self.layers if key in x.keys.model_fields_set), None)


def read_entries(sheet: Sheet, keys: InventoryKeys) -> tuple[Entry, ...]:
    """The lines of `nodes` with valid names; reports problems of names and groups."""
    for name, group in keys.groups.items():
        mark = sheet.mark.at("groups", name)
        if not values.is_match(values.NAME, name):
            sheet.report(mark, _not_a_name(name))
        if group.groups is not None:
            sheet.report(mark.at("groups"), "a group takes over no other group; remove this")
    entries = tuple(_entries(sheet, keys))
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
    return entries


def _entries(sheet: Sheet, keys: InventoryKeys) -> Iterator[Entry]:
    for text, own in keys.nodes.items():
        mark = sheet.mark.at("nodes", text)
        try:
            names = expand(text)
        except ValueError as error:
            sheet.report(mark, f"{error}")
            continue
        wrong = next((name for name in names if not values.is_match(values.NAME, name)), None)
        if wrong is None:
            yield Entry(text, names, tuple(_layers(sheet, keys, Layer(own, mark))))
        else:
            sheet.report(mark, _not_a_name(wrong))


def _layers(sheet: Sheet, keys: InventoryKeys, own: Layer) -> Iterator[Layer]:
    defaults = Layer(keys.defaults, sheet.mark.keys.get("defaults", Mark(sheet.mark.line)))
    yield own
    source = own if "groups" in own.keys.model_fields_set else defaults
    for index, name in enumerate(source.keys.groups or ()):
        if name in keys.groups:
            yield Layer(keys.groups[name], sheet.mark.at("groups", name))
        elif name not in sheet.mark.at("groups").keys:
            text = no_such("group", name, keys.groups, sheet)
            sheet.report(source.mark.at("groups", index), text)
    yield defaults


def _not_a_name(text: str) -> str:
    return (
        f"{described(text)} is not a name: use letters, digits, - _ . and at most 64 of them, "
        "a letter or digit first"
    )


Draft: TypeAlias = "tuple[Entry, Node]"
"""A node without its jump; empty texts stand for what was reported as wrong."""


def build_nodes(sheet: Sheet, entries: tuple[Entry, ...]) -> tuple[Node, ...]:
    """The nodes in inventory order; reports contradictions, and is complete only without any."""
    user = ""
    if any(entry.value("user") is None for entry in entries):
        try:
            user = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError:
            words = f"user is missing, and user id {os.geteuid()} has no login name here; "
            words += "state `user` in `defaults`, or --user with init"
            sheet.report(sheet.mark.at("defaults"), words)
    drafts = [(entry, node) for entry in entries for node in _nodes(sheet, entry, user)]
    _report_duplicates(sheet, drafts)
    by_name = {node.name: (entry, node) for entry, node in drafts}
    return tuple(
        replace(node, ssh=replace(node.ssh, jump=_jump(sheet, (entry, node), by_name)))
        for entry, node in drafts
    )


def _nodes(sheet: Sheet, entry: Entry, own_login_name: str) -> Iterator[Node]:
    value = entry.value
    addresses = entry.each("address", sheet)
    if not entry.is_stated("address"):
        sheet.report(entry.mark, "address is missing; write for example `address: 192.0.2.11`")
    cluster_addresses = entry.each("cluster_address", sheet)
    if addresses and not entry.is_stated("cluster_address"):
        cluster_addresses = _cluster_addresses(sheet, entry, addresses)
    server_ids = entry.each("server_id", sheet)
    if not entry.is_stated("server_id"):
        server_ids = cluster_addresses
    devices, count, made = _devices(sheet, entry), value("devices"), entry.created
    identity, leaf = value("identity"), value("leaf")
    if isinstance(leaf, dict):
        leaf = tuple(sorted((i, name) for ids, name in leaf.items() for i in values.ids_of(ids)))
    ssh = SshAccess(
        user=value("user") or own_login_name,
        port=value("port") or SSH_PORT,
        # Absolute: the record of setup must be the same in all working directories.
        identity=str(path_here(identity, sheet.file).absolute()) if identity else None,
        sudo=value("sudo"),
        fingerprint=value("fingerprint"),
        unstated=tuple(key for key in ("user", "port") if value(key) is None),
    )
    for index, name in enumerate(entry.names):
        yield Node(
            name=name,
            address=addresses[index] if addresses else "",
            cluster_address=cluster_addresses[index] if cluster_addresses else "",
            server_id=server_ids[index] if server_ids else "",
            ssh=ssh,
            container=made.name if made else value("container"),
            engine=value("engine"),
            creation=Creation(**made.model_dump(exclude={"name"})) if made else None,
            devices=devices[index] if devices else (),
            device_count=count if isinstance(count, int) else None,
            interface=value("interface"),
            leaf=leaf,
            groups=tuple(value("groups") or ()),
            env=entry.env,
        )


def _cluster_addresses(
    sheet: Sheet, entry: Entry, addresses: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The addresses, if other nodes can reach each of them."""
    unfit = next((a for a in addresses if values.why_not_cluster_ip(a) is not None), None)
    if unfit is None:
        return addresses
    why = "is a host name; state the IP"
    if values.ip_of(unfit):
        why = f"{values.NO_IPV6}; state the IPv4"
    words = f'the address "{unfit}" {why} address at which the other nodes reach this one'
    sheet.report(entry.mark, f"cluster_address is missing: {words}")
    return None


def _devices(sheet: Sheet, entry: Entry) -> list[tuple[Device, ...]] | None:
    """The devices of each node of the line; None where they are not listed one by one."""
    stated = entry.value("devices")
    if not isinstance(stated, list):
        return None
    marks = entry.mark_of("devices").items
    items = [
        item if isinstance(item, DeviceKeys) else DeviceKeys(device_id=item) for item in stated
    ]
    first: dict[int, Mark] = {}
    for item, mark in zip(items, marks, strict=True):
        if first.setdefault(item.device_id, mark) is not mark:
            sheet.report(mark, f"device id {item.device_id} is stated twice; keep one")
    columns: list[list[Device]] = []
    for item, mark in zip(items, marks, strict=True):
        ips: Sequence[str | None] | None = [None] * len(entry.names)
        if item.device_ip is not None:
            ips = entry.share_out(item.device_ip, mark.at("device_ip"), sheet)
        if ips is None:
            return None
        columns.append([Device(item.device_id, ip) for ip in ips])
    return list(zip(*columns, strict=True))


class Use(NamedTuple):
    """A value, who has it, and where it stands."""

    value: str
    holder: str
    """`node02`, or `node02 device 3`."""
    mark: Mark
    identity: Hashable
    """Equal for two ways to write the same value."""


def _report_duplicates(sheet: Sheet, drafts: Sequence[Draft]) -> None:
    """Report values that several nodes have, but none that follows from an earlier report."""
    reported: set[frozenset[str]] = set()
    for what, uses in (
        ("address", map(_address, drafts)),
        ("cluster_address", (_text(d, "cluster_address", values.ip_of) for d in drafts)),
        ("server_id", (_text(d, "server_id", str) for d in drafts)),
        ("device_ip", _device_ips(drafts)),
    ):
        by_identity: dict[Hashable, list[Use]] = {}
        for use in filter(None, uses):
            by_identity.setdefault(use.identity, []).append(use)
        by_lines: dict[tuple[int, ...], list[list[Use]]] = {}
        for same in by_identity.values():
            holders = frozenset(use.holder for use in same)
            if len(holders) > 1 and holders not in reported:
                reported.add(holders)
                by_lines.setdefault(tuple(id(use.mark) for use in same), []).append(same)
        for groups in by_lines.values():
            sheet.report(groups[0][-1].mark, _given_twice(what, groups))


def _text(draft: Draft, key: str, identity: Callable[[str], Hashable]) -> Use | None:
    entry, node = draft
    text, keys = getattr(node, key), ("server_id", "cluster_address", "address")
    mark = entry.mark_of(*keys[keys.index(key) :])
    return Use(text, node.name, mark, identity(text)) if text else None


def _address(draft: Draft) -> Use | None:
    """Nodes behind one forwarding machine share an address, but not with the same port."""
    entry, node = draft
    if not node.address:
        return None
    machine: Hashable = values.ip_of(node.address) or node.address.lower().removesuffix(".")
    identity = (machine, node.ssh.port, entry.value("jump"))
    return Use(node.address, node.name, entry.mark_of("address"), identity)


def _device_ips(drafts: Sequence[Draft]) -> Iterator[Use]:
    for entry, node in drafts:
        for device, item in zip(node.devices, entry.mark_of("devices").items, strict=False):
            ip = device.device_ip
            if ip is not None:
                holder = f"{node.name} device {device.device_id}"
                yield Use(ip, holder, item.at("device_ip"), values.ip_of(ip))


def _given_twice(what: str, groups: Sequence[Sequence[Use]]) -> str:
    """The problem of values that the same lines share; a group has the uses of one value."""
    values = _some([same[0].value for same in groups])
    first, last = groups[0][0], groups[0][-1]
    holders = [use.holder for same in groups for use in same]
    everyone = _some(holders) if what == "device_ip" else fold(set(holders))
    times = f"{len(groups[0])} times" if groups[0][2:] else "twice"
    where = f" (line {first.mark.line})" if first.mark.line != last.mark.line else ""
    if len(groups) > 1:
        text = f"are each given {times}: {everyone}{where}"
    elif groups[0][2:]:
        text = f"is given {times}: {everyone}"
    else:
        text = f"is given twice: {first.holder}{where} and {last.holder}"
    return f"{what} {values} {text}; give each its own"


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"


def _jump(sheet: Sheet, draft: Draft, drafts: dict[str, Draft]) -> str | None:
    """The machine to jump through, as USER@HOST:PORT; a node's name is resolved."""
    text, mark = draft[0].value("jump"), draft[0].mark_of("jump")
    if text is None:
        return None
    if text in drafts:
        return _through(sheet, draft, drafts[text], mark)
    match = _JUMP.fullmatch(text)
    if match is None or ("@" not in text and "." not in text and ":" not in text):
        hint = did_you_mean(text, drafts, sheet) or "; another machine is written USER@HOST[:PORT]"
        hint += ", an IPv6 address in brackets" if values.ip_of(text) else ""
        sheet.report(mark, f"no node is called {described(text)}{hint}")
        return None
    reason = values.why_not_address(match["host"].strip("[]"))
    if reason:
        sheet.report(mark, f"{described(match['host'])} {reason}")
    if match["port"] and not 1 <= int(match["port"]) <= _LAST_PORT:
        sheet.report(mark, f"{match['port']} is not a port; write one from 1 to 65535")
    return str(text)


def _through(sheet: Sheet, draft: Draft, other: Draft, mark: Mark) -> str | None:
    entry, node = other
    if node.name == draft[1].name:
        if "jump" in entry.mark.keys:
            sheet.report(mark, "a node is not reached through itself; remove this")
        return None  # the jump that holds for all others
    onward = entry.value("jump")
    if onward is not None and onward != node.name:
        sheet.report(mark, f"{node.name} is itself reached through {onward}; one jump is the most")
    host = f"[{node.address}]" if ":" in node.address else node.address
    user, port = entry.value("user"), entry.value("port")
    return f"{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
