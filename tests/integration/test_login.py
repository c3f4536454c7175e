"""Logging in to a real sshd: host keys are checked, keys are tried, and refusals say why."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from ascendboot.errors import CommandError
from ascendboot.model.cluster import Node
from ascendboot.transport.connection import ProtocolError
from ascendboot.transport.hostkeys import HostKeyChangedError
from ascendboot.transport.pool import results_and_errors
from ascendboot.value import replace
from tests.integration.real_sshd import (
    KEYGEN,
    USER,
    WHO,
    Bench,
    Sshd,
    connections_seen,
    fingerprint,
    keygen,
    know,
    refusal,
    works,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

# Host keys


def test_an_unknown_key_is_refused_with_the_way_to_accept_it(bench: Bench) -> None:
    server = bench.server()
    error = refusal(bench, bench.node(server, fingerprint=None))
    assert str(error) == (
        f"n1: refused to log in: its host key is not known: ED25519 {server.fingerprint}; if "
        "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the node shows the same, run setup "
        f"--inventory FILE --plan --accept-new or put `fingerprint: {server.fingerprint}` into the "
        "inventory"
    )
    assert not bench.known_hosts.exists()


def test_an_unknown_key_that_is_accepted_is_recorded_and_reported(bench: Bench) -> None:
    server = bench.server()
    node = bench.node(server, fingerprint=None)
    host_keys = bench.host_keys(accept_new=True)
    assert works(bench.open(node, host_keys=host_keys))
    [(name, key)] = host_keys.accepted.items()
    assert (name, key.fingerprint, key.key_type) == ("n1", server.fingerprint, "ssh-ed25519")
    assert bench.known_hosts.read_text() == f"[127.0.0.1]:{server.port} {server.host_key}\n"
    again = bench.host_keys()
    assert works(bench.open(node, host_keys=again))
    assert again.accepted == {}


def test_a_changed_key_is_refused_once_with_both_fingerprints(bench: Bench) -> None:
    server = bench.server("LogLevel VERBOSE")
    other = keygen(bench.folder / "other").with_suffix(".pub")
    know(bench.known_hosts, server, " ".join(other.read_text().split()[:2]))
    before = connections_seen(server)
    error = refusal(
        bench, bench.node(server, fingerprint=None), host_keys=bench.host_keys(accept_new=True)
    )
    assert isinstance(error, HostKeyChangedError)
    assert str(error) == (
        f"n1: refused to log in: its host key has changed: it shows ED25519 {server.fingerprint}, "
        f"known is ED25519 {fingerprint(other)} ({bench.known_hosts}:2); if the node was "
        "reinstalled, remove that line; otherwise someone may intercept the connection"
    )
    assert connections_seen(server) == before + 1


def test_hashed_names_of_the_operators_known_hosts_are_honoured(bench: Bench) -> None:
    server = bench.server()
    know(bench.user_known_hosts, server)
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
def test_the_known_type_of_key_is_requested(bench: Bench, kind: str) -> None:
    server = bench.server("LogLevel VERBOSE", keys=("ed25519", "ecdsa", "rsa"))
    public = (server.folder / f"host_{kind}.pub").read_text()
    know(bench.user_known_hosts, server, " ".join(public.split()[:2]))
    before = connections_seen(server)
    assert works(bench.open(bench.node(server, fingerprint=None)))
    assert connections_seen(server) == before + 1


def test_the_fingerprint_of_any_of_its_keys_is_enough(bench: Bench) -> None:
    server = bench.server("LogLevel VERBOSE", keys=("ed25519", "ecdsa", "rsa"))
    node = bench.node(server, fingerprint=fingerprint(server.folder / "host_rsa.pub"))
    before = connections_seen(server)
    assert works(bench.open(node))
    assert connections_seen(server) == before + 3


def test_a_wrong_fingerprint_is_refused_whatever_known_hosts_say(bench: Bench) -> None:
    server = bench.server(keys=("ed25519", "rsa"))
    know(bench.known_hosts, server)
    shown = [fingerprint(server.folder / f"host_{kind}.pub") for kind in ("ed25519", "rsa")]
    error = refusal(bench, bench.node(server, fingerprint="SHA256:other"))
    assert isinstance(error, HostKeyChangedError)
    assert f"shows ED25519 {shown[0]} and RSA {shown[1]}, the inventory states SHA" in str(error)


# Keys


def test_a_wrong_key_is_named_with_what_the_server_allows_and_tried_once(bench: Bench) -> None:
    server = bench.server("LogLevel VERBOSE")
    before = connections_seen(server)
    wrong = keygen(bench.folder / "wrong")
    error = refusal(bench, bench.node(server, identity=str(wrong)))
    print_ = fingerprint(wrong.with_suffix(".pub"))
    assert str(error) == (
        f"n1: could not log in as {USER}: the server refused {wrong} (ssh-ed25519 {print_}) and "
        f"allows publickey; put the public key into ~{USER}/.ssh/authorized_keys there, or "
        "correct `user` or `identity`"
    )
    assert connections_seen(server) == before + 1


@pytest.mark.parametrize("method", ["keyboard-interactive", "password"])
def test_18_a_server_that_accepts_no_keys_is_explained(bench: Bench, method: str) -> None:
    on = {"password": "PasswordAuthentication yes"}.get(method, "KbdInteractiveAuthentication yes")
    error = refusal(bench, bench.node(bench.server("PubkeyAuthentication no", on)))
    assert str(error) == (
        f"n1: could not log in as {USER}: the server accepts no keys, only {method}; ascendboot "
        "logs in with a key only: in its sshd_config, set PubkeyAuthentication yes, and "
        f"AuthenticationMethods publickey if it is set for {USER}"
    )


def test_18_a_server_with_a_second_factor_is_explained(bench: Bench) -> None:
    server = bench.server("AuthenticationMethods publickey,password", "PasswordAuthentication yes")
    error = str(refusal(bench, bench.node(server)))
    key = f"{bench.identity} (ssh-ed25519 {fingerprint(bench.identity.with_suffix('.pub'))})"
    assert f"the server accepted {key} and also requires password; ascendboot logs in with" in error
    assert error.endswith(f"(Match User {USER} Address …, then AuthenticationMethods publickey)")


@pytest.mark.parametrize(
    ("keyword", "what", "has", "ours"),
    [
        ("KexAlgorithms", "key exchange", "diffie-hellman-group1-sha1", "curve25519-sha256"),
        ("Ciphers", "cipher", "chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com"),
        ("MACs", "MAC", "umac-64@openssh.com", "hmac-sha2-256"),
        ("HostKeyAlgorithms", "type of host key", "ssh-rsa", "ssh-ed25519"),
    ],
)
def test_18_without_common_algorithms_both_lists_are_shown(
    bench: Bench, keyword: str, what: str, has: str, ours: str
) -> None:
    server = bench.server(f"{keyword} {has}", keys=("ed25519", "rsa"))
    error = refusal(bench, bench.node(server))
    assert isinstance(error, ProtocolError)
    assert f"no {what} in common: the server has {has}; ascendboot has " in str(error)
    assert ours in str(error)
    assert f"({keyword} in its sshd_config); update its sshd" in str(error)


NOT_AVAILABLE = "exec /usr/sbin/nologin"
SFTP = "internal-sftp"
UBUNTU = 'echo "Please login as the user ubuntu"'


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (NOT_AVAILABLE, "may not log in (its shell is nologin): give it a shell, usermod -s"),
        (SFTP, f"allows {USER} only sftp (ForceCommand internal-sftp): exempt {USER}"),
        (UBUNTU, '"Please login as the user ubuntu"; one of these: ~/.bashrc or another'),
        (UBUNTU, "a command is forced (remove ForceCommand from its sshd_config, or command="),
    ],
)
def test_18_a_login_that_runs_nothing_has_its_own_remedy(
    bench: Bench, command: str, remedy: str
) -> None:
    transport = bench.open(bench.node(bench.server(f"ForceCommand {command}")))
    with pytest.raises(CommandError) as caught:
        transport.run(WHO)
    assert remedy in str(caught.value)


# Certificates


def certificate_of(key: Path, *options: str) -> Path:
    """Write a certificate for the user beside the key; return the public key of its new CA."""
    ca = keygen(key.with_name("ca"))
    public = str(key.with_suffix(".pub"))
    sign = ["-q", "-s", str(ca), "-I", "test", "-n", USER, *options, public]
    subprocess.run([KEYGEN, *sign], check=True)
    return ca.with_suffix(".pub")


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("from_agent", [False, True])
def test_18_a_certificate_beside_the_identity_is_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str, *, from_agent: bool
) -> None:
    key = keygen(bench.folder / "certified", "-t", kind)
    server = bench.server(f"TrustedUserCAKeys {certificate_of(key)}")
    node = bench.node(server, identity=str(key))
    if not from_agent:
        assert works(bench.open(node))
        return
    with ssh_agent(bench, monkeypatch, key):
        assert works(bench.open(bench.node(server, identity=f"{key}.pub")))
        assert works(bench.open(bench.node(server, identity=None)))


def test_18_a_certificate_that_does_not_help_is_named(bench: Bench) -> None:
    key = keygen(bench.folder / "certified")
    ca = certificate_of(key, "-V", "20200101:20200201")
    server = bench.server(f"TrustedUserCAKeys {ca}")
    error = refusal(bench, bench.node(server, identity=str(key)))
    assert f"refused the certificate {key}-cert.pub, which expired on 2020-0" in str(error)
    server.authorize(key.with_suffix(".pub"))
    assert works(bench.open(bench.node(server, identity=str(key))))
    other = keygen(bench.folder / "other")
    shutil.copy(f"{key}-cert.pub", f"{other}-cert.pub")
    error = refusal(bench, bench.node(server, identity=str(other)))
    why = f"{other} without its certificate, because of {other}-cert.pub: it certifies another key"
    assert why in str(error)


# Kinds of keys


def encrypted(bench: Bench, *options: str) -> tuple[Path, Sshd]:
    key = keygen(bench.folder / "locked", *options, "-N", "open sesame")
    server = bench.server()
    server.authorize(key.with_suffix(".pub"))
    return key, server


@pytest.mark.parametrize(
    "options",
    [
        *(("-t", "ed25519"), ("-t", "rsa", "-m", "PEM"), ("-t", "ecdsa")),
        *(("-t", "rsa", "-m", "PKCS8"), ("-t", "ecdsa", "-m", "PKCS8")),
    ],
)
def test_row_06_an_encrypted_key_opens_with_the_passphrase_of_the_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    key, server = encrypted(bench, *options)
    monkeypatch.setenv("ASCENDBOOT_PASSPHRASE", "open sesame")
    assert works(bench.open(bench.node(server, identity=str(key))))


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_18_a_pkcs8_key_is_read(bench: Bench, kind: str) -> None:
    key = keygen(bench.folder / "pkcs8", "-t", kind)
    server = bench.server()
    server.authorize(key.with_suffix(".pub"))
    private = serialization.load_ssh_private_key(key.read_bytes(), None)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert works(bench.open(bench.node(server, identity=str(key))))


def test_the_passphrase_is_asked_for_once_for_all_nodes(bench: Bench) -> None:
    key, server = encrypted(bench, "-t", "ed25519")
    asked: list[str] = []

    def ask(file: str) -> str:
        asked.append(file)
        return "open sesame"

    nodes = [bench.node(server, name, identity=str(key)) for name in ("n1", "n2", "n3")]
    opened, errors = results_and_errors(nodes, bench.opener(ask=ask), forks=4)
    for transport in opened.values():
        transport.close()
    assert (list(opened), errors, asked) == (["n1", "n2", "n3"], {}, [f"Passphrase of {key}"])


NOT_A_KEY = (
    "not a private key that is understood; `identity` names the private key in OpenSSH or PEM "
    "format, or the .pub of a key that ssh-agent holds"
)
LOCKED = (
    "it is encrypted; set $ASCENDBOOT_PASSPHRASE, or load it into ssh-agent and state `identity: "
    "FILE.pub`"
)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("garbage", NOT_A_KEY),
        ("open", "others may read it (mode 0644); chmod 600 FILE"),
        ("absent", "there is no such file; correct `identity`"),
        ("locked", LOCKED),
        ("guessed", "the passphrase does not open it"),
    ],
)
def test_a_key_that_cannot_be_used_is_explained(bench: Bench, kind: str, why: str) -> None:
    key, server = encrypted(bench, "-t", "ed25519")
    if kind == "garbage":
        key.write_text("garbage")
    elif kind == "open":
        key.chmod(0o644)
    elif kind == "absent":
        key.unlink()
    guess = {"guessed": "a guess"}.get(kind)
    error = refusal(bench, bench.node(server, identity=str(key)), ask=lambda _: guess)
    assert str(error) == f"n1: could not log in: {key}: {why.replace('FILE', str(key))}"


def test_without_an_identity_the_keys_that_ssh_uses_are_tried(bench: Bench) -> None:
    server = bench.server()
    folder = Path(os.environ["HOME"]) / ".ssh"
    folder.mkdir()
    keygen(folder / "id_ed25519")  # not authorized
    keygen(folder / "id_ecdsa", "-t", "ecdsa", "-N", "locked")
    shutil.copy(keygen(folder / "id_rsa", "-t", "rsa"), bench.folder)
    node = bench.node(server, identity=None)
    error = refusal(bench, node)
    tried = [kind for kind in ("id_ed25519", "id_ecdsa", "id_rsa") if kind in str(error)]
    assert tried == ["id_ed25519", "id_rsa"]
    server.authorize(folder / "id_rsa.pub")
    assert works(bench.open(node))


def test_without_any_key_the_searched_files_are_named(bench: Bench) -> None:
    error = refusal(bench, bench.node(bench.server(), identity=None))
    assert "there is no key to try (~/.ssh/id_ed25519: there is no such file" in str(error)


@contextmanager
def ssh_agent(bench: Bench, monkeypatch: pytest.MonkeyPatch, *keys: Path) -> Iterator[None]:
    """An agent that holds these keys."""
    agent, add = shutil.which("ssh-agent"), shutil.which("ssh-add")
    assert agent is not None
    assert add is not None
    place = bench.folder / "agent"
    with subprocess.Popen([agent, "-D", "-a", str(place)], stdout=subprocess.DEVNULL) as process:
        try:
            monkeypatch.setenv("SSH_AUTH_SOCK", str(place))
            # Its socket is there before it listens.
            wait_until(lambda: subprocess.call([add, "-l"], stdout=subprocess.DEVNULL) != 2)
            subprocess.run([add, "-q", *map(str, keys)], check=True)
            yield
        finally:
            process.terminate()


def test_18_one_of_many_keys_of_the_agent_can_be_chosen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = bench.server("MaxAuthTries 2")
    others = [keygen(bench.folder / f"other{number}") for number in range(4)]
    with ssh_agent(bench, monkeypatch, *others, bench.identity):
        error = refusal(bench, bench.node(server, identity=None))
        assert "the server ended the connection after 2 keys (MaxAuthTries): a key of" in str(error)
        assert str(error).endswith(
            "; state as `identity` the key it accepts, or its .pub if ssh-agent holds it"
        )
        assert works(bench.open(bench.node(server, identity=f"{bench.identity}.pub")))


def test_18_a_public_key_that_no_agent_holds_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, other = bench.server(), keygen(bench.folder / "other")
    node = bench.node(server, identity=f"{other}.pub")
    assert str(refusal(bench, node)) == (
        f"n1: could not log in: {other}.pub: a public key, and no ssh-agent holds its private "
        f"key (SSH_AUTH_SOCK is not set); start one, or state `identity: {other}`"
    )
    with ssh_agent(bench, monkeypatch, bench.identity):
        assert str(refusal(bench, node)) == (
            f"n1: could not log in: {other}.pub: ssh-agent does not hold this key; "
            f"ssh-add {other}, or state `identity: {other}`"
        )


# The way there


def at(node: Node, address: tuple[str, int]) -> Node:
    return replace(node, address=address[0], ssh=replace(node.ssh, port=address[1]))


def test_a_missing_sshd_is_reported_at_once(bench: Bench) -> None:
    server = bench.server()
    server.stop()
    assert str(refusal(bench, bench.node(server))) == (
        f"n1: unreachable: no sshd answers on port {server.port} of 127.0.0.1: connection "
        "refused; is sshd running?"
    )


def test_a_name_that_does_not_resolve_is_reported(bench: Bench) -> None:
    error = refusal(bench, at(bench.node(bench.server()), ("nowhere.invalid", 22)))
    assert 'the name "nowhere.invalid" does not resolve' in str(error)


def test_no_answer_is_reported_after_the_time_limit(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
        address = deaf.getsockname()
        with socket.create_connection(address):  # fills the queue: the next one is not answered
            node = at(bench.node(bench.server()), address)
            error = refusal(bench, node, connect_timeout_s=0.3)
    assert str(error) == (
        f"n1: unreachable: no answer on port {address[1]} of 127.0.0.1 within 0.3 s; "
        "is the node up, and does a firewall block the port?"
    )


def test_a_server_that_never_greets_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.connection.HANDSHAKE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = refusal(bench, at(bench.node(bench.server()), mute.getsockname()))
    assert "is open but no SSH server greets within 0.3 s" in str(error)


def test_many_logins_succeed_although_the_server_drops_some(bench: Bench) -> None:
    server = bench.server("MaxStartups 2:50:6")
    nodes = [bench.node(server, f"n{number}") for number in range(40)]
    opened, errors = results_and_errors(nodes, bench.opener(), forks=40)
    for transport in opened.values():
        transport.close()
    assert errors == {}
    assert list(opened) == [node.name for node in nodes]
    log = (server.folder / "log").read_text()
    assert "MaxStartups" in log, "the server dropped nobody: the test shows nothing"


def test_the_socket_sends_at_once(bench: Bench) -> None:
    transport = bench.open(bench.node(bench.server()))
    sock = transport._connection._sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
