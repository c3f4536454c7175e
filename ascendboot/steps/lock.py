"""The lock on the primary: two operators cannot set up one cluster at a time."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NotUnderstoodError, ToolError
from ascendboot.facts.api import Fact
from ascendboot.facts.own import base_script
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.transport.api import Result

# The lock lives as long as the SSH connection through which it was taken: a process that waits
# for the end of this connection's sshd holds it, so a killed operator leaves no stale lock.
_LOCK = """\
mkdir -p -m 755 -- "$b" || exit 1
session=$$
until [ "$session" -le 1 ]; do
  case $(cat "/proc/$session/comm" 2>/dev/null) in sshd*) break;; esac
  session=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$session/status" 2>/dev/null)
  session=${{session:-0}}
done
[ "$session" -gt 1 ] || {{ echo "this is not an SSH session" >&2; exit 1; }}
exec 9>>"$b/lock" || exit 1
free=locked
flock -n 9 || {{ free=waited; flock -w 3 9; }} || {{ echo "held by $(cat "$b/lock")"; exit 0; }}
[ "$b/lock" -ef /proc/$$/fd/9 ] || {{ echo "held by a reset that has just ended"; exit 0; }}
printf '%s' {holder} >"$b/lock"
setsid tail --pid="$session" -s 0.2 -f /dev/null </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- &
echo "$free"
"""


@dataclass(frozen=True)
class Lock:
    """The answer to the wish for the lock."""

    holder: str = ""
    """Who has it; empty: it is ours."""
    was_waited_for: bool = False
    """It is ours since somebody else let go: what was seen meanwhile may be out of date."""


def lock(cluster: str, holder: str) -> Fact[Lock]:
    """Takes the cluster's lock for the rest of this connection; `holder` is told to others.

    Not a question in the strict sense: it travels with the questions to the primary, before them.
    """
    script = base_script(cluster) + _LOCK.format(holder=shlex.quote(holder))
    command = Command(
        argv=("bash", "-c", script), purpose="lock the cluster", effect=Effect.WRITE, timeout_s=15.0
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
