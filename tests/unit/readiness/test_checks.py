"""Checks just before a job: the whole message of each, and which can be skipped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import UsageError
from ascendboot.facts.parsers.system import FileSystem, Listener
from ascendboot.facts.query import Answer, Answered, Unanswered
from ascendboot.readiness.checks import (
    CHECKS,
    SKIPPABLE,
    Leftover,
    disk_findings,
    imported_by,
    leftovers,
    skipped_checks,
)
from ascendboot.readiness.queries import (
    DeviceIps,
    DevicePorts,
    Holder,
    JobFolder,
    JobProcess,
    Jobs,
    NodeProbe,
    Packages,
)
from tests.unit.checks.well import only
from tests.unit.readiness.found import JOB, probe, said, second

SAME = "install the same version on all nodes"


def test_nodes_on_which_all_is_well() -> None:
    assert said(probe(1), probe(2)) == []


def packages(python: str = "3.10.4", uses: str = "", **versions: str) -> Answered[Packages]:
    return Answered(Packages(python, versions, frozenset(uses.split())))


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (
            packages(uses="torch", torch="2.1.0", numpy="1.26.4"),
            f"packages error lab-1,lab-2: lab-1 has torch 2.3.1, lab-2 has 2.1.0; {SAME}",
        ),
        (
            packages(torch="2.1.0", numpy="1.26.4"),
            f"packages warning lab-1,lab-2: lab-1 has torch 2.3.1, lab-2 has 2.1.0; {SAME}",
        ),
        (
            packages(uses="torch", torch="2.3.0+cpu", numpy="1.26.4"),
            f"packages warning lab-1,lab-2: lab-1 has torch 2.3.1, lab-2 has 2.3.0+cpu; {SAME}",
        ),
        (
            packages(uses="torch", numpy="1.26.4"),
            f"packages error lab-1,lab-2: lab-1 has torch 2.3.1, lab-2 has none; {SAME}",
        ),
        (
            packages("3.7.5", torch="2.3.1", numpy="1.26.4"),
            f"packages error lab-1,lab-2: lab-1 has Python 3.10.4, lab-2 has 3.7.5; {SAME}",
        ),
    ],
)
def test_packages_that_differ(there: Answered[Packages], found: str) -> None:
    assert second(packages=there) == [found]


def test_what_the_launcher_or_a_script_of_this_side_uses_is_used() -> None:
    older = packages(torch="2.1.0", numpy="1.20.0")
    by_launcher = second(replace(JOB, used=frozenset({"torch"})), packages=older)
    by_script = second(
        used=imported_by("import os, numpy as np\nfrom torch.nn import x\n"), packages=older
    )
    assert [line.split(" ")[1] for line in by_launcher] == ["error", "warning"]
    assert [line.split(" ")[1] for line in by_script] == ["error", "error"]


def test_an_interpreter_that_does_not_answer_is_told_and_stops_nothing() -> None:
    silent = Unanswered("failed", "could not ask python3 for packages: Killed")
    assert second(packages=silent) == [
        "packages warning lab-2: could not ask python3 for packages: Killed; it was not checked"
    ]


def test_programs_that_lack_are_told_once_each() -> None:
    lacks = Answered(("no program python9; install it",))
    missing = Unanswered("missing", "could not ask python9 for packages: it said nothing")
    assert second(lacks=lacks, packages=missing) == [
        "programs error lab-2: no program python9; install it"
    ]
    job = replace(JOB, module="torch")
    bare = Answered(Packages("3.10.4", {"torch": "2.3.1", "numpy": "1.26.4"}, lacks="torch"))
    assert second(job, packages=bare) == [
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
def test_a_script_that_is_to_be_run_by_something_else(
    script: str, opening: str, level: str
) -> None:
    job = replace(JOB, script=PurePosixPath(script))
    found = second(job, opening=Answered(opening))
    assert found == [
        f"script {level} lab-2: {script} is no script of Python: it begins with {opening}; "
        "give train the script of Python that it starts, and what it sets as `env`"
        for _ in range(1 if level else 0)
    ]


def test_data_that_nodes_cannot_read_is_named_once_for_all_of_them() -> None:
    first = probe(1, data=Answered((("absent", "/data/a b"), ("silent", "/nfs"))))
    second_ = probe(2, data=Answered((("absent", "/data/a b"), ("unreadable", "/data/c"))))
    remedy = "bring it there, or correct `data` in the inventory"
    assert said(first, second_) == [
        f"data error lab-1: /nfs did not answer within 5 s; {remedy}",
        f"data error lab-2: /data/c cannot be read; {remedy}",
        f"data error lab-1,lab-2: there is no /data/a b; {remedy}",
    ]
    assert said(first, second_, replace(JOB, skipped=frozenset({"data"}))) == []


def test_who_uses_devices_of_the_job_is_named() -> None:
    users = Answered(
        (
            Holder(4711, (0, 2), command="python3 old.py"),
            Holder(4712, (3,), job_id="elsewhere"),
            Holder(4713, (7,), command="of a device that is not the job's"),
            Holder(4714, (1,)),
        )
    )
    assert second(holders=users) == [
        (
            "devices error lab-2: devices 0,2 are used by pid 4711 (python3 old.py); end it, or "
            "state the other devices under `devices`"
        ),
        (
            "devices error lab-2: device 3 is used by job elsewhere (pid 4712); end it: stop --job "
            "elsewhere"
        ),
        (
            "devices error lab-2: device 1 is used by pid 4714 (a process that cannot be seen from "
            "here); end it, or state the other devices under `devices`"
        ),
    ]


def test_devices_that_are_not_there_are_named_where_the_server_tells_which_are() -> None:
    absent = (
        "devices error lab-2: devices 1,3 are not there: npu-smi info lists devices 0,2,5-6; look "
        "for the cause with dmesg; bring it back, or state the others under `devices` and run setup"
    )
    assert second(present=Answered((0, 2, 5, 6))) == [absent]
    assert second(present=Answered(())) == []
    busy = Unanswered("busy", "npu-smi is busy")
    told = "devices warning lab-2: npu-smi is busy; it was not checked"
    assert second(holders=busy, present=busy, health=busy) == [told]


def test_devices_that_are_not_well_are_named_by_how_ill_they_are() -> None:
    health = Answered({0: "Warning", 1: "Alarm", 2: "Critical", 3: "Alarm", 9: "Critical"})
    remedy = (
        "look at the error codes of npu-smi info -t health; reset or replace the NPU, or state the "
        "other devices under `devices`"
    )
    assert second(health=health) == [
        f"devices error lab-2: npu-smi info calls device 2 Critical, not OK; {remedy}",
        f"devices error lab-2: npu-smi info calls devices 1,3 Alarm, not OK; {remedy}",
        f"devices warning lab-2: npu-smi info calls device 0 Warning, not OK; {remedy}",
    ]
    assert second(replace(JOB, skipped=frozenset({"devices"})), health=health) == []
    strange = Unanswered("not-understood", "could not see how the devices are: line 9")
    told = "devices warning lab-2: could not see how the devices are: line 9; it was not checked"
    assert second(health=strange) == [told]


def test_a_word_for_one_device_that_nobody_knows_hides_no_alarm_of_another() -> None:
    told = second(health=Answered({0: "OK", 1: "NA", 2: "Alarm", 9: "NA"}))
    assert told[0].startswith("devices error lab-2: npu-smi info calls device 2 Alarm, not OK; ")
    strange = (
        'devices warning lab-2: could not see how device 1 is: npu-smi info says "NA", none of '
        "OK, Critical, Alarm, Warning, UNKNOWN; look at npu-smi info -t health"
    )
    assert told[1:] == [strange]


def test_a_table_that_the_devices_contradict() -> None:
    at_boot = {0: "198.19.2.0", 1: "198.19.9.1", 2: "198.19.9.2", 3: "198.19.9.3"}
    now: dict[int, Answer[str | None]] = {
        1: Answered("198.19.9.1"),
        2: Answered("198.19.2.2"),
        3: Unanswered("busy", "could not read the IP of device 3: it is busy"),
    }
    assert second(device_ips=Answered(DeviceIps(at_boot, now))) == [
        (
            "device-ips error lab-2: the rank table has 198.19.2.1 for device 1, and the device "
            "has 198.19.9.1; run setup"
        ),
        (
            "device-ips warning lab-2: the rank table has 198.19.2.2 for device 2, as the device "
            "has it, and /etc/hccn.conf has 198.19.9.2; correct the file before the server "
            "restarts"
        ),
        (
            "device-ips warning lab-2: the rank table has 198.19.2.3 for device 3, "
            "/etc/hccn.conf has 198.19.9.3, and the device did not answer (could not read the IP "
            "of device 3: it is busy); run check"
        ),
    ]


def test_links_that_are_down_and_tls_switches_that_differ() -> None:
    on, off = Answered(value=True), Answered(value=False)
    busy: Answer[bool] = Unanswered("busy", "could not read the link: it is busy")
    dumb: Answer[bool] = Unanswered("failed", "could not read the TLS switch: not supported")
    fine = probe(1, ports=Answered(DevicePorts({0: on, 1: on}, {0: off, 1: off})))
    bad = probe(2, ports=Answered(DevicePorts({0: on, 1: off, 3: busy}, {0: off, 1: on, 3: dumb})))
    assert said(fine, replace(fine, device_ips=probe(2).device_ips)) == []
    assert said(fine, bad) == [
        (
            "links error lab-2: the link of device 1 is down; look at cable and switch port; "
            "hccn_tool -i 1 -link_stat -g shows since when; or state the other devices under "
            "`devices`"
        ),
        ("links warning lab-2: no answer for device 3: it is busy; it was not checked"),
        (
            "tls error lab-2: the TLS switch of lab-2 device 1 is on, that of the 3 other devices "
            "off; set it alike on all: hccn_tool -i ID -tls -s enable 0"
        ),
    ]
    assert said(fine, bad, replace(JOB, skipped=frozenset({"links", "tls"}))) == []


def living(launcher: str = "", *pids: int) -> Answered[Jobs]:
    folder = f"{JOB.base}/jobs/old"
    folders = (JobFolder("old", launcher, folder),) if launcher else ()
    return Answered(Jobs(tuple(JobProcess(pid, "old", "python3 main.py") for pid in pids), folders))


def test_a_job_that_runs_is_named_at_its_nodes() -> None:
    both = said(probe(1, jobs=living("runs", 5)), probe(2, jobs=living("none", 6)))
    runs = "job old runs on this node; wait for its end, or end it: stop --job old"
    assert both == [f"jobs error lab-1,lab-2: {runs}"]


def test_of_a_job_whose_launcher_was_never_here_nobody_knows() -> None:
    assert [line.split(" ")[0] for line in second(jobs=living("none", 6))] == ["jobs"]
    [without_folder] = second(jobs=living("", 6))
    assert without_folder == (
        "jobs error lab-2: processes carry the id of job old, and no node has a folder of this "
        "job: pid 6 (python3 main.py); end these processes with kill, or start them without the "
        "variable ASCENDBOOT_JOB_ID"
    )


def test_what_is_left_of_a_job_is_named_with_its_pids() -> None:
    first, other = probe(1, jobs=living("gone")), probe(2, jobs=living("none", 6, 7))
    assert only(said(first, other)) == (
        "leftovers error lab-2: 2 processes are left of job old, whose launcher is gone: pid "
        "6, 7 (python3 main.py); end them: stop --job old, or train with --stop-leftovers"
    )
    assert leftovers({"lab-1": first, "lab-2": other}) == (
        Leftover("old", PurePosixPath(f"{JOB.base}/jobs/old"), {"lab-2": (6, 7)}),
    )
    assert said(first, probe(2, jobs=living("none"))) == []


def test_ports_and_devices_of_a_job_that_is_told_anyhow_are_not_told_again() -> None:
    ports = Answered((Listener(address="198.18.0.2", port=60001, pid=6, program="python3"),))
    users = Answered((Holder(6, (0,), job_id="old"),))
    found = second(jobs=living("runs", 6), listeners=ports, holders=users)
    assert [line.split(" ")[0] for line in found] == ["jobs"]


def listening(port: int, pid: int | None = 9) -> Listener:
    return Listener(address="198.18.0.2", port=port, pid=pid, program="nginx" if pid else None)


def test_ports_that_are_taken() -> None:
    taken = Answered((listening(61000), listening(7722), listening(60003), listening(22)))
    sshd = "port 7722 of the cluster's sshd, which does not run, is taken by nginx (pid 9)"
    hccl = "port 60003 of HCCL's 60000-60031 is taken by nginx (pid 9); end it, or move HCCL: "
    meeting = "port 61000, where the ranks are to meet, is taken by nginx (pid 9)"
    move = "HCCL_IF_BASE_PORT"
    # nobody meets at the second node
    assert second(listeners=taken) == [
        f"ports error lab-2: {sshd}; end it and run setup",
        f"ports warning lab-2: {hccl}{move}",
    ]
    stated = replace(JOB, hccl_is_stated=frozenset({"lab-1"}))
    assert said(probe(1, listeners=taken), probe(2), stated) == [
        f"ports error lab-1: {meeting}; end it, or state another resources.chief_port",
        f"ports error lab-1: {sshd}; end it and run setup",
        f"ports error lab-1: {hccl}{move}",
    ]


def test_too_few_ports_of_a_range_that_hccl_chooses_from() -> None:
    unseen = Answered(tuple(listening(port, None) for port in range(60000, 60029)))
    assert only(second(listeners=unseen)) == (
        "ports error lab-2: ports 60000-60028 of HCCL's 60000-60031 are taken by a program of "
        "another user; end it, or move HCCL: HCCL_IF_BASE_PORT"
    )


@pytest.mark.parametrize(
    ("free_bytes", "free_inodes", "found"),
    [
        (10**9, None, ""),
        (10**9 - 1, 5000, "warning: only 999 MB are free on /; free 1 GB for a long job"),
        (
            99 * 10**6,
            10,
            "error: only 99 MB and 10 inodes are free on /; free 100 MB and 1000 inodes",
        ),
        (10**12, 10, "error: only 10 inodes are free on /; free 100 MB and 1000 inodes"),
    ],
)
def test_room_for_logs(free_bytes: int, free_inodes: int | None, found: str) -> None:
    system = FileSystem(mount_point="/", free_bytes=free_bytes, free_inodes=free_inodes)
    told = disk_findings(system, (), what_for="")
    assert "".join(f"{f.level}: {f.text.strip()}; {f.remedy}" for f in told) == found


def test_what_is_skipped_is_not_told_and_errors_come_in_the_order_of_checks() -> None:
    bad: dict[str, object] = {
        "disk": Answered(FileSystem(mount_point="/", free_bytes=0, free_inodes=None)),
        "holders": Answered((Holder(4711, (0,)),)),
        "lacks": Answered(("no program x; install it",)),
    }
    assert [line.split(" ")[0] for line in second(**bad)] == ["programs", "devices", "disk"]  # type: ignore[arg-type]
    less = replace(JOB, skipped=frozenset({"devices", "disk"}))
    assert [line.split(" ")[0] for line in second(less, **bad)] == ["programs"]  # type: ignore[arg-type]
    assert said(NodeProbe(), NodeProbe()) == []


ALL = "setup, code, data, packages, devices, device-ips, links, tls, ports, disk"


def test_alone_the_flag_skips_all_that_can_be_skipped() -> None:
    assert ", ".join(SKIPPABLE) == ALL
    assert skipped_checks(True) == skipped_checks("all") == SKIPPABLE  # noqa: FBT003
    assert skipped_checks(None) == skipped_checks("") == ()
    assert skipped_checks("ports, code") == ("code", "ports")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("prots,code", 'there is no check "prots"'),
        ("jobs", '"jobs" cannot be skipped: two jobs would spoil each other'),
        (
            "x,rank-table",
            (
                '"rank-table" cannot be skipped: ranks would take the wrong places; there is no '
                'check "x"'
            ),
        ),
    ],
)
def test_what_cannot_be_skipped_is_refused_with_the_list(words: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        skipped_checks(words)
    assert str(refused.value) == f"--skip-checks: {problem}. What can be skipped: {ALL}"


def test_every_check_has_its_row_in_the_reference() -> None:
    page = Path(__file__).parents[3] / "docs/reference/checks.md"
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (yes|no)[ :|]", page.read_text(), re.MULTILINE)
    assert rows == [(check, "no" if always else "yes") for check, always in CHECKS.items()]
