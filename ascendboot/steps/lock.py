"""The lock on the primary: two operators cannot set up one cluster at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, NotUnderstoodError, ToolError
from ascendboot.facts.api import Fact, Unanswered
from ascendboot.facts.own import base_script
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.facts.api import Answer
    from ascendboot.transport.api import Result

_TAKE = """\
mkdir -p -m 755 -- "$b" && exec 9>>"$b/lock" || exit 1
free=locked
flock -n 9 || { free=waited; flock -w 3 9; } || { echo "held by $(cat "$b/lock")"; exit 0; }
[ "$b/lock" -ef /proc/$$/fd/9 ] || { echo "held by a reset that has just ended"; exit 0; }
printf '%s' "$1" >"$b/lock"
"""

# The lock lives as long as the SSH connection through which it was taken: a process that waits
# for the end of this connection's sshd holds it, so a killed operator leaves no stale lock.
_SESSION = """\
session=$$
until [ "$session" -le 1 ]; do
  case $(cat "/proc/$session/comm" 2>/dev/null) in sshd*) break;; esac
  session=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$session/status" 2>/dev/null)
  session=${session:-0}
done
[ "$session" -gt 1 ] || { echo "this is not an SSH session" >&2; exit 1; }
"""
_WHILE_IT_LASTS = """\
setsid tail --pid="$session" -s 0.2 -f /dev/null </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- &
echo "$free"
"""

# Nothing in a container sees that sshd, but the end of its own input it does.
_WHILE_THERE_IS_INPUT = """\
echo "$free"
exec cat >/dev/null
"""


@dataclass(frozen=True)
class Lock:
    """The answer to the wish for the lock."""

    holder: str = ""
    """Who has it; empty: it is ours."""
    was_waited_for: bool = False
    """It is ours since somebody else let go: what was seen meanwhile may be out of date."""


def ours(node: str, answer: Answer[Lock]) -> Lock:
    """The lock on a node, which is ours.

    Raises:
        NodeError: somebody else has it, or it could not be taken.
    """
    if isinstance(answer, Unanswered):
        raise NodeError(node, answer.message)
    if holder := answer.value.holder:
        words = f"another setup or reset holds it: {holder}; wait until it has ended"
        raise NodeError(node, f"could not lock the cluster: {words}")
    return answer.value


@dataclass(frozen=True)
class Locks:
    """Both wishes for a cluster's lock, as questions although they write."""

    on_server: Fact[Lock]
    """Travels with the questions to the primary, before them; it is held without us."""
    inside: Fact[Lock]
    """For the container of the primary, if it has one; to be held for the rest of the connection.

    Users who are not root have folders, and locks, of their own on the server. What they set up in
    one container is in one folder.
    """


def locks(cluster: str, holder: str) -> Locks:
    """Take the cluster's lock for the rest of a connection; `holder` is told to others."""
    base, what = base_script(cluster), "lock the cluster"
    return Locks(
        _wish(base + _SESSION + _TAKE + _WHILE_IT_LASTS, holder, what),
        _wish(base + _TAKE + _WHILE_THERE_IS_INPUT, holder, f"{what} in its container"),
    )


def _wish(script: str, holder: str, purpose: str) -> Fact[Lock]:
    command = Command(
        argv=("bash", "-c", script, "lock", holder),
        purpose=purpose,
        effect=Effect.WRITE,
        timeout_s=15.0,
    )
    return Fact("lock", command, _answer)


def _answer(result: Result) -> Lock:
    if not result.as_expected:
        raise ToolError(result.said())
    answer = result.text.strip()
    if answer in {"locked", "waited"}:
        return Lock(was_waited_for=answer == "waited")
    if answer.startswith("held by "):
        return Lock(holder=answer.removeprefix("held by "))
    raise NotUnderstoodError("lock", 1, answer, '"locked", "waited" or "held by …"')
