"""The queries of a node, run by bash on this machine, and the facts that their answers become."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendboot.facts.node_facts import TORCH, NodeFacts, host_queries, queries, work_queries
from ascendboot.facts.parsers.software import Program, Sshd
from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import NOT_QUERIED, Answered, Lack, Unanswered, answer_to, query
from ascendboot.model.cluster import Cluster
from ascendboot.transport.api import Effect
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport, framed
from tests.here import Here
from tests.unit.checks import well

NODE = well.node(1)
CLUSTER = well.cluster(NODE, code_path="/workspace/demo")
NEEDED = ("bash", "head", "cat", "df", "id", "ip", "readlink", "ss", "timeout", "uname", "date")


@pytest.fixture
def here(tmp_path: Path) -> Here:
    here = Here(tmp_path, path="")
    here.link(*NEEDED)
    return here


def facts(here: Here, cluster: Cluster = CLUSTER) -> NodeFacts:
    answers = query(FakeTransport(rules=[here]), queries(cluster, NODE))
    return NodeFacts.from_answers(NODE.name, answers)


def canned(sections: Mapping[str, tuple[int, str]], fact: str) -> Any:
    asked = queries(CLUSTER, NODE)[fact]
    parts = {name: (code, text.encode()) for name, (code, text) in sections.items()}
    return answer_to(asked, Answer(framed(parts)).to(asked.command))


def test_all_queries_only_read_and_have_a_timeout() -> None:
    commands = {fact.command for fact in queries(CLUSTER, NODE).values()}
    assert len(commands) == 7
    assert {command.effect for command in commands} == {Effect.READ}
    assert all(0 < command.timeout_s <= 200 for command in commands)


def test_every_query_has_a_field_and_every_field_a_query() -> None:
    fields = set(NodeFacts.__struct_fields__) - {"node", "clock", "stated"}
    wish = replace(CLUSTER, launcher="torchrun", reads_leaves=True)
    in_container = replace(NODE, container="rec-sdk")
    both = {**host_queries(wish, in_container), **work_queries(wish, in_container)}
    assert set(both) == fields
    fields -= {"container", "work_machine", "first_process", "confinement"}
    assert set(queries(wish, NODE)) == fields
    assert set(queries(CLUSTER, NODE)) == fields - {"torch", "neighbours"}
    assert set(queries(wish, replace(NODE, leaf="a"))) == fields - {"neighbours"}
    assert set(queries(replace(wish, code_path=None), NODE)) == fields - {"code_tree"}
    assert set(queries(replace(wish, code_source="."), NODE)) == fields - {"code_tree"}


def test_both_sides_of_a_node_with_a_container_are_queried() -> None:
    node = replace(NODE, container="rec-sdk")
    host, work = host_queries(CLUSTER, node), work_queries(CLUSTER, node)
    assert set(host) == {
        *("host", "machine", "container", "interfaces", "kernel_ports", "listeners"),
        *("hccn_conf", "npus", "health", "device_networks", "super_pods", "root_info"),
        *("confinement", "free_memory", "npu_processes", "unknown_lines"),
    }
    assert set(work) == {
        *("system", "work_machine", "first_process", "python", "openmpi", "disk", "place"),
        *("sshd", "ssh", "horovod", "code_tree", "surroundings"),
    }


def test_sshd_is_queried_on_the_side_where_it_will_run() -> None:
    node, cluster = replace(NODE, container="rec-sdk"), replace(CLUSTER, ssh_via="engine")
    assert "sshd" in host_queries(cluster, node)
    assert "sshd" not in work_queries(cluster, node)
    assert set(queries(cluster, NODE)) == set(queries(CLUSTER, NODE))


def test_answers_without_a_field_are_dropped() -> None:
    facts = NodeFacts.from_answers("n1", {"machine": Answered("m"), "lock": Answered("free")})
    assert facts == NodeFacts(node="n1", machine=Answered("m"))
    assert facts.npus == NOT_QUERIED


def test_this_machine_answers(here: Here) -> None:
    here.put("python3", "echo Python 3.7.5 >&2")
    here.put("mpirun", "echo 'mpirun (Open MPI) 4.1.5'")
    here.put("sshd", "[ $1 = -V ] && { echo OpenSSH_9.2p1 >&2; exit; }; exit 0\n")
    found = facts(here, replace(CLUSTER, code_path=str(here.folder)))
    system, clock, name = well.value(found.system), well.value(found.clock), os.uname()
    assert (system.hostname, system.arch) == (name.nodename, name.machine)
    assert (system.uid, system.home) == (os.getuid(), str(here.folder))
    assert well.value(found.machine).endswith(str(Path("/proc/self/ns/net").readlink()))
    assert abs(clock.offset_s) <= clock.uncertainty_s + 0.01
    assert "lo" in {interface.name for interface in well.value(found.interfaces)}
    assert isinstance(found.listeners, Answered)
    assert found.python == Answered(Program(f"{here.folder}/python3", "3.7.5"))
    assert found.openmpi == Answered(Program(f"{here.folder}/mpirun", "4.1.5"))
    assert found.sshd == Answered(Sshd(f"{here.folder}/sshd", "9.2p1"))
    assert well.value(found.code_tree).state == "present"
    assert well.value(found.disk)[0].free_bytes > 0


def test_missing_programs_are_reported(here: Here) -> None:
    (here.folder / "ip").unlink()
    found = facts(here, replace(CLUSTER, python="/opt/python3.7"))
    assert found.interfaces == Unanswered(
        "missing", "could not list the network interfaces: ip is not on PATH"
    )
    assert found.python == Unanswered(
        "missing", "could not find /opt/python3.7: /opt/python3.7 is not a program on PATH"
    )
    assert well.value(found.code_tree).state == "absent"


def test_a_program_that_fails_is_quoted(here: Here) -> None:
    (here.folder / "ss").unlink()
    here.put("ss", "echo 'Cannot open netlink socket' >&2; exit 1\n")
    assert facts(here).listeners == Unanswered(
        "failed", "could not list the ports in use: Cannot open netlink socket"
    )


def test_horovod_is_queried_with_the_paths_of_the_profile(here: Here, tmp_path: Path) -> None:
    python = tmp_path / "py/bin"
    python.mkdir(parents=True)
    Here(python).put("python3", "[ $1 = -c ] && echo 3.7")
    seen = f'printf \'%s\\n\' "$LD_LIBRARY_PATH" "$PYTHONPATH" "$A" >{tmp_path}/seen'
    Here(python).put("horovodrun", f"[ $1 = --version ] && {{ echo 0.28.1; exit; }}\n{seen}")
    env = {"PYTHONPATH": "/mine:{packages}", "A": "%b"}
    wish = replace(CLUSTER, python=f"{python}/python3", profile="rec-sdk-tf", env=env)
    facts(here, wish)
    packages = f"{tmp_path}/py/lib/python3.7/site-packages"
    libraries = f"{packages}/mx_rec/libasc:{packages}/rec_sdk_common/lib:/usr/local/lib"
    wanted = [libraries, "/mine:{packages}", "%b"]
    assert (tmp_path / "seen").read_text().splitlines() == wanted


SSHD = {"sshd": (0, "/usr/sbin/sshd"), "sshd_version": (1, "OpenSSH_9.2p1")}
TWO_DISKS = (
    FileSystem(mount_point="/", free_bytes=7, free_inodes=8),
    FileSystem(mount_point="/data", free_bytes=5, free_inodes=None),
)


@pytest.mark.parametrize(
    ("fact", "sections", "value"),
    [
        ("sshd", {**SSHD, "account": (0, "open")}, Sshd("/usr/sbin/sshd", "9.2p1")),
        (
            *("sshd", {**SSHD, "account": (0, "locked")}),
            Sshd("/usr/sbin/sshd", "9.2p1", accepts_login=False),
        ),
        ("hccn_conf", {"hccn_conf": (0, "address_0=198.19.0.10")}, {0: "198.19.0.10"}),
        ("disk", {"disk": (0, "Avail Inodes IFree Mounted on\n7 9 8 /\n5 - - /data\n")}, TWO_DISKS),
    ],
)
def test_answers_of_the_scripts_are_parsed(
    fact: str, sections: dict[str, tuple[int, str]], value: object
) -> None:
    assert canned(sections, fact) == Answered(value)


@pytest.mark.parametrize(
    ("fact", "sections", "kind", "message"),
    [
        ("sshd", {"sshd": (127, "no sshd")}, "missing", "find the OpenSSH server: no sshd"),
        ("openmpi", {"mpirun": (127, "no mpirun")}, "missing", "find Open MPI: no mpirun"),
        ("hccn_conf", {"hccn_conf": (127, "no file")}, "missing", "read /etc/hccn.conf: no file"),
        ("hccn_conf", {"hccn_conf": (1, "denied")}, "failed", "read /etc/hccn.conf: denied"),
        ("place", {"place": (1, "is full")}, "failed", "use the cluster's folder: is full"),
        ("sshd", {"sshd": SSHD["sshd"]}, "not-understood", "expected a section sshd_version"),
        ("place", {"place": (0, "nfs\x1b")}, "not-understood", "the kind of a file system"),
        (
            *("python", {"python": (0, "bin/python3"), "python_version": (0, "Python 3.7.5")}),
            *("not-understood", 'path of python: line 1 not understood: "bin/python3"'),
        ),
    ],
)
def test_failed_and_unknown_answers_have_no_value(
    fact: str, sections: dict[str, tuple[int, str]], kind: Lack, message: str
) -> None:
    answer = canned(sections, fact)
    assert answer.kind == kind
    assert message in answer.message


@pytest.mark.parametrize(
    ("torch", "npu", "outcome"),
    [
        ("2.1.0", None, (0, "2.1.0 -\n", "")),
        ("2.1.0", "2.1.0.post3", (0, "2.1.0 2.1.0.post3\n", "")),
        (None, None, (127, "", f"there is no torch for {sys.executable}")),
    ],
)
def test_the_versions_of_torch_are_found_without_an_import(
    tmp_path: Path, torch: str | None, npu: str | None, outcome: tuple[int, str, str]
) -> None:
    for name, version in (("torch", torch), ("torch_npu", npu)):
        if version is not None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text("raise SystemError\n")
            (tmp_path / name / "version.py").write_text(f"__version__ = {version!r}\n")
    argv = [sys.executable, "-S", "-c", TORCH]
    done = subprocess.run(argv, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == outcome
