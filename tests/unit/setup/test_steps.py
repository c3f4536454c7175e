"""Every step against what is on a node: quiet when its wish is true, else it says why."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath

import pytest

from ascendboot.facts.installed import Daemon as RunningDaemon
from ascendboot.facts.installed import Installed
from ascendboot.model.files import OwnFile
from ascendboot.setup.steps import Absent, Change, FileContent, KeyPair, Later, Satisfied
from ascendboot.setup.trust import Daemon
from ascendboot.transport.api import Effect, FileWrite

BASE = PurePosixPath("/var/lib/ascendboot/lab")
NOTHING = Installed(base=BASE)
TEXT = "hello\n"
SHA = sha256(TEXT.encode()).hexdigest()
WISH = FileContent("env/node.env", TEXT, 0o644)


def with_file(path: str, sha: str, mode: int) -> Installed:
    return replace(NOTHING, files={path: OwnFile(sha, mode)})


def test_a_file_as_wished_is_left_alone() -> None:
    assert isinstance(WISH.check(with_file("env/node.env", SHA, 0o644)), Satisfied)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (NOTHING, "env/node.env is missing"),
        (with_file("env/node.env", "0" * 64, 0o644), "env/node.env has other content"),
        (with_file("env/node.env", SHA, 0o666), "env/node.env has mode 0666 instead of 0644"),
    ],
)
def test_a_file_that_differs_is_written_whole(own: Installed, why: str) -> None:
    write = FileWrite(BASE / "env/node.env", TEXT.encode(), 0o644)
    assert WISH.check(own) == Change(summary=why, files=(write,))


def test_what_is_not_known_yet_is_announced_without_work() -> None:
    change = Later("trust/known_hosts", "the host keys are made").check(NOTHING)
    assert change == Change(summary="not known before the host keys are made")


HOST_KEY = KeyPair("sshd/host_key", "lab-1 of lab")


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (NOTHING, "sshd/host_key is missing"),
        (
            with_file("sshd/host_key", "", 0o600),
            "sshd/host_key cannot be read as a key; a new one replaces it",
        ),
        (
            replace(with_file("sshd/host_key", "", 0o644), host_key="ssh-ed25519 AAAA"),
            "sshd/host_key has mode 0644 instead of 0600",
        ),
    ],
)
def test_a_key_pair_is_made_or_protected(own: Installed, why: str) -> None:
    change = HOST_KEY.check(own)
    assert isinstance(change, Change)
    assert change.summary == why
    assert [command.effect for command in change.commands] == [Effect.WRITE]


def test_a_usable_key_is_kept() -> None:
    own = replace(with_file("sshd/host_key", "", 0o600), host_key="ssh-ed25519 AAAA")
    assert HOST_KEY.check(own) == Satisfied("there, readable and protected")


CONFIG = "Port 12345\n"
SSHD = Daemon(sshd="/usr/sbin/sshd", config=CONFIG)
IDENTITY = sha256(f"{CONFIG}ssh-ed25519 AAAA\n".encode()).hexdigest()


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (NOTHING, "the cluster's sshd does not run"),
        (
            replace(NOTHING, host_key="ssh-ed25519 BBBB", daemon=RunningDaemon(7, IDENTITY)),
            "the cluster's sshd runs with another configuration or host key",
        ),
    ],
)
def test_an_sshd_that_is_not_the_wished_one_is_started(own: Installed, why: str) -> None:
    change = SSHD.check(own)
    assert isinstance(change, Change)
    assert (change.summary, [c.purpose for c in change.commands]) == (
        why,
        ["start the cluster's sshd"],
    )


def test_the_wished_sshd_is_left_alone() -> None:
    own = replace(NOTHING, host_key="ssh-ed25519 AAAA", daemon=RunningDaemon(7, IDENTITY))
    assert SSHD.check(own) == Satisfied("runs as configured")


def test_a_file_that_nothing_needs_any_more_is_removed() -> None:
    step = Absent("resources/hccl_json_8p.json")
    own = replace(NOTHING, files={step.name: OwnFile("00", 0o644)})
    change = step.check(own)
    assert isinstance(change, Change)
    assert change.summary == "resources/hccl_json_8p.json is left from another setting"
    assert [(c.argv, c.effect) for c in change.commands] == [
        (("rm", "-f", "--", f"{own.base}/resources/hccl_json_8p.json"), Effect.WRITE)
    ]
    assert step.check(NOTHING) == Satisfied("is not there")
