"""The container of a practice node: what it is made of, whether it can be, what it leaves."""

from __future__ import annotations

import os
import resource
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.lab.files import directory, ours, put
from ascendboot.lab.programs import SEARCH_PATH, LabError, missing_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAME = "rec-sdk"

_PACKAGES = {"podman": "podman", "runc": "runc", "conmon": "conmon"}
_CGROUPS = Path("/sys/fs/cgroup")
_PARENT = "libpod_parent"
"""The cgroup in which podman puts all containers of a machine."""

_EMPTY = {
    "etc/ssh": 0o755,
    "root": 0o700,
    "run": 0o755,
    "tmp": 0o1777,
    "var/lib/containers": 0o755,
    "var/tmp": 0o1777,
}
"""Directories of which the image has nothing of the machine's."""

_OPAQUE = "trusted.overlay.opaque"
_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
_LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 20000), "nproc": (resource.RLIMIT_NPROC, 10000)}
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "/var/lib/containers/storage"
runroot = "/var/lib/containers/run"
"""
_ENGINE = """\
[containers]
netns = "host"
default_ulimits = [{limits}]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
"""
_DOCKER = '#!/bin/sh\nexec podman "$@"\n'


def need_containers(mount_table: str, search_path: str = SEARCH_PATH) -> None:
    """Return when containers can run in practice nodes; `mount_table` is /proc/self/mounts.

    Raises:
        LabError: they cannot; says why and what to do.
    """
    reason = hindrance(mount_table, search_path)
    if reason:
        raise LabError(
            f"lab.up: --containers: could not start: {reason}; say invoke lab.up --no-containers,"
            " where ranks run on the servers themselves"
        )


def hindrance(mount_table: str, search_path: str = SEARCH_PATH) -> str | None:
    """What keeps containers from running in practice nodes, as far as that shows from outside."""
    kinds = [line.split()[2] for line in mount_table.splitlines() if line.split()[1] == "/"]
    if kinds and kinds[-1] == "overlay":
        return (
            "this machine's / is an overlay already (a container?), and the kernel stacks no more"
            " than two"
        )
    return missing_packages(_PACKAGES, search_path) or None


def stage_engine(files: Path) -> None:
    """Put podman's settings onto the node: it finds its storage, and starts where limits are low.

    podman raises limits to values of its own, which a machine may not permit.
    """
    limits = ", ".join(f'"{name}={n}:{n}"' for name, n in _limits().items())
    put(files / "etc/containers/containers.conf", _ENGINE.format(limits=limits))
    put(files / "etc/containers/storage.conf", _STORAGE)
    put(files / "usr/local/bin/docker", _DOCKER, mode=0o755)


def stage_image(image: Path, texts: Mapping[str, str]) -> None:
    """Lay out, in the empty directory `image`, what the container has over the machine's root."""
    directory(image)
    for place, mode in _EMPTY.items():
        directory(image / place, mode=mode)
        os.setxattr(image / place, _OPAQUE, b"y")
    for path, text in texts.items():
        put(image / path, text)


def start_script(
    hostname: str, binds: Iterable[Path], overlays: Iterable[str], devices: Iterable[int]
) -> str:
    """The program that starts the node's container, whether or not it was there before."""
    options = [f"--volume={place}:{place}:ro" for place in binds]
    options += [f"--volume=/run/ascendboot-lab/image{place}:{place}:O" for place in overlays]
    nodes = (*(f"davinci{device}" for device in devices), *_MANAGERS)
    # Programs look whether they are there; what opens one finds nothing in it.
    options += [f"--device=/dev/null:/dev/{node}" for node in nodes]
    return (
        ours("start-container")
        .replace("@NAME@", NAME)
        .replace("@HOSTNAME@", hostname)
        .replace("@OPTIONS@", shlex.join(options))
    )


def remove_cgroups(disk: Path, cgroups: Path = _CGROUPS) -> None:
    """Remove the empty cgroups that the containers on a node's disk had on this machine."""
    storage = disk / "containers/storage/overlay-containers"
    ours_here = [path.name for path in storage.glob("*") if path.is_dir()]
    for parent in (*cgroups.glob(f"*/{_PARENT}"), *cgroups.glob(_PARENT)):
        for container in ours_here:
            for place in sorted(parent.glob(f"libpod*{container}")):
                _remove_tree(place)
        for place in (parent / "conmon", parent):
            with suppress(OSError):
                place.rmdir()  # only when no container of anybody is left


def _limits() -> dict[str, int]:
    hard = {name: resource.getrlimit(which)[1] for name, (which, _) in _LIMITS.items()}
    wanted = {name: value for name, (_, value) in _LIMITS.items()}
    return {
        n: v if hard[n] == resource.RLIM_INFINITY else min(v, hard[n]) for n, v in wanted.items()
    }


def _remove_tree(place: Path) -> None:
    for folder in sorted((p for p in place.rglob("*") if p.is_dir()), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        place.rmdir()
