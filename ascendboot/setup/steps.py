"""Steps: a desired state of one node, how it is read and how it is reached."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from ascendboot.model.files import fingerprint
from ascendboot.templates import script
from ascendboot.transport.api import Command, Effect, FileWrite

if TYPE_CHECKING:
    from collections.abc import Collection

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


@dataclass(frozen=True)
class Step(ABC):
    """A desired state of one node."""

    name: str
    """The path below the cluster's folder where the step is about a file, else a short name."""

    @abstractmethod
    def check(self, installed: Installed) -> StepState:
        """Compare the desired state with what is installed; pure."""


def write_command(*argv: str, purpose: str, stdin: bytes = b"", timeout_s: float = 30.0) -> Command:
    """A command that changes the node."""
    return Command(
        argv=argv, purpose=purpose, effect=Effect.WRITE, stdin=stdin, timeout_s=timeout_s
    )


@dataclass(frozen=True)
class Closed(Step):
    """Only the cluster's user can change the cluster's folder and the one above it."""

    name: str = "folders"

    def check(self, installed: Installed) -> StepState:
        """Satisfied where only the cluster's user may write; other steps re-create keys."""
        found = {path: item for path, item in installed.open.items() if not path.endswith("_key")}
        if not found:
            return Satisfied("only their user can write there")
        lines = (f"{there.closed:04o} {path}\n" for path, there in found.items())
        close = write_command(
            *("bash", "-c", script("setup-close.sh"), "close", str(installed.base)),
            purpose="take the right to write there from others",
            stdin="".join(lines).encode(errors="surrogateescape"),
        )
        summary = f"others could change what runs here: {installed.open_words}"
        return Change(summary=summary, commands=(close,))


@dataclass(frozen=True)
class FileContent(Step):
    """A file has exactly this text and this mode."""

    text: str
    mode: int = 0o644
    secret: bool = False
    """Its text is shown nowhere."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by equal content and mode."""
        there = installed.files.get(self.name)
        content = self.text.encode()
        if there is None:
            why = "is missing"
        elif there.sha256 != sha256(content).hexdigest():
            why = "has other content"
        elif there.mode != self.mode:
            why = f"has mode {there.mode:04o} instead of {self.mode:04o}"
        elif self.name in installed.open:
            why = installed.open[self.name].why
        else:
            return Satisfied("as it should be")
        write = FileWrite(installed.base / self.name, content, self.mode, self.secret)
        return Change(summary=f"{self.name} {why}", files=(write,))


@dataclass(frozen=True)
class Absent(Step):
    """A file that nothing needs any more is removed."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied when there is no such file."""
        if self.name not in installed.files:
            return Satisfied("is not there")
        path = str(installed.base / self.name)
        remove = write_command("rm", "-f", "--", path, purpose=f"remove {self.name}")
        return Change(summary=f"{self.name} is left from another setting", commands=(remove,))


@dataclass(frozen=True)
class Later(Step):
    """A step whose content depends on an earlier phase."""

    until: str

    def check(self, installed: Installed) -> StepState:
        """Always a change that is not known yet."""
        return Change(summary=f"not known before {self.until}")


_PRIVATE = 0o600


@dataclass(frozen=True)
class KeyPair(Step):
    """An ed25519 key without passphrase, mode 0600: `sshd/host_key` or `trust/cluster_key`."""

    comment: str
    retired: Collection[str] = ()
    """`key:SHA256:…` of keys that are not to be used any more."""

    def check(self, installed: Installed) -> StepState:
        """Satisfied by a private key that `ssh-keygen` can read, with the right mode."""
        public = installed.host_key if self.name == "sshd/host_key" else installed.cluster_key
        there, is_open = installed.files.get(self.name), installed.open.get(self.name)
        path = installed.base / self.name
        if there is None:
            why = "is missing"
        elif public is None:
            why = "cannot be read as a key; a new one replaces it"
        elif f"key:{fingerprint(public)}" in self.retired:
            why = "opens a node that left; a new one replaces it"
        elif is_open is not None and is_open.owner is not None:
            why = f"{is_open.why}; a new one replaces it"
        elif there.mode != _PRIVATE:
            chmod = write_command("chmod", "600", str(path), purpose=f"protect {self.name}")
            summary = f"{self.name} has mode {there.mode:04o} instead of 0600"
            return Change(summary=summary, commands=(chmod,))
        else:
            return Satisfied("there, readable and protected")
        text = script("setup-key.sh", folder=path.parent, path=path, comment=self.comment)
        make = write_command("bash", "-c", text, purpose=f"make {self.name}")
        return Change(summary=f"{self.name} {why}", commands=(make,))
