"""All problems before a job, on all nodes at once, from one execution per node."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ascendboot.cli.supervise import part_of
from ascendboot.model.cluster import CHIEF_PORTS, LauncherChoice
from ascendboot.model.files import OwnFile
from ascendboot.readiness.checks import SKIPPABLE, Leftover
from ascendboot.readiness.queries import HOST, WORK
from ascendboot.readiness.ready import Readiness, check_readiness
from ascendboot.setup.record import NodeRecord, SetupRecord
from ascendboot.supervise.core import Launch
from ascendboot.transport.api import Command
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import replace
from tests.fake_transport import Answer, FakeTransport, framed
from tests.unit.checks import well

BASE = PurePosixPath("/var/lib/ascendboot/lab")
TWO = replace(well.TWO, code_path="/data")
TABLE = (Path(__file__).parents[1] / "data/npu-smi-info/A2-24.1/usual.txt").read_text()
ROOM = "Avail Inodes IFree Mounted on\n{} 500000 400000 /\n"
GB = 1000**3


class Server:
    """A node as a job finds it; what is wrong is changed by the test."""

    def __init__(self, number: int) -> None:
        self.own = f"base {BASE}\nmode 644 env/node\naa  env/node\nsshd 7 digest -\nend\n"
        self.script = 0
        self.work = {
            "lacks": "",
            "data": "",
            "packages": "python 3.10.4\nuses torch\ntorch 2.3.1\n",
            "jobs": "",
            "sshd": "7",
            "listeners": "",
            "disk": ROOM.format(50 * GB),
        }
        self.host = {
            "processes": TABLE,
            "holders": "",
            "hccn_conf": f"address_0=198.19.{number}.0\n",
        }
        self.transport = FakeTransport(f"lab-{number}", rules=(self.answer,))

    def answer(self, command: Command) -> Answer | str | None:
        match command.argv:
            case ("date", *_):
                return "1700000000.5\n"
            case (_, _, script, *_):
                parts: dict[str, Any] = {
                    WORK: {**self.work, "opening": (self.script, b"")},
                    HOST: self.host,
                }
                if script in parts:
                    return Answer(framed(parts[script]))
                return self.own if "ssh-keygen" in script else "present\0sums\0end\n"
            case _:
                return None


@pytest.fixture
def servers() -> tuple[Server, Server]:
    return Server(1), Server(2)


def applied() -> SetupRecord:
    files = {"env/node": OwnFile("aa", 0o644)}
    on_node = NodeRecord(files=files, sshd="digest", uid=0, user="root", home="/root")
    return SetupRecord(
        cluster="lab",
        version="1",
        inventory_digest="",
        templates="",
        base=BASE,
        port=7722,
        networks=(),
        mpirun="/usr/bin/mpirun",
        launcher=LauncherChoice("mpirun", "it was asked for"),
        slots=(("lab-1", 0, "198.19.1.0"), ("lab-2", 0, "198.19.2.0")),
        nodes={"lab-1": on_node, "lab-2": on_node},
    )


def looked(
    servers: tuple[Server, Server],
    script: str = "main.py",
    *,
    guarded: bool = False,
    record: SetupRecord | None = None,
    **given: Any,
) -> Readiness:
    hosts = {server.transport.node: server.transport for server in servers}
    sides = {name: ReadOnly(host) for name, host in hosts.items()} if guarded else hosts
    return check_readiness(TWO, record or applied(), sides, script, hosts=hosts, forks=2, **given)


def test_nodes_that_are_ready(servers: tuple[Server, Server]) -> None:
    ready = looked(servers, guarded=True)
    assert (ready.problems, ready.warnings, ready.left, ready.leftovers) == ((), (), (), ())
    assert (ready.script, ready.is_copied) == (PurePosixPath("/data/main.py"), False)
    assert set(ready.clocks.offsets) == {"lab-1", "lab-2"}
    assert [len(server.transport.executions) for server in servers] == [1, 1]


@pytest.mark.parametrize("on_nodes", [True, False])
@pytest.mark.parametrize("name", ["main.py", "./main.py", "../here/main.py", "/here/main.py"])
def test_a_name_that_begins_as_a_path_is_the_file_on_the_control_machine(
    name: str,
    servers: tuple[Server, Server],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    on_nodes: bool,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "main.py").write_text("#!/bin/sh\n")
    monkeypatch.chdir(here)
    for server in servers:
        server.script = 0 if on_nodes else 127
    ready = looked(servers, f"{tmp_path}{name}" if name.startswith("/") else name)
    is_copied = name != "main.py" or not on_nodes
    assert ready.is_copied is is_copied
    assert bool(ready.warnings) is is_copied  # of how the script here begins
    assert ready.problems == ()


def spoiled(servers: tuple[Server, Server]) -> tuple[Server, Server]:
    first, second = servers
    for server in servers:
        server.own = server.own.replace("aa  env", "bb  env")
        server.work["disk"] = ROOM.format(GB // 2)
    first.host["hccn_conf"] = "address_0=198.19.7.7\n"
    first.work["listeners"] = 'LISTEN 0 1 *:60001 *:* users:(("nginx",pid=9,fd=4))\n'
    first.work["jobs"] = (
        f"process 4 busy python3 x.py\nfolder runs busy {BASE}/jobs/busy\n"
        f"folder gone old {BASE}/jobs/old\n"
    )
    second.script = 127
    second.work["lacks"] = "no program /usr/bin/mpirun; install Open MPI or run setup\n"
    second.work["packages"] = "python 3.10.4\ntorch 2.1.0\n"
    second.work["jobs"] = f"process 5 old python3 main.py\nfolder none old {BASE}/jobs/old\n"
    second.host["processes"] = TABLE.replace(
        "| No running processes found in NPU 0" + " " * 60 + "|", "| 0   0   | 4711 |  | 12 |"
    )
    second.host["holders"] = "4711 - python3 someone.py\n"
    return servers


def test_everything_that_is_wrong_is_named_at_once(servers: tuple[Server, Server]) -> None:
    ready = looked(spoiled(servers))
    problems = (
        "lab-[1-2]: not ready: env/node has changed; run setup",
        "lab-2: has no readable /data/main.py, but lab-1 has; copy it there",
        "lab-2: no program /usr/bin/mpirun; install Open MPI or run setup",
        "lab-1: job busy runs on this node; …",
        "lab-[1-2]: lab-1 has torch 2.3.1, lab-2 has 2.1.0; …",
        "lab-2: device 0 is used by pid 4711 (python3 someone.py); …",
    )
    warnings = (
        "lab-1: the rank table has 198.19.1.0 for device 0, /etc/hccn.conf has 198.19.7.7, …",
        "lab-1: port 60001 of HCCL's 60000-60031 is taken by nginx (pid 9); …",
        "lab-[1-2]: only 500 MB are free on / for the logs of ranks; …",
    )
    assert well.alike("\n".join(ready.problems), "\n".join(problems))
    assert well.alike("\n".join(ready.warnings), "\n".join(warnings))
    pattern = "lab-2: 1 process is left of job old, …: pid 5 (python3 main.py); …"
    assert well.alike("".join(ready.left), pattern)
    assert ready.leftovers == (Leftover("old", BASE / "jobs/old", {"lab-2": (5,)}),)
    assert [len(server.transport.executions) for server in servers] == [1, 1]


def test_what_others_could_change_starts_nothing_and_cannot_be_skipped(
    servers: tuple[Server, Server],
) -> None:
    """Neither does what lies above our folders, which setup cannot repair."""
    first, second = servers
    first.own = first.own.replace("mode", "open 777 - d ./env\nopen 644 7 f ./made\nmode")
    second.own = second.own.replace("mode", "above 777 - 0:0 /var\nabove 755 7 7:7 /srv\nmode")
    below = "others could replace /var/lib/ascendboot/lab and what is run from there"
    patterns = (
        "lab-1: others could change what runs there: …/env has mode 0777, …/made belongs to user …",
        f"lab-2: /var has mode 0777: {below}; `chmod go-w /var` closes it",
        f"lab-2: /srv belongs to user id 7: {below}; `chown root /srv` closes it",
    )
    problems = looked(servers, skipped=SKIPPABLE).problems
    assert well.alike("\n".join(problems), "\n".join(patterns))


def test_a_skipped_check_is_neither_queried_nor_reported(servers: tuple[Server, Server]) -> None:
    ready = looked(spoiled(servers), skipped=SKIPPABLE)
    assert [problem.partition(": ")[2][:15] for problem in ready.problems] == [
        "has no readable",
        "no program /usr",
        "job busy runs o",
    ]
    assert ready.warnings == ()
    assert HOST not in {word for c in servers[0].transport.commands for word in c.argv}


def test_a_cluster_that_another_control_folder_has_set_up_has_the_way_back(
    servers: tuple[Server, Server],
) -> None:
    for server in servers:
        server.own = server.own.replace("sshd", "mode 644 owner\nbb  owner\nsshd")
    record = applied()
    own = {"owner": OwnFile("aa", 0o644)}
    left = {name: replace(node, files={**node.files, **own}) for name, node in record.nodes.items()}
    problems = looked(servers, record=replace(record, nodes=left)).problems
    told = "lab-[1-2]: not ready: another control folder has set up the cluster since; "
    assert problems == (f"{told}setup --plan names it; adopt takes the cluster back",)


def test_a_node_that_is_gone_does_not_hide_what_the_others_lack(
    servers: tuple[Server, Server],
) -> None:
    spoiled(servers)[0].transport.unreachable = "the server closed it"
    ready = looked(servers)
    assert ready.problems[:2] == (
        "lab-1: the server closed it",
        "lab-2: not ready: env/node has changed; run setup",
    )


def test_every_generation_of_a_supervised_job_has_a_chief_port_of_its_own() -> None:
    launches = [Launch(n, ("lab-2",), 0.0) for n in (1, 2, CHIEF_PORTS, CHIEF_PORTS + 1)]
    parts = [part_of(TWO, applied(), launch)[0] for launch in launches]
    ports = [part.chief_port - TWO.chief_port for part in parts]
    assert ports == [0, 1, CHIEF_PORTS - 1, 0]
    assert {part.primary_name for part in parts} == {"lab-2"}
