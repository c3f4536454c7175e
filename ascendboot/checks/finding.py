"""Finding: the result of a check, and functions that checks share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ascendboot.facts.parsers.software import Program
from ascendboot.facts.parsers.system import FileSystem, Listener
from ascendboot.facts.query import Answer, Unanswered
from ascendboot.model import report
from ascendboot.model.cluster import Node
from ascendboot.model.names import fold, runs
from ascendboot.value import replace

K = TypeVar("K")
V = TypeVar("V")
Finding: TypeAlias = report.Finding
Level: TypeAlias = report.Level
_LEVELS: tuple[Level, ...] = ("error", "warning", "info")
Findings: TypeAlias = Iterable[Finding]


def error(id_: str, nodes: tuple[str, ...], text: str, remedy: str = "") -> Finding:
    """A finding that blocks."""
    return Finding(id_, "error", nodes, text, remedy)


def warning(id_: str, nodes: tuple[str, ...], text: str, remedy: str = "") -> Finding:
    """A finding that does not block."""
    return Finding(id_, "warning", nodes, text, remedy)


def in_order(findings: Findings) -> tuple[Finding, ...]:
    """Merges equal findings of several nodes; errors first, then by rule, few nodes first."""
    merged = grouped((replace(each, nodes=()), each.nodes) for each in findings)
    whole = [
        replace(key, nodes=tuple(dict.fromkeys(name for names in nodes for name in names)))
        for key, nodes in merged.items()
    ]
    rules = list(dict.fromkeys(finding.id for finding in whole))
    whole.sort(key=lambda f: (_LEVELS.index(f.level), rules.index(f.id), len(f.nodes)))
    return tuple(whole)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in the order of the pairs."""
    groups: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)


def unanswered(
    id_: str, node: Node, answer: Answer[V], remedy: str = "", *, level: Level = "error"
) -> Findings:
    """A finding if a query has no answer; the remedy is for a tool that is missing."""
    if isinstance(answer, Unanswered) and answer.kind != "not-queried":
        missing = remedy if answer.kind == "missing" else ""
        yield Finding(id_, level, (node.name,), answer.message, missing)


def differences(
    id_: str, values: Mapping[str, str], *, has: str, level: Level, remedy: str
) -> Findings:
    """A finding at the minority if the nodes' `values` are not all equal.

    `14 nodes have Open MPI 4.1.5, lab-[03,17] have 4.1.4`; `has` is `Open MPI `. Without a
    majority the finding is at all nodes.
    """
    groups = grouped((value, name) for name, value in values.items())
    if len(groups) <= 1:
        return
    (usual, most), *rest = sorted(groups.items(), key=lambda group: -len(group[1]))
    who = f"{len(most)} nodes have" if len(most) > 1 else f"{fold(most)} has"
    parts = [f"{who} {has}{usual}"]
    parts += [f"{fold(names)} {'has' if len(names) == 1 else 'have'} {v}" for v, names in rest]
    is_tie = len(rest[0][1]) == len(most)
    odd = values if is_tie else (name for _, names in rest for name in names)
    yield Finding(id_, level, tuple(odd), ", ".join(parts), remedy)


def too_old(
    id_: str, node: Node, tool: Program | None, since: Mapping[str, tuple[int, int]], remedy: str
) -> Findings:
    """A finding if a program of OpenSSH is older than an option that we write, as in `since`."""
    if tool is None:
        return
    unknown = [
        f"{option} (since {major}.{minor})"
        for option, (major, minor) in since.items()
        if tool.release < (major, minor)
    ]
    if unknown:
        text = f"{tool.path} is of OpenSSH {tool.version}, which lacks {', '.join(unknown)}"
        yield error(id_, (node.name,), text, remedy)


def port_holders(listeners: Iterable[Listener] | None) -> dict[int, str]:
    """The program that listens on each port that is in use."""
    return {each.port: each.holder for each in reversed(tuple(listeners or ()))}


def hccl_ports_taken(holders: Mapping[int, str], ports: Sequence[int]) -> list[str]:
    """`ports 60000-60001 of HCCL's 60000-60031 are taken by …`, one text for each program."""
    taken = grouped((holders[port], port) for port in ports if port in holders)
    return [
        f"{'ports' if len(its) > 1 else 'port'} {numbers(its)} of HCCL's {numbers(ports)} "
        f"{'are' if len(its) > 1 else 'is'} taken by {holder}"
        for holder, its in taken.items()
    ]


LEAST_FREE_BYTES = 100 * 1000**2
"""With less, a job may not even be able to log why it ended."""
LEAST_FREE_INODES = 1000
LEAST_FREE = f"{LEAST_FREE_BYTES // 1000**2} MB and {LEAST_FREE_INODES} inodes"


def disk_lacks(system: FileSystem) -> str:
    """`only 7 MB and 3 inodes are free on /tmp`; empty if there is enough."""
    lacks = []
    if system.free_bytes < LEAST_FREE_BYTES:
        lacks.append(f"{max(system.free_bytes, 0) // 1000**2} MB")
    if system.free_inodes is not None and system.free_inodes < LEAST_FREE_INODES:
        lacks.append(f"{system.free_inodes} inodes")
    return f"only {' and '.join(lacks)} are free on {system.mount_point}" if lacks else ""


def numbers(ids: Sequence[int]) -> str:
    """`0-3,5` for ascending ids; in any other order one by one."""
    if list(ids) != sorted(set(ids)):
        return ",".join(map(str, ids))
    return runs(ids)


def devices(ids: Sequence[int]) -> str:
    """`device 3` or `devices 3-5`."""
    return f"device{'' if len(ids) == 1 else 's'} {numbers(ids)}"


def devices_are(ids: Sequence[int]) -> str:
    """`device 3 is` or `devices 3-5 are`."""
    return f"{devices(ids)} {'is' if len(ids) == 1 else 'are'}"
