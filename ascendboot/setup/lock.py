"""The lock on the primary: two operators cannot set up one cluster at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.errors import NodeError, NotUnderstoodError, ToolError
from ascendboot.facts.installed import base_script
from ascendboot.facts.query import Fact, Unanswered
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from ascendboot.facts.query import Answer
    from ascendboot.transport.api import Result

SILENT_S = 60
"""So long after the last sign of life from the control machine a lock ends by itself."""
LEASE_S = 30.0
"""So long after its last answer the primary is asked again before anything is written."""

# One line says whose lock it is; the process in brackets is ended by --break-lock.
_TAKE = """\
start_of() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  fields=(${line##*) })
  start=${fields[19]}
}
read_holder() { IFS= read -r -n 400 line <"$b/lock"; was=${line% (process *}; }
break_lock() {
  [[ $line =~ \\(process\\ ([0-9]+)\\ ([0-9]+)\\)$ ]] || return
  local pid=${BASH_REMATCH[1]} since=${BASH_REMATCH[2]} signal
  for signal in TERM KILL; do
    start_of "$pid" && [ "$start" = "$since" ] || return
    kill -"$signal" "$pid"
    flock -w 3 9 && return
  done
}
mkdir -p -m 755 -- "$b" && exec 9>>"$b/lock" || exit 1
free=locked
flock -n 9 || {
  free=waited
  [ -z "$2" ] || { read_holder; break_lock; free="broke $was"; }
  flock -w 3 9
} || { read_holder; echo "held by $was"; exit 0; }
[ "$b/lock" -ef /proc/$$/fd/9 ] || { echo "held by a reset that has just ended"; exit 0; }
# Where others may write, it could lead to a file of the system, now or in a moment.
[ ! -L "$b/lock" ] || { echo "$b/lock is a link, and not ascendboot's; remove it" >&2; exit 1; }
# Who may read a file may lock it, for ever.
chmod 600 /proc/$$/fd/9 || exit 1
process=${session:-$$}
start_of "$process"
TZ=UTC printf '%s, since %(%Y-%m-%d %H:%M:%S UTC)T (process %s %s)' \
  "$1" -1 "$process" "$start" >/proc/$$/fd/9
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
# sshd does not notice for hours that the other machine has vanished, but the kernel knows when the
# last data came: a control machine that is there sends some every few seconds. The session is ended
# with the lock, so that a machine that comes back finds no connection to go on with.
_WHILE_IT_LASTS = """\
watch='
session=$1 silent=$2 from=$4 to=$6
is_silent() {
  local line found=
  while IFS= read -r line; do
    [[ $line =~ lastrcv:([0-9]+) ]] || continue
    [ "${BASH_REMATCH[1]}" -ge "${silent}000" ] || return 1
    found=1
  done < <(ss -Htin "sport = :$to and dport = :$from" 2>/dev/null)
  [ -n "$found" ]
}
while timeout 5 tail --pid="$session" -s 0.2 -f /dev/null; [ $? = 124 ]; do
  is_silent || continue
  kill -TERM "$session"; sleep 1; kill -KILL "$session"
  break
done'
setsid bash -c "$watch" watch "$session" "$3" $SSH_CONNECTION \\
  </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- &
echo "$free"
"""

# Nothing in a container sees that sshd; its own input has a line every few seconds, or its end.
_WHILE_THERE_IS_INPUT = """\
echo "$free"
while read -r -t "$3" _; do :; done
"""

_STILL_OURS = """\
{ IFS= read -r -n 400 line <"$b/lock"; } 2>/dev/null
case $line in "$1, since "*) ;; *) echo "${line% (process *}"; exit 1 ;; esac
"""


@dataclass(frozen=True)
class Lock:
    """The answer to the wish for the lock."""

    holder: str = ""
    """Who has it; empty: it is ours."""
    was_waited_for: bool = False
    """It is ours since somebody else let go: what was seen meanwhile may be out of date."""
    broke: str = ""
    """Whose lock it was, where it was taken from a run that goes on or hangs."""

    def and_then(self, other: Lock) -> Lock:
        """Both of them, one after the other."""
        broke = " and ".join(dict.fromkeys(filter(None, (self.broke, other.broke))))
        return Lock(was_waited_for=self.was_waited_for or other.was_waited_for, broke=broke)


def ours(node: str, answer: Answer[Lock]) -> Lock:
    """The lock on a node, which is ours.

    Raises:
        NodeError: somebody else has it, or it could not be taken.
    """
    if isinstance(answer, Unanswered):
        raise NodeError(node, answer.message)
    if holder := answer.value.holder:
        words = (
            f"another setup or reset holds it: {holder}; wait until it has ended, or take the lock "
            "from it with --break-lock"
        )
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
    still_ours: Command
    """Ends with 0 while the lock on the server is ours; else it prints whose it is."""


def locks(cluster: str, holder: str, *, breaks: bool = False, silent_s: int = SILENT_S) -> Locks:
    """Take the cluster's lock for the rest of a connection; `holder` is told to others.

    `breaks` ends the connection, or the process, that holds it. The lock ends when nothing was
    heard of this side for `silent_s`.
    """
    base, what = base_script(cluster), "lock the cluster"
    words = (holder, "break" if breaks else "", str(silent_s))
    return Locks(
        _lock_fact(base + _SESSION + _TAKE + _WHILE_IT_LASTS, words, what),
        _lock_fact(base + _TAKE + _WHILE_THERE_IS_INPUT, words, f"{what} in its container"),
        Command(
            argv=("bash", "-c", base + _STILL_OURS, "lock", holder),
            purpose="see whether the cluster is still locked",
            effect=Effect.READ,
            timeout_s=15.0,
        ),
    )


def _lock_fact(script: str, words: tuple[str, ...], purpose: str) -> Fact[Lock]:
    command = Command(
        argv=("bash", "-c", script, "lock", *words),
        purpose=purpose,
        effect=Effect.WRITE,
        timeout_s=15.0,
    )
    return Fact("lock", command, _answer)


def _answer(result: Result) -> Lock:
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
