"""Wishes about key pairs: made on the node that uses them; the private half never leaves it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ascendboot.model.certificate import fingerprint
from ascendboot.steps.api import Change, Satisfied, Verdict
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Collection

    from ascendboot.facts.own import Own

_PRIVATE = 0o600
_MAKE = """\
set -e
umask 077
mkdir -p -m 755 -- {folder}
t=$(mktemp -d -- {folder}/.new.XXXXXX)
trap 'rm -rf -- "$t"' EXIT
ssh-keygen -q -t ed25519 -N '' -C {comment} -f "$t/key"
mv -f -- "$t/key" {path}
"""


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key without passphrase, mode 0600, at `path` below the cluster's folder."""

    path: Literal["sshd/host_key", "trust/cluster_key"]
    comment: str
    retired: Collection[str] = ()
    """`key:SHA256:…` of keys that are not to be used any more."""

    @property
    def name(self) -> str:
        """The key's path below the cluster's folder."""
        return self.path

    def check(self, own: Own) -> Verdict:
        """Satisfied by a private key that `ssh-keygen` can read, with the right mode."""
        public = own.host_key if self.path == "sshd/host_key" else own.cluster_key
        there = own.files.get(self.path)
        if there is None:
            return self._make(own, "is missing")
        if public is None:
            return self._make(own, "cannot be read as a key; a new one replaces it")
        held = own.open.get(self.path)
        why = held.why if held is not None and held.owner is not None else ""
        if f"key:{fingerprint(public)}" in self.retired:
            why = "opens a node that left"
        if why:
            return self._make(own, f"{why}; a new one replaces it")
        if there.mode != _PRIVATE:
            path = str(own.base / self.path)
            return Change(
                summary=f"{self.path} has mode {there.mode:04o} instead of 0600",
                commands=(_write(("chmod", "600", path), f"protect {self.path}"),),
            )
        return Satisfied("there, readable and protected")

    def _make(self, own: Own, why: str) -> Change:
        path = own.base / self.path
        script = _MAKE.format(
            folder=shlex.quote(str(path.parent)),
            path=shlex.quote(str(path)),
            comment=shlex.quote(self.comment),
        )
        return Change(
            summary=f"{self.path} {why}",
            commands=(_write(("bash", "-c", script), f"make {self.path}"),),
        )


def _write(argv: tuple[str, ...], purpose: str) -> Command:
    return Command(argv=argv, purpose=purpose, effect=Effect.WRITE)
