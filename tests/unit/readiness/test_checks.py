"""Checks just before a job, which can be skipped, and the settings of jobs."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ascendboot.errors import UsageError
from ascendboot.facts.parsers.system import FileSystem, Listener
from ascendboot.facts.query import Answer, Answered, Unanswered
from ascendboot.model.cluster import Placement, Slot
from ascendboot.model.files import OwnFile
from ascendboot.readiness import checks, queries
from ascendboot.readiness.ready import chief_settings, start_stopped_sshd
from ascendboot.setup.record import NodeRecord
from ascendboot.transport.api import Command, Sides
from ascendboot.value import replace
from tests.fake_transport import FakeTransport
from tests.unit.checks import well
from tests.unit.checks.well import alike, cluster, node, only
from tests.unit.readiness.found import JOB, findings, probe, second


def packages(python: str = "3.10.4", uses: str = "", **versions: str) -> Answered[queries.Packages]:
    return Answered(queries.Packages(python, versions, frozenset(uses.split())))


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (packages("3.10.4", torch="2.3.1", numpy="1.26.4"), ""),
        (packages(uses="torch", torch="2.1.0", numpy="1.26.4"), "error … torch 2.3.1, … 2.1.0"),
        (packages(torch="2.1.0", numpy="1.26.4"), "warning … torch 2.3.1, lab-2 has 2.1.0"),
        (packages(uses="torch", torch="2.3.0+cpu", numpy="1.26.4"), "warning … has 2.3.0+cpu"),
        (packages(uses="torch", numpy="1.26.4"), "error … torch 2.3.1, lab-2 has none"),
        (packages("3.7.5", torch="2.3.1", numpy="1.26.4"), "error … Python 3.10.4, … has 3.7.5"),
    ],
)
def test_packages_that_differ(there: Answered[queries.Packages], found: str) -> None:
    pattern = f"packages {found}; install the same version on all nodes" if found else ""
    assert alike("\n".join(second(packages=there)), pattern)


def test_what_the_launcher_or_a_script_of_this_side_uses_is_used() -> None:
    older = packages(torch="2.1.0", numpy="1.20.0")
    by_launcher = second(replace(JOB, used=frozenset({"torch"})), packages=older)
    by_script = second(
        used=checks.imported_by("import os, numpy as np\nfrom torch.nn import x\n"), packages=older
    )
    assert [line.split(" ")[1] for line in by_launcher] == ["error", "warning"]
    assert [line.split(" ")[1] for line in by_script] == ["error", "error"]


BUSY = Unanswered("busy", "npu-smi is busy")
SILENT = Unanswered("failed", "could not list the packages of python3: Killed")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"packages": SILENT}, f"packages warning lab-2: {SILENT.message}; it was not checked"),
        (  # health comes from the same table as the holders
            {"holders": BUSY, "present": BUSY, "health": SILENT},
            "devices warning lab-2: npu-smi is busy; it was not checked",
        ),
        (
            {"health": Unanswered("not-understood", "could not see how the devices are: line 9")},
            "devices warning lab-2: could not see how the devices are: line 9; it was not checked",
        ),
        (
            {
                "lacks": Answered(("no program python9; install it",)),
                "packages": Unanswered("missing", "could not list the packages of python9"),
            },
            "programs error lab-2: no program python9; install it",
        ),
    ],
)
def test_queries_without_an_answer(changes: dict[str, Any], message: str) -> None:
    assert second(**changes) == [message]


def test_a_module_that_is_missing_is_named() -> None:
    bare = Answered(
        queries.Packages("3.10.4", {"torch": "2.3.1", "numpy": "1.26.4"}, lacks="torch")
    )
    assert second(replace(JOB, module="torch"), packages=bare) == [
        "programs error lab-2: no module torch for python3; install it or state another code.python"
    ]


@pytest.mark.parametrize(
    ("script", "opening", "level"),
    [
        ("/code/run.sh", "#!/bin/bash", "error"),
        ("/code/main.py", "#!/bin/sh", "warning"),
        ("/code/main.py", "#!/usr/bin/env python3", ""),
        ("/code/main", "#! /opt/pypy/bin/pypy3", ""),
        ("/code/main", "", ""),
    ],
)
def test_a_script_that_something_else_is_to_run(script: str, opening: str, level: str) -> None:
    found = second(replace(JOB, script=PurePosixPath(script)), opening=Answered(opening))
    pattern = f"script {level} lab-2: {script} is no script of Python: … {opening}; give train …"
    assert alike("\n".join(found), pattern if level else "")


@pytest.mark.parametrize(
    ("leaf", "count", "text", "levels"),
    [
        ("a", 3, "mp.spawn(main, nprocs=8)", ["warning"]),
        ("a", 3, "torch.multiprocessing.spawn(main)", ["warning"]),
        ("a", 3, "# mp.spawn(main)", []),
        ("a", 3, "set_start_method('spawn')", []),
        ("a", 2, "mp.spawn(main)", []),
        (None, 3, "mp.spawn(main)", []),
    ],
)
def test_a_script_that_starts_its_own_ranks_is_named_where_they_follow_leaf_switches(
    leaf: str | None, count: int, text: str, levels: list[str]
) -> None:
    lab = cluster(*(node(i, leaf=leaf) for i in range(1, count + 1)))
    assert [each.level for each in checks.topology_findings(lab, {}, text)] == levels
    there = Answered(queries.Packages("3.10.4", spawns=True))  # the script is on the nodes
    found = checks.topology_findings(lab, {"lab-2": probe(2, packages=there)}, "")
    assert [each.id for each in found] == ["topology"] * (leaf == "a" and count > 2)


def test_data_that_nodes_cannot_read_is_named_once_for_all_of_them() -> None:
    first = probe(1, data=Answered((("absent", "/data/a b"), ("silent", "/nfs"))))
    second_ = probe(2, data=Answered((("absent", "/data/a b"), ("unreadable", "/data/c"))))
    remedy = "bring it there, or correct `data` in the inventory"
    assert findings(first, second_) == [
        f"data error lab-1: /nfs did not answer within 5 s; {remedy}",
        f"data error lab-2: /data/c cannot be read; {remedy}",
        f"data error lab-1,lab-2: there is no /data/a b; {remedy}",
    ]
    assert findings(first, second_, replace(JOB, skipped=frozenset({"data"}))) == []


def test_who_uses_devices_of_the_job_is_named() -> None:
    holders = (
        queries.Holder(4711, (0, 2), command="python3 old.py"),
        queries.Holder(4712, (3,), job_id="elsewhere"),
        queries.Holder(4713, (7,), command="of a device that is not the job's"),
        queries.Holder(4714, (1,)),
    )
    pattern = (
        "devices error lab-2: devices 0,2 are used by pid 4711 (python3 old.py); end it, or …\n"
        "devices error lab-2: device 3 is used by job elsewhere (pid 4712); … --job elsewhere\n"
        "devices error lab-2: device 1 is used by pid 4714 (a process that cannot be seen …; …"
    )
    assert alike("\n".join(second(holders=Answered(holders))), pattern)


def test_devices_that_are_not_there_are_named_if_the_server_lists_any() -> None:
    pattern = "devices error lab-2: devices 1,3 are not there: … devices 0,2,5-6; look for …"
    assert alike(only(second(present=Answered((0, 2, 5, 6)))), pattern)
    assert second(present=Answered(())) == []


def test_devices_of_the_job_that_are_not_healthy() -> None:
    health = Answered({0: "Warning", 2: "Critical", 9: "Critical"})
    pattern = (
        "devices error lab-2: npu-smi info reports device 2 as Critical, not OK; look at …\n"
        "devices warning lab-2: npu-smi info reports device 0 as Warning, not OK; look at …"
    )
    assert alike("\n".join(second(health=health)), pattern)
    assert second(replace(JOB, skipped=frozenset({"devices"})), health=health) == []


def test_a_table_that_the_devices_contradict() -> None:
    at_boot = {0: "198.19.2.0", 1: "198.19.9.1", 2: "198.19.9.2", 3: "198.19.9.3"}
    now: dict[int, Answer[str | None]] = {
        1: Answered("198.19.9.1"),
        2: Answered("198.19.2.2"),
        3: Unanswered("busy", "could not read the IP of device 3: it is busy"),
    }
    patterns = (
        "error … 198.19.2.1 for device 1, and the device has 198.19.9.1; run setup",
        "warning … 198.19.2.2 for device 2, as the device has it, and … 198.19.9.2; correct …",
        "warning … 198.19.2.3 for device 3, … 198.19.9.3, … not answer (…: it is busy); run check",
    )
    found = "\n".join(second(device_ips=Answered(queries.DeviceIps(at_boot, now))))
    assert alike(found, "\n".join(f"device-ips {pattern}" for pattern in patterns))


def test_links_that_are_down_and_tls_switches_that_differ() -> None:
    on, off = Answered(value=True), Answered(value=False)
    busy: Answer[bool] = Unanswered("busy", "could not read the link: it is busy")
    dumb: Answer[bool] = Unanswered("failed", "could not read the TLS switch: not supported")
    fine = probe(1, ports=Answered(queries.DevicePorts({0: on, 1: on}, {0: off, 1: off})))
    bad = probe(
        2, ports=Answered(queries.DevicePorts({0: on, 1: off, 3: busy}, {0: off, 1: on, 3: dumb}))
    )
    assert findings(fine, replace(fine, device_ips=probe(2).device_ips)) == []
    pattern = (
        "links error lab-2: the link of device 1 is down; … hccn_tool -i 1 -link_stat -g …\n"
        "links warning lab-2: no answer for device 3: it is busy; it was not checked\n"
        "tls error lab-2: … lab-2 device 1 is on, that of the 3 other devices off; set it alike …"
    )
    assert alike("\n".join(findings(fine, bad)), pattern)
    assert findings(fine, bad, replace(JOB, skipped=frozenset({"links", "tls"}))) == []


def living(launcher: str = "", *pids: int) -> Answered[queries.Jobs]:
    folder = f"{JOB.base}/jobs/old"
    folders = (queries.JobFolder("old", launcher, folder),) if launcher else ()
    processes = tuple(queries.JobProcess(pid, "old", "python3 main.py") for pid in pids)
    return Answered(queries.Jobs(processes, folders))


def test_a_job_that_runs_is_named_at_its_nodes() -> None:
    both = findings(probe(1, jobs=living("runs", 5)), probe(2, jobs=living("none", 6)))
    runs = "job old runs on this node; wait for its end, or end it: stop --job old"
    assert both == [f"jobs error lab-1,lab-2: {runs}"]


def test_of_a_job_whose_launcher_was_never_here_nobody_knows() -> None:
    assert [line.split(" ")[0] for line in second(jobs=living("none", 6))] == ["jobs"]
    [without_folder] = second(jobs=living("", 6))
    pattern = "jobs error lab-2: … job old, and no node has a folder …: pid 6 (python3 main.py); …"
    assert alike(without_folder, pattern)


def test_what_is_left_of_a_job_is_named_with_its_pids() -> None:
    first, other = probe(1, jobs=living("gone")), probe(2, jobs=living("none", 6, 7))
    assert only(findings(first, other)) == (
        "leftovers error lab-2: 2 processes are left of job old, whose launcher is gone: pid "
        "6, 7 (python3 main.py); end them: stop --job old, or train with --stop-leftovers"
    )
    assert checks.leftovers({"lab-1": first, "lab-2": other}) == (
        checks.Leftover("old", PurePosixPath(f"{JOB.base}/jobs/old"), {"lab-2": (6, 7)}),
    )
    assert findings(first, probe(2, jobs=living("none"))) == []


@pytest.mark.parametrize("launcher", ["runs", "gone", "none"])
def test_an_earlier_generation_of_the_job_itself_is_left_over_though_it_runs(launcher: str) -> None:
    folder = queries.JobFolder("sup.g1", launcher, f"{JOB.base}/jobs/sup.g1")
    jobs = Answered(queries.Jobs((queries.JobProcess(6, "sup.g1", "python3 main.py"),), (folder,)))
    found = {"lab-2": probe(2, jobs=jobs)}
    left = checks.Leftover("sup.g1", PurePosixPath(folder.path), {"lab-2": (6,)})
    assert checks.leftovers(found, "sup") == (left,)
    assert checks.leftovers(found, "su") == (() if launcher != "gone" else (left,))
    made = checks.readiness_findings(replace(JOB, own_job="sup"), found)
    assert [each.id for each in made if each.id in ("jobs", "leftovers")] == ["leftovers"]


def test_ports_and_devices_of_a_job_that_is_told_anyhow_are_not_told_again() -> None:
    ports = Answered((Listener(address="198.18.0.2", port=60001, pid=6, program="python3"),))
    users = Answered((queries.Holder(6, (0,), job_id="old"),))
    found = second(jobs=living("runs", 6), listeners=ports, holders=users)
    assert [line.split(" ")[0] for line in found] == ["jobs"]


def listening(port: int, pid: int | None = 9) -> Listener:
    return Listener(address="198.18.0.2", port=port, pid=pid, program="nginx" if pid else None)


def test_ports_that_are_taken() -> None:
    taken = Answered((listening(61000), listening(7722), listening(60003), listening(22)))
    sshd = "port 7722 of the cluster's sshd, which does not run, is taken by nginx (pid 9); …"
    hccl = "port 60003 of HCCL's 60000-60031 is taken by nginx (pid 9); …"
    meeting = "port 61000, where the ranks are to meet, is taken by nginx (pid 9); …"
    # the ranks meet on the first node alone
    pattern = f"ports error lab-2: {sshd}\nports warning lab-2: {hccl}"
    assert alike("\n".join(second(listeners=taken)), pattern)
    stated = replace(JOB, hccl_is_stated=frozenset({"lab-1"}))
    found = findings(probe(1, listeners=taken), probe(2), stated)
    pattern = "\n".join(f"ports error lab-1: {each}" for each in (meeting, sshd, hccl))
    assert alike("\n".join(found), pattern)


def test_too_few_ports_of_a_range_that_hccl_chooses_from() -> None:
    unseen = Answered(tuple(listening(port, None) for port in range(60000, 60029)))
    pattern = "ports error lab-2: ports 60000-60028 of … are taken by a program of another user; …"
    assert alike(only(second(listeners=unseen)), pattern)


@pytest.mark.parametrize(
    ("free_bytes", "free_inodes", "found"),
    [
        (10**9, None, ""),
        (
            10**9 - 1,
            5000,
            "warning: only 999 MB are free on / for the logs of ranks; free 1 GB for a long job",
        ),
        (
            99 * 10**6,
            10,
            "error: only 99 MB and 10 inodes are free on / for the logs …; free 100 MB and …",
        ),
        (10**12, 10, "error: only 10 inodes are free on / for …; free 100 MB and 1000 inodes"),
    ],
)
def test_room_for_logs(free_bytes: int, free_inodes: int | None, found: str) -> None:
    system = FileSystem(mount_point="/", free_bytes=free_bytes, free_inodes=free_inodes)
    there = checks.disk_findings(system, "lab-1")
    assert alike("".join(f"{f.level}: {f.text}; {f.remedy}" for f in there), found)


def test_what_is_skipped_is_not_told_and_errors_come_in_the_order_of_checks() -> None:
    bad: dict[str, Any] = {
        "disk": Answered(FileSystem(mount_point="/", free_bytes=0, free_inodes=None)),
        "holders": Answered((queries.Holder(4711, (0,)),)),
        "lacks": Answered(("no program x; install it",)),
    }
    assert [line.split(" ")[0] for line in second(**bad)] == ["programs", "devices", "disk"]
    less = replace(JOB, skipped=frozenset({"devices", "disk"}))
    assert [line.split(" ")[0] for line in second(less, **bad)] == ["programs"]
    assert findings(queries.NodeProbe(), queries.NodeProbe()) == []


ALL = "setup, code, data, packages, devices, device-ips, links, tls, ports, disk, topology"


def test_alone_the_flag_skips_all_that_can_be_skipped() -> None:
    assert ", ".join(checks.SKIPPABLE) == ALL
    assert checks.skipped_checks(True) == checks.skipped_checks("all") == checks.SKIPPABLE  # noqa: FBT003
    assert checks.skipped_checks(None) == checks.skipped_checks("") == ()
    assert checks.skipped_checks("ports, code") == ("code", "ports")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("prots,code", 'there is no check "prots"'),
        ("jobs", '"jobs" cannot be skipped: two jobs would spoil each other'),
        ("x,rank-table", '"rank-table" cannot be skipped: …; there is no check "x"'),
    ],
)
def test_what_cannot_be_skipped_is_refused_with_the_list(words: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        checks.skipped_checks(words)
    pattern = f"--skip-checks: {problem}. What can be skipped: {ALL}"
    assert alike(str(refused.value), pattern)


def test_every_check_has_its_row_in_the_reference() -> None:
    page = Path(__file__).parents[3] / "docs/reference/checks.md"
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (yes|no)[ :|]", page.read_text(), re.MULTILINE)
    assert rows == [(check, "no" if always else "yes") for check, always in checks.CHECKS.items()]


def placement(nodes: int, devices: int) -> Placement:
    places = product(range(1, nodes + 1), range(devices))
    slots = (Slot(well.node(i), d, f"198.51.100.{10 * i + d}", d) for i, d in places)
    return Placement(tuple(slots))


def test_the_table_is_named_as_rec_sdk_names_it() -> None:
    names = [placement(*shape).table_name for shape in ((1, 8), (2, 8), (3, 1))]
    assert names == ["hccl_json_8p.json", "hccl_json_16p_2_host.json", "hccl_json_3p_3_host.json"]


def test_the_worker_size_counts_all_ranks() -> None:
    without = replace(well.TWO, resource_mode="no-rank-table", chief_port=61001, chief_device=3)
    assert chief_settings(without, placement(2, 8)) == {
        "CM_CHIEF_IP": "198.18.0.1",
        "CM_CHIEF_PORT": "61001",
        "CM_CHIEF_DEVICE": "3",
        "CM_WORKER_SIZE": "16",
    }


CONFIG = {"sshd/sshd_config": OwnFile("c0ffee", 0o600)}
NODE = NodeRecord(files=CONFIG, sshd="1d", uid=0, user="root", home="/root")


@pytest.mark.parametrize(
    ("node", "seen", "starts"),
    [
        (NODE, "", True),
        (NODE, f"sshd 12 {'1d' * 32} -\n", False),
        (NODE, "stray 12\n", False),
        (replace(NODE, files={}), "", False),
        (replace(NODE, files={}, host_files=CONFIG, host_sshd="1d"), "", True),
    ],
)
def test_the_sshd_of_a_node_that_booted_again_is_started_unless_one_runs(
    node: NodeRecord, seen: str, *, starts: bool
) -> None:
    def answer(command: Command) -> str:
        return "" if command.purpose.startswith("start") else f"base /b\n{seen}end\n"

    here, elsewhere = FakeTransport(rules=(answer,)), FakeTransport()
    sides = Sides(here, elsewhere) if node.host_sshd else Sides(elsewhere, here)
    assert start_stopped_sshd("lab", node, sides) is starts
    assert [("c0ffee" in command.argv[2]) for command in here.commands[1:]] == [True] * starts
