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
from ascendboot.lab.host import LabError, ProcessId, RangeInUseError
from ascendboot.lab.node import need_containers
from ascendboot.lab.records import recorded
from ascendboot.lab.shape import Shape
from tests.cluster.operating import heal
from tests.needs import missing

_KEEPER = "keeper"
_SMALL = 3
"""How many nodes fit into a /22; the next size is a /20."""


def _ranges(nodes: int) -> list[str]:
    """Inside the ranges of the default lab, where none of its nodes lives."""
    step, length = (4, 22) if nodes <= _SMALL else (16, 20)
    thirds = range(64, 240, step)
    return [f"198.18.{third}.0/{length},198.19.{third}.0/{length}" for third in thirds]


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
    _skip_where_impossible()
    _end_those_of_dead_sessions()
    lab = _up_somewhere(2, 8, tmp_path_factory.mktemp("operator"), pytestconfig.rootpath)
    try:
        yield lab
    finally:
        down(lab.lab_id)


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
            lab = _up_somewhere(nodes, devices, place, pytestconfig.rootpath, containers=containers)
            stack.callback(down, lab.lab_id)
            return lab

        yield bring


@pytest.fixture(scope="session")
def container_cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Lab]:
    """Two nodes of two devices, with containers."""
    _skip_where_impossible()
    _skip_without_containers()
    directory = tmp_path_factory.mktemp("operator")
    lab = _up_somewhere(2, 2, directory, pytestconfig.rootpath, containers=True)
    try:
        yield lab
    finally:
        down(lab.lab_id)


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


def _up_somewhere(
    nodes: int, devices: int, directory: Path, project: Path, *, containers: bool = False
) -> Lab:
    own = ProcessId.own()
    (directory / _KEEPER).write_text(f"{own.pid} {own.started}")
    ranges = _ranges(nodes)
    for networks in ranges:
        shape = Shape.requested(nodes, devices, networks, containers=containers)
        try:
            return up(shape, directory=directory, project=project)
        except RangeInUseError:
            if networks == ranges[-1]:
                raise
    raise AssertionError


def _end_those_of_dead_sessions() -> None:
    for record in recorded():
        keeper = record.directory / _KEEPER
        process = ProcessId.parsed(keeper.read_text()) if keeper.is_file() else None
        if process and not process.alive:
            down(record.shape.lab_id)
