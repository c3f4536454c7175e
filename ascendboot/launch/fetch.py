"""Fetching files of a job that grow, and what was dropped of them: a script and its reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ascendboot.errors import NotUnderstoodError
from ascendboot.launch.scripts import IS_LOST, RUNS

if TYPE_CHECKING:
    from collections.abc import Callable

FETCH: Final = (
    r"""
job=$1 follow=$2; shift 2
"""
    + RUNS
    + IS_LOST
    + r"""
cd -- "$job" 2>/dev/null || { echo absent; echo end; exit 0; }
declare -A at
while [ "$#" -gt 0 ]; do at[$1]=$2; shift 2; done
send() {
  local size name
  while read -r size name; do
    [ $((size - at[$name])) -lt 4194304 ] || jump "$name"
    give "$name" "$size"
  done < <(stat -c '%s %n' -- "${!at[@]}" 2>/dev/null)
}
give() {
  local more=$(($2 - at[$1]))
  [ "$more" -gt 0 ] || return
  printf 'bytes %s %s\n' "$more" "$1"
  tail -c +$((at[$1] + 1)) -- "$1" | head -c "$more"
  at[$1]=$2
}
jump() {
  local line from=0 to=0
  while IFS= read -r line; do  # a line without its end is not whole: a full disk, or not yet
    [[ "$line" =~ ^[^\ ]+\ [0-9]+\ ([0-9]+)\ ([0-9]+)$ ]] || continue
    from=${BASH_REMATCH[1]} to=${BASH_REMATCH[2]}
  done < <(tail -n 2 -- "${1%.log}.marks" 2>/dev/null)
  [ "$to" -ge "$from" ] && [ "$to" -gt "${at[$1]}" ] || return
  give "$1" "$from"
  printf 'gap %s %s\n' $((to - at[$1])) "$1"
  at[$1]=$to
}
send
ticks=0
while [ "$follow" = 1 ]; do
  if [ $((ticks++ % 20)) = 0 ]; then
    echo beat
    if is_lost; then echo lost; fi
  fi
  IFS= read -r -t 0.5 _
  [ "$?" -gt 128 ] || break
  send
done
echo end
"""
)
"""Sends what is missing of some files of a job's folder; to follow it, also all that is added until
its stdin closes. Writes nothing.

Arguments: job folder, 1 to follow, then name and size here of each file. Sends `bytes COUNT NAME`
and a newline before so many bytes of a file, `gap COUNT NAME` in place of bytes that the node has
dropped; `absent` when there is no such folder; now and then
`beat`, and `lost` when a launcher that began is gone without a word; `end`."""

_BYTES = re.compile(rb"(bytes|gap) (\d+) ([A-Za-z0-9._-]+)")


class Frames:
    """Takes what `FETCH` sends apart, whatever pieces it comes in."""

    def __init__(
        self,
        give: Callable[[str, bytes], None],
        skip: Callable[[str, int], None],
        tell: Callable[[str], None],
    ) -> None:
        """`give` gets bytes of a file, `skip` how many were dropped there.

        `tell` gets the words `absent`, `beat`, `lost` and `end`.
        """
        self._give = give
        self._skip = skip
        self._tell = tell
        self._rest = b""
        self._name = ""
        self._due = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream.

        Raises:
            NotUnderstoodError: they are none that `FETCH` sends.
        """
        data = self._rest + data
        self._rest = b""
        while data:
            if self._due:
                part, data = data[: self._due], data[self._due :]
                self._due -= len(part)
                self._give(self._name, part)
                continue
            line, newline, after = data.partition(b"\n")
            if not newline:
                self._rest = data
                return
            data = after
            self._begin(line)

    def _begin(self, line: bytes) -> None:
        if match := _BYTES.fullmatch(line):
            count, name = int(match[2]), match[3].decode()
            if match[1] == b"gap":
                self._skip(name, count)
            else:
                self._due, self._name = count, name
        elif line in (b"absent", b"beat", b"lost", b"end"):
            self._tell(line.decode())
        else:
            shown = line.decode(errors="replace")
            raise NotUnderstoodError("the job's files", 1, shown, "bytes, gap, beat, lost or end")
