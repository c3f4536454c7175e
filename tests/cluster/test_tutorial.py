"""The tutorial, word for word: its first block and all `console` ones, in a shell of 80 columns.

One word is replaced: `<this repository>` is the folder of these tests, whose last commit is cloned.
What `VARIES` lists may differ, lines of several ranks may come in another order, and a text may be
wrapped at another word if that one did not fit. A line `…` stands for any lines, `…` in one for any
text. All else is compared, with its indentation and columns.
"""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.terminal import shown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()
COLUMNS = 80
MARK = "@@@"
DURATION = r"\b(?:\d+ min )?\d+(?:\.\d+)? s\b|\b\d+ min\b"
VARIES = (
    (r"\b\d{8}-\d{6}-([a-z.]+)-[0-9a-f]{4}\b", r"DATE-\1-ID"),
    (r"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00)?", "TIME"),
    (DURATION, "N s"),
    (r"(?:\d+ - )?\d+ (%|of \d+ GiB|°C|MiB)", r"N \1"),
    (r"(?<=  ) +(N (?:s ago|%|MiB)  )", r"\1"),
    (r"\b\d+\.\d lines/s", "N lines/s"),
    (r"\b198\.1([89])\.\d+\.", r"198.1\1.N."),
    (r"\bport \d+", "port N"),
    (r"\b0\.\d{3,6}\b", "0.N"),
    (r"sha256 [0-9a-f]{16}", "SHA256"),
    (r"(?:/[\w.-]+)+/ascendboot/", "/FOLDER/ascendboot/"),
)
FOLDER = "/home/operators/ascendboot"
OF_A_RANK = re.compile(r"\S+:(\d+) \| ")
CUT, WRAPPED = "\f", "\v"
ENDS = rf"\n{WRAPPED}"


def steps() -> list[tuple[str, str]]:
    """The commands of the page, each with the output that stands below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^\$ (.*)\n", "".join(blocks), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def joined(text: str) -> str:
    """With other marks than line ends where the terminal cuts, or a word did not fit."""
    before, *lines = text.strip("\n").split("\n")
    out, margin = before, _indent(before)
    for line in lines:
        first = line.split(maxsplit=1)[:1]
        deeper = bool(first) and _indent(line) > margin
        if len(before) == COLUMNS and not line.startswith(" "):
            end = CUT
        elif deeper and len(f"{before} {first[0]}") > COLUMNS:
            end = WRAPPED
        else:
            end, margin = "\n", _indent(line)
        out, before = out + end + line, line
    return out


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def same_column(match: re.Match[str]) -> str:
    """A duration, with as many blanks behind it that the next column stays where it is."""
    return "N s" + match[2] + " " * (len(match[0]) - len(match[2]) - 3)


def alike(text: str) -> list[str]:
    """Its lines, with one word for what may differ."""
    text = re.sub(rf"({DURATION})( ago)   +", same_column, joined(text))
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    lines: list[str] = []
    for is_rank, some in groupby(text.split("\n"), lambda line: bool(OF_A_RANK.match(line))):
        part = list(some)
        lines += sorted(part, key=rank) if is_rank else part
    return lines


def rank(line: str) -> int:
    """The rank whose line it is."""
    found = OF_A_RANK.match(line)
    return int(found[1]) if found else 0


def expected(line: str) -> str:
    """The pattern of the outputs that a line of the page tells."""
    if line == "…":
        return rf"(?:[^{ENDS}]*[{ENDS}])*"
    wrapped = re.search(rf"{WRAPPED}( *)", line)
    gap = rf"(?: |{WRAPPED}{wrapped[1] if wrapped else ' +'})"
    words = re.split(rf"(?<=\S) (?=\S)|{WRAPPED} *", line)
    return gap.join(".+".join(map(re.escape, word.split("…"))) for word in words) + rf"[{ENDS}]"


def agrees(told: str, printed: str) -> bool:
    """Whether a page tells what was printed."""
    pattern = "".join(map(expected, alike(told)))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in alike(printed))) is not None


@pytest.fixture
def place(containers_possible: None) -> Iterator[Path]:  # noqa: ARG001 - it skips the test
    """A folder for the clone, whose path is as long as the one of the page."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        clone = Path(folder, "ascendboot")
        assert len(str(clone)) == len(FOLDER)
        yield Path(folder)
        shown(".venv/bin/ascendboot lab.down", columns=COLUMNS, cwd=clone)


@pytest.mark.cluster
def test_the_tutorial_happens_as_it_is_told(place: Path) -> None:
    [begin] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    begin = "set -e\n" + begin.replace("<this repository>", str(ROOT)) + "set +e\n"
    told = steps()
    script = begin + "".join(
        f"code=$?; printf '\\n{MARK}\\n'; (exit $code)\n{command}\n" for command, _ in told
    )
    screen = "\n".join(shown(script, columns=COLUMNS, cwd=place, timeout_s=900))
    demo, *printed = re.split(rf"^{MARK}$", screen, flags=re.MULTILINE)
    assert "Demo done!" in demo
    assert len(printed) == len(told) > 15, demo
    wrong = [
        "\n".join((f"$ {command}", *difflib.ndiff(alike(text), alike(out))))
        for (command, text), out in zip(told, printed, strict=True)
        if not agrees(text, out)
    ]
    assert not wrong, "\n\n".join(wrong)


OLD, NEW = "20260102-030405-setup-ab12", "20261128-025537-setup-792f"
WORDS = "w" * 70 + " x"


@pytest.mark.parametrize(
    ("told", "printed", "same"),
    [
        ("lab-1  ok   198.18.0.1", "lab-1  ok   198.18.64.1", True),
        ("lab-1  ok   198.18.0.1", "lab-1  ok   198.18.0.2", False),
        ("lab-1  ok   198.18.0.1", "lab-1 ok   198.18.0.1", False),
        (f"Kept in runs/{OLD}", f"Kept in runs/{NEW}", True),
        (f"Kept in runs/{OLD}", f"Kept in runs/{NEW.replace('setup', 'check')}", False),
        (f"{'x' * 80}\ny {OLD}", f"{'x' * 80}\ny {NEW}", True),
        (f"{'x' * 80}\ny {OLD}", f"{'x' * 80}y {NEW}", False),
        ("succeeded after 2.1 s, exit code 0", "succeeded after 1 min 12 s, exit code 0", True),
        ("succeeded after 2.1 s, exit code 0", "succeeded after 2.1 s, exit code 1", False),
        ("5 s ago         lab", "1 min ago       lab", True),
        ("5 s ago         lab", "1 min ago         lab", False),
        ("  a  9 s ago  0 %  8 MiB | x", "  a   9 s ago  10 %  12 MiB | x", True),
        ("  a  9 s ago  0 %  8 MiB | x", " a  9 s ago  0 %  8 MiB | x", False),
        ("a:0 | x\nb:1 | y", "b:1 | y\na:0 | x", True),
        ("a:0 | x\na:0 | y", "a:0 | y\na:0 | x", False),
        ("a\n…\nb", "a\nb", True),
        ("a\n…\nb", "a\nx\ny\nb", True),
        ("a\n…\nb", "a\nx", False),
        ("a … b", "a (x) b", True),
        ("a … b", "a  b", False),
        ("27 things changed", "26 things changed", False),
        ("a", "a\nb", False),
        (f"{WORDS} 9 s, so\n  and on", f"{WORDS} 10 s,\n  so and on", True),
        (f"{WORDS} 9 s, so\n  and on", f"{WORDS} 10 s,\n so and on", False),
        (f"{WORDS} 9 s, so\n  and on", f"{WORDS} 9 s,\n  so and on", False),
        ("took 2.1 s, see\n  runs/x", "took 2.1 s, see runs/x", False),
        ("", "a", False),
    ],
)
def test_another_output_is_noticed(told: str, printed: str, *, same: bool) -> None:
    assert agrees(told, printed) is same
