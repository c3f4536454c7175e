"""Files that cannot be read as a rank table, and what is said of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ascendboot.errors import RankTableError
from ascendboot.ranktable import text as text_module

TEXTS = {
    b"": "could not be read: the file is empty",
    b" \n": "could not be read: the file is empty",
    b'{"a": 1, // why\n "b": 2}': "column 10: expecting property name enclosed in double quotes",
    b'{"a": 1\n# why\n}': "line 2, column 1: expecting ',' delimiter",
    b"{'a': 1}": "line 1, column 2: expecting property name enclosed in double quotes",
    b'{"a": NaN}': "JSON: NaN is no number of JSON",
    b'{"NaN": -Infinity}': "JSON: -Infinity is no number of JSON",
    b'{"a": 1e999}': "JSON: 1e999 is no number of JSON",
    b'{"a": '
    + b"9" * 5000
    + b"}": "JSON: Exceeds the limit (4300 digits) for integer string conversion",
    b'{"a": "\\ud800"}': "JSON: \\ud800 is half of a character; write it as a whole",
    b'{"\\ude00": 1}': "JSON: \\ude00 is half of a character; write it as a whole",
    b"[" * 10_000_000: "JSON: lists or objects are nested too deeply",
    b'{"a": [1, 2': "line 1, column 12: the text ends too early",
    '{"a": 1}'.encode("utf-16"): "the text is UTF-16 or UTF-32; save it as UTF-8",
    '{"a": 1}'.encode("utf-16-le"): "the text is UTF-16 or UTF-32; save it as UTF-8",
    b'{"a":\n "\xff"}': "line 2: byte 0xff is not UTF-8; save it as UTF-8",
}


@pytest.mark.parametrize(("content", "message"), TEXTS.items(), ids=range(len(TEXTS)))
def test_what_is_no_json_is_said_with_its_place(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(RankTableError) as caught:
        text_module.read(str(path))
    assert str(caught.value).startswith(f"{path}: could not be read")
    assert str(caught.value).endswith(message)


def test_both_halves_of_a_character_are_one(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"a": "\\ud83d\\ude00 \\\\ud800"}')
    assert text_module.read(str(path)).document == {"a": "\U0001f600 \\ud800"}


def test_a_byte_order_mark_and_doubled_members_are_noted_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1, "b": [{"x": 1, "x": 2}], "a": 3}')
    read = text_module.read(str(path))
    assert (read.document, read.has_bom) == ({"a": 3, "b": [{"x": 2}]}, True)
    assert read.doubled == (("b", 0, "x"), ("a",))


def test_the_file_s_mode_and_link_are_noted(tmp_path: Path) -> None:
    path, link = tmp_path / "t.json", tmp_path / "l.json"
    path.write_text("{}")
    path.chmod(0o664)
    link.symlink_to(path)
    noted = [
        (text_module.read(str(p)).mode, text_module.read(str(p)).is_symlink) for p in (path, link)
    ]
    assert noted == [(0o664, False), (0o664, True)]


def test_what_is_no_file_is_named_and_nothing_hangs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.json"
    os.mkfifo(fifo)
    said = {
        tmp_path: "could not be read: it is a directory; name the file",
        fifo: "could not be read: it is not a regular file; name the file",
        tmp_path / "none.json": "could not be read: No such file or directory",
    }
    for path, message in said.items():
        with pytest.raises(RankTableError) as caught:
            text_module.read(str(path))
        assert str(caught.value) == f"{path}: {message}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_no_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("{}")
    path.chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(RankTableError, match="could not be read: Permission denied"):
            text_module.read(str(path))
    finally:
        os.seteuid(0)


def test_a_huge_file_is_refused_unread_and_the_limit_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.truncate((text_module.LARGEST_MIB + 1) << 20)
    with pytest.raises(RankTableError) as caught:
        text_module.read(str(path))
    assert str(caught.value) == (
        f"{path}: could not be read: it has 257 MiB, and 256 MiB are the most; a table of 131,072 "
        "ranks takes 16 MiB"
    )


def test_lines_are_those_of_the_values_or_of_what_is_around_them() -> None:
    text = '{"a": 1,\n "b": [\n{"x": "{,",\n"y":\n2},\n 3, {"z": {"w":\n 4}}]}'
    paths: list[text_module.JsonPath] = [
        *((), ("a",), ("b",), ("b", 0, "x"), ("b", 0, "y"), ("b", 1), ("b", 2, "z", "w")),
        *(("b", 2, "none"), ("none",)),
    ]
    assert list(text_module.lines_of(text, paths).values()) == [1, 1, 2, 3, 4, 6, 6, 6, 1]
    assert [text_module.shown(path) for path in paths[:4]] == ["$", "a", "b", "b[0].x"]
