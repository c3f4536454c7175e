"""One node of a practice cluster: its file system, its containers, its processes."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from ascendboot.errors import CommandError, NodeError
from ascendboot.lab import host
from ascendboot.lab import shape as shape_module
from ascendboot.lab.links import NAMESPACES
from ascendboot.lab.records import Record
from ascendboot.lab.shape import LabNode, Shape
from ascendboot.templates import installed
from ascendboot.value import Value

NAME = "rec-sdk"

_PACKAGES = {name: (name,) for name in ("podman", "runc", "conmon")}
_CGROUPS = Path("/sys/fs/cgroup")
_MOUNTS = Path("/proc/self/mounts")
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

_ABSENT = ("var/lib/ascendboot",)
"""What the image does not have, although the machine may: it can be a node of a cluster itself."""

_OPAQUE = "trusted.overlay.opaque"
_LAB = "/usr/local/Ascend/lab"
_LAB_OF_RANKS = "/run/ascendboot-lab"
"""Where ranks see the stand-in for the speed of an NPU: a container has nothing of the driver."""
_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
_LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 20000), "nproc": (resource.RLIMIT_NPROC, 10000)}


def need_containers(mount_table: str, search_path: str = host.SEARCH_PATH) -> None:
    """Raises LabError if containers cannot run in nodes; `mount_table` is /proc/self/mounts."""
    if reason := hindrance(mount_table, search_path):
        remedy = "run lab.up --no-containers, where ranks run on the servers themselves"
        raise host.LabError(f"lab.up: --containers: could not start: {reason}; {remedy}")


def hindrance(mount_table: str, search_path: str = host.SEARCH_PATH) -> str | None:
    """Why containers cannot run in nodes, as far as this is known before a start; else None."""
    kinds = [line.split()[2] for line in mount_table.splitlines() if line.split()[1] == "/"]
    if kinds and kinds[-1] == "overlay":
        return (
            "this machine's / is an overlay already (a container?), and the kernel stacks no more"
            " than two"
        )
    return host.missing_packages(_PACKAGES, search_path) or None


def stage_engine(files: Path) -> None:
    """Write podman's settings for the node, and `docker`, which calls podman.

    podman raises limits to values of its own, which the machine may not permit.
    """
    limits = []
    for name, (which, wanted) in _LIMITS.items():
        hard = resource.getrlimit(which)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        limits.append(f'"{name}={limit}:{limit}"')
    settings = host.ours("containers.conf").replace("@LIMITS@", ", ".join(limits))
    host.put(files / "etc/containers/containers.conf", settings)
    host.put(files / "etc/containers/storage.conf", host.ours("storage.conf"))
    host.put(files / "usr/local/bin/docker", host.ours("docker"), mode=0o755)


def start_script(
    hostname: str, binds: Iterable[Path], overlays: Iterable[str], devices: Iterable[int]
) -> str:
    """The program that starts the node's container, or creates it."""
    options = [f"--volume={place}:{place}:ro" for place in binds]
    options += [f"--volume=/run/ascendboot-lab/image{place}:{place}:O" for place in overlays]
    shown = ("faults", "npu-load")
    options += [f"--volume={_LAB}/{name}:{_LAB_OF_RANKS}/{name}:ro" for name in shown]
    nodes = (*(f"davinci{device}" for device in devices), *_MANAGERS)
    # Programs only test whether these exist.
    options += [f"--device=/dev/null:/dev/{node}" for node in nodes]
    return (
        host.ours("start-container")
        .replace("@NAME@", NAME)
        .replace("@HOSTNAME@", hostname)
        .replace("@OPTIONS@", shlex.join(options))
    )


def remove_cgroups(disk: Path, cgroups: Path = _CGROUPS) -> None:
    """Remove the empty cgroups that the containers on a node's disk had on this machine."""
    storage = disk / "containers/storage/overlay-containers"
    containers = [path.name for path in storage.glob("*") if path.is_dir()]
    for parent in (*cgroups.glob(f"*/{_PARENT}"), *cgroups.glob(_PARENT)):
        places = [p for name in containers for p in parent.glob(f"libpod*{name}")]
        folders = [p for place in places for p in (place, *place.rglob("*")) if p.is_dir()]
        # The last two are only empty if no other container is left.
        for place in (*sorted(folders, reverse=True), parent / "conmon", parent):
            with suppress(OSError):  # not empty
                place.rmdir()


# Without these a node's root could set the machine's clock or load kernel modules.
_LESS_POWER = ("setpriv", "--bounding-set", "-sys_time,-sys_module")
DISK_OPTIONS = "size=50%,nr_inodes=1m"
"""The size of a node's disk, and of its /tmp."""

_BOOT_TIMEOUT_S = 30.0
_POLL_S = 0.02
_SSH_TIMEOUT_S = 3.0  # the slowest of slow links takes two seconds to answer


def boot(record: Record, node: LabNode) -> None:
    """Start the node's first process in the background; `wait_until_up` waits for it."""
    script = record.folder / "boot.sh"
    if not script.exists():
        script.write_text(host.ours("boot.sh"))
    disk = record.disk(node.name)
    (record.folder / f"{node.name}.pid").unlink(missing_ok=True)
    (disk / "lab/booted").unlink(missing_ok=True)
    argv = [
        *("setsid", "--fork", "nsenter", f"--net={NAMESPACES / node.namespace}", *_LESS_POWER),
        *("unshare", "--mount", "--uts", "--pid", "--ipc", "--fork", "--kill-child"),
        *("--propagation", "private", "bash", str(script), str(disk)),
    ]
    with record.log(node.name).open("w") as log:
        subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
            cwd="/",
            env={"PATH": host.environment()["PATH"]},
        )


def wait_until_up(
    record: Record,
    node: LabNode,
    *,
    ssh: bool = True,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> host.ProcessId:
    """The node's PID 1, once it is complete and, with `ssh`, its sshd answers; else NodeError."""
    deadline = clock() + _BOOT_TIMEOUT_S
    while clock() < deadline:
        process = record.process(node.name)
        booted = (record.disk(node.name) / "lab/booted").exists()
        if process and booted and (not ssh or ssh_answers(node)):
            return process
        if not process and _last_lines(record, node):
            break
        pause(_POLL_S)
    why = _last_lines(record, node) or f"no answer on port 22 within {_BOOT_TIMEOUT_S:g} s"
    raise NodeError(node.name, f"could not boot: {why}; try lab.down, then lab.up")


def ssh_answers(node: LabNode) -> bool:
    """Whether an SSH server answers on port 22 of the node."""
    try:
        place = (str(node.address), 22)
        with socket.create_connection(place, timeout=_SSH_TIMEOUT_S) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def entry(process: host.ProcessId, argv: Sequence[str]) -> list[str]:
    """The argv that runs `argv` inside the node, as its root, with a clean environment."""
    return [
        *("nsenter", "-t", str(process.pid)),
        *("--mount", "--uts", "--ipc", "--net", "--pid", "--root"),
        *_LESS_POWER,
        *("env", "-i", "-C", "/root", "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"),
        *(f"{key}={value}" for key, value in host.environment().items() if key != "HOME"),
        *argv,
    ]


def execute(
    node: LabNode, process: host.ProcessId, argv: Sequence[str], *, stdin: bytes, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program inside the node, with any exit code; CommandError after `timeout_s`."""
    try:
        return host.call(entry(process, argv), stdin=stdin, timeout_s=timeout_s, cwd="/")
    except subprocess.TimeoutExpired as error:
        why = f"could not run {argv[0]}: no end within {timeout_s:g} s"
        raise CommandError(node.name, why) from error


def mount_disk(record: Record, node: LabNode) -> None:
    """Give the node an empty disk, in memory."""
    disk = record.disk(node.name)
    # The lab's notes about the node are on a file system of their own: the node's disk can be full.
    for place, options in ((disk, DISK_OPTIONS), (disk / "lab", "size=16m")):
        place.mkdir(mode=0o755)
        argv = ["mount", "-n", "-t", "tmpfs", "-o", f"mode=755,{options}", "ascendboot-lab"]
        host.run([*argv, str(place)], purpose=f"mount {place}")


def _last_lines(record: Record, node: LabNode) -> str:
    log = record.log(node.name)
    lines = log.read_text().strip().splitlines() if log.exists() else []
    return lines[-1] if lines else ""


DEMO = "examples/little_demo"
HOST_KEY_TYPES = ("ed25519", "ecdsa")
"""The types of a node's host keys; RSA would take most of the time of `lab.up`."""

_DEMO_ON_NODE = "workspace/little_demo"
_STOCK_HOME = Path("/usr/share/base-files")
_TOOLS = (
    *("usr/local/bin/npu-smi", "usr/local/bin/date", "usr/local/Ascend/driver/tools/hccn_tool"),
    "usr/local/Ascend/cann/tools/hccl_test/bin/all_reduce_test",
)
_OWN_FILE_SYSTEMS = ("/usr", "/usr/local", "/opt", "/srv", "/var")
"""Places where the machine may have mounted a file system that nodes need, too."""
_OWN_PLACES = ("dev", "etc/ssh", "proc", "root", "run", "tmp", "usr")
"""Each node has its own of these, so a directory that contains one cannot be bound."""


class Surroundings(Value):
    """Directories of the operator's machine that every node sees read-only at the same path."""

    directory: Path
    """The operator's working directory; its `.ascendboot` is hidden from the nodes."""
    project: Path | None
    """The checkout, if any."""
    interpreter: Path
    prefixes: tuple[Path, ...]

    @classmethod
    def of_this_process(cls, directory: Path, project: Path | None) -> Surroundings:
        """Those of this interpreter, and of other interpreters in the checkout."""
        prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
        for record in sorted(project.glob(".venv*/pyvenv.cfg")) if project else ():
            for line in record.read_text(errors="replace").splitlines():
                key, _, home = line.partition("=")
                if key.strip() == "home":
                    prefixes.append(Path(home.strip()).parent)
        return cls(directory, project, Path(sys.executable), tuple(prefixes))

    def binds(self) -> tuple[Path, ...]:
        """The directories to bind, outermost first."""
        wanted = {p for prefix in self.prefixes for p in (prefix, prefix.resolve())}
        if self.project is not None:
            wanted.add(self.project)
        own = {part for name in _OWN_PLACES for part in (Path("/", name), *Path("/", name).parents)}
        usable = sorted(
            place for place in wanted - own if place.is_dir() and Path("/usr") not in place.parents
        )
        return tuple(p for p in usable if not any(other in p.parents for other in usable))

    def masks(self) -> tuple[Path, ...]:
        """Directories to hide, because the binds would show the operator's own files."""
        homes = {self.directory, self.project or self.directory}
        hidden = sorted(home / ".ascendboot" for home in homes)
        return tuple(p for p in hidden if any(bind in p.parents for bind in self.binds()))


def stage(
    disk: Path, shape: Shape, node: LabNode, *, operator_key: str, surroundings: Surroundings
) -> None:
    """Put onto the empty `disk` what `boot.sh` and the node need; LabError without host keys."""
    files = disk / "files"
    for path, text in _texts(shape, node).items():
        host.put(files / path, text)
    for tool in _TOOLS:
        host.put(files / tool, host.ours(Path(tool).name), mode=0o755)
    _stage_workload(files, surroundings)
    home, ssh = disk / "home", disk / "ssh"
    host.directory(home, mode=0o700)
    for name, text in _home_texts().items():
        host.put(home / name, text)
    host.directory(home / ".ssh", mode=0o700)
    host.put(home / ".ssh/authorized_keys", operator_key, mode=0o600)
    for name in ("sshd_config", "ssh_config"):
        host.directory(ssh / f"{name}.d")
        host.put(ssh / name, host.ours(name))
    for kind in HOST_KEY_TYPES:
        make_key(ssh / f"ssh_host_{kind}_key", kind, f"root@{node.name}")
    host.put(disk / "lab/world", shape_module.world_text(shape, node))
    host.put(disk / "lab/lock", "")
    for name in ("start-sshd", "npu-load"):
        host.put(disk / "lab" / name, host.ours(name), mode=0o755)
    for name in ("faults", "npu"):
        host.directory(disk / "lab" / name)
    if shape.containers:
        _stage_container(disk, node, surroundings)
    arrays: dict[str, Iterable[object]] = {
        "overlays": separate_file_systems(_MOUNTS.read_text()),
        "binds": surroundings.binds(),
        "masks": surroundings.masks(),
        "npus": (NAMESPACES / shape.device_namespace(node, device) for device in node.devices),
    }
    lines = (f"{name}=({shlex.join(map(str, values))})\n" for name, values in arrays.items())
    container = NAME if shape.containers else ""
    head = f"name={node.name}\ndisk_options={DISK_OPTIONS}\ncontainer={container}\n"
    host.put(disk / "boot.conf", head + "".join(lines))


def host_keys(disk: Path) -> tuple[str, ...]:
    """The node's public host keys, `TYPE BASE64` each, the one that clients prefer first."""
    files = (disk / "ssh" / f"ssh_host_{kind}_key.pub" for kind in HOST_KEY_TYPES)
    return tuple(" ".join(path.read_text().split()[:2]) for path in files)


def make_key(path: Path, kind: str, comment: str) -> None:
    """Make a key pair without a passphrase: `path` and `path.pub`."""
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(path)]
    host.run(argv, purpose=f"make the key {path.name}")


def separate_file_systems(mount_table: str) -> tuple[str, ...]:
    """The places in /proc/self/mounts that nodes need and that are own file systems."""
    mounted = {line.split()[1] for line in mount_table.splitlines() if line.strip()}
    return tuple(place for place in _OWN_FILE_SYSTEMS if place in mounted)


def _texts(shape: Shape, node: LabNode) -> dict[str, str]:
    driver = shape_module.DRIVER
    texts = {
        "etc/hostname": f"{node.name}\n",
        "etc/hosts": shape_module.hosts_text(shape),
        "etc/hccn.conf": shape_module.hccn_conf_text(shape, node),
        "etc/environment": "",
        "etc/resolv.conf": "",
        "usr/local/Ascend/driver/version.info": f"Version={driver}\npackage_version={driver}\n",
    }
    if shape.product == "a5":
        texts[shape_module.ROOT_INFO] = shape_module.root_info_text(node)
        texts[shape_module.TOPOLOGY] = shape_module.topology_text()
    pam = Path("/etc/pam.d/sshd")
    if pam.is_file():
        # If the audit system fixed the login id of `lab.up`, a required one refuses every login.
        loginuid = re.compile(r"^(.*?)required(.*loginuid)", re.MULTILINE)
        texts["etc/pam.d/sshd"] = loginuid.sub(r"\1optional\2", pam.read_text())
    return texts


def _stage_workload(root: Path, surroundings: Surroundings) -> None:
    """Write what ranks need on a node or in its container: a python3 and the demo."""
    run_python = f'#!/bin/sh\nexec {shlex.quote(str(surroundings.interpreter))} "$@"\n'
    host.put(root / "usr/local/bin/python3", run_python, mode=0o755)
    place = root / _DEMO_ON_NODE
    host.directory(place)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installed("examples") / place.name, place, dirs_exist_ok=True, ignore=ignore)


def _stage_container(disk: Path, node: LabNode, surroundings: Surroundings) -> None:
    image = disk / "image"
    host.directory(image)
    for place, mode in _EMPTY.items():
        host.directory(image / place, mode=mode)
        os.setxattr(image / place, _OPAQUE, b"y")
    for path in _ABSENT:
        host.directory((image / path).parent)
        os.mknod(image / path, stat.S_IFCHR)  # device 0:0 is the whiteout of an overlay
    for path in ("etc/environment", "etc/resolv.conf"):
        host.put(image / path, "")
    _stage_workload(image, surroundings)
    for name, text in _home_texts().items():
        host.put(image / "root" / name, text)
    overlays = separate_file_systems(_MOUNTS.read_text())
    for overlay in overlays:
        host.directory(image / overlay.lstrip("/"))
    stage_engine(disk / "files")
    host.directory(disk / "containers")
    devices = [device.device_id for device in node.devices]
    script = start_script(f"{node.name}-{NAME}", surroundings.binds(), overlays, devices)
    host.put(disk / "lab/start-container", script, mode=0o755)


def _home_texts() -> dict[str, str]:
    stock = {f".{name}": _STOCK_HOME / f"dot.{name}" for name in ("bashrc", "profile")}
    return {name: path.read_text() if path.is_file() else "" for name, path in stock.items()}
