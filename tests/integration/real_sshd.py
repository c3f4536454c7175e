"""A real sshd on loopback, with keys and a home directory of its own."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.hostkeys import HostKeys
from ascendboot.transport.login_session import SshTransport
from ascendboot.transport.ssh import SshOpener
from tests.unit.transport.builders import node
from tests.waiting import wait_until

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
USER = getpass.getuser()
WHO = Command(argv=("id", "-un"), purpose="ask who I am", effect=Effect.READ)
KEYGEN = shutil.which("ssh-keygen") or "ssh-keygen"
needs_bash = pytest.mark.skipif(
    not pwd.getpwuid(os.getuid()).pw_shell.endswith("/bash"),
    reason="only bash reads ~/.bashrc in a login that is not interactive",
)


def read(
    *argv: str, purpose: str = "try it", timeout_s: float = 30.0, stdin: bytes = b""
) -> Command:
    return Command(argv=argv, purpose=purpose, effect=Effect.READ, timeout_s=timeout_s, stdin=stdin)


def bash(text: str, *, timeout_s: float = 30.0, stdin: bytes = b"") -> Command:
    return read("bash", "-c", text, timeout_s=timeout_s, stdin=stdin)


def keygen(file: Path, *options: str) -> Path:
    subprocess.run(
        [KEYGEN, "-q", "-f", str(file), *(options or ("-t", "ed25519")), "-C", "test"]
        + ([] if "-N" in options else ["-N", ""]),
        check=True,
    )
    return file


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Sshd:
    """One sshd; its folder holds config, host keys, authorized_keys, log and the users' home."""

    folder: Path
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def host_key(self) -> str:
        """`ssh-ed25519 AAAA…`"""
        return " ".join((self.folder / "host_ed25519.pub").read_text().split()[:2])

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.folder / "host_ed25519.pub")

    def start(self, *options: str, keys: tuple[str, ...] = ("ed25519",)) -> Sshd:
        """Start it with further lines of configuration, and wait until it answers."""
        for kind in keys:
            if not (self.folder / f"host_{kind}").exists():
                keygen(self.folder / f"host_{kind}", "-t", kind)
        self.home.mkdir(exist_ok=True)
        (self.folder / "config").write_text("\n".join([*options, *self._settings(keys), ""]))
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(SSHD), "-D", "-e", "-f", str(self.folder / "config")], stderr=log
            )
        wait_until(self._answers)
        return self

    def _settings(self, keys: tuple[str, ...]) -> list[str]:
        return [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            *(f"HostKey {self.folder}/host_{kind}" for kind in keys),
            f"AuthorizedKeysFile {self.folder}/authorized_keys",
            f"PidFile {self.folder}/pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            # Not the start-up files of the user who runs the tests.
            f"SetEnv HOME={self.home} SHLVL=0",
        ]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def authorize(self, *public: Path) -> None:
        (self.folder / "authorized_keys").write_text("".join(p.read_text() for p in public))

    def sessions(self) -> list[int]:
        """The processes of its connections."""
        assert self._process is not None
        file = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return [int(pid) for pid in file.read_text().split()]

    def kill_sessions(self) -> str:
        """A line of shell that kills them."""
        return f"kill -9 {' '.join(map(str, self.sessions()))}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            self._process = None


def fingerprint(public: Path) -> str:
    done = subprocess.run([KEYGEN, "-lf", str(public)], check=True, capture_output=True, text=True)
    return done.stdout.split()[1]


@dataclass
class Bench:
    """Servers, a key that they accept, and the files of the client."""

    folder: Path
    identity: Path
    opened: list[SshTransport] = field(default_factory=list)
    servers: list[Sshd] = field(default_factory=list)

    @property
    def known_hosts(self) -> Path:
        return self.folder / "clusters" / "test" / "known_hosts"

    @property
    def user_known_hosts(self) -> Path:
        return self.folder / "user_known_hosts"

    def server(self, *options: str, keys: tuple[str, ...] = ("ed25519",)) -> Sshd:
        folder = self.folder / f"sshd{len(self.servers)}"
        folder.mkdir()
        server = Sshd(folder)
        self.servers.append(server)
        server.authorize(self.identity.with_suffix(".pub"))
        return server.start(*options, keys=keys)

    def node(self, server: Sshd, name: str = "n1", **access: str | int | None) -> Node:
        usual: dict[str, Any] = {"user": USER, "port": server.port, "identity": str(self.identity)}
        return node(name, "127.0.0.1", **{**usual, "fingerprint": server.fingerprint, **access})

    def host_keys(self, *, accept_new: bool = False) -> HostKeys:
        return HostKeys(self.known_hosts, user_files=[self.user_known_hosts], accept_new=accept_new)

    def opener(self, **settings: object) -> SshOpener:
        host_keys = settings.pop("host_keys", None) or self.host_keys()
        return SshOpener(host_keys, **settings)  # type: ignore[arg-type]

    def open(self, node: Node, **settings: object) -> SshTransport:
        transport = self.opener(**settings)(node)
        self.opened.append(transport)
        return transport


def works(transport: SshTransport) -> bool:
    return transport.run(WHO).text == f"{USER}\n"


def refusal(bench: Bench, node: Node, **settings: object) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        bench.open(node, **settings)
    return caught.value


def know(file: Path, server: Sshd, key: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# a comment\n[127.0.0.1]:{server.port} {key or server.host_key}\n")


def connections_seen(server: Sshd) -> int:
    return (server.folder / "log").read_text().count("Connection from 127.0.0.1")
