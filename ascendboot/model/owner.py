"""Owner: the control folder that set up a node, as the node records it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"(SHA256:[A-Za-z0-9+/]{43}|id:[0-9a-f]{32}) (\d{4}-\d\d-\d\dT\d\d:\d\dZ) "
    r"(\S{1,100}) (.{1,200})"
)
OWNER_BYTES = 400
"""No record is longer; a node may hold anything."""


@dataclass(frozen=True)
class Owner:
    """What one line of the file `owner` on a node says."""

    key: str
    """Fingerprint of the host CA, or with `trust: pinned` the id of the control folder."""
    since: str
    by: str
    folder: str

    @classmethod
    def parse(cls, line: str) -> Owner | None:
        """The record in a line; None where it is none of ours."""
        found = _LINE.fullmatch(line) if line.isprintable() else None
        return cls(*found.groups()) if found else None

    @property
    def text(self) -> str:
        """The content of the file."""
        return f"{self.key} {self.since} {self.by} {self.folder}\n"

    @property
    def words(self) -> str:
        """Who it is, for messages."""
        kind = "" if self.key.startswith("id:") else f", CA {self.key}"
        return f"{self.folder} of {self.by}, since {self.since}{kind}"


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control folder of this run: what new records say, and which records are its own."""

    by: str
    folder: str
    now: str
    known: frozenset[str]
    """Keys under which this folder has set the cluster up before."""
    id: str = ""
    """What stands for this folder with `trust: pinned`; empty where a plan found none."""

    def owner(self, key: str) -> Owner:
        """A new record; what its line cannot hold is left out."""
        by = "".join(self.by.split())[:100] or "-"
        folder = "".join(c for c in self.folder if c.isprintable())[-200:]
        return Owner(key, self.now, by, folder)
