"""Files of the cluster that other users could change: found and closed by the real scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ascendboot.facts.installed import (
    Installed,
    Open,
    base_script,
    installed_query,
    parse_installed,
)
from ascendboot.setup.lock import locks
from ascendboot.setup.steps import Change, Closed, FileContent, KeyPair, Satisfied
from ascendboot.transport.api import Command, Effect, Result
from ascendboot.value import replace
from tests.here import node_here

QUESTION = installed_query("lab", with_keys=False)
OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def run(command: Command, base: Path) -> Result:
    """Runs a command on this machine, with another folder for that of the cluster."""
    text = command.argv[2].replace(base_script("lab"), f"b={base}\n")
    return node_here().run(replace(command, argv=("/bin/bash", "-c", text, *command.argv[3:])))


def look(base: Path) -> Installed:
    return parse_installed(run(QUESTION, base))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A cluster's folder as setup leaves it; the one above has the same owner."""
    base = tmp_path / "ascendboot/lab"
    for folder in ("env/bin", "trust", "jobs/one"):
        (base / folder).mkdir(parents=True)
    for name in ("env/rank-exec", "lock", "made", "trust/cluster_key", "jobs/one/log"):
        (base / name).write_text("text\n")
        (base / name).chmod(0o600)
    (base / "env/rank-exec").chmod(0o755)
    (base / "jobs/one").chmod(0o700)
    (base / "jobs/one/log").chmod(0o666)  # nobody else comes that far
    return base


def test_a_folder_that_nobody_else_can_change_is_left_alone(base: Path) -> None:
    assert (look(base).open, look(base).open_above) == ({}, {})
    assert isinstance(Closed().check(look(base)), Satisfied)


@pytest.mark.parametrize(
    ("spoil", "seen"),
    [
        ("chmod 777 env", {"env": Open(0o777)}),
        ("chmod 1777 jobs", {"jobs": Open(0o1777)}),
        ("chmod 775 . .. trust", {"..": Open(0o775), ".": Open(0o775), "trust": Open(0o775)}),
        ("chmod 666 made lock", {"lock": Open(0o666, kind="f"), "made": Open(0o666, kind="f")}),
        pytest.param(
            f"chown {OTHER} env env/rank-exec; ln -s /etc env/link; chown -h {OTHER} env/link",
            {
                "env": Open(0o755, OTHER),
                "env/rank-exec": Open(0o755, OTHER, "f"),
                "env/link": Open(0o777, OTHER, "l"),
            },
            marks=as_root,
        ),
        pytest.param(
            f"chmod 777 .; mv env away; ln -s /etc env; chown -h {OTHER} env",
            {".": Open(0o777), "env": Open(0o777, OTHER, "l")},
            marks=as_root,
        ),
        pytest.param(
            f"mkfifo env/pipe; chown {OTHER} env/pipe",
            {"env/pipe": Open(0o644, OTHER, "p")},
            marks=as_root,
        ),
    ],
)
def test_files_that_others_could_change_are_closed_from_the_top_down(
    base: Path, spoil: str, seen: dict[str, Open]
) -> None:
    etc = Path("/etc").stat()
    subprocess.run(["/bin/bash", "-c", f"umask 022; cd {base}; {spoil}"], check=True)
    inode = (base / "made").stat().st_ino
    own = look(base)
    assert own.open == seen
    change = Closed().check(own)
    assert isinstance(change, Change)
    assert all(f"{own.place(path)} {there.why}" in change.summary for path, there in seen.items())
    [close] = change.commands
    assert close.effect is Effect.WRITE
    done = run(close, base)
    assert done.as_expected, done.error_text
    assert look(base).open == {}
    assert [(base / name).is_symlink() for name in ("env", "env/link", "env/pipe")] == [False] * 3
    # An open descriptor of the old file changes nothing; a lock that is held stays the same file.
    assert ((base / "made").stat().st_ino == inode) == ("made" not in seen)
    assert (Path("/etc").stat().st_mode, Path("/etc").stat().st_uid) == (etc.st_mode, etc.st_uid)


@pytest.mark.parametrize(
    ("owner", "mode", "seen"),
    [
        (-1, 0o777, [Open(0o777)]),
        (-1, 0o1777, []),
        (-1, 0o775, []),
        pytest.param(OTHER, 0o755, [Open(0o755, OTHER)], marks=as_root),
        pytest.param(OTHER, 0o1775, [Open(0o1775, OTHER)], marks=as_root),
    ],
)
def test_an_open_folder_above_is_reported_and_never_changed(
    base: Path, owner: int, mode: int, seen: list[Open]
) -> None:
    """Debian's sshd also accepts a folder of a group that has the number of its user."""
    above = base.parent.parent
    os.chown(above, owner, owner)
    above.chmod(mode)
    own = look(base)
    assert (own.open, own.open_above) == ({}, {str(above): there for there in seen})
    assert isinstance(Closed().check(own), Satisfied)


def test_a_link_hides_no_open_folder(base: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o777)
    base.rename(tmp_path / "elsewhere/lab")
    base.symlink_to(tmp_path / "elsewhere/lab")
    assert look(base).open_above == {str(tmp_path / "elsewhere"): Open(0o777)}


@as_root
def test_folders_above_the_home_of_a_user_are_not_checked() -> None:
    """A home may lie in the folder of a group: whoever owns that owns the user's start-up files."""
    team = Path(tempfile.mkdtemp())
    home, as_user = team / "home", f"setpriv --reuid {OTHER} --regid {OTHER} --clear-groups"
    (home / ".ascendboot/lab").mkdir(parents=True)
    (team / "link").symlink_to(home)
    subprocess.run(["/bin/chown", "-R", f"{OTHER}:{OTHER}", home], check=True)
    os.chown(team, OTHER + 1, OTHER + 1)
    team.chmod(0o775)
    seen = []
    try:
        for mode, name in ((0o755, "home"), (0o757, "home"), (0o757, "link")):
            home.chmod(mode)
            argv = (*as_user.split(), "env", f"HOME={team / name}", *QUESTION.argv)
            answer = node_here().run(replace(QUESTION, argv=argv))
            seen.append({*parse_installed(answer).open_above})
    finally:
        shutil.rmtree(team)
    assert seen == [set(), {str(home)}, {str(home), str(team / "link")}]


def test_item_12_a_lock_ends_a_minute_after_the_last_data_of_its_holder() -> None:
    assert "60" in locks("lab", "me").on_host.command.argv


@as_root
def test_a_file_or_key_of_another_owner_is_replaced(base: Path) -> None:
    for name in ("env/rank-exec", "trust/cluster_key"):
        os.chown(base / name, OTHER, -1)
    own = look(base)
    why = f"belongs to user id {OTHER}"
    program = FileContent("env/rank-exec", "text\n", 0o755).check(own)
    key = KeyPair("trust/cluster_key", "lab").check(own)
    assert isinstance(program, Change)
    assert isinstance(key, Change)
    assert program.summary == f"env/rank-exec {why}"
    assert [file.path for file in program.files] == [own.base / "env/rank-exec"]
    assert key.summary.startswith("trust/cluster_key cannot be read") or why in key.summary


def test_a_name_with_a_line_end_forges_no_answer(base: Path) -> None:
    (base / "env/x\nmode 755 .").mkdir(parents=True)
    (base / "env/x\nmode 755 ./env").mkdir()
    (base / "env/x\nmode 755 ./env/forged").write_text("")
    own = look(base)
    assert sorted(own.files) == ["env/rank-exec", "made", "trust/cluster_key"]
