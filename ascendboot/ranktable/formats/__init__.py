"""The generations of rank tables, and which of them a document is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from ascendboot.errors import RankTableError
from ascendboot.ranktable.fields import cut, kind
from ascendboot.ranktable.formats import groups, levels, servers
from ascendboot.ranktable.formats.parts import Format, Table, understood
from ascendboot.ranktable.text import Source

Generation: TypeAlias = Literal["1.0", "1.2", "2.0", "group list"]

FORMATS: dict[Generation, Format] = {
    "1.0": servers.FORMAT_1_0,
    "1.2": servers.FORMAT_1_2,
    "2.0": levels.FORMAT,
    "group list": groups.FORMAT,
}

_OTHERS: dict[str, str] = {
    "node_list": "a table of version 1.1, that of clusters of several kinds of machines, which "
    "ascendboot does not know",
    "peer_list": "a topology file of 950 (HCCL_TOPO_FILE_PATH)",
    "edge_list": "a topology file of 950 (HCCL_TOPO_FILE_PATH)",
    "prefill_device_list": "a table of an inference system with prefill and decode servers",
    "decode_device_list": "a table of an inference system with prefill and decode servers",
    "server_group_list": "a table of an inference system with groups of servers",
}
"""What is often taken for a rank table, by the member that identifies it."""


def table_in(source: Source) -> dict[str, object]:
    """The document of a rank table, good or bad; RankTableError if it is something else."""
    document = source.document
    if not isinstance(document, dict):
        words = f"the document is {kind(document)}, not an object"
        raise RankTableError(f"{source.name}: not a rank table: {words}")
    for name, what in _OTHERS.items():
        if name in document:
            raise RankTableError(f"{source.name}: not a rank table, but {what}: it has {name}")
    *lists, last = dict.fromkeys(known.list_name for known in FORMATS.values())
    if document.get("status") == "initializing" and len(document) == 1:
        why = "its controller writes the devices when all pods have started; read it again then"
        raise RankTableError(f"{source.name}: no rank table yet: status is initializing: {why}")
    if not document.keys() & {*lists, last}:
        names = ", ".join(cut(name) for name in list(document)[:5]) or "nothing"
        words = f"none of {', '.join(lists)} and {last} is there; it has {names}"
        raise RankTableError(f"{source.name}: not a rank table: {words}")
    return document


def generation_of(document: Mapping[str, object]) -> Generation:
    """The generation by the table's own list; where several have it, the version decides."""
    list_name = next(known.list_name for known in FORMATS.values() if known.list_name in document)
    found = [name for name, known in FORMATS.items() if known.list_name == list_name]
    return next((name for name in found if name == document.get("version")), found[0])


def table_of(source: Source) -> Table:
    """The table in a file; RankTableError only if it cannot be understood at all."""
    document = table_in(source)
    advice = f"; ranktable.validate {source.name} names everything that is wrong"
    return understood(FORMATS[generation_of(document)].table, document, source.name, advice)
