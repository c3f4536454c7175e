"""Faults, processes, bound directories, missing programs, and the call of sudo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ascendboot.errors import NodeError, UsageError
from ascendboot.lab import faults as faults_module
from ascendboot.lab.faults import Fault, Marks
from ascendboot.lab.host import LabError, ProcessId, kill_all, need_programs, put, run
from ascendboot.lab.node import Surroundings, separate_file_systems, wait_until_up
from ascendboot.lab.records import Record, current_boot_id
from ascendboot.lab.shape import Shape
from ascendboot.value import replace
from tests.here import Here

SHAPE = Shape.requested(2, 4, "198.18.64.0/20,198.19.64.0/20")
NODE = SHAPE.nodes[0]


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    marks = Marks(tmp_path / "lab/faults")
    marks.folder.mkdir(parents=True)
    return marks


def test_marks_are_read_back_in_order(marks: Marks) -> None:
    faults = [
        Fault("busy", 2, times=3),
        Fault("clock", seconds=-90),
        Fault("delay", milliseconds=40),
        Fault("link-down", 1),
        Fault("link-down", 3),
        Fault("no-sshd"),
    ]
    for fault in reversed(faults):
        marks.add(fault)
    assert marks.present() == faults
    assert marks.devices("link-down", NODE) == {1, 3}


def test_clearing_a_fault_of_all_devices_clears_each(marks: Marks) -> None:
    for fault in (Fault("link-down", 1), Fault("link-down"), Fault("busy", 1)):
        marks.add(fault)
    (marks.folder / "busy.2").write_text("0\n")  # without calls left it has ended
    marks.clear(Fault("link-down"))
    assert marks.present() == [Fault("busy", 1)]


TIMES, MILLISECONDS, SECONDS = ("--times counts", "--milliseconds is how", "--seconds is how")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("fire", {}, 'no fault "fire"; there are node-down, link-down, '),
        ("linkdown", {}, r'no fault "linkdown"; .*, no-container-sshd; did you mean link-down\?$'),
        *(
            (kind, {"device": 1}, f"{kind} is a fault of a node; leave out --device")
            for kind in ("no-sshd", "node-down", "disk-full", "delay", "clock")
        ),
        ("busy", {"device": 4}, "lab-1 has no device 4; it has 0 to 3"),
        ("busy", {"device": 1, "times": 0}, TIMES),
        ("link-down", {"device": 1, "times": 2}, TIMES),
        ("net-health", {"device": 1, "times": 2}, TIMES),
        ("link-flaps", {"device": 1, "times": 0}, TIMES),
        ("delay", {"milliseconds": 0}, MILLISECONDS),
        ("delay", {"milliseconds": 1001}, MILLISECONDS),
        ("clock", {"milliseconds": 5}, MILLISECONDS),
        ("clock", {"seconds": 0}, SECONDS),
        ("delay", {"seconds": 5}, SECONDS),
    ],
)
def test_impossible_faults_are_refused(kind: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=f"^lab.fault: {message}"):
        Fault.requested(NODE, kind, **options)


def test_amounts_have_defaults() -> None:
    kinds = ("delay", "clock", "busy", "link-flaps")
    assert [Fault.requested(NODE, kind) for kind in kinds] == [
        Fault("delay", milliseconds=25),
        Fault("clock", seconds=90),
        Fault("busy"),
        Fault("link-flaps", times=1),
    ]
    behind = Fault.requested(NODE, "clock", seconds=-7)
    assert (behind.seconds, behind.amount) == (-7, -7)


def test_the_part_of_a_clock_fault_that_needs_libfaketime_is_named(tmp_path: Path) -> None:
    fault = Fault("clock", seconds=90)
    assert "(Debian package libfaketime)" in (faults_module.note(fault, tmp_path) or "")
    put(tmp_path / "lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "")
    notes = [faults_module.note(fault, tmp_path), faults_module.note(Fault("busy"), tmp_path)]
    assert notes == [None, None]


def test_a_process_is_identified_by_pid_and_start_time() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        process = ProcessId(child.pid, int(fields[19]))
        reused = replace(process, started=process.started + 1)
        assert (process.alive, reused.alive) == (True, False)
        kill_all([reused])
        assert child.poll() is None
        kill_all([process, reused])
        assert child.wait(timeout=5) == -9
    assert not process.alive
    kill_all([process])


def test_other_texts_are_no_process_id() -> None:
    texts = ("", "12", "12 x", "1 2 3", "12 34\n")
    assert [ProcessId.parsed(text) for text in texts] == [None] * 4 + [ProcessId(12, 34)]
    assert ProcessId.own().alive


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("checkout/.venv", "checkout/.ascendboot", "pythons/3.11", "work"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_checkout_and_interpreter_are_bound_and_private_files_hidden(tree: Path) -> None:
    project, prefixes = tree / "checkout", (tree / "checkout/.venv", tree / "pythons/3.11")
    seen = Surroundings(tree / "checkout", project, tree / "checkout/.venv/bin/python", prefixes)
    assert seen.binds() == (tree / "checkout", tree / "pythons/3.11")
    assert seen.masks() == (tree / "checkout/.ascendboot",)


def test_interpreters_of_other_environments_in_the_checkout_are_bound(tree: Path) -> None:
    (tree / "pythons/3.7/bin").mkdir(parents=True)
    (tree / "checkout/.venv-tf").mkdir()
    (tree / "checkout/.venv-tf/pyvenv.cfg").write_text(
        f"home = {tree}/pythons/3.7/bin\ninclude-system-site-packages = false\nversion = 3.7.16\n"
    )
    seen = Surroundings.of_this_process(tree / "work", tree / "checkout")
    assert set(seen.binds()) >= {tree / "checkout", tree / "pythons/3.7"}


def test_a_link_to_the_interpreter_is_bound_under_both_names(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "pythons/3.11")
    seen = Surroundings(tree / "work", None, tree / "link/bin/python", (tree / "link",))
    assert seen.binds() == (tree / "link", tree / "pythons/3.11")
    assert seen.masks() == ()


def test_places_that_each_node_has_itself_are_never_bound() -> None:
    prefixes = (Path("/usr"), Path("/usr/lib"), Path("/"))
    seen = Surroundings(Path("/root"), Path("/root"), Path("/usr/bin/python3"), prefixes)
    assert seen.binds() == ()


def test_separate_file_systems_are_found() -> None:
    table = "/dev/a / ext4 rw 0 0\n/dev/b /var ext4 rw 0 0\n/dev/c /home ext4 rw 0 0\n"
    assert separate_file_systems(table) == ("/var",)


def test_missing_programs_are_named_with_their_packages(tmp_path: Path) -> None:
    for name in ("ip", "mount", "umount", "ping", "ssh-keygen", "hostname"):
        (tmp_path / name).touch(mode=0o755)
    with pytest.raises(LabError) as caught:
        need_programs(str(tmp_path))
    assert str(caught.value) == (
        "lab: could not start: not installed: sshd, flock, nsenter, pivot_root, setpriv, setsid,"
        " unshare; the Debian packages are openssh-server util-linux."
        " scripts/demo installs them without starting a service"
    )


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(LabError) as caught:
        run(["/bin/sh", "-c", "echo no such thing >&2; exit 3"], purpose="do it")
    assert str(caught.value) == (
        "lab: could not do it: /bin/sh exited 3: no such thing; try lab.down, then lab.up"
    )


def record_in(tmp_path: Path) -> Record:
    class Elsewhere(Record):
        @property
        def folder(self) -> Path:
            return tmp_path

    return Elsewhere(SHAPE, tmp_path, 0, 0, current_boot_id(), ready=True)


def test_a_node_that_dies_while_booting_is_quoted(tmp_path: Path) -> None:
    record = record_in(tmp_path)
    record.log("lab-1").write_text("first\nmount: no such device\n")
    with pytest.raises(NodeError) as caught:
        wait_until_up(record, NODE)
    assert str(caught.value) == (
        "lab-1: could not boot: mount: no such device; try lab.down, then lab.up"
    )


def test_the_wait_for_a_node_has_a_deadline(tmp_path: Path) -> None:
    times = iter(range(0, 1000, 10))
    with pytest.raises(NodeError) as caught:
        wait_until_up(
            record_in(tmp_path), NODE, clock=lambda: float(next(times)), pause=lambda _: None
        )
    assert str(caught.value) == (
        "lab-1: could not boot: no answer on port 22 within 30 s; try lab.down, then lab.up"
    )


def as_a_user(tmp_path: Path, sudo: str) -> subprocess.CompletedProcess[str]:
    """Run `program verb --flag`, which becomes root, with this text as sudo."""
    Here(tmp_path).put("sudo", sudo)
    program = tmp_path / "program"
    program.write_text(
        "import os; from ascendboot.lab.host import become_root\n"
        "os.geteuid = lambda: 1000\n"
        "become_root()\n"
    )
    argv = [sys.executable, str(program), "verb", "--flag", "a b"]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    return subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_a_user_runs_the_same_command_again_behind_sudo(tmp_path: Path) -> None:
    done = as_a_user(
        tmp_path, '[[ $3 == true ]] || printf "%s\\n" "$@"; [[ $3 == true ]] || exit 7'
    )
    expected = ["-n", "--", sys.executable, "-B", f"{tmp_path}/program", "verb", "--flag", "a b"]
    assert (done.returncode, done.stdout.splitlines()) == (7, expected)


def test_a_sudo_that_requires_a_password_without_a_terminal_is_reported(tmp_path: Path) -> None:
    assert (
        "could not become root: namespaces need it, and sudo requires a password and there is no"
        " terminal to request it on; run sudo -v first, or run it as root"
    ) in as_a_user(tmp_path, "exit 1").stderr
