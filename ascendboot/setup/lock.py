"""The lock on the primary: two operators cannot set up one cluster at a time."""

from __future__ import annotations

from ascendboot.errors import NodeError, NotUnderstoodError, ToolError
from ascendboot.facts.installed import base_script
from ascendboot.facts.query import Answer, Fact, Unanswered
from ascendboot.templates import script
from ascendboot.transport.api import Command, Result, read_script, write_script
from ascendboot.value import Value

SILENT_S = 60
"""A lock is released this long after the control machine was last reachable."""
LEASE_S = 30.0
"""How old the primary's last answer may be before something is written."""

_STILL_OURS = """\
{ IFS= read -r -n 400 line <"$b/lock"; } 2>/dev/null
case $line in "$1, since "*) ;; *) echo "${line% (process *}"; exit 1 ;; esac
"""


class Lock(Value):
    """The result of taking the lock."""

    holder: str = ""
    """Who holds it; empty: this run."""
    was_waited_for: bool = False
    """Another run held it until now: facts gathered before may be out of date."""
    broke: str = ""
    """The former holder, where the lock was broken."""


def held_lock(node: str, answer: Answer[Lock]) -> Lock:
    """The lock on a node, held by this run.

    Raises:
        NodeError: another run holds it, or it could not be taken.
    """
    if isinstance(answer, Unanswered):
        raise NodeError(node, answer.message)
    if holder := answer.value.holder:
        remedy = "wait until it has ended, or take the lock from it with --break-lock"
        why = f"another setup or reset holds it: {holder}; {remedy}"
        raise NodeError(node, f"could not lock the cluster: {why}")
    return answer.value


class Locks(Value):
    """The commands that take a cluster's lock, as queries although they write."""

    on_host: Fact[Lock]
    """Runs on the primary before its queries; the lock lasts as long as the connection."""
    still_held: Command
    """Exits with 0 while this run holds the lock on the server; else it prints the holder."""


def locks(cluster: str, holder: str, *, breaks: bool = False, silent_s: int = SILENT_S) -> Locks:
    """Commands that take the cluster's lock for the rest of a connection, as `holder`.

    `breaks` ends the connection or process that holds it. The lock is released after the control
    machine was unreachable for `silent_s`.
    """
    base = base_script(cluster)
    text, words = base + script("setup-lock.sh"), (holder, "break" if breaks else "", str(silent_s))
    take = write_script(text, *words, purpose="lock the cluster", timeout_s=15.0)
    purpose = "see whether the cluster is still locked"
    still_held = read_script(base + _STILL_OURS, holder, purpose=purpose, timeout_s=15.0)
    return Locks(Fact(take, _parse), still_held)


def _parse(result: Result) -> Lock:
    if not result.as_expected:
        raise ToolError(result.outcome())
    answer = result.text.strip()
    if answer in {"locked", "waited"}:
        return Lock(was_waited_for=answer == "waited")
    if answer.startswith("broke "):
        return Lock(was_waited_for=True, broke=answer.removeprefix("broke "))
    if answer.startswith("held by "):
        return Lock(holder=answer.removeprefix("held by "))
    raise NotUnderstoodError("lock", 1, answer, '"locked", "waited", "broke …" or "held by …"')
