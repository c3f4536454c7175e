"""Wishes about files of ours."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ascendboot.steps.api import Change, Satisfied, Verdict
from ascendboot.transport.api import Command, Effect, FileWrite

if TYPE_CHECKING:
    from ascendboot.facts.own import Own


@dataclass(frozen=True)
class FileContent:
    """A file below the cluster's folder has exactly this text and this mode."""

    path: str
    text: str
    mode: int = 0o644

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
        else:
            return Satisfied("as it should be")
        return Change(
            summary=f"{self.path} {why}",
            files=(FileWrite(own.base / self.path, content, self.mode),),
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
