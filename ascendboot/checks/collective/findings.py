"""Findings of a collective run: names every rank that differs from the others."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from ascendboot.checks.collective.progress import Place, RankNotes, nodes_of, ranks_shown
from ascendboot.checks.collective.rank import is_compared, shown
from ascendboot.checks.finding import Finding, Level, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_LISTS = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")
_SHOWN = 12
_LONG = 60


def differences(
    name: str, values: Mapping[int, Any], *, absent: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The ranks that have another value than most, or than rank 0 where no value leads, in words.

    None stands for a rank that has none; `absent` says so.
    """
    groups: dict[str, list[int]] = {}
    for rank in sorted(values):
        groups.setdefault(repr(values[rank]), []).append(rank)
    if len(groups) < 2:  # noqa: PLR2004  two are needed to differ
        return
    # The first of equals is the group with the lowest rank.
    most = max(groups.values(), key=len)
    rest = f"the other {len(most)}" if len(groups) == 2 else f"{len(most)} others"  # noqa: PLR2004
    for ranks in groups.values():
        if ranks is not most:
            value, usual = values[ranks[0]], values[most[0]]
            yield tuple(ranks), _difference_text(name, value, usual, rest, absent)


def unlike_stated(
    name: str, values: Mapping[int, Any], should: Mapping[int, Any], *, absent: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """The ranks that have something else than the inventory states for their node, in words."""
    groups: dict[str, list[int]] = {}
    for rank in should:
        if values[rank] != should[rank]:
            words = _difference_text(
                name, values[rank], should[rank], "its node in the inventory", absent
            )
            groups.setdefault(words, []).append(rank)
    yield from ((tuple(ranks), words) for words, ranks in groups.items())


def meant(name: str, value: Any) -> Any:  # noqa: ANN401 (a JSON value)
    """A list of paths without what counts for nothing: mpirun puts its own before it twice."""
    if name not in _LISTS or not isinstance(value, str):
        return value
    return ":".join(dict.fromkeys(part for part in value.split(":") if part)) or None


def _difference_text(name: str, value: Any, usual: Any, rest: str, absent: str) -> str:  # noqa: ANN401
    if isinstance(value, dict) or isinstance(usual, dict):
        return f"{name} is not that of {rest} (it may be a secret, and is not shown)"
    if value is None:
        return f"{name} is {absent}, {_shown(usual)} on {rest}"
    if usual is None:
        return f"{name} is {_shown(value)}, {absent} on {rest}"
    parts, usual_parts = value.split(":"), usual.split(":")
    if max(len(value), len(usual)) <= _LONG or max(len(parts), len(usual_parts)) < 2:  # noqa: PLR2004
        return f"{name} is {_shown(value)}, {_shown(usual)} on {rest}"
    more = [part for part in parts if part not in usual_parts]
    less = [part for part in usual_parts if part not in parts]
    words = [f"has {_listed(more)}"] if more else []
    words += [f"lacks {_listed(less)}"] if less else []
    return f"{name} {' and '.join(words) or 'has another order'}, unlike {rest}"


def _shown(value: str) -> str:
    """A value of any process's environment, as one that a terminal takes."""
    printable = value.encode(errors="backslashreplace").decode()
    words = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in printable)
    words = words if len(words) <= 2 * _LONG else f"{words[: 2 * _LONG]}…"
    return words if words and " " not in words else f'"{words}"'


def _listed(parts: Sequence[str]) -> str:
    more = [f"{len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []
    return ", ".join([*map(_shown, parts[:_SHOWN]), *more])


if TYPE_CHECKING:
    Told: TypeAlias = tuple[tuple[int, ...], str]
    """Ranks, and what is said of them."""

CLOCK_S = 5.0
"""More than a busy node takes to look at its clock once the sum is there."""

_REMEDIES = {
    "preflight-place": "See what sets it on that node, and whether all its ranks run in one place",
    "preflight-rank-table": "Run setup: it writes the same table everywhere",
    "preflight-versions": "Install the same version everywhere",
    "preflight-environment": (
        "Look for it in the container, in set_env.sh and in what starts Python on that node, or"
        " state it under env in the inventory and run setup"
    ),
    "preflight-limits": (
        "Set it alike: limits.conf or the service's LimitMEMLOCK and LimitNOFILE; --ulimit and"
        " --shm-size of a container"
    ),
}


def compare(
    places: Sequence[Place], said: Mapping[int, RankNotes], digest: str
) -> Iterator[Finding]:
    """Every rank that is not where it should be, or sees something else than most others.

    Ranks of which nothing was heard have no part in it. What the inventory states for a node alone
    is held against that, and not against other nodes. `digest` is that of the plan's rank table,
    empty without one.
    """
    heard = {rank: one.facts for rank, one in said.items() if one.facts}
    yield from _misplaced(places, heard)
    yield from _apart(places, heard)
    yield from _tables(places, heard, digest)
    yield from _listed_ranks("preflight-versions", places, _unlike(heard, "versions", "not there"))
    yield from _listed_ranks("preflight-environment", places, _environments(places, heard))
    limits = _unlike(heard, "limits", "not known")
    yield from _listed_ranks("preflight-limits", places, limits, level="warning")
    yield from _clocks(places, said)


def _misplaced(
    places: Sequence[Place], heard: Mapping[int, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Ranks whose own numbers, device or addresses are not the plan's."""
    words: dict[str, list[int]] = {}
    for place in places:
        facts = heard.get(place.rank)
        if facts is None:
            continue
        counted = dict(pair.split("=", 1) for pair in facts["logic_ids"].split(",") if "=" in pair)
        device = counted.get(str(place.device_id), place.device_id)
        device = place.local_rank if facts["visible"] else device
        wanted = {
            "RANK": (facts["rank"], place.rank),
            "LOCAL_RANK": (facts["local_rank"], place.local_rank),
            "WORLD_SIZE": (facts["size"], len(places)),
            "DEVICE_ID": (facts["device"], device),
        }
        for name, (is_, should) in wanted.items():
            if is_ != str(should):
                told = f'{name} is "{is_}" and should be {should}'
                words.setdefault(told, []).append(place.rank)
        for name, address in facts["elsewhere"].items():
            told = f"{name} is {address}, which no interface of the node has"
            words.setdefault(told, []).append(place.rank)
    for told, ranks in words.items():
        yield _finding("preflight-place", places, ranks, told)


def _apart(places: Sequence[Place], heard: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    """Nodes whose ranks are not all in the same place."""
    for node in dict.fromkeys(place.node for place in places):
        for key, what in (("host", "host name"), ("container", "container")):
            values = {
                p.rank: heard[p.rank][key] for p in places if p.node == node and p.rank in heard
            }
            for ranks, words in differences(f"the {what}", values, absent="none"):
                yield _finding("preflight-place", places, ranks, words)


def _unlike(heard: Mapping[int, Mapping[str, Any]], key: str, absent: str) -> Iterator[Told]:
    """Ranks for which something in a list of their facts is another than for most."""
    values = {rank: facts[key] for rank, facts in heard.items()}
    for name in sorted(set[str]().union(*values.values())):
        of_name = {rank: meant(name, of_rank.get(name)) for rank, of_rank in values.items()}
        yield from differences(name, of_name, absent=absent)


def _environments(
    places: Sequence[Place], heard: Mapping[int, Mapping[str, Any]]
) -> Iterator[Told]:
    """The same of environments; what is stated for a node alone is held against that."""
    values = {rank: facts["env"] for rank, facts in heard.items()}
    stated = {place.rank: _compared(place.env) for place in places if place.rank in heard}
    for name in sorted(set[str]().union(*values.values(), *stated.values())):
        of_name = {rank: meant(name, of_rank.get(name)) for rank, of_rank in values.items()}
        should = {r: meant(name, of[name]) for r, of in stated.items() if name in of}
        others = {rank: value for rank, value in of_name.items() if rank not in should}
        yield from differences(name, others, absent="not set")
        yield from unlike_stated(name, of_name, should, absent="not set")


def _compared(env: Mapping[str, str]) -> dict[str, Any]:
    return {name: shown(name, value) for name, value in env.items() if is_compared(name)}


def _listed_ranks(
    id_: str, places: Sequence[Place], told: Iterable[Told], *, level: Level = "error"
) -> Iterator[Finding]:
    """One finding for all that is told of the same ranks."""
    words: dict[tuple[int, ...], list[str]] = {}
    for ranks, of_ranks in told:
        words.setdefault(ranks, []).append(of_ranks)
    for ranks, all_told in words.items():
        yield _finding(id_, places, ranks, "; ".join(all_told), level=level)


def _tables(
    places: Sequence[Place], heard: Mapping[int, Mapping[str, Any]], digest: str
) -> Iterator[Finding]:
    """Ranks that read another rank table than the plan's, or are not where theirs puts them."""
    words: dict[str, list[int]] = {}
    for rank, facts in heard.items():
        table = facts["table"]
        if table is None and digest:
            words.setdefault("RANK_TABLE_FILE is not set", []).append(rank)
        elif table is not None and table["problem"]:
            words.setdefault(f"the rank table cannot be read: {table['problem']}", []).append(rank)
        elif table is not None and table["sha256"] != digest:
            told = f"the rank table is another: sha256 {table['sha256'][:12]}, not {digest[:12]}"
            words.setdefault(told, []).append(rank)
    for place in places:
        table = heard.get(place.rank, {}).get("table")
        if table and not table["problem"] and (told := _elsewhere(place, table)):
            words.setdefault(told, []).append(place.rank)
    for told, ranks in words.items():
        yield _finding("preflight-rank-table", places, ranks, told)


def _elsewhere(place: Place, table: Mapping[str, str]) -> str:
    """Where the rank table puts a rank, if not where it is."""
    server, device = table["server"], table["device"]
    if not server and not device:
        return "has no entry in its rank table"
    is_there = server in ("", place.server_id) and device in ("", str(place.device_id))
    where = f"device {device}" + (f" of server {server}" if server else "")
    here = f"device {place.device_id} of {place.server_id}"
    return "" if is_there else f"runs on {here}; its rank table says {where}"


def _clocks(places: Sequence[Place], said: Mapping[int, RankNotes]) -> Iterator[Finding]:
    """Nodes whose clock said another time when all ranks had the sum."""
    times: dict[str, list[float]] = {}
    for place in places:
        clock = said[place.rank].clock if place.rank in said else None
        if clock is not None:
            times.setdefault(place.node, []).append(clock)
    of_node = {node: min(clocks) for node, clocks in times.items()}
    if not of_node:
        return
    middle = median(of_node.values())
    for node, clock in of_node.items():
        if abs(off := clock - middle) > CLOCK_S:
            how = f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
            yield warning(
                "preflight-clock",
                (node,),
                f"the clock of its ranks is {how}, when all nodes have the sum",
                "Set the time from one source",
            )


def _finding(
    id_: str,
    places: Sequence[Place],
    ranks: Sequence[int],
    words: str,
    *,
    level: Level = "error",
) -> Finding:
    return Finding(
        id=id_,
        level=level,
        nodes=nodes_of(ranks, places),
        text=f"{ranks_shown(ranks, places)}: {words}",
        remedy=_REMEDIES[id_],
    )
