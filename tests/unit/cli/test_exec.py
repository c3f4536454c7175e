"""What a node sends to `fetch`, which trusts none."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from ascendboot.cli import exec  # noqa: A004
from ascendboot.cli.exec import _Moved, _receive, _whole, put_back, unpack
from ascendboot.cli.verbs import Call
from ascendboot.errors import CommandError
from ascendboot.transport.api import Command, Effect
from ascendboot.transport.login_session import Pipe, Session, SshTransport
from tests.fake_transport import Answer

FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


def sent(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of members: name, kind, and where a link leads to or what a file holds."""
    packed = io.BytesIO()
    with tarfile.open(mode="w", fileobj=packed) as tar:
        for name, kind, text in members:
            member, content = tarfile.TarInfo(name), text.encode() if kind == FILE else b""
            member.type, member.linkname = kind, text
            member.size, member.mode = len(content), 0o6772
            tar.addfile(member, io.BytesIO(content))
    return io.BytesIO(packed.getvalue())


def test_a_folder_with_modes_and_links(tmp_path: Path) -> None:
    tar = sent(
        *(("it", FOLDER, ""), ("it/run", FILE, "text"), ("it/last", LINK, "run")),
        *(("it/out", LINK, "/etc/passwd"), ("it/up", LINK, "../../x"), ("it/dev", b"3", "")),
        ("it/hard", tarfile.LNKTYPE, "/etc/passwd"),
    )
    assert unpack(tar, "it", tmp_path) == "1 file, 4 bytes; left out: 4 links or devices"
    found = {path.name for path in (tmp_path / "it").iterdir()}
    assert found == {"run", "last"}
    assert (tmp_path / "it/last").read_text() == "text"
    assert (tmp_path / "it/run").stat().st_mode & 0o7777 == 0o750


@pytest.mark.parametrize(
    "members",
    [
        [("../it", FILE, "")],
        [("/it", FILE, "")],
        [("it/../../x", FILE, "")],
        [("other", FILE, "")],
        [("it", LINK, "there")],
        [("it", FOLDER, ""), ("it/x", LINK, "."), ("it/x/y/../../../z", FILE, "")],
        [("it", FILE, "one"), ("it", FILE, "two")],
        [("it", FILE, ""), ("it/below", FILE, "")],
        [("it/" + "a/" * 1500, FOLDER, "")],
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises((ValueError, OSError)):
        unpack(sent(*members), "it", into)
    assert list(tmp_path.iterdir()) == [into]
    assert not (into / "it").is_symlink()


def test_what_a_node_sends_between_files_is_bounded(tmp_path: Path) -> None:
    head = tarfile.TarInfo("it")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    tar = io.BytesIO(head.tobuf(tarfile.GNU_FORMAT) + bytes(32 << 20))
    with pytest.raises(ValueError, match="more than 1 MiB between two files"):
        unpack(tar, "it", tmp_path)
    assert tar.tell() < 2 << 20


def test_a_command_that_prints_too_much_has_run() -> None:
    command = Command(argv=("bash", "-c", "yes"), purpose="run bash", effect=Effect.WRITE)
    with pytest.raises(CommandError) as error:
        _whole(Answer("y" * ((4 << 20) + 1)).to(command, "a-1"))
    assert str(error.value) == (
        "a-1: bash printed more than 4 MiB, the most that exec shows; write the output into a file "
        "on the node, then fetch it"
    )
    full = Answer("y" * (4 << 20), exit_code=3).to(command)
    assert _whole(full) is full


FETCH = Command(argv=("tar",), purpose="fetch", effect=Effect.READ)


class Node:
    """A node that sends something and ends well."""

    node, stderr, limits = "a-1", b"", list[float]()

    def __init__(self, sent: bytes) -> None:
        self.sent = sent

    @contextmanager
    def pipe(self, _command: Command, moved: Callable[[int], None]) -> Iterator[Pipe]:
        yield Pipe(cast("Session", self), self.sent, moved)

    def read(self) -> bytes:
        return b""

    def end_stdin(self) -> None:
        """Nothing reads it."""

    def limit(self, seconds: float) -> None:
        self.limits.append(seconds)

    def exit_code(self) -> int:
        return 0 if self.limits else -1


def test_a_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = _Moved(Call(), keeps_free=tmp_path)
    for few, spare in ((1 << 26, 1 << 60), (0, 0), (0, 1 << 60)):
        monkeypatch.setattr(exec, "_FEW", few)
        monkeypatch.setattr(exec, "_SPARE", spare)
        side = cast("SshTransport", Node(sent(("it", FILE, "text")).getvalue()))
        part = tmp_path / f"{few}-{spare}"
        if few or not spare:
            assert _receive(side, FETCH, tmp_path / "it", part, moved) == "1 file, 4 bytes"
            continue
        with pytest.raises(
            CommandError, match=r"^a-1: could not fetch: only \d+ MiB are free in /"
        ):
            _receive(side, FETCH, tmp_path / "it", part, moved)
        moved(0)  # as at the end of what a node sends


@pytest.mark.parametrize("pairs", [0, 900])
def test_what_was_fetched_before_stays_if_a_node_sends_nonsense(tmp_path: Path, pairs: int) -> None:
    pair = tarfile.TarInfo.create_pax_global_header({"k": "v"})
    place, side = tmp_path / "it", cast("SshTransport", Node(pair * pairs + bytes(10240)))
    place.write_text("before")
    with pytest.raises(CommandError, match="sent nothing" if not pairs else "recursion"):
        _receive(side, FETCH, place, tmp_path / "new", list[int]().append)
    assert place.read_text() == "before"


def test_what_was_fetched_before_is_put_back_if_the_new_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, part, rename = tmp_path / "it", tmp_path / "part", Path.rename
    side = cast("SshTransport", Node(sent(("it", FILE, "text")).getvalue()))
    place.write_text("before")
    part.mkdir()

    def fail_once(path: Path, to: Path) -> Path:
        if to == place:
            monkeypatch.setattr(Path, "rename", rename)
            raise OSError(5, "Input/output error")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(CommandError, match="Input/output error"), put_back(part, {"a-1": place}):
        _receive(side, FETCH, place, part / "a-1", list[int]().append)
    assert place.read_text() == "before"
