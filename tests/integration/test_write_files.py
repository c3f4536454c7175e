"""Files written on a node over a real sshd: each is complete, or as it was before."""

from __future__ import annotations

import os
import threading
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.transport.api import Command, Effect, FileWrite, write_files
from ascendboot.transport.login_session import SshTransport
from ascendboot.value import replace

pytestmark = pytest.mark.integration


def put(path: Path, content: bytes, mode: int = 0o644) -> FileWrite:
    return FileWrite(PurePosixPath(path), content, mode)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_files_of_any_name_and_content_arrive(transport: SshTransport, tmp_path: Path) -> None:
    names = ["plain", "a b", "it's", "$HOME", "-n", "new\nline", "ü", "*", "deep/er/still", "\\"]
    contents = [bytes(range(256)) * 100, b"", b"\0", b"no newline", b"\n\n", *[b"x"] * 5]
    base = tmp_path / "made"
    wanted = {base / name: content for name, content in zip(names, contents, strict=True)}
    done = transport.run(
        write_files([put(p, c, 0o640) for p, c in wanted.items()], purpose="write the files")
    )
    assert (done.exit_code, done.error_text) == (0, "")
    assert {p: p.read_bytes() for p in wanted} == wanted
    assert {mode_of(p) for p in wanted} == {0o640}
    assert {mode_of(base), mode_of(base / "deep"), mode_of(base / "deep/er")} == {0o755}
    assert len([p for p in base.rglob("*") if p.is_file()]) == len(wanted), "something left beside"


def test_a_file_is_replaced_and_gets_its_mode(transport: SshTransport, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old")
    file.chmod(0o644)
    transport.run(write_files([put(file, b"new", 0o600)], purpose="write it")).checked()
    assert (file.read_bytes(), mode_of(file)) == (b"new", 0o600)


def test_a_reader_sees_the_old_or_the_new_file_and_nothing_else(
    transport: SshTransport, tmp_path: Path
) -> None:
    file = tmp_path / "watched"
    versions = [bytes([letter]) * 200_000 for letter in b"ab"]
    file.write_bytes(versions[0])
    stop, seen = threading.Event(), set()

    def watch() -> None:
        while not stop.is_set():
            seen.add(file.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for turn in range(10):
            content = versions[turn % 2]
            transport.run(write_files([put(file, content)], purpose="write it")).checked()
    finally:
        stop.set()
        watcher.join()
    assert seen <= set(versions)


def test_a_full_disk_leaves_the_old_file(transport: SshTransport, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.write_text("old")
    command = write_files([put(first, b"small"), put(second, bytes(100_000))], purpose="write")
    # A limit on the size of files fails like a full disk.
    limited = replace(command, argv=("bash", "-c", 'ulimit -f 8; exec "$@"', "_", *command.argv))
    done = transport.run(limited)
    assert done.exit_code != 0
    assert (first.read_text(), second.read_text()) == ("small", "old")
    assert sorted(path.name for path in tmp_path.glob("*econd*")) == ["second"]


def test_contents_that_do_not_arrive_whole_are_not_put_in_place(
    transport: SshTransport, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    command = write_files([put(file, b"0123456789")], purpose="write it")
    done = transport.run(replace(command, stdin=b"01234"))
    assert (done.exit_code, done.error_text) == (1, f"short write to {file}")
    assert not list(tmp_path.glob("file*"))


def test_a_folder_at_the_path_is_an_error(transport: SshTransport, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    done = transport.run(write_files([put(tmp_path / "file", b"x")], purpose="write it"))
    assert done.exit_code == 1
    assert "cannot overwrite directory" in done.error_text
    assert not list((tmp_path / "file").iterdir())
    assert [p.name for p in tmp_path.glob("file*")] == ["file"]


def test_a_secret_is_never_readable_by_others_on_the_way(
    transport: SshTransport, tmp_path: Path
) -> None:
    fifo = tmp_path / "mode"
    os.mkfifo(fifo)
    command = write_files([put(tmp_path / "key", b"secret", 0o600)], purpose="write it")
    spying = 'mv() { stat -c %a "${@: -2:1}" >"$SPY"; command mv "$@"; }; export -f mv'
    argv = ("env", f"SPY={fifo}", "bash", "-c", f'{spying}; exec "$@"', "_", *command.argv)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(fifo.read_text()))
    reader.start()
    transport.run(replace(command, argv=argv)).checked()
    reader.join()
    assert found == ["600\n"]


def test_the_command_is_a_write() -> None:
    command = write_files([put(Path("/x"), b"c")], purpose="write it")
    assert isinstance(command, Command)
    assert (command.effect, command.stdin, command.shown()) == (Effect.WRITE, b"c", "a script")
