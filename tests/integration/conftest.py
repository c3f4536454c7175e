"""A bench for every test that wants a real sshd, and clusters for tests of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ascendboot.transport.login_session import SshTransport
from tests.integration.launch_cluster import LocalCluster
from tests.integration.real_sshd import SSHD, Bench, Sshd, keygen
from tests.integration.two_nodes import TwoNodes, two_nodes
from tests.needs import missing, with_torch


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if SSHD is None:
        missing("openssh-server is not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it; a system sshd makes it
    home = tmp_path / "operator"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("ASCENDBOOT_PASSPHRASE", raising=False)
    found = Bench(tmp_path, keygen(tmp_path / "identity"))
    try:
        yield found
    finally:
        for transport in found.opened:
            transport.close()
        for server in found.servers:
            server.stop()


@pytest.fixture
def server(bench: Bench) -> Sshd:
    return bench.server()


@pytest.fixture
def transport(bench: Bench, server: Sshd) -> SshTransport:
    return bench.open(bench.node(server))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node with two ranks, which is this machine."""
    made = LocalCluster(tmp_path / "base", tmp_path / "runs")
    yield made
    made.transport.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoNodes]:
    """Two nodes with two ranks each."""
    if os.geteuid() != 0:
        missing("namespaces want root")
    with two_nodes(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def python(pytestconfig: pytest.Config) -> Path:
    """An interpreter that has torch."""
    return with_torch(pytestconfig)
