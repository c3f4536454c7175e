"""Logging in to a real sshd: host keys are checked, keys are tried, and refusals say why."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ascendboot.transport.hostkeys import Accepted
from ascendboot.transport.pool import connect_all
from ascendboot.transport.reach import Cause
from tests.integration.real_sshd import (
    KEYGEN,
    USER,
    connections_seen,
    fingerprint,
    keygen,
    know,
    refusal,
    works,
)
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.integration.real_sshd import Bench, Sshd

pytestmark = pytest.mark.integration

# Host keys


def test_an_unknown_key_is_refused_with_the_way_to_accept_it(bench: Bench) -> None:
    server = bench.server()
    error = refusal(bench, bench.node(server, fingerprint=None))
    assert error.cause is Cause.HOST_KEY_UNKNOWN
    assert str(error) == (
        f"n1: refused to log in: its host key is not known: ED25519 {server.fingerprint}; if "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the node shows the same, run setup "
        f"--plan --accept-new or put `fingerprint: {server.fingerprint}` into the inventory"
    )
    assert not bench.known_hosts.exists()


def test_an_unknown_key_that_is_accepted_is_recorded_and_reported(bench: Bench) -> None:
    server = bench.server()
    node = bench.node(server, fingerprint=None)
    host_keys = bench.host_keys(accept_new=True)
    assert works(bench.open(node, host_keys=host_keys))
    assert host_keys.accepted == (Accepted("n1", server.fingerprint, "ssh-ed25519"),)
    assert bench.known_hosts.read_text() == f"[127.0.0.1]:{server.port} {server.host_key}\n"
    assert bench.known_hosts.stat().st_mode & 0o777 == 0o600
    assert bench.known_hosts.parent.stat().st_mode & 0o777 == 0o700
    again = bench.host_keys()
    assert works(bench.open(node, host_keys=again))
    assert again.accepted == ()


def test_a_changed_key_is_refused_once_with_both_fingerprints(bench: Bench) -> None:
    server = bench.server("LogLevel VERBOSE")
    other = keygen(bench.folder / "other").with_suffix(".pub")
    know(bench.known_hosts, server, " ".join(other.read_text().split()[:2]))
    before = connections_seen(server)
    error = refusal(
        bench,
        bench.node(server, fingerprint=None),
        host_keys=bench.host_keys(accept_new=True),
    )
    assert error.cause is Cause.HOST_KEY_CHANGED
    assert str(error) == (
        f"n1: refused to log in: its host key has changed: it shows ED25519 {server.fingerprint}, "
        f"known is ED25519 {fingerprint(other)} ({bench.known_hosts}:2); if the node was installed "
        "anew remove that line, if not, someone may stand in between"
    )
    assert connections_seen(server) == before + 1


@pytest.mark.parametrize("hashed", [False, True])
def test_the_operators_own_known_hosts_are_honoured(bench: Bench, *, hashed: bool) -> None:
    server = bench.server()
    know(bench.user_known_hosts, server)
    if hashed:
        subprocess.run([KEYGEN, "-q", "-H", "-f", str(bench.user_known_hosts)], check=True)
        assert "127.0.0.1" not in bench.user_known_hosts.read_text()
    assert works(bench.open(bench.node(server, fingerprint=None)))


def test_a_revoked_key_is_refused_although_it_is_known(bench: Bench) -> None:
    server = bench.server()
    know(bench.user_known_hosts, server)
    with bench.user_known_hosts.open("a") as file:
        file.write(f"@revoked * {server.host_key}\n")
    error = refusal(bench, bench.node(server, fingerprint=None))
    assert "is revoked" in str(error)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_server_is_asked_for_the_key_that_is_known(bench: Bench, kind: str) -> None:
    server = bench.server("LogLevel VERBOSE", keys=("ed25519", "ecdsa", "rsa"))
    public = (server.folder / f"host_{kind}.pub").read_text()
    know(bench.user_known_hosts, server, " ".join(public.split()[:2]))
    transport = bench.open(bench.node(server, fingerprint=None))
    assert works(transport)
    assert transport.connections == 1


def test_the_fingerprint_of_any_of_its_keys_will_do(bench: Bench) -> None:
    server = bench.server(keys=("ed25519", "ecdsa", "rsa"))
    node = bench.node(server, fingerprint=fingerprint(server.folder / "host_rsa.pub"))
    transport = bench.open(node)
    assert works(transport)
    assert transport.connections == 3


def test_a_wrong_fingerprint_is_refused_whatever_known_hosts_say(bench: Bench) -> None:
    server = bench.server(keys=("ed25519", "rsa"))
    know(bench.known_hosts, server)
    shown = [fingerprint(server.folder / f"host_{kind}.pub") for kind in ("ed25519", "rsa")]
    error = refusal(bench, bench.node(server, fingerprint="SHA256:other"))
    assert error.cause is Cause.HOST_KEY_CHANGED
    assert (
        f"it shows ED25519 {shown[0]} and RSA {shown[1]}, the inventory states SHA256:oth"
        in str(error)
    )


# Keys


def test_a_wrong_key_is_named_with_what_the_server_allows(bench: Bench) -> None:
    server = bench.server()
    wrong = keygen(bench.folder / "wrong")
    error = refusal(bench, bench.node(server, identity=str(wrong)))
    assert error.cause is Cause.AUTHENTICATION
    print_ = fingerprint(wrong.with_suffix(".pub"))
    assert str(error) == (
        f"n1: could not log in as {USER}: the server refused {wrong} (ssh-ed25519 {print_}) and "
        f"allows publickey; put the public key into ~{USER}/.ssh/authorized_keys there, or "
        "correct `user` or `identity`"
    )


def test_a_refused_key_is_not_tried_again(bench: Bench) -> None:
    server = bench.server("LogLevel VERBOSE")
    before = connections_seen(server)
    refusal(bench, bench.node(server, identity=str(keygen(bench.folder / "wrong"))))
    assert connections_seen(server) == before + 1


def test_a_server_that_takes_no_keys_is_explained(bench: Bench) -> None:
    server = bench.server("PubkeyAuthentication no", "KbdInteractiveAuthentication yes")
    error = refusal(bench, bench.node(server))
    assert error.cause is Cause.AUTHENTICATION
    assert "and allows keyboard-interactive; put the" in str(error)


def encrypted(bench: Bench, *options: str) -> tuple[Path, Sshd]:
    key = keygen(bench.folder / "locked", *options, "-N", "open sesame")
    server = bench.server()
    server.authorize(key.with_suffix(".pub"))
    return key, server


@pytest.mark.parametrize(
    "options", [("-t", "ed25519"), ("-t", "rsa", "-m", "PEM"), ("-t", "ecdsa")]
)
def test_row_06_an_encrypted_key_opens_with_the_passphrase_of_the_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    key, server = encrypted(bench, *options)
    monkeypatch.setenv("ASCENDBOOT_PASSPHRASE", "open sesame")
    assert works(bench.open(bench.node(server, identity=str(key))))


def test_the_passphrase_is_asked_for_once_for_all_nodes(bench: Bench) -> None:
    key, server = encrypted(bench, "-t", "ed25519")
    asked: list[str] = []

    def ask(file: str) -> str:
        asked.append(file)
        return "open sesame"

    nodes = [bench.node(server, name, identity=str(key)) for name in ("n1", "n2", "n3")]
    opened, errors = connect_all(nodes, bench.opener(ask=ask), forks=4)
    for transport in opened.values():
        transport.close()
    assert (list(opened), errors, asked) == (["n1", "n2", "n3"], {}, [str(key)])


def test_keys_that_cannot_be_used_are_explained(bench: Bench) -> None:
    key, server = encrypted(bench, "-t", "ed25519")
    told = {}
    for name in ("no-key", "open-to-all", "absent"):
        told[name] = bench.folder / name
    told["no-key"].write_text("garbage")
    told["no-key"].chmod(0o600)
    shutil.copy(bench.identity, told["open-to-all"])
    told["open-to-all"].chmod(0o644)
    messages = {
        name: str(refusal(bench, bench.node(server, identity=str(file))))
        for name, file in told.items()
    }
    messages["locked"] = str(refusal(bench, bench.node(server, identity=str(key))))
    messages["wrong"] = str(
        refusal(bench, bench.node(server, identity=str(key)), ask=lambda _: "guess")
    )
    assert messages == {
        "no-key": f"n1: could not log in: {told['no-key']}: not a private key that is understood; "
        "`identity` names the private key (not the .pub) in OpenSSH or PEM format",
        "open-to-all": f"n1: could not log in: {told['open-to-all']}: others may read it (mode "
        f"0644); chmod 600 {told['open-to-all']}",
        "absent": f"n1: could not log in: {told['absent']}: there is no such file; correct "
        "`identity`",
        "locked": f"n1: could not log in: {key}: it is encrypted; set $ASCENDBOOT_PASSPHRASE or "
        "load it into ssh-agent and leave `identity` out",
        "wrong": f"n1: could not log in: {key}: the passphrase does not open it",
    }


def test_without_an_identity_the_keys_that_ssh_uses_are_tried(bench: Bench) -> None:
    server = bench.server()
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir()
    keygen(folder / "id_ed25519")  # not authorized
    keygen(folder / "id_ecdsa", "-t", "ecdsa", "-N", "locked")
    shutil.copy(keygen(folder / "id_rsa", "-t", "rsa"), bench.folder)
    node = bench.node(server, identity=None)
    error = refusal(bench, node)
    assert [kind in str(error) for kind in ("id_ed25519", "id_ecdsa", "id_rsa")] == [
        True,
        False,
        True,
    ]
    server.authorize(folder / "id_rsa.pub")
    assert works(bench.open(node))


def test_without_any_key_the_message_says_where_they_were_looked_for(bench: Bench) -> None:
    error = refusal(bench, bench.node(bench.server(), identity=None))
    assert "there is no key to try (~/.ssh/id_ed25519: there is no such file" in str(error)


def test_the_agents_keys_are_used(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, add = shutil.which("ssh-agent"), shutil.which("ssh-add")
    assert agent is not None
    assert add is not None
    server = bench.server()
    place = bench.folder / "agent"
    with subprocess.Popen([agent, "-D", "-a", str(place)], stdout=subprocess.DEVNULL) as process:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
            wait_until(place.exists, seconds=15)
            subprocess.run([add, "-q", str(bench.identity)], check=True)
            assert works(bench.open(bench.node(server, identity=None)))
        finally:
            process.terminate()


# The way there


def test_no_sshd_is_told_at_once(bench: Bench) -> None:
    server = bench.server()
    node = bench.node(server)
    server.stop()
    error = refusal(bench, node)
    assert error.cause is Cause.REFUSED
    assert str(error) == (
        f"n1: unreachable: no sshd answers on port {server.port} of 127.0.0.1: connection "
        "refused; is sshd running?"
    )


def test_a_name_that_does_not_resolve_is_told(bench: Bench) -> None:
    node = replace(bench.node(bench.server()), address="nowhere.invalid")
    error = refusal(bench, node)
    assert error.cause is Cause.NAME
    assert 'the name "nowhere.invalid" does not resolve' in str(error)


def test_no_answer_is_told_after_the_time_limit(bench: Bench) -> None:
    node = bench.node(bench.server())
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        with socket.create_connection(address):  # fills the queue: the next one is not answered
            node = replace(node, ssh=replace(node.ssh, port=address[1]))
            error = refusal(bench, node, connect_timeout_s=0.3)
    assert error.cause is Cause.TIMEOUT
    assert str(error) == (
        f"n1: unreachable: no answer on port {address[1]} of 127.0.0.1 within 0.3 s; "
        "is the node up, and does no firewall stand between?"
    )


def test_a_server_that_never_greets_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.reach.HANDSHAKE_S", 0.3)
    node = bench.node(bench.server())
    with socket.create_server(("127.0.0.1", 0)) as mute:
        node = replace(node, ssh=replace(node.ssh, port=mute.getsockname()[1]))
        error = refusal(bench, node)
    assert error.cause is Cause.TIMEOUT
    assert "is open but no SSH server greets within 0.3 s" in str(error)


def test_many_at_once_all_get_in_although_the_server_drops_some(bench: Bench) -> None:
    server = bench.server("MaxStartups 2:50:6")
    nodes = [bench.node(server, f"n{number}") for number in range(40)]
    opened, errors = connect_all(nodes, bench.opener(), forks=40)
    tries = 0
    for transport in opened.values():
        tries += getattr(transport, "connections", 0)
        transport.close()
    assert errors == {}
    assert list(opened) == [node.name for node in nodes]
    assert tries > len(nodes), "the server dropped nobody: the test shows nothing"


def test_the_socket_sends_at_once_and_notices_a_dead_peer(bench: Bench) -> None:
    transport = bench.open(bench.node(bench.server()))
    sock = transport._link._sock  # type: ignore[attr-defined]
    tcp = socket.IPPROTO_TCP
    assert sock.getsockopt(tcp, socket.TCP_NODELAY) == 1
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 30_000
