"""Every step: satisfied if the node is in the desired state, otherwise a change."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePosixPath

import pytest

from ascendboot.facts.installed import Daemon, Installed
from ascendboot.model.files import OwnFile
from ascendboot.setup import steps
from ascendboot.transport.api import Effect, FileWrite
from ascendboot.value import replace

BASE = PurePosixPath("/var/lib/ascendboot/lab")
NOTHING = Installed(base=BASE)
TEXT = "hello\n"
SHA = sha256(TEXT.encode()).hexdigest()
ENV = steps.FileContent("env/node.env", TEXT, 0o644)
HOST_KEY = steps.KeyPair("sshd/host_key", "lab-1 of lab")
KEY = "ssh-ed25519 AAAA"
CONFIG = "Port 12345\n"
SSHD = steps.Sshd(sshd="/usr/sbin/sshd", config=CONFIG)
RUNNING = Daemon(7, sha256(f"{CONFIG}{KEY}\n".encode()).hexdigest())
STALE = steps.Absent("resources/hccl_json_8p.json")


def with_file(path: str, sha: str, mode: int) -> Installed:
    return replace(NOTHING, files={path: OwnFile(sha, mode)})


def with_key(mode: int) -> Installed:
    return replace(with_file("sshd/host_key", "", mode), host_key=KEY)


@pytest.mark.parametrize(
    ("step", "own", "because"),
    [
        (ENV, with_file("env/node.env", SHA, 0o644), "as it should be"),
        (HOST_KEY, with_key(0o600), "there, readable and protected"),
        (SSHD, replace(NOTHING, host_key=KEY, daemon=RUNNING), "runs as configured"),
        (STALE, NOTHING, "is not there"),
    ],
)
def test_a_node_in_the_desired_state_is_left_alone(
    step: steps.Step, own: Installed, because: str
) -> None:
    assert step.check(own) == steps.Satisfied(because)


@pytest.mark.parametrize(
    ("own", "why", "action"),
    [
        (NOTHING, "is missing", "create env/node.env"),
        (with_file("env/node.env", "0" * 64, 0o644), "has other content", "change env/node.env"),
        (
            with_file("env/node.env", SHA, 0o666),
            "has mode 0666 instead of 0644",
            "change env/node.env, which has mode 0666 instead of 0644",
        ),
    ],
)
def test_a_file_that_differs_is_written_whole(own: Installed, why: str, action: str) -> None:
    write = FileWrite(BASE / "env/node.env", TEXT.encode(), 0o644)
    change = steps.Change(summary=f"env/node.env {why}", action=action, files=(write,))
    assert ENV.check(own) == change


def test_a_change_that_is_not_known_yet_is_only_announced() -> None:
    change = steps.Later("trust/known_hosts", "the host keys are made").check(NOTHING)
    summary = "not known before the host keys are made"
    action = "create trust/known_hosts, once the host keys are made"
    assert change == steps.Change(summary=summary, action=action)


@pytest.mark.parametrize(
    ("step", "own", "why", "purpose"),
    [
        (HOST_KEY, NOTHING, "sshd/host_key is missing", "make sshd/host_key"),
        (
            HOST_KEY,
            with_file("sshd/host_key", "", 0o600),
            "sshd/host_key cannot be read as a key; a new one replaces it",
            "make sshd/host_key",
        ),
        (
            HOST_KEY,
            with_key(0o644),
            "sshd/host_key has mode 0644 instead of 0600",
            "protect sshd/host_key",
        ),
        (SSHD, NOTHING, "the cluster's sshd does not run", "start the cluster's sshd"),
        (
            SSHD,
            replace(NOTHING, host_key="ssh-ed25519 BBBB", daemon=RUNNING),
            "the cluster's sshd runs with another configuration or host key",
            "start the cluster's sshd",
        ),
        (
            STALE,
            with_file(STALE.name, "00", 0o644),
            f"{STALE.name} is left from another setting",
            f"remove {STALE.name}",
        ),
    ],
)
def test_a_change_without_files_is_one_command_that_writes(
    step: steps.Step, own: Installed, why: str, purpose: str
) -> None:
    change = step.check(own)
    assert isinstance(change, steps.Change)
    assert (change.summary, change.files) == (why, ())
    assert [(c.purpose, c.effect) for c in change.commands] == [(purpose, Effect.WRITE)]
