"""The variables that an inventory states, under `hccl` and under `env`: what each may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ascendboot.hccl import VARIABLES, Problem, conflicts, hccl_ports, why_not, why_not_read
from ascendboot.inventory.refused import why_not_env, why_not_shown
from ascendboot.inventory.words import did_you_mean
from ascendboot.profiles import profile_env, why_not_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.inventory.keys import InventoryKeys
    from ascendboot.inventory.sheet import Sheet, Spot

    Section: TypeAlias = tuple[Mapping[str, str], Spot]
    """Variables that are stated, and where that is."""

_NOT_HERE = {
    "ASCEND_VISIBLE_DEVICES": "the container runtime reads it when a container is made, ranks "
    "never do; remove it",
    "ASCEND_DEVICE_ID": "ascendboot tells every rank its DEVICE_ID; remove it",
}


def environment(keys: InventoryKeys) -> dict[str, str]:
    """What every rank gets: the profile's variables, and those stated, which count before them."""
    return {**profile_env(keys.profile), **keys.env, **keys.hccl}


def report_settings(sheet: Sheet, keys: InventoryKeys, *, has_meeting_port: bool) -> None:
    """Note every variable that its software would refuse, misread or not read."""
    for name, value in keys.env.items():
        reason = why_not_stated(name, value, keys)
        if reason is None and name in keys.hccl:
            reason = "stands under `hccl` as well; keep one"
        if reason:
            sheet.report(sheet.spot.at("env", name), reason)
    for name, value in keys.hccl.items():
        if reason := _why_not_here(name, sheet) or _why_not(name, value, keys.product):
            sheet.report(sheet.spot.at("hccl", name), reason)
    # the profile's own are never to blame
    for problem in together(keys, environment(keys), has_meeting_port=has_meeting_port):
        report_first(sheet, _sections(sheet, keys), problem)


def report_one_address(sheet: Sheet, keys: InventoryKeys, nodes: int) -> None:
    """An address for all nodes is right for one of them at most."""
    if nodes > 1:
        text = "one address cannot be that of several nodes; ascendboot sets each node's own: "
        problem = Problem(("HCCL_IF_IP",), f"{text}remove it")
        report_first(sheet, _sections(sheet, keys), problem)


def why_not_stated(name: str, value: str, keys: InventoryKeys) -> str | None:
    """Why a variable cannot have this value in an `env`; None where it can."""
    reason = why_not_env(name) or why_not_shown(name, value, keys.secret_env)
    return reason or why_not_value(name, value) or why_not(name, value, keys.product)


def report_unknown_secrets(
    sheet: Sheet, keys: InventoryKeys, of_nodes: Iterable[Mapping[str, str]]
) -> None:
    """Note every name in `secret_env` that no variable has: its secret would be shown."""
    known = {*environment(keys), *(name for env in of_nodes for name in env)}
    for index, name in enumerate(keys.secret_env):
        if name not in known:
            hint = did_you_mean(name, known, sheet) or "; remove it, or state the variable"
            sheet.report(sheet.spot.at("secret_env", index), f"no `env` states {name}{hint}")


def together(
    keys: InventoryKeys, env: Mapping[str, str], *, has_meeting_port: bool
) -> Iterator[Problem]:
    """What of a whole environment contradicts something else, in it or in the inventory."""
    yield from conflicts(env)
    yield from _ports(keys, env, has_meeting_port=has_meeting_port)


def report_first(sheet: Sheet, sections: Sequence[Section], problem: Problem) -> bool:
    """At the first of its names that these sections state; False where they state none of them."""
    for name in problem.names:
        for stated, spot in sections:
            if name in stated:
                sheet.report(spot.at(name), problem.text)
                return True
    return False


def _sections(sheet: Sheet, keys: InventoryKeys) -> tuple[Section, Section]:
    return (keys.hccl, sheet.spot.at("hccl")), (keys.env, sheet.spot.at("env"))


def _why_not_here(name: str, sheet: Sheet) -> str | None:
    if name in VARIABLES:
        return None
    reason = _NOT_HERE.get(name) or why_not_env(name)
    hint = did_you_mean(name, VARIABLES, sheet) or "; other variables belong under `env`"
    return reason or f"no variable of HCCL has this name{hint}"


def _why_not(name: str, value: str, product: str) -> str | None:
    return why_not(name, value, product) or why_not_read(name, product)


def _ports(
    keys: InventoryKeys, env: Mapping[str, str], *, has_meeting_port: bool
) -> Iterator[Problem]:
    meeting = keys.resources.chief_port if has_meeting_port else None
    taken = {
        "resources.chief_port, where the ranks meet": meeting,
        "ssh.port": keys.ssh.port if isinstance(keys.ssh.port, int) else None,
    }
    names = ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_IF_BASE_PORT")
    for ports in hccl_ports(env):
        for what, port in taken.items():
            if port is not None and port in ports:
                last = f"{ports.start}-{ports.stop - 1}"
                text = f"HCCL takes {last}, and {port} of them is {what}; move one of the two"
                yield Problem(names, text)
