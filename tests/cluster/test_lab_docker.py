"""The steps of docker/README.md with a real dockerd and this machine's packages, offline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from ascendboot.lab.host import directory, put
from tests.needs import missing
from tests.waiting import wait_until

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
OF_PYTHON = ("mpi4py*", "numpy*")
NAMESPACE = f"abdk{os.getpid()}"
BASE = "debian:bookworm-slim"
SEARCHED = f"/usr/bin:/usr/sbin:{os.environ['PATH']}"
"""Debian's docker, which fits its dockerd, before any other."""


def program(name: str) -> str:
    found = shutil.which(name, path=SEARCHED)
    if found is None:
        missing(f"there is no {name}; scripts/test installs it")
    return found


def run(*argv: str, timeout_s: float = 120.0, **options: Any) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=timeout_s, **options
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    text: str = done.stdout
    return text


@dataclass(frozen=True)
class Docker:
    """A dockerd with a storage, a network namespace and a socket of its own."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        # the classic builder reads no docker/Dockerfile.dockerignore
        settings = {"DOCKER_HOST": f"unix://{self.folder}/sock", "DOCKER_BUILDKIT": "0"}
        return {**os.environ, **settings, "PATH": SEARCHED, "NO_COLOR": "1"}

    def __call__(self, *words: str, **options: Any) -> str:
        return run(program("docker"), *words, env=self.env, **options)

    def can(self, *words: str) -> bool:
        argv = (program("docker"), *words)
        return not subprocess.run(argv, env=self.env, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def docker() -> Iterator[Docker]:
    folder = Path(mkdtemp(prefix="dockerd-"))  # short: sockets lie below it
    docker = Docker(folder)
    argv = [
        *("nsenter", f"--net=/run/netns/{NAMESPACE}", program("dockerd")),
        *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
        *("--pidfile", str(folder / "pid"), "--host", docker.env["DOCKER_HOST"]),
    ]
    run("ip", "netns", "add", NAMESPACE)
    run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(argv, stdout=log, stderr=log, env=docker.env)
    try:
        wait_until(lambda: daemon.poll() is not None or docker.can("version"))
        assert daemon.poll() is None, (folder / "log").read_text()
        yield docker
        containers = docker("ps", "--all", "--quiet").split()
        if containers:
            docker("rm", "--force", *containers)
    finally:
        daemon.terminate()
        daemon.wait(60)
        run("ip", "netns", "del", NAMESPACE)
        shutil.rmtree(folder, ignore_errors=True)
        for place in Path("/sys/fs/cgroup").glob("*/docker"):
            with suppress(OSError):
                place.rmdir()  # only when no container of anybody is left


@pytest.fixture(scope="module")
def base(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of this machine's packages, like Debian's with these installed."""
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
    wanted = {*kept, *ALSO, *alternatives, *python_files()} - ours
    listing = "".join(f"{path.lstrip('/')}\n" for path in sorted(wanted))
    run("tar", "-C", str(root), "-cf", str(archive), *(p.name for p in root.iterdir()))
    append = ("-rf", str(archive), "--hard-dereference", "--no-recursion", "--files-from=-")
    run("tar", "-C", "/", *append, input=listing)
    docker("import", str(archive), BASE)
    archive.unlink()
    return BASE


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
    """Add what a root file system needs besides packages: users, empty directories, a python."""
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


def python_files() -> Iterator[str]:
    """The files of this interpreter with mpi4py and numpy, at their places on this machine."""
    packages = Path(sysconfig.get_path("purelib"))
    places = [Path(sys.prefix) / "bin", Path(sys.prefix) / "pyvenv.cfg"]
    places += [place for name in OF_PYTHON for place in packages.glob(name)]
    if Path(sys.base_prefix) != Path("/usr"):
        stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
        places += [Path(sys.base_prefix) / "bin", *(Path(sys.base_prefix) / "lib").glob("*.so*")]
        places += [p for p in stdlib.iterdir() if p.name not in ("site-packages", "test")]
    for place in places:
        for path in (place, *place.rglob("*")):
            if (path.is_file() or path.is_symlink()) and path.parent.name != "__pycache__":
                yield str(path)


@pytest.fixture(scope="module")
def checkout(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of a checkout that the README uses, with two devices per server."""
    folder = tmp_path_factory.mktemp("checkout")
    for place in ("docker", "ascendboot/lab/node", "examples/little_demo"):
        shutil.copytree(pytestconfig.rootpath / place, folder / place)
    ignored = pytestconfig.rootpath / ".dockerignore"
    if ignored.exists():
        shutil.copy(ignored, folder)
    for name, line in (("compose.yaml", "DEVICES: 8"), ("inventory.yaml", "devices: 8")):
        text = (folder / "docker" / name).read_text()
        assert line in text
        put(folder / "docker" / name, text.replace(line, line.replace("8", "2")))
    put(folder / ".ascendboot/docker/secret", "of the operator")
    return folder


def said_by(lines: str, docker: Docker, checkout: Path) -> str:
    """The output of lines of the README in a shell in dockerd's network namespace."""
    script = PROGRAM.format(ascendboot=Path(sys.executable).with_name("ascendboot"))
    if not docker.can("compose", "version"):  # the plugin Compose 2
        names = ("docker", "docker-compose")
        script += COMPOSE_1.format(*(program(name) for name in names))
    enter = ("nsenter", f"--net=/run/netns/{NAMESPACE}", "bash", "-e", "-c", script + lines)
    return run(*enter, cwd=checkout, env=docker.env, timeout_s=300)


PROGRAM = """
exec 2>&1
ascendboot() {{ {ascendboot} "$@"; }}
"""
# Debian 12 has version 1 of compose, which has no --wait.
COMPOSE_1 = """
docker() {{
  local word words=() wait=
  [ "$1" = compose ] || {{ {0} "$@"; return; }}
  shift
  for word; do if [ "$word" = --wait ]; then wait=yes; else words+=("$word"); fi; done
  {1} "${{words[@]}}"
  [ -z "$wait" ] || for ((tries = 0; tries < 300; tries++)); do
    {0} ps --all --format '{{{{.Status}}}}' | grep -vq '(healthy)' || return 0
    sleep 0.2
  done
  [ -z "$wait" ]
}}
"""


def blocks(readme: str) -> list[str]:
    """The README's commands, in blocks that empty lines separate."""
    indented = re.findall(r"(?:^    .*\n)+", readme, re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in indented]


@dataclass(frozen=True)
class Flow:
    """The servers that the README's lines have started."""

    docker: Docker
    checkout: Path
    train: str
    down: str

    def type(self, lines: str) -> str:
        return said_by(lines, self.docker, self.checkout)

    def inside(self, service: str, *argv: str) -> str:
        label = f"label=com.docker.compose.service={service}"
        container = self.docker("ps", "--quiet", "--filter", label).strip()
        return self.docker("exec", container, *argv)


@pytest.fixture(scope="module")
def flow(docker: Docker, base: str, checkout: Path) -> Flow:
    assert f"ARG BASE={base}\n" in (checkout / "docker/Dockerfile").read_text()
    up, train, down = blocks((checkout / "docker/README.md").read_text())
    assert "up --build --detach --wait" in up
    said_by(up, docker, checkout)
    return Flow(docker, checkout, train, down)


def test_setup_and_train_end_without_an_error_line(flow: Flow) -> None:
    """Docker's seccomp profile refuses process_vm_readv, and Open MPI does not try it."""
    said = flow.type(flow.train)
    assert "ranks on 2 nodes" in said
    assert re.search(r"^job \S+ succeeded after", said, re.MULTILINE)
    assert not re.findall(r".*(?i:errno|error|warning|fail|refused|denied).*", said)
    again = flow.type(flow.train.splitlines()[0])
    assert re.search(r"^docker: 0 things changed, 0 problems\.", again, re.MULTILINE), again


def test_nothing_of_the_operator_is_in_the_context_of_the_classic_builder(flow: Flow) -> None:
    build = ("build", "--quiet", "--file", "-", ".")
    image = flow.docker(*build, cwd=flow.checkout, input="FROM scratch\nCOPY . /\n").strip()
    container = flow.docker("create", image, "none").strip()
    archive = flow.checkout.parent / "context.tar"
    flow.docker("export", "--output", str(archive), container)
    names = run("tar", "-tf", str(archive)).splitlines()
    assert "docker/entrypoint" in names
    assert [name for name in names if "ascendboot/" in name and "/lab" not in name] == [
        "ascendboot/"
    ]


def test_down_wants_no_key_and_leaves_no_server(flow: Flow) -> None:
    flow.type(flow.down)
    left = flow.docker("ps", "--all", "--format", "{{.Names}}").splitlines()
    assert [name for name in left if "lab-" in name] == []


def test_without_a_key_a_server_says_so(flow: Flow) -> None:
    said = flow.type("docker run --rm --env NODE=1 ascendboot-lab-node || true")
    assert "AUTHORIZED_KEY: is not set; export it before docker compose up" in said


def test_the_image_for_rec_sdk_has_all_for_which_there_are_files(
    docker: Docker, base: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    folder = tmp_path / "rec-sdk"
    shutil.copytree(pytestconfig.rootpath / "docker/rec-sdk", folder)
    build = ("build", "--build-arg", f"BASE={base}", "--tag", "rec-sdk", str(folder))
    lacking = re.findall(r"^MISSING in packages/: (\S+?)[,:]? ", docker(*build), re.MULTILINE)
    assert lacking == [
        *("Ascend-cann-toolkit*.run", "npu_bridge-1.15.0-*.whl", "Ascend-mindxsdk-mxrec*.tar.gz")
    ]
    inside = ("run", "--rm", "rec-sdk")
    look = "ls /usr/sbin/sshd /etc/ssh/ssh_host_* /tmp/rec-sdk /installed 2>/dev/null; mpirun -V"
    assert docker(*inside, "bash", "-c", look).startswith("/usr/sbin/sshd\nmpirun (Open MPI) 4.1")
    put(
        folder / "packages/Ascend-cann-toolkit_9.run",
        'ls /etc/ascend* >/installed; echo "$@" >>/installed\n',
    )
    put(folder / "packages/ascend_install.info", "")
    assert "Ascend-cann" not in docker(*build).partition("MISSING")[2]
    words = "/etc/ascend_install.info\n--quiet --install --install-path=/usr/local/Ascend\n"
    assert docker(*inside, "cat", "/installed") == words
