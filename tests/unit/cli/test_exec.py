"""What a node sends to `fetch`, which trusts none."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ascendboot.cli.exec import unpack

FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


def sent(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of members: name, kind, and where a link leads to or what a file holds."""
    packed = io.BytesIO()
    with tarfile.open(mode="w", fileobj=packed) as tar:
        for name, kind, text in members:
            member, content = tarfile.TarInfo(name), text.encode() if kind == FILE else b""
            member.type, member.size, member.mode, member.linkname = (
                kind,
                len(content),
                0o6750,
                text,
            )
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
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises((ValueError, OSError)):
        unpack(sent(*members), "it", into)
    assert list(tmp_path.iterdir()) == [into]
    assert not (into / "it").is_symlink()
