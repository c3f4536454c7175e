"""Whether the host key that a server shows is the one we know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ascendboot.transport.hostkeys import HostKey, KnownKey, host_name
from ascendboot.transport.reach import Cause, ConnectError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.model.cluster import Node
    from ascendboot.transport.hostkeys import HostKeys

_RSA = ("rsa-sha2-512", "rsa-sha2-256")


class PublicKey(Protocol):
    """What the SSH library calls a key."""

    def get_name(self) -> str:
        """Its type, `ssh-ed25519`."""
        ...

    def asbytes(self) -> bytes:
        """Its public part."""
        ...


class HostKeyCheck:
    """The check of one server's key, in the form of a policy for keys that are not known yet.

    The SSH library is told of no known key at all, so every key comes here.
    """

    def __init__(self, node: Node, host_keys: HostKeys) -> None:
        self._node = node
        self._host_keys = host_keys
        self._name = host_name(node.address, node.ssh.port)
        self._shown: list[HostKey] = []

    def algorithms(self, offered: Sequence[str]) -> list[str]:
        """`offered`, in the order in which to ask the server for its key.

        Types of which we know a key come first: else a server that we know by its ed25519 key
        would look strange for showing its ecdsa key. When the inventory's fingerprint did not
        fit a key shown before, only the other types are asked for.
        """
        seen = {algorithm for key in self._shown for algorithm in _algorithms(key.key_type)}
        wanted = [
            algorithm
            for known in self._host_keys.lookup(self._name)
            for algorithm in _algorithms(known.key.key_type)
        ]
        left = [algorithm for algorithm in offered if algorithm not in seen]
        return sorted(left, key=lambda a: wanted.index(a) if a in wanted else len(wanted))

    @property
    def may_ask_again(self) -> bool:
        """Whether another type of key could still be the one that the inventory names."""
        return self._node.ssh.fingerprint is not None and bool(self._shown)

    @property
    def rounds(self) -> int:
        """How many keys the server has been asked for, each over a connection of its own."""
        return len(self._shown)

    def missing_host_key(self, _client: object, _hostname: str, key: PublicKey) -> None:
        """Accept the key that the server shows, or refuse it.

        Raises:
            ConnectError: it is unknown, changed or revoked; nothing was sent to the server.
        """
        shown = HostKey(key.get_name(), key.asbytes())
        self._shown.append(shown)
        if self._host_keys.is_revoked(shown):
            raise self._refused(
                Cause.HOST_KEY_CHANGED,
                f"its host key {shown.label} is revoked; give the node a new one",
            )
        fingerprint = self._node.ssh.fingerprint
        if fingerprint is not None:
            if shown.fingerprint != fingerprint.rstrip("="):
                raise self._changed_from(fingerprint)
            return
        known = self._host_keys.lookup(self._name)
        if not known:
            self._take_unknown(shown)
        elif shown not in [k.key for k in known]:
            raise self._changed(shown, known)

    def _take_unknown(self, shown: HostKey) -> None:
        if self._host_keys.accept_new:
            try:
                self._host_keys.accept(self._node.name, self._name, shown)
            except OSError as error:
                raise self._refused(
                    Cause.HOST_KEY_UNKNOWN,
                    f"its new host key could not be recorded in {self._host_keys.project_file}: "
                    f"{error.strerror}; make room or give access there",
                ) from error
            return
        raise self._refused(
            Cause.HOST_KEY_UNKNOWN,
            f"its host key is not known: {shown.label}; if `ssh-keygen -lf "
            f"{_file_of(shown)}` on the node shows the same, run setup --plan --accept-new or put "
            f"`fingerprint: {shown.fingerprint}` into the inventory",
        )

    def _changed(self, shown: HostKey, known: Sequence[KnownKey]) -> ConnectError:
        same_type = [k for k in known if k.key.key_type == shown.key_type]
        expected = (same_type or list(known))[0]
        return self._refused(
            Cause.HOST_KEY_CHANGED,
            f"its host key has changed: it shows {shown.label}, known is {expected.key.label} "
            f"({expected.where}); if the node was installed anew remove that line, "
            "if not, someone may stand in between",
        )

    def _changed_from(self, fingerprint: str) -> ConnectError:
        shown = " and ".join(key.label for key in self._shown)
        return self._refused(
            Cause.HOST_KEY_CHANGED,
            f"its host key has changed: it shows {shown}, the inventory states {fingerprint}; "
            "if the node was installed anew correct `fingerprint`, "
            "if not, someone may stand in between",
        )

    def _refused(self, cause: Cause, why: str) -> ConnectError:
        return ConnectError(self._node.name, cause, f"refused to log in: {why}")


def _algorithms(key_type: str) -> tuple[str, ...]:
    return _RSA if key_type == "ssh-rsa" else (key_type,)


def _file_of(key: HostKey) -> str:
    kind = "ecdsa" if "ecdsa" in key.key_type else key.key_type.removeprefix("ssh-")
    return f"/etc/ssh/ssh_host_{kind}_key.pub"
