"""Chosen nodes, devices and launchers, and the verbs of every day, on the practice cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ascendboot.lab.cluster import Lab
from tests import terminal
from tests.cluster.operating import BASE, PROGRAM, Operator, set_up
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SHOWS = """\
import json, os
names = "RANK_SIZE", "LOCAL_RANK", "DEVICE_ID", "ASCEND_RT_VISIBLE_DEVICES"
table = os.environ.get("RANK_TABLE_FILE")
servers = json.load(open(table))["server_list"] if table else []
ids = [device["device_id"] for server in servers for device in server["device"]]
print(*(os.environ.get(name) for name in names), "/".join(ids))
"""


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    """Three nodes of four devices, two of them in a group."""
    operator = Operator(bring_up_once(nodes=3, devices=4))
    document = operator.document()
    for name in ("lab-2", "lab-3"):
        document["nodes"][name]["groups"] = ["rack2"]
    operator.inventory(operator.lab.inventory.name, {**document, "groups": {"rack2": {}}})
    operator.lab.inventory.write_text((operator.lab.directory / "lab.yaml").read_text())
    return set_up(operator.lab, shows=SHOWS)


def shown(operator: Operator, *flags: str) -> list[str]:
    """What the ranks of a job show, in their order."""
    ended = operator.call("train", "shows.py", *flags, exits=0)
    return sorted(line.rstrip() for line in ended.out.splitlines() if " | " in line)


def test_devices_and_launcher_are_chosen_for_one_job(operator: Operator) -> None:
    chosen = ("--nodes", "lab-1,@rack2!lab-3", "--devices", "2-3")
    assert shown(operator, *chosen) == [
        f"lab-{1 + rank // 2}:{rank} | 4 {rank % 2} {2 + rank % 2} None 2/3/2/3"
        for rank in range(4)
    ]
    for flags, words in [
        (("--devices", "3-4"), "--devices: lab-1 has no 4; setup found 0-3 there"),
        (("--devices", "x"), '--devices: "x" is not a number or a range such as 0-3'),
        (("--launcher", "srn"), '--launcher: "srn" is not one of '),
        (("--launcher", "horovod"), "--launcher horovod: setup has prepared the nodes for mpirun"),
        (("--nodes", "@rack3"), '--nodes: there is no "@rack3", only lab-[1-3]; groups: rack2\n'),
    ]:
        refused = operator.call("train", "shows.py", *flags)
        code = 125 if "setup has prepared" in words else 2  # not prepared, or wrong use
        assert (refused.code, refused.err[: len(words)]) == (code, words)


def test_files_go_to_nodes_and_come_back(operator: Operator) -> None:
    folder = operator.lab.directory / "big"
    (folder / "sub").mkdir(parents=True)
    (folder / "data.bin").write_bytes(os.urandom(5 << 20))
    (folder / "data.bin").chmod(0o640)
    (folder / "sub/last").symlink_to("data.bin")
    (folder / "sub/.ascendboot/clusters").mkdir(parents=True)
    (folder / "sub/.ascendboot/clusters/key").touch()
    (folder / "keys").mkdir()
    (folder / "keys/host_ca").touch()
    for keys in (".ascendboot", ".ascendboot/runs", ".ascendboot/clusters/lab/ca/user_ca"):
        refused = operator.call("copy", keys, "/data/", exits=2)
        assert refused.err.startswith(f"copy: {keys}: it is of the control folder or holds the ")

    out = operator.call("copy", "big", "/data/", exits=0).out
    assert out == "lab-[1-3]  /data/big: 1 file, 5 MiB\n"
    operator.sh("lab-1", "rm /data/big/data.bin; echo 1 >/data/big/own")
    operator.call("copy", "big/", "/data", "--nodes", "lab-1", exits=0)
    look = "cd /data; find . -type f -printf '%p %m\\n' | sort; readlink big/sub/last"
    seen = [operator.sh(node, look).splitlines() for node in ("lab-1", "lab-2")]
    assert seen == [
        [f"./big/{n}" for n in ("data.bin 640", "own 644")] + ["data.bin"],
        ["./big/data.bin 640", "data.bin"],
    ]

    one = operator.call("copy", "shows.py", "/data/big", "--nodes", "lab-2", "--json", exits=0).json
    assert one["nodes"] == [{"node": "lab-2", "path": "/data/big/shows.py", "problem": ""}]
    operator.sh("lab-3", "rm -r /data; echo file >/data")
    some = operator.call("copy", "big", "/data/x", "--json", exits=1).json["nodes"]
    assert [bool(row["problem"]) for row in some] == [False, False, True]
    assert some[2]["problem"].startswith("lab-3: could not copy big to /data/x: mkdir: ")

    back = operator.call("fetch", "/data/big", "back", "--nodes", "lab-[1-2]", exits=0)
    assert back.out == "lab-[1-2]  back/NODE/big: 2 files, 5 MiB\n"
    fetched = operator.lab.directory / "back/lab-2/big"
    assert (fetched / "data.bin").read_bytes() == (folder / "data.bin").read_bytes()
    assert (fetched / "data.bin").stat().st_mode & 0o777 == 0o640
    assert (fetched / "sub/last").readlink() == Path("data.bin")
    operator.sh("lab-2", "touch /less; mount --bind /sys/class/net/lo/mtu /less")  # 4096 bytes
    for words, exits, message in [
        (("/less", "--nodes", "lab-2"), 1, "lab-2: could not fetch /less: tar: less: File shrank "),
        (("/data/big", "back"), 2, "fetch: back/lab-1/big exists; use --force"),
        (("/no/file", "--nodes", "lab-2"), 1, "lab-2: could not fetch /no/file: tar: /no: "),
        (
            ("/proc/meminfo",),
            2,
            "fetch: /proc/meminfo: files of /proc and /sys have no true size; ",
        ),
        (("big",), 2, 'fetch: SOURCE: "big" is not an absolute path'),
    ]:
        assert operator.call("fetch", *words, exits=exits).err.startswith(message)
    assert not (operator.lab.directory / "lab-2").exists()

    operator.sh("lab-2", "mkdir /small; mount -t tmpfs -o size=1m tmpfs /small")
    full = operator.call("copy", "big", "/small/", "--nodes", "lab-2", exits=1).err
    assert full.startswith("lab-2: could not copy big to /small/: no space left on device, 5 MiB ")

    operator.sh("lab-2", "truncate -s 8G /data/long")
    operator.sh("lab-1", "echo 1 >/data/long")
    cut = operator.lab.directory / "cut"
    for number, exits in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)):
        started = operator.start("fetch", "/data/long", "cut", "--nodes", "lab-[1-2]")
        wait_until(lambda: any(path.stat().st_size > 2 for path in cut.rglob("long")))
        wait_until((cut / "lab-1/long").exists)
        time.sleep(0.5)  # until its connection is closed, too
        started.send_signal(number)
        said = started.end(exits=exits).err
        assert {path.name for path in cut.iterdir()} == {"lab-1"}
        stopped = "Stopped: done on lab-1; not done, or not known, on lab-2.\n"
        assert said.endswith(stopped) == (number == signal.SIGINT)
        shutil.rmtree(cut)


def test_a_command_that_takes_too_long(operator: Operator) -> None:
    slow = "case $(hostname) in lab-1) echo 1 ;; *) sleep 60 ;; esac"
    ended = operator.call("exec", "--host", "--timeout", "2s", "--", "bash", "-c", slow, exits=124)
    assert ended.out == "lab-1\n  1\nlab-[2-3]: exit code 124\n"
    assert ended.err == ("lab-[2-3]: no end after 2s (--timeout); its processes were ended\n")


def test_a_shell_has_the_terminal_and_its_exit_code(operator: Operator) -> None:
    refused = operator.call("shell", "lab-2", exits=2)
    assert refused.err.startswith("shell: there is no terminal; run commands with: exec --nodes")
    lines = terminal.shown(
        f"{PROGRAM} shell lab-2; echo exits $?",
        columns=111,
        rows=33,
        cwd=operator.lab.directory,
        keys=b"hostname; stty size; exit 7\n",
    )
    at = lines.index("lab-2")
    assert lines[at + 1] == "33 111", lines
    assert "exits 7" in lines, lines


def test_setup_and_check_of_some_nodes(operator: Operator) -> None:
    for node in ("lab-2", "lab-3"):
        operator.sh(node, f"rm {BASE}/env/rank-exec")
    some = operator.call("check", "--nodes", "lab-3", "--level", "full", "--json", exits=0)
    assert {r["node"] for r in some.json["results"]} == {"lab-1", "lab-3"}
    warned = [r for r in some.json["results"] if r["step"] == "env/rank-exec" and "level" in r]
    assert [r["node"] for r in warned] == ["lab-3"]

    document = operator.document()
    del document["nodes"]["lab-3"]
    without = operator.inventory("without.yaml", document)
    for verb in (("check",), ("setup", "--plan")):
        told = operator.call(*verb, "--nodes", "lab-2", "--json", inventory=without, exits=0)
        left = [r["node"] for r in told.json["results"] if r["step"] == "node-left"]
        assert left == ["lab-3"]

    planned = operator.setup("--nodes", "@rack2!lab-3", "--plan", exits=0)
    assert planned.outcomes("would_change") == [("lab-2", "env/rank-exec", "would_change")]
    second = operator.setup("--nodes", "@rack2!lab-3", exits=0)
    assert second.outcomes("changed") == [("lab-2", "env/rank-exec", "changed")]
    behind = [r["node"] for r in second.json["results"] if r["step"] == "not-as-setup-wishes"]
    assert behind == ["lab-3"]
    assert (operator.lab.directory / ".ascendboot/current").read_text() == ".ascendboot/lab.yaml\n"
    with operator.fault("lab-2", "no-sshd"):
        third = operator.setup("--nodes", "lab-3", exits=0)
        assert third.outcomes("changed") == [("lab-3", "env/rank-exec", "changed")]
        [unseen] = [r for r in third.json["results"] if r["step"] == "node-not-compared"]
        assert unseen["node"] == "lab-2"
        other = operator.inventory("other.yaml", {**operator.document(), "env": {"A": "1"}})
        lost = operator.setup("--nodes", "lab-3", inventory=other, exits=4)
        assert [r["node"] for r in lost.json["results"] if r["outcome"] != "ok"] == ["lab-2"]
        operator.call("check", "--nodes", "lab-1", exits=0)
    assert len(shown(operator)) == 12
    for words in (("--nodes", "lab-9"), ("--nodes", "lab-2", "--take-over")):
        operator.call("setup", *words, exits=2)
    operator.call("check", "--collective", "--nodes", "lab-2", exits=2)


def test_a_node_is_removed_and_the_job_needs_no_setup(operator: Operator) -> None:
    primary = operator.call("remove", "lab-1", "--yes", exits=2)
    assert primary.err.startswith("remove: could not remove lab-1: it is the primary, which logs")
    planned = operator.call("remove", "@rack2", "--plan", "--json", exits=0)
    new_keys = {step for node, step, _ in planned.outcomes("would_change") if node == "lab-1"}
    assert {"trust/cluster_key", "trust/authorized_keys"} < new_keys
    kept = f"mount --bind {BASE} {BASE} && mount -o remount,bind,ro {BASE}"
    with operator.changed("lab-3", kept, f"umount -l {BASE}"):
        failed = operator.call("remove", "@rack2", "--yes", "--json", exits=1)
    assert ("lab-2", "sshd", "changed") in failed.outcomes("changed")
    assert {step for node, step, _ in failed.outcomes("changed") if node == "lab-1"} == new_keys
    words = "lab-3: not reset; keys from there are no longer valid on lab-1; put the above right, "
    assert f"{words}then: remove lab-3\n" in failed.err
    operator.setup(exits=0)
    operator.script("long.py", "import time; time.sleep(60)")
    operator.call("train", "long.py", "--nodes", "lab-1", "--detach", exits=0)
    refused = operator.call("remove", "lab-3", "--yes", "--json", exits=1)
    assert refused.outcomes("blocked", "changed") == [("lab-1", "job-needs-keys", "blocked")]
    operator.call("stop", "--grace", "0.5", exits=0)
    with operator.fault("lab-1", "no-sshd"):
        unsafe = operator.call("remove", "lab-3", "--yes", "--json", exits=4)
        assert unsafe.outcomes("changed") == []
    with operator.fault("lab-2", "no-sshd"):
        lost = operator.call("remove", "lab-[2-3]", "--yes", "--json", exits=4)
        assert ("lab-3", "sshd", "changed") in lost.outcomes("changed")
        assert "lab-2: not reset; keys from there are no longer valid on lab-1; when" in lost.err
    known = json.loads((operator.lab.directory / ".ascendboot/clusters/lab/nodes.json").read_text())
    assert [*known] == ["lab-2", "lab-1"]
    done = operator.call("remove", "lab-2", "--yes", "--json", exits=0)
    assert ("lab-2", "sshd", "changed") in done.outcomes("changed")
    document = operator.document()
    del document["nodes"]["lab-2"], document["nodes"]["lab-3"]
    one = operator.inventory("one.yaml", document)
    assert len(operator.call("train", "shows.py", inventory=one, exits=0).out.splitlines()) == 4
    removed = operator.call("train", "shows.py", inventory=operator.lab.inventory, exits=125)
    assert "lab-[2-3] of the inventory is not set up, or was removed; take " in removed.err
    left = operator.call("remove", "lab-3", "--yes", inventory=one, exits=2)
    assert left.err == 'remove: there is no "lab-3", only lab-1\n'
