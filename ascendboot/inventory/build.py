"""From the lines of `nodes` to the nodes: what each has, and what contradicts what."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.inventory.addresses import NO_IPV6, ip_of, why_not_address, why_not_cluster_ip
from ascendboot.inventory.doubles import Doubles, Given
from ascendboot.inventory.node_keys import DeviceKeys
from ascendboot.inventory.sheet import seen
from ascendboot.inventory.words import did_you_mean
from ascendboot.model.cluster import Device, Node, SshAccess

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ascendboot.inventory.entries import Entry
    from ascendboot.inventory.sheet import Sheet, Spot

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
        sheet.report(spot, f"no node is called {seen(text)}{hint}")
        return None
    reason = why_not_address(match["host"].strip("[]"))
    if reason:
        sheet.report(spot, f"{seen(match['host'])} {reason}")
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
