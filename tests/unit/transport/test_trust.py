"""Which keys the server is asked for; what is made of them is tried against a real one."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.model.cluster import Node, SshAccess
from ascendboot.transport.connect import HostKeyChangedError
from ascendboot.transport.hostkeys import HostKey, HostKeyCheck, HostKeys

if TYPE_CHECKING:
    from pathlib import Path

OFFERED = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]
ED25519, RSA = HostKey("ssh-ed25519", b"ed"), HostKey("ssh-rsa", b"rsa")


class Shown:
    """A key as the SSH library hands it over."""

    def __init__(self, key: HostKey) -> None:
        self._key = key

    def get_name(self) -> str:
        return self._key.key_type

    def asbytes(self) -> bytes:
        return self._key.blob


def node(fingerprint: str | None = None) -> Node:
    ssh = SshAccess(user="root", fingerprint=fingerprint)
    return Node(
        name="n1", address="192.0.2.1", cluster_address="192.0.2.1", server_id="n1", ssh=ssh
    )


def host_keys(folder: Path, *keys: HostKey, accept_new: bool = False) -> HostKeys:
    file = folder / "known_hosts"
    file.write_text(
        "".join(f"192.0.2.1 {k.key_type} {base64.b64encode(k.blob).decode()}\n" for k in keys)
    )
    return HostKeys(file, user_files=[], accept_new=accept_new)


def test_known_types_are_asked_for_first(tmp_path: Path) -> None:
    assert HostKeyCheck(node(), host_keys(tmp_path)).algorithms(OFFERED) == OFFERED
    assert HostKeyCheck(node(), host_keys(tmp_path, RSA)).algorithms(OFFERED) == [
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
    ]


def test_a_fingerprint_that_did_not_fit_leads_to_the_other_types(tmp_path: Path) -> None:
    check = HostKeyCheck(node(RSA.fingerprint), host_keys(tmp_path))
    with pytest.raises(UnreachableError) as caught:
        check.missing_host_key(None, "", Shown(ED25519))
    assert isinstance(caught.value, HostKeyChangedError)
    assert check.may_ask_again
    assert check.algorithms(OFFERED) == OFFERED[1:]
    check.missing_host_key(None, "", Shown(RSA))
    assert check.rounds == 2


def test_a_known_server_with_a_key_of_another_type_is_not_taken_for_a_new_one(
    tmp_path: Path,
) -> None:
    check = HostKeyCheck(node(), host_keys(tmp_path, ED25519, accept_new=True))
    with pytest.raises(
        UnreachableError, match=r"has changed: it shows RSA SHA256:.*known is ED25519"
    ):
        check.missing_host_key(None, "", Shown(RSA))
    assert not check.may_ask_again


def test_a_key_that_cannot_be_recorded_is_not_accepted(tmp_path: Path) -> None:
    keys = host_keys(tmp_path, accept_new=True)
    (tmp_path / "in the way").write_text("")
    keys.project_file = tmp_path / "in the way" / "known_hosts"
    check = HostKeyCheck(node(), keys)
    with pytest.raises(
        UnreachableError, match=r"its new host key could not be recorded in .*in the way"
    ):
        check.missing_host_key(None, "", Shown(ED25519))
    assert keys.accepted == ()
