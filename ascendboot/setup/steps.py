"""Steps: a desired state of one node, how it is read and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from ascendboot.model.files import fingerprint
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, FileWrite

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import PurePosixPath

    from ascendboot.facts.installed import Installed


@dataclass(frozen=True)
class Satisfied:
    """The node is already in the desired state."""

    because: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """What reaches the desired state: files first, then commands, in order.

    A change without files and commands waits for an earlier phase: the plan can only announce it.
    """

    summary: str
    files: tuple[FileWrite, ...] = ()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True)
class Blocked:
    """The desired state cannot be reached: why, and what you can do."""

    reason: str
    remedy: str


StepState: TypeAlias = Satisfied | Change | Blocked


class Step(Protocol):
    """A desired state of one node."""

    @property
    def name(self) -> str:
        """A short name: "rank table"."""
        ...

    def check(self, installed: Installed) -> StepState:
        """Compare the desired state with what is installed; pure."""
        ...


def note_made(base: PurePosixPath, changes: Iterable[Change]) -> list[Command]:
    """The command that lists the files of these changes; none when they have none."""
    paths = [str(file.path.relative_to(base)) for change in changes for file in change.files]
    if not paths:
        return []
    note = Command(
        argv=("bash", "-c", script("setup-note.sh"), "note", str(base), *paths),
        purpose="note what is made here",
        effect=Effect.WRITE,
    )
    return [note]


@dataclass(frozen=True)
class Closed:
    """Only the cluster's user can change the cluster's folder and the one above it."""

    @property
    def name(self) -> str:
        """Always the same: there is one such step."""
        return "folders"

    def check(self, installed: Installed) -> StepState:
        """Satisfied where only the cluster's user may write; other steps re-create keys."""
        found = {path: item for path, item in installed.open.items() if not path.endswith("_key")}
        if not found:
            return Satisfied("only their user can write there")
        lines = (f"{there.closed:04o} {path}\n" for path, there in found.items())
        close = Command(
            argv=("bash", "-c", script("setup-close.sh"), "close", str(installed.base)),
            purpose="take the right to write there from others",
            effect=Effect.WRITE,
            stdin="".join(lines).encode(errors="surrogateescape"),
        )
        summary = f"others could change what runs here: {installed.open_words}"
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

    def check(self, installed: Installed) -> StepState:
        """Satisfied by equal content and mode."""
        there = installed.files.get(self.path)
        content = self.text.encode()
        if there is None:
            why = "is missing"
        elif there.sha256 != sha256(content).hexdigest():
            why = "has other content"
        elif there.mode != self.mode:
            why = f"has mode {there.mode:04o} instead of {self.mode:04o}"
        elif self.path in installed.open:
            why = installed.open[self.path].why
        else:
            return Satisfied("as it should be")
        return Change(
            summary=f"{self.path} {why}",
            files=(FileWrite(installed.base / self.path, content, self.mode, self.secret),),
        )


@dataclass(frozen=True)
class Absent:
    """A file in the cluster's folder that nothing needs any more is removed."""

    path: str

    @property
    def name(self) -> str:
        """The file's path below the cluster's folder."""
        return self.path

    def check(self, installed: Installed) -> StepState:
        """Satisfied when there is no such file."""
        if self.path not in installed.files:
            return Satisfied("is not there")
        remove = Command(
            argv=("rm", "-f", "--", str(installed.base / self.path)),
            purpose=f"remove {self.path}",
            effect=Effect.WRITE,
        )
        return Change(summary=f"{self.path} is left from another setting", commands=(remove,))


@dataclass(frozen=True)
class Later:
    """A step whose content depends on an earlier phase."""

    name: str
    until: str

    def check(self, installed: Installed) -> StepState:
        """Always a change that is not known yet."""
        return Change(summary=f"not known before {self.until}")


_PRIVATE = 0o600


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

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a private key that `ssh-keygen` can read, with the right mode."""
        public = installed.host_key if self.path == "sshd/host_key" else installed.cluster_key
        there = installed.files.get(self.path)
        if there is None:
            return self._make(installed, "is missing")
        if public is None:
            return self._make(installed, "cannot be read as a key; a new one replaces it")
        held = installed.open.get(self.path)
        why = held.why if held is not None and held.owner is not None else ""
        if f"key:{fingerprint(public)}" in self.retired:
            why = "opens a node that left"
        if why:
            return self._make(installed, f"{why}; a new one replaces it")
        if there.mode != _PRIVATE:
            path = str(installed.base / self.path)
            return Change(
                summary=f"{self.path} has mode {there.mode:04o} instead of 0600",
                commands=(_write(("chmod", "600", path), f"protect {self.path}"),),
            )
        return Satisfied("there, readable and protected")

    def _make(self, installed: Installed, why: str) -> Change:
        path = installed.base / self.path
        text = script("setup-key.sh", folder=path.parent, path=path, comment=self.comment)
        return Change(
            summary=f"{self.path} {why}",
            commands=(_write(("bash", "-c", text), f"make {self.path}"),),
        )


def _write(argv: tuple[str, ...], purpose: str) -> Command:
    return Command(argv=argv, purpose=purpose, effect=Effect.WRITE)
