"""The practice cluster: nodes are separate servers, faults are real, and nothing is left behind."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ascendboot.errors import NodeError, UsageError
from ascendboot.inventory.load import load
from ascendboot.lab.cluster import Lab, down, find, status_of, up
from ascendboot.lab.faults import KINDS, RESTART, Fault
from ascendboot.lab.host import LabError, RangeInUseError, kill_all
from ascendboot.lab.records import ROOT, mounts_below
from ascendboot.lab.shape import Shape
from ascendboot.value import replace
from tests.cluster.operating import PROGRAM, ascendboot, ssh

Break = Callable[..., Fault]
BringUp = Callable[..., Lab]
Namespaces = Callable[[Lab], set[Path]]

pytestmark = pytest.mark.cluster

HCCN_TOOL = "/usr/local/Ascend/driver/tools/hccn_tool"


def said(lab: Lab, node: str, *argv: str) -> str:
    return lab.exec(node, argv).stdout.decode()


def hccn(lab: Lab, node: str, *words: str) -> tuple[int, str, str]:
    done = lab.exec(node, [HCCN_TOOL, *words], check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# ------------------------------------------------------------------------- the nodes are servers


def test_every_node_has_its_own_namespaces(practice_cluster: Lab) -> None:
    lab = practice_cluster
    for node in lab.nodes:
        first = Path(f"/proc/{lab.process(node.name).pid}")  # type: ignore[union-attr]
        for kind in ("net", "mnt", "uts", "pid", "ipc"):
            others = [Path("/proc/self/ns"), *(_ns(lab, n.name) for n in lab.nodes if n != node)]
            assert (first / "ns" / kind).readlink() not in [(o / kind).readlink() for o in others]
        assert said(lab, node.name, "hostname") == f"{node.name}\n"
        assert said(lab, node.name, "cat", "/proc/1/comm") in ("tini\n", "bash\n")


def _ns(lab: Lab, node: str) -> Path:
    process = lab.process(node)
    assert process
    return Path(f"/proc/{process.pid}/ns")


def test_all_nodes_have_one_shared_folder(practice_cluster: Lab) -> None:
    lab = practice_cluster
    lab.exec("lab-1", ["bash", "-c", "echo from lab-1 >/shared/note"])
    try:
        assert lab.exec("lab-2", ["cat", "/shared/note"]).stdout == b"from lab-1\n"
    finally:
        lab.exec("lab-2", ["rm", "/shared/note"])
    assert not Path("/shared/note").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ("date", "-s", "2020-01-01"),
        ("bash", "-c", "echo 1 >/proc/sys/kernel/panic"),
        ("bash", "-c", 'echo x >>"$0"', "PROJECT/pyproject.toml"),
    ],
)
def test_a_node_cannot_change_the_machine(
    practice_cluster: Lab, pytestconfig: pytest.Config, argv: tuple[str, ...]
) -> None:
    words = [word.replace("PROJECT", str(pytestconfig.rootpath)) for word in argv]
    assert practice_cluster.exec("lab-1", words, check=False).returncode == 1


def test_a_node_can_set_its_own_network(practice_cluster: Lab) -> None:
    setting = "/proc/sys/net/core/somaxconn"
    before = Path(setting).read_text()
    said(practice_cluster, "lab-1", "bash", "-c", f"echo 4321 >{setting}")
    assert said(practice_cluster, "lab-1", "cat", setting) == "4321\n"
    assert said(practice_cluster, "lab-2", "cat", setting) != "4321\n"
    assert Path(setting).read_text() == before


# ---------------------------------------------------------------------------- the way to a node


# ------------------------------------------------------------------------------------ the NPUs


def test_nodes_and_machine_do_not_reach_npus_themselves(practice_cluster: Lab) -> None:
    target = practice_cluster.nodes[0].devices[0].device_ip or ""
    ping = ["ping", "-n", "-c", "1", "-W", "1", target]
    assert practice_cluster.exec("lab-1", ping, check=False).returncode == 2


# --------------------------------------------------------------------------------------- faults


def test_link_down_is_down_for_siblings_too(practice_cluster: Lab, fault: Break) -> None:
    lab = practice_cluster
    fault("lab-1", "link-down", device=3)
    target = lab.node("lab-1").devices[3].device_ip or ""
    sibling = hccn(lab, "lab-1", "-i", "2", "-ping", "-g", "address", target)
    assert (sibling[0], sibling[1].splitlines()[-1]) == (
        1,
        "3 packets transmitted, 0 received, 100.00% packet loss",
    )
    assert hccn(lab, "lab-1", "-i", "3", "-link", "-g") == (0, "link status: DOWN\n", "")
    assert hccn(lab, "lab-1", "-i", "2", "-link", "-g") == (0, "link status: UP\n", "")
    health = hccn(lab, "lab-1", "-i", "3", "-net_health", "-g")
    assert health == (0, "net health status: Socket fail\n", "")
    lab.undo("lab-1", "link-down", device=3)
    code, _, _ = hccn(lab, "lab-1", "-i", "2", "-ping", "-g", "address", target)
    health = hccn(lab, "lab-1", "-i", "3", "-net_health", "-g")
    assert (code, health) == (0, (0, "net health status: Success\n", ""))


def test_one_device_of_a_fault_of_all_is_taken_back(practice_cluster: Lab, fault: Break) -> None:
    fault("lab-1", "link-down")
    practice_cluster.undo("lab-1", "link-down", device=3)
    status = status_of(practice_cluster)[0]
    assert status.links == {number: number == 3 for number in range(8)}
    assert {f.device for f in status.faults} == set(range(8)) - {3}


def test_no_sshd_refuses_connections_until_undone(practice_cluster: Lab, fault: Break) -> None:
    address = (str(practice_cluster.nodes[0].address), 22)
    fault("lab-1", "no-sshd")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    assert said(practice_cluster, "lab-1", "hostname") == "lab-1\n"
    practice_cluster.undo("lab-1", "no-sshd")
    assert ssh(practice_cluster, "lab-1", "hostname").stdout == "lab-1\n"


def test_a_node_that_was_down_comes_back_as_itself(practice_cluster: Lab, fault: Break) -> None:
    lab = practice_cluster
    said(lab, "lab-2", "touch", "/etc/kept", "/root/kept", "/tmp/lost")  # noqa: S108
    fault("lab-2", "link-down", device=1)
    fault("lab-2", "node-down")
    with pytest.raises(OSError, match=r"timed out|No route|unreachable"):
        socket.create_connection((str(lab.node("lab-2").address), 22), timeout=4)
    with pytest.raises(NodeError, match="lab-2: could not run true: the node is down"):
        lab.exec("lab-2", ["true"])
    down_now = status_of(lab)[1]
    assert (down_now.up, down_now.ssh, any(down_now.links.values())) == (False, False, False)
    lab.undo("lab-2", "node-down")
    listed = ssh(lab, "lab-2", "ls /etc/kept /root/kept; find /tmp -name lost").stdout
    assert listed.split() == ["/etc/kept", "/root/kept"]
    assert status_of(lab)[1].links == {number: number != 1 for number in range(8)}


def test_a_node_can_boot_without_its_sshd(practice_cluster: Lab, fault: Break) -> None:
    fault("lab-2", "no-sshd")
    fault("lab-2", "node-down")
    practice_cluster.undo("lab-2", "node-down")
    status = status_of(practice_cluster)[1]
    assert (status.up, status.ssh, [f.kind for f in status.faults]) == (True, False, ["no-sshd"])


def test_undoing_absent_faults_changes_nothing(practice_cluster: Lab) -> None:
    before = practice_cluster.process("lab-1")
    for kind in {*KINDS} - {RESTART}:
        practice_cluster.undo("lab-1", kind)
    status = status_of(practice_cluster)[0]
    assert (status.ssh, all(status.links.values()), status.faults) == (True, True, ())
    assert practice_cluster.process("lab-1") == before


# ---------------------------------------------------------------------------------- up and down


def traces(lab: Lab, inodes: set[Path]) -> list[str]:
    """Everything of this lab that is left on the machine."""
    found = [str(place) for place in mounts_below(Path("/run")) if lab.lab_id in str(place)]
    for folder in ("/run/netns", "/sys/class/net", str(ROOT)):
        found += [str(p) for p in Path(folder).glob("*") if lab.lab_id in p.name]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = {(process / "ns" / kind).readlink() for kind in ("net", "pid", "mnt")}
        except OSError:
            continue
        found += [process.name] if links & inodes else []
    return found


@pytest.fixture
def namespaces_of() -> Iterator[Namespaces]:
    """Those of a lab, which are kept: the kernel gives the inodes of old ones to new ones."""
    with ExitStack() as stack:

        def kept(lab: Lab) -> set[Path]:
            places = [_ns(lab, n.name) / k for n in lab.nodes for k in ("net", "pid", "mnt")]
            for place in places:
                stack.enter_context(place.open("rb"))
            return {place.readlink() for place in places}

        yield kept


def test_down_leaves_no_trace(bring_up: BringUp, namespaces_of: Namespaces, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    lab = bring_up(nodes=2, devices=2, directory=tmp_path)
    inodes = namespaces_of(lab)
    assert len(traces(lab, inodes)) > 10
    down(lab.lab_id)
    assert traces(lab, inodes) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keeper", "mine"]
    assert find(tmp_path) is None
    down("00000000")  # that id is nobody's; the lab's own may be another test's by now


def test_down_where_another_run_hides_a_lab_of_the_same_id(
    practice_cluster: Lab, tmp_path: Path
) -> None:
    networks = f"{practice_cluster.shape.management},{practice_cluster.shape.npu}"
    up_words = f"lab.up --nodes 1 --devices 1 --no-containers --network {networks}"
    script = f"mount -t tmpfs run /run && {PROGRAM} {up_words} && {PROGRAM} lab.down"
    apart = ["/usr/bin/unshare", "--mount", "--net", "bash", "-c", script]
    done = subprocess.run(apart, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "The practice cluster is down."


def test_down_when_half_of_it_is_gone(bring_up: BringUp, namespaces_of: Namespaces) -> None:
    lab = bring_up(nodes=2, devices=1)
    inodes = namespaces_of(lab)
    process = lab.process("lab-1")
    assert process
    kill_all([process], timeout_s=10)
    subprocess.run(["/sbin/ip", "netns", "del", lab.nodes[0].namespace], check=True)
    subprocess.run(["/sbin/ip", "link", "del", lab.shape.prefix], check=True)
    lab.inventory.unlink()
    assert status_of(lab)[0].up is False
    down(lab.lab_id)
    assert traces(lab, inodes) == []


def test_down_when_the_record_is_gone(bring_up: BringUp) -> None:
    lab = bring_up()
    record = lab._record
    (record.folder / "lab.json").rename(record.folder / "lost.json")
    with pytest.raises(
        LabError, match=r"has no record of its lab, .*take other ranges with --network"
    ):
        up(lab.shape, directory=lab.directory)
    (record.folder / "lost.json").rename(record.folder / "lab.json")
    process = lab.process("lab-1")
    (record.folder / "lab.json").unlink()
    down(lab.lab_id)
    assert process
    kill_all([process], timeout_s=10)


def test_down_spares_a_process_that_reuses_the_pid_of_a_node(bring_up: BringUp) -> None:
    lab = bring_up()
    record, process = lab._record, lab.process("lab-1")
    assert process
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        kill_all([process], timeout_s=10)
        (record.folder / "lab-1.pid").write_text(f"{other.pid} {process.started}")
        down(lab.lab_id)
        assert other.poll() is None
        other.kill()


def test_up_again_keeps_what_runs(bring_up: BringUp) -> None:
    lab = bring_up(devices=2)
    lab.inventory.unlink()
    again = up(lab.shape, directory=lab.directory)
    assert again.process("lab-1") == lab.process("lab-1")
    assert load(lab.inventory).nodes[0].name == "lab-1"


def test_up_in_another_shape_is_refused(bring_up: BringUp) -> None:
    lab = bring_up()
    other = Shape(1, 2, lab.shape.management, lab.shape.npu)
    with pytest.raises(LabError) as caught:
        up(other, directory=lab.directory)
    ranges = f"{lab.shape.management} and {lab.shape.npu}"
    assert str(caught.value) == (
        f"lab: could not bring up 1 node of 2 NPUs on {ranges}: a lab of 1 node of 1 NPU on"
        f" {ranges} runs for {lab.directory}, and only nodes can be added to it; run"
        " lab.down first"
    )


def test_up_adds_nodes_and_touches_no_other(bring_up: BringUp) -> None:
    lab = bring_up()
    code, out, _ = ascendboot(lab.directory, "lab.up", "--nodes", "3", "--json")
    reply, grown = json.loads(out), find(lab.directory)
    assert (code, reply["already_running"], reply["added"]) == (0, True, ["lab-2", "lab-3"])
    assert grown
    assert grown.process("lab-1") == lab.process("lab-1")
    assert [node.name for node in load(lab.inventory).nodes] == ["lab-1", "lab-2", "lab-3"]
    assert ssh(grown, "lab-3", "hostname").stdout == "lab-3\n"
    assert str(grown.nodes[2].address) in said(grown, "lab-1", "getent", "hosts", "lab-3")
    target = grown.nodes[2].devices[0].device_ip or ""
    assert hccn(grown, "lab-1", "-i", "0", "-ping", "-g", "address", target)[0] == 0
    assert json.loads(ascendboot(lab.directory, "lab.up", "--json")[1])["added"] == []
    for other in (("--nodes", "2"), ("--devices", "2"), ("--product", "a5")):
        code, _, err = ascendboot(lab.directory, "lab.up", *other)
        assert (code, err.count("only nodes can be added to it; run lab.down")) == (1, 1)


def test_an_up_that_cannot_add_nodes_keeps_the_others(
    bring_up: BringUp, namespaces_of: Namespaces
) -> None:
    lab = bring_up()
    inventory, before = lab.inventory.read_text(), traces(lab, namespaces_of(lab))
    larger = replace(lab.shape, node_count=2)
    in_the_way = lab.known_hosts
    in_the_way.unlink()
    in_the_way.mkdir()
    with pytest.raises(LabError, match="could not write"):
        up(larger, directory=lab.directory)
    in_the_way.rmdir()
    assert (lab.inventory.read_text(), traces(lab, namespaces_of(lab))) == (inventory, before)
    lab.fault("lab-1", "node-down")
    with pytest.raises(LabError, match=r"add nodes: lab-1 is down; run lab.fault lab-1"):
        up(larger, directory=lab.directory)
    lab.undo("lab-1", "node-down")
    assert ssh(up(larger, directory=lab.directory), "lab-2", "hostname").stdout == "lab-2\n"


def test_down_removes_nodes_that_were_being_added(
    bring_up: BringUp, namespaces_of: Namespaces
) -> None:
    lab = bring_up()
    grown = up(replace(lab.shape, node_count=2), directory=lab.directory)
    inodes = namespaces_of(grown)
    lab._record.save()  # as if the process was killed before it could
    down(lab.lab_id)
    assert traces(grown, inodes) == []


def test_ranges_of_another_lab_are_refused(bring_up: BringUp, tmp_path: Path) -> None:
    lab = bring_up()
    with pytest.raises(RangeInUseError, match=f"used by the lab {lab.lab_id} of {lab.directory}"):
        up(lab.shape, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert ssh(lab, "lab-1", "hostname").stdout == "lab-1\n"


def test_labs_of_two_directories_take_other_ranges_by_themselves(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    up_words = ("lab.up", "--nodes", "1", "--devices", "1", "--no-containers", "--json")
    try:
        for place in places:
            place.mkdir()
        with ThreadPoolExecutor() as at_once:
            calls = list(at_once.map(lambda place: ascendboot(place, *up_words), places))
        labs = [json.loads(out) for _, out, _ in calls]
        again = json.loads(ascendboot(places[1], *up_words)[1])
        assert (again["lab"], again["already_running"]) == (labs[1]["lab"], True)
        assert len({lab["lab"] for lab in labs}) == 2
        notes = [str(lab["note"]) for lab in labs]
        assert any("The default ranges are in use: this lab has 198.18." in note for note in notes)
        _, told, _ = ascendboot(places[0], "lab.status")
        assert f"Another practice cluster, {labs[1]['lab']}, belongs to {places[1]}.\n" in told
        assert "ssh answers" in told
        for place in places:
            assert ascendboot(place, "setup", "--plan")[0] == 0, "of the lab of this folder"
        beside = next(i for i, note in enumerate(notes) if "are in use" in note)
        default = pytestconfig.rootpath / "inventories/lab.yaml"
        (places[beside] / "lab.yaml").write_text(default.read_text())
        code, _, told = ascendboot(places[beside], "setup", "--inventory", "lab.yaml")
        assert (code, "198.18.0.1 is not in the practice cluster of" in told) == (2, True)
    finally:
        told = "".join(ascendboot(place, "lab.down")[1] for place in places)
    assert told.count("The practice cluster is down.") == 2
    assert "--lab" not in told
    code, _, told = ascendboot(places[beside], "setup", "--inventory", "lab.yaml")
    assert (code, told.endswith(f"runs for {places[beside]}; run lab.up there\n")) == (2, True)


def test_an_up_that_fails_half_way_leaves_nothing(bring_up: BringUp, tmp_path: Path) -> None:
    (tmp_path / ".ascendboot").write_text("a file of that name is in the way")
    gone = bring_up()
    down(gone.lab_id)
    with pytest.raises(LabError) as caught:
        up(gone.shape, directory=tmp_path)
    assert f"lab: could not write {tmp_path}/.ascendboot: " in str(caught.value)
    assert traces(gone, set()) == []
    assert [path.name for path in tmp_path.iterdir()] == [".ascendboot"]


def test_up_starts_again_after_an_up_that_was_killed(bring_up: BringUp) -> None:
    lab = bring_up()
    record = lab._record
    path = record.folder / "lab.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ready": False}))
    before = lab.process("lab-1")
    again = up(lab.shape, directory=lab.directory)
    assert before
    assert not before.alive
    assert ssh(again, "lab-1", "hostname").stdout == "lab-1\n"


# ------------------------------------------------------------------------------ the command line


def test_the_verbs(bring_up: BringUp, tmp_path: Path) -> None:
    lab = bring_up(devices=2, directory=tmp_path)
    networks = f"{lab.shape.management},{lab.shape.npu}"
    words = ("--nodes", "1", "--devices", "2", "--network", networks, "--no-containers")
    code, out, _ = ascendboot(tmp_path, "lab.up", *words, "--json")
    reply = json.loads(out)
    assert (code, reply["already_running"], reply["nodes"]) == (
        0,
        True,
        [{"name": "lab-1", "address": str(lab.nodes[0].address)}],
    )
    assert ascendboot(tmp_path, "lab.fault", "lab-1", "link-down", "--device", "1") == (
        0,
        "lab-1 device 1: link-down\n",
        "",
    )
    code, out, _ = ascendboot(tmp_path, "lab.status", "--json")
    (node,) = json.loads(out)["nodes"]
    assert (code, node["state"], node["ssh"], node["faults"]) == (
        0,
        "up",
        True,
        [{"kind": "link-down", "device": 1, "times": None, "milliseconds": None, "seconds": None}],
    )
    assert [device["link"] for device in node["devices"]] == ["UP", "DOWN"]
    deep = tmp_path / "sub/deep"
    deep.mkdir(parents=True)
    code, out, error = ascendboot(deep, "lab.up", *words)
    assert (code, out, f"the practice cluster of {tmp_path} is" in error) == (2, "", True)
    code, out, _ = ascendboot(deep, "lab.status", "--json")
    assert (code, json.loads(out)["lab"]) == (0, lab.lab_id)
    code, out, _ = ascendboot(deep, "lab.fault", "lab-1", "link-down", "--undo", "--json")
    assert (code, json.loads(out)["undone"], lab.faults("lab-1")) == (0, True, [])
    assert ascendboot(deep, "lab.shell", "lab-1", stdin="hostname; exit 3\n") == (3, "lab-1\n", "")
    assert ascendboot(tmp_path, "setup", "--inventory", ".ascendboot/lab.yaml")[0] == 0
    code, out, _ = ascendboot(deep, "lab.down", "--json")
    assert (code, json.loads(out)["lab"], find(tmp_path)) == (0, lab.lab_id, None)
    assert [path.name for path in (tmp_path / ".ascendboot").iterdir()] == ["runs"]
    assert ascendboot(tmp_path, "lab.down")[0] == 0


@pytest.mark.usefixtures("lab_possible")
def test_a_lab_needs_no_home_no_wide_terminal_and_no_utf_8(tmp_path: Path) -> None:
    def call(line: str, *around: str, cwd: Path = tmp_path) -> tuple[int, str]:
        argv = ["env", *around, PROGRAM, *line.split()]
        ended = subprocess.run(argv, cwd=cwd, input=b"", capture_output=True, check=False)
        return ended.returncode, (ended.stdout + ended.stderr).decode("ascii")

    ascii_only = ("LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0", "COLUMNS=40")
    try:
        for around in (("-u", "HOME"), ("HOME=/sys/nowhere", *ascii_only)):
            assert call("lab.up --nodes 1 --devices 1 --no-containers", *around)[0] == 0
            assert call("lab.fault lab-1 busy", *around) == (0, "lab-1: busy\n")
            code, said = call("lab.status", *around)
            assert (code, said.split()[0], "busy" in said) == (0, "lab-1", True)
            assert call("lab.shell lab-1", *around) == (0, "")
    finally:
        if lab := find(tmp_path):
            down(lab.lab_id)
    for line in ("lab.up --no-containers", "lab.fault lab-1 busy", "lab.shell lab-1"):
        code, said = call(line, cwd=Path("/sys"))
        assert (code, said[:5], said.count("\n")) == (1, "lab: ", 1)


@pytest.mark.usefixtures("lab_possible")
def test_a_user_id_without_a_name_works_on_nodes(tmp_path: Path) -> None:
    # The capability to read the sources, which are perhaps closed to others.
    caps = [f"--{kind}-caps=-all,+dac_read_search" for kind in ("inh", "ambient")]
    user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", *caps]
    user += ["env", *(f"-u{name}" for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"))]
    try:
        words = ("lab.up", "--nodes", "1", "--devices", "1", "--no-containers")
        assert ascendboot(tmp_path, *words)[0] == 0
        subprocess.run(["/bin/chown", "-R", "12345:12345", tmp_path], check=True)
        for line in ("setup .ascendboot/lab.yaml", "check", "exec -- true", "jobs", "reset --yes"):
            ended = subprocess.run(
                [*user, PROGRAM, *line.split()], cwd=tmp_path, capture_output=True, check=False
            )
            assert (ended.returncode, ended.stderr) == (0, b""), line
    finally:
        if lab := find(tmp_path):
            down(lab.lab_id)


@pytest.mark.usefixtures("lab_possible")
def test_down_of_an_unknown_lab_reports_that_none_runs(tmp_path: Path) -> None:
    code, out, error = ascendboot(tmp_path, "lab.down", "--lab", "00000000")
    assert (code, out.splitlines()[0], error) == (0, "No practice cluster 00000000 runs.", "")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("lab.up", "--containers", "--no-containers"),
            2,
            "lab.up: --containers and --no-containers contradict; leave one out\n",
        ),
        (
            ("lab.fault", "lab-1", "busy", "--lab", "00000000"),
            1,
            "lab: could not find the lab 00000000: lab.status lists those that run\n",
        ),
    ],
)
@pytest.mark.usefixtures("lab_possible")
def test_wrong_use(tmp_path: Path, words: tuple[str, ...], code: int, message: str) -> None:
    assert ascendboot(tmp_path, *words) == (code, "", message)


def test_faults_of_unknown_nodes_are_refused(practice_cluster: Lab) -> None:
    with pytest.raises(UsageError) as caught:
        practice_cluster.fault("lab-3", "busy")
    assert str(caught.value) == 'lab: no node "lab-3"; there are lab-1 to lab-2'
    with pytest.raises(UsageError, match=r"there are lab-1 to lab-2; did you mean lab-2\?$"):
        practice_cluster.fault("lab2", "busy")
