"""The practice cluster for tests: one of two nodes for the session, and more on demand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab, down, up
from ascendboot.lab.faults import Fault
from ascendboot.lab.host import LabError, ProcessId
from ascendboot.lab.node import need_containers
from ascendboot.lab.records import of_id, recorded
from ascendboot.lab.shape import Shape
from tests.cluster.operating import heal
from tests.needs import missing, with_torch

_KEEPER = "keeper"
_SMALL = 3
"""How many nodes fit into a /22; the next size is a /20."""


def _ranges(nodes: int) -> list[str]:
    """Inside the ranges of the default lab, where none of its nodes lives."""
    step, length = (4, 22) if nodes <= _SMALL else (16, 20)
    thirds = range(64, 240, step)
    return [f"198.18.{third}.0/{length},198.19.{third}.0/{length}" for third in thirds]


@pytest.fixture(scope="session")
def python(pytestconfig: pytest.Config) -> Path:
    """The interpreter that has torch, beside which Horovod lies."""
    return with_torch(pytestconfig)


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """Skips, or in CI fails, where there can be no practice cluster."""
    _skip_where_impossible()


def _skip_where_impossible() -> None:
    if os.geteuid() != 0:
        missing("the practice cluster needs root")
    argv = ["/usr/bin/unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"]
    if subprocess.run(argv, check=False, capture_output=True).returncode:
        missing("this machine does not let us make namespaces")


@pytest.fixture(scope="session")
def practice_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Lab]:
    """Two nodes of eight devices; its directory is a working directory of its own."""
    with _bringing(tmp_path_factory, pytestconfig) as bring:
        _end_those_of_dead_sessions()
        yield bring(nodes=2, devices=8)


@pytest.fixture(scope="session")
def container_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Lab]:
    """Two nodes of two devices, with containers."""
    with _bringing(tmp_path_factory, pytestconfig) as bring:
        yield bring(nodes=2, devices=2, containers=True)


@pytest.fixture
def fault(practice_cluster: Lab) -> Iterator[Callable[..., Fault]]:
    """`fault(node, kind, device=…, …)` as `Lab.fault`; everything is mended after the test."""
    try:
        yield practice_cluster.fault
    finally:
        heal(practice_cluster)


@pytest.fixture
def bring_up(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Lab]]:
    """`bring_up(nodes=…, devices=…, directory=…, containers=…)`: labs, each ended with the test."""
    with _bringing(tmp_path_factory, pytestconfig) as bring:
        yield bring


@pytest.fixture(scope="module")
def bring_up_once(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Lab]]:
    """As `bring_up`, for labs that all tests of a module share."""
    with _bringing(tmp_path_factory, pytestconfig) as bring:
        yield bring


@pytest.fixture(scope="session")
def containers_possible() -> None:
    """Skips, or in CI fails, where practice nodes cannot have containers."""
    _skip_where_impossible()
    _skip_without_containers()


def _skip_without_containers() -> None:
    try:
        need_containers(Path("/proc/self/mounts").read_text())
    except LabError as error:
        missing(str(error))


@contextmanager
def _bringing(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., Lab]]:
    _skip_where_impossible()
    with ExitStack() as stack:

        def bring(
            *,
            nodes: int = 1,
            devices: int = 1,
            directory: Path | None = None,
            containers: bool = False,
        ) -> Lab:
            if containers:
                _skip_without_containers()
            place = directory or tmp_path_factory.mktemp("operator")
            own = ProcessId.own()
            (place / _KEEPER).write_text(f"{own.pid} {own.started}")
            first, *others = (
                Shape.requested(nodes, devices, networks, containers=containers)
                for networks in _ranges(nodes)
            )
            lab = up(first, directory=place, project=pytestconfig.rootpath, instead=others)
            stack.callback(_end, lab)
            return lab

        yield bring


def _end(lab: Lab) -> None:
    """Unless a test has ended it: its addresses, thus its id, may be of another worker by now."""
    record = of_id(lab.lab_id)
    if record and record.directory == lab.directory:
        down(lab.lab_id)


def _end_those_of_dead_sessions() -> None:
    for record in recorded():
        keeper = record.directory / _KEEPER
        process = ProcessId.parsed(keeper.read_text()) if keeper.is_file() else None
        if process and not process.alive:
            down(record.shape.lab_id)
