"""The tree below the code's path, as bash on a node reports it, and differences of trees."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.facts.container import LARGE_BYTES, tree_query
from ascendboot.facts.query import Fact
from ascendboot.model import files
from ascendboot.value import replace
from tests.here import node_here


def tree_of(question: Fact[files.CodeTree]) -> files.CodeTree:
    return question.parse(node_here().run(question.command))


def entry(text: str, mode: int = 0o644) -> files.Entry:
    return files.Entry(sha256(text.encode()).hexdigest(), mode)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in ("main.py", "pkg/a b.py", "pkg/deep/x.log", "we\nird\\.py", "-dash"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o644)
    (root / "main.py").chmod(0o755)
    (root / "link").symlink_to("pkg/a b.py")
    for name in (
        ".git/config",
        ".ascendboot/key",
        "pkg/__pycache__/a.bin",
        "pkg/a.pyc",
        ".ascendboot-sending.abcdef",
    ):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("left out")
    return root


def test_a_tree_is_reported_with_every_name(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    found = tree_of(tree_query("all", str(tree), ()))
    names = ("-dash", "main.py", "pkg/a b.py", "pkg/deep/x.log", "we\nird\\.py")
    wanted = {name: entry(name, 0o755 if name == "main.py" else 0o644) for name in names}
    wanted["link"] = files.Entry(target="pkg/a b.py")
    assert dict(found.entries) == wanted
    assert list(found.entries) == sorted(wanted)
    assert sum(one.size for one in found.entries.values()) == sum(map(len, names))


def test_a_file_a_missing_tree_and_one_with_nothing(tree: Path) -> None:
    assert tree_of(tree_query("all", str(tree / "main.py"), ())) == files.CodeTree(
        entries={"main.py": entry("main.py", 0o755)}
    )
    absent = tree_of(tree_query("all", str(tree / "none"), ()))
    assert absent == files.CodeTree(state="absent")
    (tree / "none").mkdir()
    assert tree_of(tree_query("all", str(tree / "none"), ())) == files.CodeTree()


def test_only_listed_files_are_read_and_others_named_on_demand(tree: Path) -> None:
    listed = ("main.py", "link", "not/there", "-dash")
    alone = tree_of(tree_query("listed", str(tree), (), listed))
    entries = {"-dash": entry("-dash"), "link": files.Entry(target="pkg/a b.py")}
    entries["main.py"] = entry("main.py", 0o755)
    assert alone == files.CodeTree(entries=entries)
    beside = tree_of(tree_query("names", str(tree), ("*.log",), listed))
    assert beside == files.CodeTree(entries=entries, others=("pkg/a b.py", "we\nird\\.py"))
    assert tree_of(tree_query("listed", str(tree), (), ())) == files.CodeTree()


@pytest.mark.parametrize("limit", [files.MOST_FILES, files.MOST_BYTES])
def test_a_tree_that_is_too_large_is_not_read(tree: Path, limit: int) -> None:
    question = tree_query("all", str(tree), ())
    argv = tuple(re.sub(rf"={limit}\b", "=3", word) for word in question.command.argv)
    assert argv != question.command.argv
    found = question.parse(node_here().run(replace(question.command, argv=argv)))
    assert found.entries == {}
    assert found.excess is not None
    assert max(found.excess) > 3


def test_large_data_is_reported_by_its_size_alone_and_does_not_count(tree: Path) -> None:
    question = tree_query("light", str(tree), ())
    small = tuple(
        word.replace(f"large_bytes={LARGE_BYTES} ", "large_bytes=6 ")
        for word in question.command.argv
    )
    tight = tuple(
        word.replace(f"most_bytes={files.MOST_BYTES}\n", "most_bytes=60\n") for word in small
    )
    (tree / "ckpt").write_text("x" * 100)
    (tree / "huge.py").write_text("y" * 10)
    found = question.parse(node_here().run(replace(question.command, argv=tight)))
    assert found.entries["ckpt"] == files.Entry("100 bytes", 0o644)
    assert found.entries["huge.py"] == entry("y" * 10)
    assert found.entries["-dash"] == entry("-dash")
    assert found.entries["pkg/deep/x.log"] == files.Entry("14 bytes", 0o644)


def test_a_truncated_answer_is_refused(tree: Path) -> None:
    question = tree_query("all", str(tree), ())
    result = node_here().run(question.command)
    for cut in (result.stdout[:-4], result.stdout[:40], b""):
        with pytest.raises(NotUnderstoodError):
            question.parse(replace(result, stdout=cut))


PATTERNS = ("*.log", "pkg", "pkg/*.py", "pkg/d*/x*", "[a-m]*.py", "?dash", "x.log", "deep", "*")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_have_the_same_meaning_on_both_sides(tree: Path, pattern: str) -> None:
    whole = tree_of(tree_query("all", str(tree), ()))
    found = tree_of(tree_query("all", str(tree), (pattern,)))
    assert set(found.entries) == {n for n in whole.entries if not files.is_left_out(n, (pattern,))}


def test_differences_are_described_with_the_first_names() -> None:
    lab_1 = files.CodeTree(
        entries={name: entry("1") for name in ("main.py", "model.py", "ckpt", "a.py")}
        | {"link": files.Entry(target="x"), "secret.py": entry("s"), "run": entry("1")}
    )
    lab_2 = files.CodeTree(
        entries={
            "a.py": entry("1", 0o755),
            "main.py": entry("2"),
            "ckpt": entry("1"),
            "left.log": entry("x"),
            "link": files.Entry(target="y"),
            "run": entry("2", 0o755),
            "secret.py": files.Entry("", 0o600),
        }
    )
    found = files.differences(lab_1, lab_2)
    assert [(d.path, d.kind, d.is_code) for d in found] == [
        ("left.log", "extra", False),
        ("link", "differs", False),
        ("main.py", "differs", True),
        ("model.py", "missing", True),
        ("run", "differs", True),
        ("secret.py", "unreadable", True),
    ]
    assert files.differences_text(found, "lab-1") == (
        "left.log is not in lab-1, link differs from lab-1; 4 more"
    )
    assert files.differences_text(found[2:4], "lab-1") == (
        "main.py differs from lab-1, model.py is missing, which lab-1 has"
    )
    assert files.differences_text(found[5:], "lab-1") == "secret.py cannot be read"
    assert files.unlike(lab_1, lab_2) == ("main.py", "model.py", "a.py", "link", "secret.py", "run")
