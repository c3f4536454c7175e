"""The tutorial, word for word: its `console` blocks in order, in one shell on 80 columns.

In the output, what `VARIES` lists may differ, so lines may be wrapped elsewhere, and lines of
several ranks may come in another order. A line `…` stands for any lines, `…` in one for any text.
"""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.cluster.operating import PROGRAM
from tests.terminal import shown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial.md"
COLUMNS = 80
MARK = "@@@"
VARIES = (
    (r"\b\d{8}-\d{6}-([a-z.]+)-[0-9a-f]{4}\b", r"DATE-\1-ID"),
    (r"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00)?", "TIME"),
    (r"\b(?:\d+ min )?\d+(?:\.\d+)? s\b|\b\d+ min\b", "N s"),
    (r"\b(\d+) days", "N days"),
    (r"\b198\.1([89])\.\d+\.", r"198.1\1.N."),
    (r"\bport \d+", "port N"),
    (r"\b0\.\d{3,6}\b", "0.N"),
    (r"SHA256:[\w+/]{43}|sha256 [0-9a-f]{16}", "SHA256"),
    (r"(?:/[\w.-]+)+/ascendboot/", "/FOLDER/ascendboot/"),
    (r" +", " "),
)
OF_A_RANK = re.compile(r"\S+:(\d+) \| ")


def steps(page: str) -> list[tuple[str, str]]:
    """The commands of a page, each with the output that stands below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^\$ (.*)\n", "".join(blocks), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def alike(text: str) -> list[str]:
    """Its lines, not cut at the edge of the terminal, with one word for what may differ."""
    text = re.sub(rf"^(.{{{COLUMNS}}})\n", r"\1", text.strip("\n"), flags=re.MULTILINE)
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    lines: list[str] = []
    for is_rank, some in groupby(text.splitlines(), lambda line: bool(OF_A_RANK.match(line))):
        part = list(some)
        lines += sorted(part, key=rank) if is_rank else part
    return [line.strip() for line in lines]


def rank(line: str) -> int:
    """The rank whose line it is."""
    found = OF_A_RANK.match(line)
    return int(found[1]) if found else 0


def agrees(told: str, printed: str) -> bool:
    """Whether a page tells what was printed, wherever lines are wrapped."""
    parts = [
        ".*" if line == "…" else ".+".join(map(re.escape, re.sub(r"\s", "", line).split("…")))
        for line in alike(told)
    ]
    return re.fullmatch("".join(parts), re.sub(r"\s", "", "".join(alike(printed)))) is not None


@pytest.fixture
def checkout(containers_possible: None) -> Iterator[Path]:  # noqa: ARG001 - it skips the test
    """What the page needs of a checkout; its path is as long as the one of the page."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:
        folder = Path(place, "ascendboot")
        shutil.copytree(ROOT / "examples/little_demo", folder / "examples/little_demo")
        shutil.copy(ROOT / "pyproject.toml", folder)
        yield folder
        shown(f"{PROGRAM} lab.down", columns=COLUMNS, cwd=folder)


def run(commands: list[str], place: Path) -> list[str]:
    """What a terminal shows of each, one after the other in the same shell."""
    script = f"PATH={Path(PROGRAM).parent}:$PATH\n" + "".join(
        f"code=$?; printf '\\n{MARK}\\n'; (exit $code)\n{command}\n" for command in commands
    )
    screen = "\n".join(shown(script, columns=COLUMNS, cwd=place, timeout_s=600))
    return re.split(rf"^{MARK}$", screen, flags=re.MULTILINE)[1:]


@pytest.mark.cluster
def test_the_tutorial_happens_as_it_is_told(checkout: Path) -> None:
    told = steps(PAGE.read_text())
    assert len(told) > 15
    printed = run([command for command, _ in told], checkout)
    wrong = [
        "\n".join((f"$ {command}", *difflib.ndiff(alike(text), alike(out))))
        for (command, text), out in zip(told, printed, strict=True)
        if not agrees(text, out)
    ]
    assert not wrong, "\n\n".join(wrong)


OLD, NEW = "20260102-030405-setup-ab12", "20261128-025537-setup-792f"


@pytest.mark.parametrize(
    ("told", "printed", "same"),
    [
        ("lab-1  ok   198.18.0.1", "lab-1 ok 198.18.64.1", True),
        ("lab-1  ok   198.18.0.1", "lab-1 ok 198.18.0.2", False),
        (f"Kept in runs/{OLD}", f"Kept in runs/{NEW}", True),
        (f"Kept in runs/{OLD}", f"Kept in runs/{NEW.replace('setup', 'check')}", False),
        (f"{OLD:>80}", f"{NEW:>90}"[:80] + "\n" + NEW[-10:], True),
        ("succeeded after 2.1 s, exit code 0", "succeeded after 1 min 12 s, exit code 0", True),
        ("succeeded after 2.1 s, exit code 0", "succeeded after 2.1 s, exit code 1", False),
        ("a:0 | x\nb:1 | y", "b:1 | y\na:0 | x", True),
        ("a:0 | x\na:0 | y", "a:0 | y\na:0 | x", False),
        ("a\n…\nb", "a\nb", True),
        ("a\n…\nb", "a\nx\ny\nb", True),
        ("a\n…\nb", "a\nx", False),
        ("a … b", "a (x) b", True),
        ("a … b", "a  b", False),
        ("27 things changed", "26 things changed", False),
        ("a", "a\nb", False),
        ("took 2.1 s, see\n  runs/x", "took 1 min 12 s,\n  see runs/x", True),
        ("", "a", False),
    ],
)
def test_another_output_is_noticed(told: str, printed: str, *, same: bool) -> None:
    assert agrees(told, printed) is same
