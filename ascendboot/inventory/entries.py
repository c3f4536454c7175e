"""The lines of `nodes`: which nodes each stands for, and which keys hold for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendboot.inventory import ranges
from ascendboot.inventory.kinds import NAME, is_match
from ascendboot.inventory.node_keys import NodeKeys
from ascendboot.inventory.sheet import seen
from ascendboot.inventory.words import no_such
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ascendboot.inventory.keys import InventoryKeys
    from ascendboot.inventory.sheet import Sheet, Spot


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
        single = ranges.expand(text)
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
            names = ranges.expand(text)
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
        f"{seen(text)} is not a name: use letters, digits, - _ . and at most 64 of them, "
        "a letter or digit first"
    )
