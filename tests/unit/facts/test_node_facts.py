"""The queries of a node, run by bash on this machine, and the facts that their answers become."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ascendboot.facts.node_facts import TORCH, NodeFacts, host_queries, queries, work_queries
from ascendboot.facts.parsers.software import Program, Sshd
from ascendboot.facts.parsers.system import DISK_TOOL, FileSystem
from ascendboot.facts.query import CLOCK_COMMAND, NOT_ASKED, Answered, Lack, Unanswered, query
from ascendboot.model.cluster import Cluster, Node, SshAccess
from ascendboot.transport.api import Command, Effect
from tests.fake_transport import Answer, FakeTransport

NODE = Node(
    name="n1",
    address="192.0.2.11",
    cluster_address="192.0.2.11",
    server_id="192.0.2.11",
    ssh=SshAccess(user="root"),
)
CLUSTER = Cluster(
    name="two-node",
    nodes=(NODE,),
    primary_name="n1",
    source="two-node.yaml",
    code_path="/workspace/demo",
)
NEEDED = ("bash", "head", "cat", "df", "id", "ip", "readlink", "ss", "timeout", "uname", "date")


class Here:
    """Runs each command on this machine with a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NEEDED:
            found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
            assert found is not None, f"{name} is needed"
            (folder / name).symlink_to(found)

    def put(self, name: str, script: str) -> None:
        path = self.folder / name
        path.unlink(missing_ok=True)  # it may be a link to this machine's own program
        path.write_text(f"#!/bin/bash\n{script}")
        path.chmod(0o755)

    def __call__(self, command: Command) -> Answer:
        done = subprocess.run(
            command.argv,
            env={"PATH": str(self.folder), "HOME": str(self.folder)},
            executable=self.folder / command.argv[0],
            capture_output=True,
            check=False,
        )
        return Answer(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def facts(here: Here, cluster: Cluster = CLUSTER) -> NodeFacts:
    answers = query(FakeTransport(rules=[here]), queries(cluster, NODE))
    return NodeFacts.from_answers(NODE.name, answers)


def canned(sections: Mapping[str, tuple[int, str]], fact: str) -> Any:
    frames = {**sections, "end": (0, "")}.items()
    text = "".join(f"@@ {name} {code} {len(said)}\n{said}\n" for name, (code, said) in frames)
    asked = queries(CLUSTER, NODE)[fact]
    transport = FakeTransport(
        answers={
            asked.command.argv: text,
            CLOCK_COMMAND.argv: "1000000000.000000000\n",
        }
    )
    return query(transport, {fact: asked})[fact]


def test_all_questions_only_read_and_have_an_end() -> None:
    commands = {fact.command for fact in queries(CLUSTER, NODE).values()}
    assert len(commands) == 7
    assert {command.effect for command in commands} == {Effect.READ}
    assert all(0 < command.timeout_s <= 200 for command in commands)


def test_every_question_has_its_field_and_every_field_its_question() -> None:
    fields = set(NodeFacts.__dataclass_fields__) - {"node", "clock", "stated"}
    wish = replace(CLUSTER, launcher="torchrun")
    in_container = replace(NODE, container="rec-sdk")
    both = {**host_queries(CLUSTER, in_container), **work_queries(wish, in_container)}
    assert set(both) == fields
    fields -= {"container", "work_machine", "first_process", "confinement"}
    assert set(queries(wish, NODE)) == fields
    assert set(queries(CLUSTER, NODE)) == fields - {"torch"}
    assert set(queries(replace(wish, code_path=None), NODE)) == fields - {"code", "code_tree"}
    assert set(queries(replace(wish, code_source="."), NODE)) == fields - {"code_tree"}


def test_a_node_with_a_container_is_asked_on_both_sides() -> None:
    node = replace(NODE, container="rec-sdk")
    host, work = host_queries(CLUSTER, node), work_queries(CLUSTER, node)
    assert set(host) == {
        *("host", "machine", "container", "interfaces", "kernel_ports", "listeners"),
        *("hccn_conf", "npus", "npu_list", "health", "device_networks", "super_pods", "root_info"),
        *("confinement", "unknown_lines"),
    }
    assert set(work) == {
        *("system", "work_machine", "first_process", "python", "openmpi", "disk", "place"),
        *("code", "sshd", "ssh", "horovod", "code_tree", "surroundings"),
    }


def test_the_sshd_is_looked_for_where_it_is_to_run() -> None:
    node, cluster = replace(NODE, container="rec-sdk"), replace(CLUSTER, ssh_via="engine")
    assert "sshd" in host_queries(cluster, node)
    assert "sshd" not in work_queries(cluster, node)
    assert set(queries(cluster, NODE)) == set(queries(CLUSTER, NODE))


def test_answers_that_are_no_facts_of_a_node_are_left_out() -> None:
    facts = NodeFacts.from_answers("n1", {"machine": Answered("m"), "lock": Answered("free")})
    assert facts == NodeFacts(node="n1", machine=Answered("m"))
    assert facts.npus == NOT_ASKED


def test_hostile_15_an_ip_without_json_is_read_in_its_plain_form(here: Here) -> None:
    plain = Path(__file__).parents[2] / "data/ip-j-addr/busybox-1.35/usual.txt"
    here.put(
        "ip", f"[ \"$1\" != -j ] || {{ echo 'ip: invalid argument' >&2; exit 1; }}; cat {plain}\n"
    )
    found = facts(here).interfaces
    assert isinstance(found, Answered)
    assert [each.name for each in found.value] == ["lo", "bond0.100", "tun0"]


def test_this_machine_answers(here: Here) -> None:
    here.put("python3", "echo Python 3.7.5 >&2\n")
    here.put("mpirun", "echo 'mpirun (Open MPI) 4.1.5'\n")
    here.put("sshd", "[ $1 = -V ] && { echo OpenSSH_9.2p1 >&2; exit; }; exit 0\n")
    found = facts(here, replace(CLUSTER, code_path=str(here.folder)))
    system, machine, clock = found.system, found.machine, found.clock
    assert isinstance(system, Answered)
    assert isinstance(machine, Answered)
    assert isinstance(clock, Answered)
    name = os.uname()
    assert system.value.hostname == name.nodename
    assert system.value.arch == name.machine
    assert (system.value.uid, system.value.home) == (os.getuid(), str(here.folder))
    assert machine.value.endswith(str(Path("/proc/self/ns/net").readlink()))
    assert abs(clock.value.offset_s) <= clock.value.uncertainty_s + 0.01
    assert isinstance(found.interfaces, Answered)
    assert "lo" in {interface.name for interface in found.interfaces.value}
    assert isinstance(found.listeners, Answered)
    assert found.python == Answered(Program(f"{here.folder}/python3", "3.7.5"))
    assert found.openmpi == Answered(Program(f"{here.folder}/mpirun", "4.1.5"))
    assert found.sshd == Answered(Sshd(f"{here.folder}/sshd", "9.2p1"))
    assert found.code == Answered("readable")
    assert isinstance(found.disk, Answered)
    assert found.disk.value[0].free_bytes > 0


def test_what_is_not_there_is_missing(here: Here) -> None:
    (here.folder / "ip").unlink()
    found = facts(here, replace(CLUSTER, python="/opt/python3.7"))
    assert found.interfaces == Unanswered(
        "missing",
        "could not list the network interfaces: ip is not on PATH",
    )
    assert found.python == Unanswered(
        "missing", "could not find /opt/python3.7: /opt/python3.7 is not a program on PATH"
    )
    assert found.code == Answered("absent")


def test_a_program_that_fails_is_quoted(here: Here) -> None:
    (here.folder / "ss").unlink()
    here.put("ss", "echo 'Cannot open netlink socket' >&2; exit 1\n")
    assert facts(here).listeners == Unanswered(
        "failed", "could not list the ports in use: Cannot open netlink socket"
    )


def test_code_is_a_file_or_a_folder(here: Here) -> None:
    here.put("main.py", "")
    path = str(here.folder / "main.py")
    assert facts(here, replace(CLUSTER, code_path=path)).code == Answered("readable")


def test_horovod_is_asked_with_the_paths_of_the_profile(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "py/bin"
    folder.mkdir(parents=True)
    (folder / "python3").write_text("#!/bin/bash\n[ $1 = -c ] && echo 3.7\n")
    run = "#!/bin/bash\n[ $1 = --version ] && { echo 0.28.1; exit; }\n"
    run += f'printf \'%s\\n\' "$LD_LIBRARY_PATH" "$PYTHONPATH" "$A" >{tmp_path}/seen\n'
    (folder / "horovodrun").write_text(run)
    for program in folder.iterdir():
        program.chmod(0o755)
    env = {"PYTHONPATH": "/mine:{packages}", "A": "%b"}
    wish = replace(CLUSTER, python=str(folder / "python3"), profile="rec-sdk-tf", env=env)
    facts(here, wish)
    packages = f"{tmp_path}/py/lib/python3.7/site-packages"
    libraries = f"{packages}/mx_rec/libasc:{packages}/rec_sdk_common/lib:/usr/local/lib"
    wanted = [libraries, "/mine:{packages}", "%b"]
    assert (tmp_path / "seen").read_text().splitlines() == wanted


SSHD = {"sshd": (0, "/usr/sbin/sshd"), "sshd_version": (1, "OpenSSH_9.2p1")}
NO_FOLDER = (255, "Missing privilege separation directory: /run/sshd")
NOT_WRITABLE = "root cannot write in /var/lib; is it mounted read-only?"
TWO_DISKS = (
    FileSystem(mount_point="/", free_bytes=7, free_inodes=8),
    FileSystem(mount_point="/data", free_bytes=5, free_inodes=None),
)


@pytest.mark.parametrize(
    ("fact", "sections", "value"),
    [
        (
            *("sshd", {**SSHD, "sshd_test": NO_FOLDER, "account": (0, "open")}),
            Sshd("/usr/sbin/sshd", "9.2p1", "/run/sshd"),
        ),
        (
            *("sshd", {**SSHD, "sshd_test": (255, "no hostkeys"), "account": (0, "locked")}),
            Sshd("/usr/sbin/sshd", "9.2p1", lets_us_in=False),
        ),
        ("hccn_conf", {"hccn_conf": (0, "address_0=198.19.0.10")}, {0: "198.19.0.10"}),
        ("disk", {"disk": (0, "Avail Inodes IFree Mounted on\n7 9 8 /\n5 - - /data\n")}, TWO_DISKS),
    ],
)
def test_what_the_scripts_print_is_read(
    fact: str, sections: dict[str, tuple[int, str]], value: object
) -> None:
    assert canned(sections, fact) == Answered(value)


SCRIPT = "the script that queries the node: line"


@pytest.mark.parametrize(
    ("fact", "sections", "kind", "message"),
    [
        (
            *("sshd", {"sshd": (127, "sshd is neither on PATH nor in /usr/sbin")}, "missing"),
            "find the OpenSSH server: sshd is neither on PATH nor in /usr/sbin",
        ),
        (
            *("openmpi", {"mpirun": (127, "mpirun is not on PATH")}, "missing"),
            "find Open MPI: mpirun is not on PATH",
        ),
        (
            *("hccn_conf", {"hccn_conf": (127, "/etc/hccn.conf does not exist")}, "missing"),
            "read /etc/hccn.conf: /etc/hccn.conf does not exist",
        ),
        (
            *("hccn_conf", {"hccn_conf": (1, "/etc/hccn.conf cannot be read by x")}, "failed"),
            "read /etc/hccn.conf: /etc/hccn.conf cannot be read by x",
        ),
        (
            *("place", {"place": (1, NOT_WRITABLE)}, "failed"),
            f"use the cluster's folder: {NOT_WRITABLE}",
        ),
        (
            *("sshd", SSHD, "not-understood"),
            (
                f'find the OpenSSH server: {SCRIPT} 2 not understood: ""; expected sections '
                "sshd_version, sshd_test"
            ),
        ),
        (
            *("code", {"code": (0, "perhaps")}, "not-understood"),
            (
                f'look at the code\'s path: {SCRIPT} 1 not understood: "perhaps"; expected absent, '
                "unreadable or readable"
            ),
        ),
        (
            *("disk", {"disk": (0, "Avail Inodes IFree Mounted on\n1 1 1 /\n")}, "not-understood"),
            (
                f'measure the free disk space: {DISK_TOOL}: line 2 not understood: ""; '
                "expected two rows"
            ),
        ),
        (
            "python",
            {"python": (0, "bin/python3"), "python_version": (0, "Python 3.7.5")},
            "not-understood",
            (
                'find python3: path of python: line 1 not understood: "bin/python3"; expected an '
                "absolute path"
            ),
        ),
    ],
)
def test_no_value_without_a_known_answer(
    fact: str, sections: dict[str, tuple[int, str]], kind: Lack, message: str
) -> None:
    assert canned(sections, fact) == Unanswered(kind, f"could not {message}")


def torch_versions(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", TORCH],
        cwd=folder,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("npu", [None, "2.1.0.post3"])
def test_the_versions_of_torch_are_found_without_an_import(tmp_path: Path, npu: str | None) -> None:
    for name, version in (("torch", "2.1.0"), ("torch_npu", npu)):
        if version is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("raise SystemError\n")
            (tmp_path / name / "version.py").write_text(f"__version__ = {version!r}\n")
    done = torch_versions(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"2.1.0 {npu or '-'}\n")


def test_an_interpreter_without_torch_is_named(tmp_path: Path) -> None:
    done = torch_versions(tmp_path)
    assert (done.returncode, done.stderr) == (127, f"there is no torch for {sys.executable}")
