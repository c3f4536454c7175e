"""What lies on a practice node's disk before it boots for the first time."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.lab import containers, world
from ascendboot.lab.files import directory, ours, put
from ascendboot.lab.node import DISK_OPTIONS
from ascendboot.lab.programs import run
from ascendboot.lab.wiring import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ascendboot.lab.shape import LabNode, Shape

DEMO = "examples/little_demo"
HOST_KEY_TYPES = ("ed25519", "ecdsa")
"""The types of a node's host keys; RSA would take most of the time of `lab.up`."""

_DEMO_ON_NODE = "workspace/little_demo"
_STOCK_HOME = Path("/usr/share/base-files")
_OWN_FILE_SYSTEMS = ("/usr", "/usr/local", "/opt", "/srv", "/var")
"""Where a machine may have mounted something that a node must see, too."""
_OWN_PLACES = ("dev", "etc/ssh", "proc", "root", "run", "tmp", "usr")
"""What every node has for itself, so that no directory holding it can be bound."""


@dataclass(frozen=True)
class Surroundings:
    """What of the operator's machine every node sees at the same path, read-only."""

    directory: Path
    """The operator's working directory; its `.ascendboot` is hidden from the nodes."""
    project: Path | None
    """The checkout, or None when there is none."""
    interpreter: Path
    prefixes: tuple[Path, ...]

    @classmethod
    def of_this_process(cls, directory: Path, project: Path | None) -> Surroundings:
        """The surroundings in which this interpreter runs, and those beside it in the checkout."""
        prefixes = (Path(sys.prefix), Path(sys.base_prefix), *_other_interpreters(project))
        return cls(directory, project, Path(sys.executable), prefixes)

    def binds(self) -> tuple[Path, ...]:
        """The directories to bind, outermost first; none holds a place that a node has its own."""
        wanted = {p for prefix in self.prefixes for p in (prefix, prefix.resolve())}
        if self.project is not None:
            wanted.add(self.project)
        usable = sorted(place for place in wanted if _can_be_bound(place))
        return tuple(p for p in usable if not any(other in p.parents for other in usable))

    def masks(self) -> tuple[Path, ...]:
        """Directories to hide: the operator's own files would else be seen through the binds."""
        homes = {self.directory, self.project or self.directory}
        hidden = sorted(home / ".ascendboot" for home in homes)
        return tuple(p for p in hidden if any(bind in p.parents for bind in self.binds()))


def stage(
    disk: Path, shape: Shape, node: LabNode, *, operator_key: str, surroundings: Surroundings
) -> None:
    """Put onto the empty `disk` everything that `boot.sh` and the node need.

    Raises:
        LabError: a host key could not be made.
    """
    files = disk / "files"
    for path, text in _texts(shape, node).items():
        put(files / path, text)
    for name in ("npu-smi", "date"):
        put(files / "usr/local/bin" / name, ours(name), mode=0o755)
    put(files / "usr/local/Ascend/driver/tools/hccn_tool", ours("hccn_tool"), mode=0o555)
    _stage_workload(files, surroundings)
    _stage_home(disk / "home", operator_key)
    _stage_ssh(disk / "ssh", node)
    put(disk / "lab/world", world.world_text(shape, node))
    put(disk / "lab/lock", "")
    put(disk / "lab/start-sshd", ours("start-sshd"), mode=0o755)
    for name in ("faults", "npu"):
        directory(disk / "lab" / name)
    if shape.containers:
        _stage_container(disk, node, surroundings)
    put(disk / "boot.conf", _boot_conf(shape, node, surroundings))


def host_keys(disk: Path) -> tuple[str, ...]:
    """The node's public host keys, `TYPE BASE64` each, the one that clients prefer first."""
    files = (disk / "ssh" / f"ssh_host_{kind}_key.pub" for kind in HOST_KEY_TYPES)
    return tuple(" ".join(path.read_text().split()[:2]) for path in files)


def make_key(path: Path, kind: str, comment: str) -> None:
    """Make a key pair without a passphrase: `path` and `path.pub`."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(path)]
    run(argv, purpose=f"make the key {path.name}")


def separate_file_systems(mount_table: str) -> tuple[str, ...]:
    """Which of the places that a node needs are file systems of their own, outermost first.

    `mount_table` is the text of /proc/self/mounts.
    """
    mounted = {line.split()[1] for line in mount_table.splitlines() if line.strip()}
    return tuple(place for place in _OWN_FILE_SYSTEMS if place in mounted)


def _texts(shape: Shape, node: LabNode) -> dict[str, str]:
    texts = {
        "etc/hostname": f"{node.name}\n",
        "etc/hosts": world.hosts_text(shape),
        "etc/hccn.conf": world.hccn_conf_text(shape, node),
        "etc/environment": "",
        "etc/resolv.conf": "",
        "usr/local/Ascend/driver/version.info": world.version_text(),
    }
    if shape.product == "a5":
        texts[world.ROOT_INFO] = world.root_info_text(node)
        texts[world.TOPOLOGY] = world.topology_text()
    pam = Path("/etc/pam.d/sshd")
    if pam.is_file():
        # Where the audit system has fixed the login id of `lab.up`, a required one lets nobody in.
        text = pam.read_text()
        lines = [
            line.replace("required", "optional") if "loginuid" in line else line
            for line in text.splitlines()
        ]
        texts["etc/pam.d/sshd"] = "\n".join(lines) + "\n"
    return texts


def _stage_workload(root: Path, surroundings: Surroundings) -> None:
    """What ranks need, on a node or in its container: a python3 and something to train."""
    run_python = f'#!/bin/sh\nexec {shlex.quote(str(surroundings.interpreter))} "$@"\n'
    put(root / "usr/local/bin/python3", run_python, mode=0o755)
    place = root / _DEMO_ON_NODE
    directory(place)
    source = surroundings.project / DEMO if surroundings.project else None
    if source and source.is_dir():
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, place, dirs_exist_ok=True, ignore=ignore)


def _stage_container(disk: Path, node: LabNode, surroundings: Surroundings) -> None:
    image = disk / "image"
    containers.stage_image(image, {"etc/environment": "", "etc/resolv.conf": ""})
    _stage_workload(image, surroundings)
    for name, text in _home_texts().items():
        put(image / "root" / name, text)
    overlays = _separate_file_systems_here()
    for place in overlays:
        directory(image / place.lstrip("/"))
    containers.stage_engine(disk / "files")
    directory(disk / "containers")
    script = containers.start_script(
        f"{node.name}-{containers.NAME}",
        surroundings.binds(),
        overlays,
        (device.device_id for device in node.devices),
    )
    put(disk / "lab/start-container", script, mode=0o755)


def _stage_home(home: Path, operator_key: str) -> None:
    directory(home, mode=0o700)
    for name, text in _home_texts().items():
        put(home / name, text)
    directory(home / ".ssh", mode=0o700)
    put(home / ".ssh/authorized_keys", operator_key, mode=0o600)


def _home_texts() -> dict[str, str]:
    stock = {f".{name}": _STOCK_HOME / f"dot.{name}" for name in ("bashrc", "profile")}
    return {name: path.read_text() if path.is_file() else "" for name, path in stock.items()}


def _stage_ssh(place: Path, node: LabNode) -> None:
    for name in ("sshd_config.d", "ssh_config.d"):
        directory(place / name)
    for name in ("sshd_config", "ssh_config"):
        put(place / name, ours(name))
    for kind in HOST_KEY_TYPES:
        make_key(place / f"ssh_host_{kind}_key", kind, f"root@{node.name}")


def _boot_conf(shape: Shape, node: LabNode, surroundings: Surroundings) -> str:
    npus = (NAMESPACES / shape.device_namespace(node, device) for device in node.devices)
    return "".join(
        (
            f"name={node.name}\n",
            f"disk_options={DISK_OPTIONS}\n",
            f"container={containers.NAME if shape.containers else ''}\n",
            _array("overlays", _separate_file_systems_here()),
            _array("binds", surroundings.binds()),
            _array("masks", surroundings.masks()),
            _array("npus", npus),
        )
    )


def _separate_file_systems_here() -> tuple[str, ...]:
    return separate_file_systems(Path("/proc/self/mounts").read_text())


def _array(name: str, values: Iterable[object]) -> str:
    return f"{name}=({shlex.join(str(value) for value in values)})\n"


def _other_interpreters(project: Path | None) -> tuple[Path, ...]:
    """Where the interpreters of the checkout's other virtual environments are installed."""
    if project is None:
        return ()
    lines = (
        line.partition("=")
        for record in sorted(project.glob(".venv*/pyvenv.cfg"))
        for line in record.read_text(errors="replace").splitlines()
    )
    return tuple(Path(home.strip()).parent for key, _, home in lines if key.strip() == "home")


def _can_be_bound(place: Path) -> bool:
    inside_usr = Path("/usr") in place.parents
    holds_node_places = any(
        place in (own, *own.parents) for own in map(Path("/").joinpath, _OWN_PLACES)
    )
    return place.is_dir() and not inside_usr and not holds_node_places
