"""The scripts that look at a node before a job, run by bash where some things are wrong."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ascendboot.facts.query import NOT_QUERIED, Answered, Fact, Unanswered, answer_to
from ascendboot.jobs.probe import parse_probe, probe_below
from ascendboot.readiness import queries
from ascendboot.value import replace
from tests.here import Here
from tests.unit.checks.well import node, value
from tests.unit.readiness.found import JOB


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A PATH with what the scripts need, and `base` beside it."""
    Here(tmp_path).link("bash", "cat", "df", "grep", "head", "sleep", "timeout")
    (tmp_path / "base/lab/env").mkdir(parents=True)
    return tmp_path


def answers(stage: Path, facts: Mapping[str, Fact[Any]], **changed: str) -> queries.NodeProbe:
    """The answers of the node; `changed` replaces texts of the command."""
    [command] = {fact.command for fact in facts.values()}
    argv = command.argv
    for old, new in changed.items():
        argv = tuple(word.replace(old, new) for word in argv)
    result = Here(stage, path="")(replace(command, argv=argv)).to(command)
    return queries.NodeProbe.of({name: answer_to(fact, result) for name, fact in facts.items()})


def of_work(stage: Path, **changes: Any) -> queries.NodeProbe:
    plain: dict[str, Any] = {"base": PurePosixPath(stage / "base/lab"), "python": sys.executable}
    job: queries.JobRequirements = replace(JOB, **{**plain, **changes})
    return answers(stage, queries.work_queries(job, node(1)))


@pytest.mark.parametrize(("line", "spawns"), [("", False), ("mp.spawn(main)  # ranks", True)])
def test_a_script_that_starts_ranks_of_its_own(stage: Path, line: str, spawns: object) -> None:
    script = stage / "main.py"
    script.write_text(f"import torch, os\n# mp.spawn(x)\n{line}\n")
    found = value(of_work(stage, script=script).packages)
    assert (found.spawns, found.used) == (spawns, frozenset({"torch"}))


def test_versions_come_from_the_environment_of_the_node(stage: Path) -> None:
    packages = stage / "extra"
    for name in ("torch-2.1.0+cpu.dist", "Torch_NPU-2.1.0.post3-py3.10.egg", "x-1.dist"):
        (packages / f"{name}-info").mkdir(parents=True)
    (stage / "base/lab/env/node.env").write_text(f"echo noise; export PYTHONPATH={packages}\n")
    script = stage / "main.py"
    lines = ("import os, mindspore.nn as n", "from torch.nn import functional", "imports = 1\n")
    script.write_text("\n".join(lines))
    found = value(of_work(stage, script=PurePosixPath(script)).packages)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert {k: v for k, v in found.versions.items() if k.startswith("torch")} == {
        "torch": "2.1.0+cpu",
        "torch_npu": "2.1.0.post3",
    }
    assert found.used == {"mindspore", "torch"}


@pytest.mark.parametrize(
    ("content", "opening"),
    [
        (b"#!/bin/bash -e\r\npython3 main.py\n", "#!/bin/bash -e"),
        (b"#!/bin/sh", "#!/bin/sh"),
        (b"import os\n#!/bin/bash\n", ""),
        (b"\0\xff\0", ""),
        (b"", ""),
    ],
)
def test_how_a_script_begins(stage: Path, content: bytes, opening: str) -> None:
    (stage / "run.sh").write_bytes(content)
    assert of_work(stage, script=PurePosixPath(stage / "run.sh")).opening == Answered(opening)
    for absent in (stage / "none", stage):
        assert not of_work(stage, script=PurePosixPath(absent)).has_script


def test_only_data_that_cannot_be_read_is_named(stage: Path) -> None:
    there, away = stage / "data; touch x", stage / "away"
    there.mkdir()
    (there / "file").touch()
    paths = (there, there / "file", away, stage / "locked")
    exec_ = f'exec {shutil.which("timeout")} "$@"'
    Here(stage).put("timeout", f'[[ "$*" != *locked ]] || exit 137\n{exec_}')
    found = of_work(stage, data=tuple(map(str, paths)))
    assert found.data == Answered((("absent", str(away)), ("silent", str(stage / "locked"))))
    assert of_work(stage).data == NOT_QUERIED
    skipped = of_work(stage, data=(str(away),), skipped=frozenset({"data"}))
    assert skipped.data == NOT_QUERIED


def test_programs_and_modules_that_are_not_there(stage: Path) -> None:
    bare = of_work(stage, python="no-python", mpirun=f"{stage}/mpirun", module="nothing_of_that")
    assert bare.lacks == Answered(
        (
            f"no program {stage}/mpirun; install Open MPI or run setup",
            f"no program {stage}/orted; install Open MPI or run setup",
            "no program no-python; install it or state another as code.python in the inventory",
        )
    )
    assert isinstance(bare.packages, Unanswered)
    assert bare.packages.kind == "missing"
    there = of_work(stage, mpirun="", module="nothing_of_that")
    assert value(there.packages).lacks == "nothing_of_that"


def test_where_nothing_is_compared_no_interpreter_is_started(stage: Path) -> None:
    Here(stage).put("python", f"touch {stage}/started\n")
    alone = {"lab-1": JOB.devices["lab-1"]}
    found = of_work(stage, python=f"{stage}/python", mpirun="", devices=alone)
    assert (found.lacks, found.packages) == (Answered(()), NOT_QUERIED)
    assert not (stage / "started").exists()


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process of a job."""
    with subprocess.Popen(["/bin/sleep", "60"], env={"ASCENDBOOT_JOB_ID": "t-before"}) as process:
        yield process
        process.kill()


def test_a_launcher_is_looked_for_where_its_ranks_are_not(stage: Path) -> None:
    folder = stage / "base/lab/jobs/t-elsewhere"
    folder.mkdir(parents=True)
    (folder / "events").write_text("supervisor - pid 1 start 1\nlauncher - pid 1 start 1\n")
    found = [of_work(stage)]
    (folder / "open").touch()
    found.append(of_work(stage))
    gone = queries.JobFolder("t-elsewhere", "gone", str(folder))
    assert [value(probe.jobs).folders for probe in found] == [(), (gone,)]


@pytest.mark.parametrize("launcher", ["runs", "gone", "none"])
def test_what_lives_of_jobs_of_any_cluster(
    stage: Path, rank: subprocess.Popen[bytes], launcher: str
) -> None:
    folder = stage / "base/other/jobs/t-before"
    folder.mkdir(parents=True)
    start = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    of_launcher = {
        "runs": f"supervisor - pid {os.getpid()} start {start}\n",
        "gone": f"launcher - pid {os.getpid()} start 1\n",
        "none": "",
    }[launcher]
    (folder / "events").write_text(f"{of_launcher}rank 0 pid {rank.pid} start 5\n")
    jobs = value(of_work(stage).jobs)
    mine = [process for process in jobs.processes if process.job_id == "t-before"]
    assert [(process.pid, process.command) for process in mine] == [(rank.pid, "/bin/sleep 60")]
    assert [f for f in jobs.folders if f.job_id == "t-before"] == [
        queries.JobFolder("t-before", launcher, str(folder))
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("who", ["another user", "another user's setuid", "setuid"])
def test_a_variable_that_any_user_can_set_makes_no_job(stage: Path, who: str) -> None:
    program = Path(tempfile.mkdtemp(prefix="ascendboot-test-")) / "sleep"
    shutil.copy("/bin/sleep", program)
    program.parent.chmod(0o755)
    program.chmod(0o4755 if "setuid" in who else 0o755)
    folder = stage / "base/lab/jobs/t-forged"  # jobs that are over have one, too
    folder.mkdir(parents=True)
    (folder / "events").touch()
    env, user = {"ASCENDBOOT_JOB_ID": "t-forged"}, "nobody" if "another" in who else None
    with subprocess.Popen([program, "60"], env=env, user=user) as process:
        try:
            jobs = value(of_work(stage).jobs)
            command = probe_below(f"b={stage}/base/lab\n")
            probe = Here(stage)(command).to(command)
        finally:
            process.kill()
            shutil.rmtree(program.parent)
    assert [each for each in jobs.processes if each.job_id == "t-forged"] == []
    assert not parse_probe(probe.text)["t-forged"].is_alive


def test_the_holder_of_a_port_is_queried_only_if_it_is_in_use(stage: Path) -> None:
    Here(stage).put("ss", "echo 'LISTEN 0 1 127.0.0.1:7 0.0.0.0:* users:((\"x\",pid=3,fd=4))'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = value(of_work(stage, meeting_port=port, sshd_port=None).listeners)
        (stage / "base/lab/sshd").mkdir()
        (stage / "base/lab/sshd/started").write_text("4194304 1 digest -\n")
        instead = value(of_work(stage, meeting_port=None, sshd_port=port).listeners)
    free = of_work(stage, meeting_port=port, sshd_port=None, hccl_ports={"lab-1": (), "lab-2": ()})
    assert [(found.port, found.pid) for found in taken] == [(7, 3)]
    assert instead == taken
    assert free.listeners == Answered(())


def test_our_own_sshd_keeps_its_port(stage: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours = f'LISTEN 0 1 *:{port} *:* users:(("sshd",pid={os.getpid()},fd=4))'
        Here(stage).put("ss", f"echo '{ours}'")
        (stage / "base/lab/sshd").mkdir()
        (stage / "base/lab/sshd/started").write_text(f"{os.getpid()} 1 digest -\n")
        assert of_work(stage, meeting_port=port, sshd_port=port).listeners == Answered(())


def test_room_is_measured_where_the_job_will_be(stage: Path) -> None:
    assert value(of_work(stage).disk).free_bytes > 0


DATA = Path(__file__).parents[2] / "data/npu-smi-info/A2-24.1"
TABLE = (DATA / "usual.txt").read_text()


def test_users_of_devices_and_addresses_that_changed(
    stage: Path, rank: subprocess.Popen[bytes]
) -> None:
    held = TABLE.replace(
        "| No running processes found in NPU 1" + " " * 60 + "|",
        f"| 1       0                 | {rank.pid} | | 3278 |\n| 1       0   | 4194303 | x | 1 |",
    )
    (stage / "table").write_text(held)
    Here(stage).put("npu-smi", f"cat {stage}/table\n")
    Here(stage).put(
        "hccn_tool", "[ $2 = 2 ] || exit 9; echo ipaddr:198.19.7.2; echo netmask:255.0.0.0\n"
    )
    conf = "address_0=198.19.1.0\naddress_2=198.19.9.2\r\nnetmask_2=255.255.0.0\n"
    (stage / "hccn.conf").write_text(conf)
    probe = answers(
        stage, queries.host_queries(JOB, node(1)), **{"/etc/hccn.conf": f"{stage}/hccn.conf"}
    )
    assert probe.holders == Answered(
        (queries.Holder(rank.pid, (1,), "t-before", "/bin/sleep 60"), queries.Holder(4194303, (1,)))
    )
    assert probe.present == Answered((0, 1))
    assert probe.health == Answered({0: "OK", 1: "OK"})
    assert probe.device_ips == Answered(
        queries.DeviceIps({0: "198.19.1.0", 2: "198.19.9.2"}, {2: Answered("198.19.7.2")})
    )


def test_an_npu_smi_without_a_table_of_processes_shows_devices_and_no_users(stage: Path) -> None:
    (stage / "table").write_text((DATA / "without_processes.txt").read_text())
    Here(stage).put("npu-smi", f"cat {stage}/table\n")
    probe = answers(stage, queries.host_queries(JOB, node(1)))
    assert (probe.present, probe.health) == (Answered((0, 1)), Answered({0: "OK", 1: "OK"}))
    why = "could not see who uses the devices: npu-smi info prints no table of processes"
    assert probe.holders == Unanswered("failed", why)


@pytest.mark.parametrize(("is_a3", "crosses_pods"), [(False, False), (True, False), (True, True)])
def test_item_10_links_and_tls_switches_of_devices_that_talk_to_other_nodes(
    stage: Path, *, is_a3: bool, crosses_pods: bool
) -> None:
    (stage / "table").write_text(TABLE.replace("Bus-Id", "Phy-ID") if is_a3 else TABLE)
    Here(stage).put("npu-smi", f"cat {stage}/table\n")
    lines = (
        "case $3$2 in -link1) echo link status: DOWN ;; -link*) echo link status: UP ;;\n"
        '  *) echo "dev_id:$2, tls switch[$(($2 == 0))](0:disable, 1:enable)" ;; esac\n'
    )
    parent = f'read -r _ _ _ shell _ </proc/$PPID/stat; echo "$shell" >>{stage}/shells\n'
    Here(stage).put("hccn_tool", f'echo "$*" >>{stage}/calls\n{parent}{lines}')
    skipped = frozenset({"device-ips"})
    job = replace(JOB, skipped=skipped, linked={"lab-1": (0, 1)}, crosses_pods=crosses_pods)
    probe = answers(stage, queries.host_queries(job, node(1)))
    if is_a3 and not crosses_pods:
        assert probe.ports == Answered(queries.DevicePorts())
        return
    on, off = Answered(value=True), Answered(value=False)
    assert probe.ports == Answered(queries.DevicePorts({0: on, 1: off}, {0: on, 1: off}))
    calls = ["-i 0 -link -g", "-i 1 -link -g", "-i 0 -tls -g", "-i 1 -tls -g"]
    assert (stage / "calls").read_text().splitlines() == calls
    assert len({*(stage / "shells").read_text().split()}) == 1  # no shell of its own for a call
    no_checks = replace(job, skipped=skipped | {"links", "tls", "devices"})
    assert queries.host_queries(no_checks, node(1)) == {}


def of_npus_that_count_from(stage: Path, first: int, mapping: str) -> tuple[queries.NodeProbe, str]:
    """What is told of two NPUs, the second ill and in use, and what npu-smi was asked."""
    text = TABLE.replace("| 1     910B3               | OK   ", f"| {first + 1}     910B3  | Alarm")
    text = text.replace("| 0     910B3", f"| {first}     910B3").replace(
        "| No running processes found in NPU 1" + " " * 60 + "|",
        f"| {first + 1}  0  | 4194303 | x | 1 |",
    )
    (stage / "table").write_text(text)
    (stage / "mapping").write_text(f"NPU ID  Chip ID  Chip Logic ID  Chip Name\n{mapping}")
    which = "[ $# = 1 ] && echo table || echo mapping"
    Here(stage).put("npu-smi", f'echo "$*" >>{stage}/calls; cat {stage}/$({which})\n')
    job = replace(JOB, skipped=frozenset({"device-ips"}))
    return answers(stage, queries.host_queries(job, node(1))), (stage / "calls").read_text()


@pytest.mark.parametrize(
    ("first", "mapping", "asked_"),
    [
        (0, "never read", "info\n"),
        (1, "1 0 0 Ascend 910B3\n2 0 1 Ascend 910B3\n", "info\ninfo -m\n"),
    ],
)
def test_npus_that_do_not_count_from_0_are_known_by_their_physical_ids(
    stage: Path, first: int, mapping: str, asked_: str
) -> None:
    probe, calls = of_npus_that_count_from(stage, first, mapping)
    assert calls == asked_
    assert probe.present == Answered((0, 1))
    assert probe.health == Answered({0: "OK", 1: "Alarm"})
    assert probe.holders == Answered((queries.Holder(4194303, (1,)),))


def test_npus_without_physical_ids_are_taken_for_no_others(stage: Path) -> None:
    probe, _ = of_npus_that_count_from(stage, 1, "1 0 0\n")
    for answer in (probe.holders, probe.present, probe.health):
        assert isinstance(answer, Unanswered)
        assert "npu-smi info -m: line 2 not understood" in answer.message


def test_physical_ids_of_the_table_itself_cost_one_call(stage: Path) -> None:
    text = (Path(__file__).parents[2] / "data/npu-smi-info/A3-25.3.rc1/busy.txt").read_text()
    Here(stage).put("npu-smi", f'echo "$*" >>{stage}/calls; cat {stage}/table\n')
    (stage / "table").write_text(text)
    job = replace(JOB, skipped=frozenset({"device-ips"}))
    assert answers(stage, queries.host_queries(job, node(1))).present == Answered(tuple(range(16)))
    assert (stage / "calls").read_text() == "info\n"


def test_a_host_side_without_tools_or_with_a_busy_one(stage: Path) -> None:
    facts = queries.host_queries(JOB, node(1))
    bare = answers(stage, facts, **{"/etc/hccn.conf": f"{stage}/none", "/usr/local": str(stage)})
    assert isinstance(bare.holders, Unanswered)
    assert bare.holders.kind == "missing"
    assert bare.device_ips == Answered(queries.DeviceIps({}))
    words = "dcmi model initialized failed, because the device is used. x"
    Here(stage).put("npu-smi", f"echo '{words}'\n")
    busy = answers(stage, facts, **{"/etc/hccn.conf": f"{stage}/none"})
    assert isinstance(busy.holders, Unanswered)
    assert busy.holders.kind == "busy"
