"""Wishes about files of ours."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.steps.api import Change, Satisfied, Verdict
from ascendboot.transport.api import Command, Effect, FileWrite

if TYPE_CHECKING:
    from ascendboot.facts.own import Own

# From the top down: once a folder is closed, nobody can put a link in the place of what is in it. A
# file is copied, for who has it open could write to it even then; not one that others have open.
_CLOSE = """\
close() { { [ -O "$path" ] || chown -- "$EUID" "$path"; } && chmod -- "$mode" "$path"; }
while IFS= read -r line; do
  mode=${line%% *} path=$1/${line#* }
  if [ "$path" = "$1/.." ]; then path=${1%/*} && close
  elif [ -L "$path" ]; then rm -f -- "$path"
  elif [ -d "$path" ]; then close
  elif [ ! -f "$path" ]; then rm -f -- "$path"
  elif [[ $path = "$1/lock" || $path = *.log ]]; then close
  else
    new=$(mktemp -- "$path.XXXXXX") && cat <"$path" >"$new" && chmod -- "$mode" "$new" &&
      mv -fT -- "$new" "$path"
  fi || exit 1
done
"""


@dataclass(frozen=True)
class Closed:
    """Nobody but our user can change what lies in the cluster's folder, nor in the one above it."""

    @property
    def name(self) -> str:
        """Always the same: all of it is one wish."""
        return "folders"

    def check(self, own: Own) -> Verdict:
        """Satisfied where all is ours and nobody else may write; keys are made anew elsewhere."""
        found = {path: seen for path, seen in own.open.items() if not path.endswith("_key")}
        if not found:
            return Satisfied("only their user can write there")
        lines = (f"{there.closed:04o} {path}\n" for path, there in found.items())
        close = Command(
            argv=("bash", "-c", _CLOSE, "close", str(own.base)),
            purpose="take the right to write there from others",
            effect=Effect.WRITE,
            stdin="".join(lines).encode(errors="surrogateescape"),
        )
        summary = f"others could change what runs here: {own.open_words}"
        return Change(summary=summary, commands=(close,))


@dataclass(frozen=True)
class FileContent:
    """A file below the cluster's folder has exactly this text and this mode."""

    path: str
    text: str
    mode: int = 0o644
    secret: bool = False
    """Its text is shown nowhere."""

    @property
    def name(self) -> str:
        """The file's path below the cluster's folder."""
        return self.path

    def check(self, own: Own) -> Verdict:
        """Satisfied by equal content and mode."""
        there = own.files.get(self.path)
        content = self.text.encode()
        if there is None:
            why = "is missing"
        elif there.sha256 != sha256(content).hexdigest():
            why = "has other content"
        elif there.mode != self.mode:
            why = f"has mode {there.mode:04o} instead of {self.mode:04o}"
        elif self.path in own.open:
            why = own.open[self.path].why
        else:
            return Satisfied("as it should be")
        return Change(
            summary=f"{self.path} {why}",
            files=(FileWrite(own.base / self.path, content, self.mode, self.secret),),
        )


@dataclass(frozen=True)
class Absent:
    """A file of ours below the cluster's folder that nothing needs any more is gone."""

    path: str

    @property
    def name(self) -> str:
        """The file's path below the cluster's folder."""
        return self.path

    def check(self, own: Own) -> Verdict:
        """Satisfied when there is no such file."""
        if self.path not in own.files:
            return Satisfied("is not there")
        remove = Command(
            argv=("rm", "-f", "--", str(own.base / self.path)),
            purpose=f"remove {self.path}",
            effect=Effect.WRITE,
        )
        return Change(summary=f"{self.path} is left from another setting", commands=(remove,))


@dataclass(frozen=True)
class Later:
    """A wish whose content only an earlier phase will tell."""

    name: str
    until: str

    def check(self, own: Own) -> Verdict:
        """Always a change that is not known yet."""
        return Change(summary=f"not known before {self.until}")
