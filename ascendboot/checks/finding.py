"""Finding: the result of a check, and functions that checks share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from ascendboot.facts.query import Answer, Answered, Unanswered
from ascendboot.model.names import fold, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ascendboot.facts.parsers.software import Program
    from ascendboot.model.cluster import Node

T = TypeVar("T")
Level: TypeAlias = Literal["error", "warning", "info"]
_LEVELS: tuple[Level, ...] = ("error", "warning", "info")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem or remark about some nodes; `id` is stable across versions."""

    id: str
    level: Level
    nodes: tuple[str, ...]
    text: str
    remedy: str = ""

    @property
    def message(self) -> str:
        """Where, what was seen, what to do, as sentences: `lab-[03,17]: … is missing. Add …`."""
        sentences = [self.text, self.remedy] if self.remedy else [self.text]
        return f"{fold(self.nodes)}: " + " ".join(_ended(sentence) for sentence in sentences)


def error(id_: str, nodes: tuple[str, ...], text: str, remedy: str = "") -> Finding:
    """A finding that blocks."""
    return Finding(id=id_, level="error", nodes=nodes, text=text, remedy=remedy)


def warning(id_: str, nodes: tuple[str, ...], text: str, remedy: str = "") -> Finding:
    """A finding that does not block."""
    return Finding(id=id_, level="warning", nodes=nodes, text=text, remedy=remedy)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The same thing found at several nodes once; errors first, then the order of the rules.

    Of one rule's findings those that fewer nodes have come first.
    """
    merged: dict[Finding, list[str]] = {}
    for finding in findings:
        merged.setdefault(replace(finding, nodes=()), []).extend(finding.nodes)
    whole = [replace(key, nodes=tuple(dict.fromkeys(nodes))) for key, nodes in merged.items()]
    rules = list(dict.fromkeys(finding.id for finding in whole))
    return tuple(
        sorted(whole, key=lambda f: (_LEVELS.index(f.level), rules.index(f.id), len(f.nodes)))
    )


def unanswered(
    id_: str, node: Node, answer: Answer[T], remedy: str = "", *, level: Level = "error"
) -> Iterator[Finding]:
    """A finding when a query has no answer."""
    if isinstance(answer, Unanswered) and answer.kind != "not-asked":
        missing = remedy if answer.kind == "missing" else ""
        yield Finding(id=id_, level=level, nodes=(node.name,), text=answer.message, remedy=missing)


def known(answers: Mapping[str, Answer[T]]) -> dict[str, T]:
    """The values of the answered queries."""
    return {name: a.value for name, a in answers.items() if isinstance(a, Answered)}


def differences(
    id_: str, values: Mapping[str, str], *, has: str, level: Level, remedy: str
) -> Iterator[Finding]:
    """A finding at the minority when the nodes' `values` are not all equal.

    `14 nodes have Open MPI 4.1.5, lab-[03,17] have 4.1.4`; `has` is `Open MPI `. Where no value
    has most nodes, all are named.
    """
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    if len(groups) < 2:  # noqa: PLR2004  two are needed to differ
        return
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    most, rest = ranked[0], ranked[1:]
    parts = [f"{_who(most[1], count=len(most[1]) > 1)} {has}{most[0]}"]
    parts += [f"{_who(names, count=False)} {value}" for value, names in rest]
    is_tie = len(rest[0][1]) == len(most[1])
    odd = list(values) if is_tie else [name for _, names in rest for name in names]
    yield Finding(id=id_, level=level, nodes=tuple(odd), text=", ".join(parts), remedy=remedy)


def too_old(
    id_: str, node: Node, tool: Program | None, since: Mapping[str, tuple[int, int]], remedy: str
) -> Iterator[Finding]:
    """A finding where a program of OpenSSH refuses something that we write; `since` has all."""
    if tool is None:
        return
    unknown = [
        f"{option} (since {major}.{minor})"
        for option, (major, minor) in since.items()
        if tool.release < (major, minor)
    ]
    if unknown:
        yield error(
            id_,
            (node.name,),
            f"{tool.path} is of OpenSSH {tool.version}, which does not know {', '.join(unknown)}",
            remedy,
        )


def numbers(ids: Sequence[int]) -> str:
    """`0-3,5` for ascending ids; in any other order one by one."""
    if list(ids) != sorted(set(ids)):
        return ",".join(map(str, ids))
    return runs(ids)


def devices(ids: Sequence[int]) -> str:
    """`device 3` or `devices 3-5`."""
    return f"device{'' if len(ids) == 1 else 's'} {numbers(ids)}"


def _who(names: Sequence[str], *, count: bool) -> str:
    if count:
        return f"{len(names)} nodes have"
    return f"{fold(names)} {'has' if len(names) == 1 else 'have'}"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
