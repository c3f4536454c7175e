"""`docker/` builds and runs: with podman, on this machine's own packages, without any network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ascendboot.lab.files import directory, put

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("containers_possible")]

PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "grep", "hostname", "mawk"),
    *("iproute2", "iputils-ping", "libc-bin", "mount", "openmpi-bin", "openssh-server", "procps"),
    *("python3", "sed", "tini", "util-linux"),
)
WITH_DEPENDENCIES = (
    *("apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests"),
    *("--no-conflicts", "--no-breaks", "--no-replaces", "--no-enhances"),
)
NOT_NEEDED = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/include")
ALSO = ("/etc/ld.so.cache", "/etc/nsswitch.conf")
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
PREFIX = "abdk"


def run(*argv: str, timeout_s: float = 120.0, **options: Any) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=timeout_s, **options
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    text: str = done.stdout
    return text


@dataclass(frozen=True)
class Engine:
    """podman, with a storage of its own."""

    folder: Path

    def __call__(self, *words: str, **options: Any) -> str:
        argv = [
            *("podman", "--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")),
            *("--tmpdir", str(self.folder / "tmp"), "--runtime", "runc"),
            *("--cgroup-manager", "cgroupfs", "--events-backend", "none"),
        ]
        return run(*argv, *words, **options)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    folder = Path(mkdtemp(prefix="podman-"))  # podman refuses paths of more than 50 characters
    engine = Engine(folder)
    yield engine
    engine("rm", "--all", "--force", "--time", "0")
    engine("rmi", "--all", "--force")
    shutil.rmtree(folder, ignore_errors=True)
    for place in sorted(Path("/sys/fs/cgroup").glob("**/libpod_parent"), reverse=True):
        for inner in (place / "conmon", place):
            with suppress(OSError):
                inner.rmdir()  # only when no container of anybody is left


@pytest.fixture(scope="module")
def base(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of the packages that this machine has, as Debian's would be with them installed."""
    try:
        listed = run(*WITH_DEPENDENCIES, *PACKAGES)
    except (OSError, AssertionError) as error:
        pytest.skip(f"no image to build on: this machine's packages are not Debian's: {error}")
    names = sorted({line for line in listed.splitlines() if line[:1].isalnum()})
    query = "${db:Status-Status} ${binary:Package}\n"
    states = (line.split() for line in run("dpkg-query", "-f", query, "-W").splitlines())
    installed = {name.split(":")[0] for state, name in states if state == "installed"}
    files = run("dpkg", "-L", *(name for name in names if name in installed))
    kept = {_usr_merged(path) for path in files.splitlines() if _is_wanted(path)}
    alternatives = {str(path) for path in chosen_programs()}
    root = tmp_path_factory.mktemp("base")
    lay_out(root)
    archive = root.parent / f"{root.name}.tar"
    ours = {f"/{path.relative_to(root)}" for path in root.rglob("*")}
    wanted = {*kept, *ALSO, *alternatives} - ours
    listing = "".join(f"{path.lstrip('/')}\n" for path in sorted(wanted))
    run("tar", "-C", str(root), "-cf", str(archive), *(p.name for p in root.iterdir()))
    append = ("-rf", str(archive), "--hard-dereference", "--no-recursion", "--files-from=-")
    run("tar", "-C", "/", *append, input=listing)
    engine("import", str(archive), "localhost/base")
    archive.unlink()
    return "localhost/base"


def chosen_programs() -> Iterator[Path]:
    """The links by which Debian's alternatives choose programs; no package has them."""
    for link in Path("/etc/alternatives").iterdir():
        yield link
        program = Path("/usr/bin") / link.name
        if program.is_symlink() and program.readlink() == link:
            yield program


def _is_wanted(path: str) -> bool:
    place = Path(path)
    return not path.startswith(NOT_NEEDED) and (place.is_file() or place.is_symlink())


def _usr_merged(path: str) -> str:
    return f"/usr{path}" if path.startswith(("/bin/", "/sbin/", "/lib/", "/lib64/")) else path


def lay_out(root: Path) -> None:
    """What makes a root file system of files: users, empty directories, a python."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev", "proc", "run", "sys", "var/lib", "var/log", "var/tmp"):
        directory(root / name)
    directory(root / "tmp", mode=0o1777)
    directory(root / "root", mode=0o700)
    put(
        root / "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n",
    )
    put(root / "etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")
    put(root / "etc/shadow", "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n", mode=0o600)
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    put(root / "usr/local/bin/python3", python, mode=0o755)


def python_volumes() -> list[str]:
    """This interpreter and its packages, as volumes: they are no part of the image."""
    places = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    return [f"--volume={place}:{place}:ro" for place in sorted(places) if place != Path("/usr")]


@pytest.fixture(scope="module")
def image(engine: Engine, base: str, pytestconfig: pytest.Config) -> str:
    engine(
        *("build", "--network", "none", *LIMITS, *python_volumes()),
        *("--build-arg", f"BASE={base}", "--file", "docker/Dockerfile"),
        *("--ignorefile", "docker/Dockerfile.dockerignore", "--tag", "localhost/node", "."),
        cwd=pytestconfig.rootpath,
    )
    return "localhost/node"


@dataclass(frozen=True)
class Cluster:
    """The services of compose.yaml, running, and an operator's side that reaches them."""

    engine: Engine
    namespace: str
    directory: Path

    def operator(self, *argv: str) -> str:
        enter = ("nsenter", f"--net=/run/netns/{self.namespace}")
        return run(*enter, *argv, cwd=self.directory, env={**os.environ, "NO_COLOR": "1"})

    def inside(self, service: str, *argv: str) -> str:
        return self.engine("exec", f"{PREFIX}-{service}", *argv)


@pytest.fixture(scope="module")
def cluster(
    engine: Engine,
    image: str,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """What `docker compose up` makes of compose.yaml, done by hand; two devices each."""
    folder = tmp_path_factory.mktemp("operator")
    key = folder / ".ascendboot/docker/id_ed25519"
    key.parent.mkdir(parents=True)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    compose = yaml.safe_load((pytestconfig.rootpath / "docker/compose.yaml").read_text())
    services = compose["services"]
    operator = f"{PREFIX}{os.getpid()}-op"
    with ExitStack() as stack:
        for name in (operator, *(f"{PREFIX}{os.getpid()}-{service}" for service in services)):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
        wire(operator, compose)
        for name, service in services.items():
            service["environment"] |= {
                "DEVICES": 2,
                "AUTHORIZED_KEY": key.with_suffix(".pub").read_text(),
            }
            start(engine, image, name, service, services)
        yield Cluster(engine, operator, folder)


def wire(operator: str, compose: dict[str, Any]) -> None:
    """Both networks: a bridge each on the operator's side, a cable to each service."""
    for number, (network, settings) in enumerate(compose["networks"].items()):
        (config,) = settings["ipam"]["config"]
        in_namespace(
            operator,
            f"link add {network} type bridge",
            f"link set {network} up",
            f"addr add {config['gateway']}/16 dev {network}",
        )
        for service, its in compose["services"].items():
            port, far = f"{service}n{number}", f"{PREFIX}{os.getpid()}-{service}"
            in_namespace(
                operator,
                f"link add {port} type veth peer name eth{number} netns {far}",
                f"link set {port} master {network} up",
            )
            in_namespace(
                far,
                f"addr add {its['networks'][network]['ipv4_address']}/16 dev eth{number}",
                f"link set eth{number} up",
                "link set lo up",
            )


def in_namespace(namespace: str, *lines: str) -> None:
    run("ip", "-n", namespace, "-batch", "-", input="".join(f"{line}\n" for line in lines))


def start(
    engine: Engine, image: str, name: str, service: dict[str, Any], services: dict[str, Any]
) -> None:
    hosts = {n: s["networks"]["management"]["ipv4_address"] for n, s in services.items()}
    engine(
        *("run", "--detach", "--name", f"{PREFIX}-{name}", "--hostname", service["hostname"]),
        *("--network", f"ns:/run/netns/{PREFIX}{os.getpid()}-{name}"),
        *(f"--cap-add={capability}" for capability in service["cap_add"]),
        *(f"--env={key}={value}" for key, value in service["environment"].items()),
        *(f"--add-host={host}:{address}" for host, address in hosts.items()),
        *("--shm-size", service["shm_size"], *LIMITS, *python_volumes(), image),
    )
    listening = "for _ in {1..300}; do : <>/dev/tcp/127.0.0.1/22 && exit; sleep 0.1; done; exit 1"
    engine("exec", f"{PREFIX}-{name}", "bash", "-c", listening)


def test_its_npus_reach_each_other(cluster: Cluster) -> None:
    tool = "/usr/local/Ascend/driver/tools/hccn_tool"
    ping = (tool, "-i", "0", "-ping", "-g", "address", "198.19.2.101")
    assert cluster.inside("lab-1", *ping).splitlines()[-1] == (
        "3 packets transmitted, 3 received, 0.00% packet loss"
    )
    health = cluster.inside("lab-2", tool, "-i", "1", "-net_health", "-g")
    assert health == "net health status: Success\n"
    assert cluster.inside("lab-1", "npu-smi", "info", "-l").splitlines()[0].split()[3] == "2"


def test_setup_and_train_work_as_the_readme_says(
    cluster: Cluster, pytestconfig: pytest.Config
) -> None:
    text = (pytestconfig.rootpath / "docker/inventory.yaml").read_text()
    (cluster.directory / "inventory.yaml").write_text(text.replace("devices: 8", "devices: 2"))
    program = str(Path(sys.executable).with_name("ascendboot"))
    setup = ("setup", "--inventory", "inventory.yaml", "--accept-new", "--json")
    assert json.loads(cluster.operator(program, *setup))["exit_code"] == 0
    report = json.loads(cluster.operator(program, "train", "main.py", "--json"))
    assert (report["state"], [r["exit_code"] for r in report["ranks"]]) == ("succeeded", [0] * 4)


def test_the_readme_fits_on_a_page(pytestconfig: pytest.Config) -> None:
    readme = (pytestconfig.rootpath / "docker/README.md").read_text()
    assert len(readme.splitlines()) <= 25
    for name in ("docker/compose.yaml", "docker/inventory.yaml"):
        assert name in readme
        assert (pytestconfig.rootpath / name).is_file()
