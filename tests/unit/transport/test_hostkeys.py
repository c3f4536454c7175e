"""known_hosts files, and the check of a server's key against them."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from ascendboot.errors import UnreachableError
from ascendboot.transport.hostkeys import (
    HostKey,
    HostKeyChangedError,
    HostKeyCheck,
    HostKeys,
    KnownHosts,
    host_name,
)
from tests.unit.transport.builders import node


def key(number: int, key_type: str = "ssh-ed25519") -> HostKey:
    return HostKey(key_type, f"key {number}".encode())


def line(names: str, host_key: HostKey, marker: str = "") -> str:
    encoded = base64.b64encode(host_key.blob).decode()
    return f"{marker} {names} {host_key.key_type} {encoded}".strip()


def hashed(name: str) -> str:
    salt = b"salt of twenty bytes"
    digest = hmac.digest(salt, name.encode(), hashlib.sha1)
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def known(*lines: str) -> KnownHosts:
    hosts = KnownHosts()
    for number, text in enumerate(lines, start=1):
        hosts.add_line(text, f"f:{number}")
    return hosts


def placed(hosts: KnownHosts | HostKeys, name: str) -> list[tuple[HostKey, str]]:
    """The keys known for a server, and where they are known from."""
    return [(key, key.where) for key in hosts.lookup(name)]


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.11", False),
        ("192.0.2.1", "[192.0.2.1]:2222", False),
        ("[192.0.2.1]:2222", "[192.0.2.1]:2222", True),
        ("atlas-1,192.0.2.1", "192.0.2.1", True),
        ("Atlas-1", "atlas-1", True),
        ("atlas-*", "atlas-17", True),
        ("atlas-?", "atlas-17", False),
        ("atlas-*,!atlas-17", "atlas-17", False),
        ("!atlas-17", "atlas-1", False),
        ("[192.0.2.*]:22?", "[192.0.2.9]:221", True),
        ("192x0.2.1*", "192.0.2.1", False),
        (hashed("192.0.2.1"), "192.0.2.1", True),
        (hashed("192.0.2.1"), "192.0.2.2", False),
        (hashed("[192.0.2.1]:2222"), "[192.0.2.1]:2222", True),
        ("|1|broken", "|1|broken", False),
    ],
)
def test_names_match_as_in_ssh(names: str, asked: str, *, found: bool) -> None:
    wanted = [(key(1), "f:1")] if found else []
    assert placed(known(line(names, key(1))), asked) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# 192.0.2.1 ssh-ed25519 AAAA",
        "192.0.2.1 ssh-ed25519",
        "192.0.2.1 ssh-ed25519 not!base64",
        line("192.0.2.1", key(1), "@cert-authority"),
        line("192.0.2.1", key(1), "@revoked"),
    ],
)
def test_other_lines_give_no_key(text: str) -> None:
    assert known(text).lookup("192.0.2.1") == ()


def test_several_keys_of_one_server_are_all_known() -> None:
    hosts = known(line("a", key(1)), line("a", key(2, "ssh-rsa")) + " root@a")
    assert placed(hosts, "a") == [(key(1), "f:1"), (key(2, "ssh-rsa"), "f:2")]


def test_a_file_below_an_unknown_home_counts_as_missing() -> None:
    assert KnownHosts([Path("~nobody-has-this-name/.ssh/known_hosts")]).lookup("a") == ()


def test_the_projects_file_comes_before_the_operators(tmp_path: Path) -> None:
    own, user = tmp_path / "own", tmp_path / "user"
    own.write_text(line("a", key(1)))
    user.write_text("\n".join([line("a", key(2)), line("b", key(3))]))
    host_keys = HostKeys(own, user_files=[user, tmp_path / "absent"], accept_new=False)
    assert placed(host_keys, "a") == [(key(1), f"{own}:1")]
    assert placed(host_keys, "b") == [(key(3), f"{user}:2")]
    assert host_keys.lookup("c") == ()


def test_an_accepted_key_is_appended_and_known_at_once(tmp_path: Path) -> None:
    own = tmp_path / "clusters" / "lab" / "known_hosts"
    own.parent.mkdir(parents=True)
    own.write_text("# mine\n" + line("a", key(1)))  # without a newline at its end
    host_keys = HostKeys(own, user_files=[], accept_new=True)
    host_keys.accept("n2", "b", key(2))
    assert own.read_text() == f"# mine\n{line('a', key(1))}\n{line('b', key(2))}\n"
    assert placed(host_keys, "b") == [(key(2), f"{own}:3")]
    assert host_keys.accepted == {"n2": key(2)}
    assert [path.name for path in own.parent.iterdir()] == ["known_hosts"]


def test_accepting_from_many_threads_and_runs_loses_no_key(tmp_path: Path) -> None:
    own = tmp_path / "new" / "known_hosts"
    runs = [HostKeys(own, user_files=[], accept_new=True) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            pool.submit(runs[number % 2].accept, f"n{number}", f"h{number}", key(number))
    fresh = HostKeys(own, user_files=[], accept_new=False)
    assert all(fresh.lookup(f"h{number}") for number in range(40))
    assert own.parent.stat().st_mode & 0o777 == 0o700
    assert own.stat().st_mode & 0o777 == 0o600


def test_fingerprints_look_as_ssh_keygen_shows_them() -> None:
    blob = base64.b64decode("AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl")
    # The fingerprint that GitHub publishes for this key of its own.
    expected = "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"
    assert HostKey("ssh-ed25519", blob).fingerprint == expected
    assert HostKey("ssh-ed25519", blob).label == f"ED25519 {expected}"


def test_a_port_other_than_22_is_part_of_the_name() -> None:
    assert (host_name("Atlas", 22), host_name("2001:DB8::1", 23)) == ("atlas", "[2001:db8::1]:23")


# The check

OFFERED = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]
ED25519, RSA = HostKey("ssh-ed25519", b"ed"), HostKey("ssh-rsa", b"rsa")


@dataclass
class Shown:
    """A key as the SSH library passes it."""

    key: HostKey

    def get_name(self) -> str:
        return self.key.key_type

    def asbytes(self) -> bytes:
        return self.key.blob


def host_keys(folder: Path, *keys: HostKey, accept_new: bool = False) -> HostKeys:
    file = folder / "known_hosts"
    file.write_text("\n".join(line("192.0.2.1", k) for k in keys))
    return HostKeys(file, user_files=[], accept_new=accept_new)


def test_after_another_fingerprint_the_other_types_are_requested(tmp_path: Path) -> None:
    check = HostKeyCheck(node(fingerprint=RSA.fingerprint), host_keys(tmp_path))
    with pytest.raises(HostKeyChangedError):
        check.missing_host_key(None, "", Shown(ED25519))
    assert check.algorithms(OFFERED) == OFFERED[1:]
    check.missing_host_key(None, "", Shown(RSA))
    assert check.shown == [ED25519, RSA]


def test_a_key_of_another_type_is_a_changed_key(tmp_path: Path) -> None:
    check = HostKeyCheck(node(), host_keys(tmp_path, ED25519, accept_new=True))
    with pytest.raises(HostKeyChangedError, match=r"it shows RSA SHA256:.*known is ED25519"):
        check.missing_host_key(None, "", Shown(RSA))


def test_a_key_that_cannot_be_recorded_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Path, _target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    keys = host_keys(tmp_path, accept_new=True)
    monkeypatch.setattr(Path, "replace", full)
    check = HostKeyCheck(node(), keys)
    with pytest.raises(UnreachableError, match=r"could not be recorded in .*: No space left"):
        check.missing_host_key(None, "", Shown(ED25519))
    assert [path.name for path in tmp_path.iterdir()] == ["known_hosts"], "something left beside"
    assert (keys.accepted, keys.lookup("192.0.2.1")) == ({}, ())
