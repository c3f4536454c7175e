"""The queries of a node, run by bash on this machine, and the facts that their answers become."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts import node_facts
from ascendboot.facts.derive import devices_of
from ascendboot.facts.node_facts import (
    TORCH,
    NodeFacts,
    host_queries,
    queries,
    with_stated,
    work_queries,
)
from ascendboot.facts.parsers.software import Program, Sshd
from ascendboot.facts.parsers.system import FileSystem
from ascendboot.facts.query import NOT_QUERIED, Answered, Fact, Lack, Unanswered, answer_to, query
from ascendboot.model.cluster import Cluster, Device
from ascendboot.templates import script
from ascendboot.transport.api import Effect, read_script
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport, framed
from tests.here import Here
from tests.unit.checks import well
from tests.unit.checks.well import cluster, facts, messages, network, node

NODE = well.node(1)
CLUSTER = well.cluster(NODE, code_path="/workspace/demo")
NEEDED = ("bash", "head", "cat", "df", "id", "ip", "readlink", "ss", "timeout", "uname", "date")


@pytest.fixture
def here(tmp_path: Path) -> Here:
    here = Here(tmp_path, path="")
    here.link(*NEEDED)
    return here


def facts_of(here: Here, cluster: Cluster = CLUSTER) -> NodeFacts:
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
    found = facts_of(here, replace(CLUSTER, code_path=str(here.folder)))
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
    found = facts_of(here, replace(CLUSTER, python="/opt/python3.7"))
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
    assert facts_of(here).listeners == Unanswered(
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
    facts_of(here, wish)
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


def test_versions_are_read_without_importing_anything(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    for name in ("torch-2.1.0+cpu.dist-info", "torch_npu-2.1.0.post6.dist-info", "x-1.dist-info"):
        (packages / name).mkdir(parents=True)
    (packages / "tensorflow-1.15.0-py3.7.egg-info").mkdir()
    info = tmp_path / "cann/x86_64-linux/ascend_toolkit_install.info"
    info.parent.mkdir(parents=True)
    info.write_text("package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100\n")
    python = Here(tmp_path).put("python3", f'PYTHONPATH={packages} exec python3 "$@"')
    argv = ["bash", "-c", f"b={tmp_path}\n{script('facts-work.sh')}", "facts", python, ""]
    env = {**os.environ, "ASCEND_HOME_PATH": str(tmp_path / "cann")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    names = "cann|torch|torch_npu|tensorflow|x"
    found = re.findall(rf"^@@ ({names})_version .*\n(.+)", done.stdout, re.MULTILINE)
    assert dict(found) == {
        "cann": "8.1.RC1",
        "torch": "2.1.0+cpu",
        "torch_npu": "2.1.0.post6",
        "tensorflow": "1.15.0",
    }


DEVICES = (Device(0, "192.0.2.20"), Device(1, "192.0.2.21"))
OF_TWO = node(2, devices=DEVICES)
WITH_STATED = replace(cluster(OF_TWO), facts="stated")
UNREAD = Unanswered("not-understood", "could not list the NPUs: npu-smi info -m: line 1 …")
NO_TOOL = Unanswered("missing", "could not read the network of the devices: no hccn_tool")
NO_IP = Unanswered("failed", "could not read the IP of device 0: it broke")


def test_hostile_15_stated_facts_replace_missing_answers() -> None:
    unread = facts(2, npus=UNREAD, device_networks=NO_TOOL)
    seen = with_stated(WITH_STATED, OF_TWO, unread)
    assert devices_of(OF_TWO, seen) == ((0, "192.0.2.20"), (1, "192.0.2.21"))
    assert [n.link_up for n in seen.device_networks.value] == [NOT_QUERIED, NOT_QUERIED]  # type: ignore[union-attr]
    assert seen.stated == (UNREAD.message, NO_TOOL.message)
    told = [text for text in messages(WITH_STATED, seen) if "error" in text or "stated" in text]
    assert " ".join(told) == (
        "facts-stated warning lab-2: devices 0-1 and their addresses are what the inventory states "
        f"(`facts: stated`), not what the node reports: {UNREAD.message}; {NO_TOOL.message}. "
        "Health, links, TLS switches and pings of these devices are not checked. Repair the "
        "tool, then remove `facts: stated`."
    )


def test_hostile_15_answers_of_tools_take_precedence_over_stated_facts() -> None:
    read = facts(2)
    assert with_stated(WITH_STATED, OF_TWO, read) is read
    unread = facts(2, npus=UNREAD)
    assert with_stated(replace(WITH_STATED, facts="read"), OF_TWO, unread) is unread
    assert with_stated(WITH_STATED, node(2), unread) is unread

    silent = replace(network(2, 0), addresses=NO_IP, link_up=NO_IP)
    half = facts(2, device_networks=Answered((silent, network(2, 1), network(2, 7))))
    seen = with_stated(WITH_STATED, OF_TWO, half)
    assert seen.npus == half.npus
    assert devices_of(OF_TWO, seen) == ((0, "192.0.2.20"), (1, network(2, 1).device_ip))
    assert seen.stated == (NO_IP.message,)


def test_hostile_15_unknown_lines_of_tools_are_a_warning() -> None:
    lines = tuple(f'npu-smi info -m: "warning {n}"' for n in range(6))
    seen = facts(2, unknown_lines=Answered(lines))
    [told] = [text for text in messages(cluster(OF_TWO), seen) if "tool-" in text]
    assert told == (
        f"tool-lines-unknown warning lab-2: vendor tools print more than their answers: "
        f"{', '.join(lines[:4])} and 2 more. Read what they warn of."
    )


IN_CONTAINER = well.node(1, container="rec-sdk")
REFUSED = "print('refused Operation not permitted')"


def understood(answer: Answer, *, host: bool = False) -> Any:
    facts: Mapping[str, Fact[Any]] = node_facts.environment_query(IN_CONTAINER)
    (fact,) = (node_facts.confinement_query(IN_CONTAINER) if host else facts).values()
    return answer_to(fact, answer.to(fact.command))


def run(machine: Here, script: str, *words: str) -> Answer:
    return machine(read_script(script, *words, purpose="try", timeout_s=30.0))


@pytest.fixture
def machine(tmp_path: Path) -> Here:
    return Here(tmp_path)


def with_filter(script: str) -> str:
    """The script as on a node with a seccomp filter."""
    return script.replace("</proc/self/status", "< <(echo 'Seccomp: 2')")


def test_a_machine_without_seccomp_answers(machine: Here) -> None:
    answer = understood(
        run(machine, node_facts.SURROUNDINGS, sys.executable, node_facts.SINGLE_COPY)
    )
    assert well.value(answer).memlock_kib != 0


def test_the_copy_reports_the_error_of_the_kernel() -> None:
    argv = (sys.executable, "-c", node_facts.SINGLE_COPY)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.split()[0] in ("allowed", "refused")
    closed = node_facts.SINGLE_COPY.replace(
        "child, ctypes.byref(ours)", "1 << 22, ctypes.byref(ours)"
    )
    done = subprocess.run((*argv[:2], closed), check=True, capture_output=True, text=True)
    assert done.stdout == "refused No such process\n"


@pytest.mark.parametrize(
    ("words", "mark", "why"),
    [
        ((sys.executable, REFUSED), "/absent", "Operation not permitted"),
        ((sys.executable, "print('allowed')"), "/", ""),
        (("/no/python", REFUSED), "/absent", ""),
        (("/no/python", REFUSED), "/", "in Docker as a rule, and it could not be tried"),
        (("", ""), "/", ""),
    ],
)
def test_single_copy_is_tried_if_seccomp_is_active(
    machine: Here, words: tuple[str, str], mark: str, why: str
) -> None:
    answer = understood(
        run(machine, with_filter(node_facts.SURROUNDINGS).replace("/.dockerenv", mark), *words)
    )
    assert well.value(answer).single_copy == why


def sections(**texts: str) -> Answer:
    plain = {"single_copy": "allowed", "device_nodes": "", "visible": "", "memlock": "64"}
    return Answer(framed({**plain, "label": "", **texts}))


def test_every_section_is_parsed() -> None:
    answer = understood(
        sections(
            device_nodes="davinci5 davinci10 davinci_manager ",
            visible="ASCEND_VISIBLE_DEVICES=5,10",
            memlock="unlimited",
            label="docker-default (enforce)",
        )
    )
    assert answer == Answered(
        node_facts.NodeEnvironment(
            device_nodes=frozenset({"davinci5", "davinci10", "davinci_manager"}),
            visible="5,10",
            label="docker-default (enforce)",
        )
    )
    assert well.value(answer).device_ids == (5, 10)


def test_item_17_devices_grants_limits_and_label_are_those_of_the_process(machine: Here) -> None:
    (machine.folder / "davinci5").symlink_to("/dev/null")
    (machine.folder / "environ").write_bytes(b"A=1\0ASCEND_VISIBLE_DEVICES=4-5\0B=2\0")
    (machine.folder / "label").write_bytes(b"docker-default (enforce)\n\0")
    script = node_facts.SURROUNDINGS.replace("/dev/davinci[", f"{machine.folder}/davinci[")
    script = script.replace("#/dev/", f"#{machine.folder}/")
    for path, file in (("/proc/1/environ", "environ"), ("/proc/self/attr/current", "label")):
        script = script.replace(path, f"{machine.folder}/{file}")
    seen = well.value(understood(run(machine, f"ulimit -l 32\n{script}")))
    assert (seen.device_ids, seen.visible, seen.memlock_kib) == ((5,), "4-5", 32)
    assert seen.label == "docker-default (enforce)"


@pytest.mark.parametrize("memlock", ["", "much", "9" * 5000])
def test_a_limit_that_is_not_a_number_is_refused(memlock: str) -> None:
    assert isinstance(understood(sections(memlock=memlock)), Unanswered)


def test_denials_are_those_of_the_kernels_log(machine: Here) -> None:
    line = '[ 9.1] audit: type=1400 apparmor="DENIED" operation="mount" profile="docker-default"'
    enforce = machine.folder / "enforce"
    script = node_facts.CONFINEMENT.replace("/sys/fs/selinux/enforce", str(enforce))
    machine.put("dmesg", "echo 'read kernel buffer failed' >&2; exit 1")
    assert understood(run(machine, script), host=True) == Answered(node_facts.Confinement())
    machine.put("dmesg", f"echo other\necho '{line}'")
    enforce.write_text("1")
    answer = understood(run(machine, script), host=True)
    assert answer == Answered(node_facts.Confinement(enforcing=True, denials=(line,)))


# ascend-docker-runtime (mind-cluster@22bb3d98, runtime/process/process.go)
@pytest.mark.parametrize(
    ("value", "ids"),
    [
        *(("void", ()), ("", ()), ("0", (0,)), ("1,3", (1, 3)), ("0-2,4", (0, 1, 2, 4))),
        *(("npu-1,npu-3", (1, 3)), ("Ascend910-1", (1,)), (" 7 , 5", (5, 7))),
    ],
)
def test_granted_devices_are_parsed(value: str, ids: tuple[int, ...]) -> None:
    assert node_facts.granted_devices(value) == ids


@pytest.mark.parametrize("value", ["all", "1,", "3-1", "-1", "1-2-3", "9" * 5000, "٣"])
def test_unknown_forms_of_granted_devices_are_refused(value: str) -> None:
    with pytest.raises(NotUnderstoodError):
        node_facts.granted_devices(value)
