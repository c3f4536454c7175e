"""Every verb with bad input: its exit code, one message, no traceback, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascendboot.cli.completion import PLACES, Outline, verbs_in
from tests.unit.cli.calls import MAIN, ended, ended_here

VERBS = {v: Outline.read(s) for place in PLACES for v, s in verbs_in(place).items()}
LISTS = {"env", "path", "file", "host", "hccn-conf"}
FILLED = {"kind": "busy", "count": "2", "source": "/etc/passwd", "dest": "/nowhere"}
BEFORE, AFTER = {"export.volcano": ["--image", "x"]}, {"exec": ["--", "true"]}
INVENTORY = 'cluster: x\nnodes: {"n-[1-3]": {address: "127.0.0.[1-3]", port: 1}}\n'


def line(verb: str, *words: str) -> list[str]:
    """A call of the verb with all that it needs, and these words."""
    outline = VERBS[verb]
    needed = [FILLED.get(name, "none") for name in outline.bare if name not in outline.flags]
    return [verb, *needed, *BEFORE.get(verb, []), *words, *AFTER.get(verb, [])]


def with_flag(flag: str, *besides: str) -> Iterator[str]:
    """The verbs that have it."""
    yield from (v for v, o in VERBS.items() if flag in o.flags and v not in besides)


def cases() -> Iterator[tuple[str, list[str], str]]:
    """What is wrong, the call, and a part of the message."""
    needs = [*with_flag("inventory", "report", "ranktable.convert", "ranktable.validate")]
    for verb, outline in VERBS.items():
        other = "check" if verb == "setup" else "setup"
        yield "two verbs", line(verb, other), f"{verb}, {other}: two verbs in one line; "
        for flag in [flag for flag in outline.flags if flag not in LISTS][:1]:
            twice = [f"--{flag}", *(["1"] if outline.flags[flag] else [])] * 2
            yield "a flag twice", line(verb, *twice), f"{verb}: --{flag}: given more than once; "
    for verb in needs:
        yield "no inventory", line(verb), "no inventory is named: "
        yield "a folder", line(verb, "--inventory", "folder"), "folder is a folder; name the YAML"
        yield "unreadable", line(verb, "-i", "loop.yaml"), "loop.yaml: could not be read: "
        yield "not a text", line(verb, "-i", "bytes.yaml"), "bytes.yaml"
        yield "no nodes", line(verb, "-i", "empty.yaml"), "empty.yaml:2: nodes: "
    for verb in with_flag("nodes", "lab.up"):
        words = ["-i", "x.yaml", *(["--hccl-test"] if verb == "check" else [])]
        yield (
            "unknown node",
            line(verb, *words, "--nodes", "n-9"),
            '--nodes: there is no "n-9", only',
        )
        for text in ("", ",", "@nobody"):
            yield "empty subset", line(verb, *words, "--nodes", text), "--nodes: "
    yield "no primary", line("train", "-i", "x.yaml", "--nodes", "n-[2-3]"), "--nodes: "
    for verb in with_flag("job", "ranktable.convert", "ranktable.write", "ranktable.validate"):
        words = ["-i", "x.yaml"] if "inventory" in VERBS[verb].flags else []
        yield (
            "ambiguous job",
            line(verb, *words, "--job", "2026"),
            '"2026" may be 20260101-train-ab',
        )
        yield "no such job", line(verb, *words, "--job", "2025"), "2025"


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], tuple[int, str, str]]:
    """Calls the program in a folder with inventories and two jobs."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\x00\xfe")
    (tmp_path / "empty.yaml").write_text("cluster: x\nnodes: {}\n")
    (tmp_path / "x.yaml").write_text(INVENTORY)
    for day in (1, 2):
        run = tmp_path / f".ascendboot/runs/2026010{day}-train-ab"
        run.mkdir(parents=True)
        (run / "plan.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("ASCENDBOOT_")]:
        monkeypatch.delenv(name)

    def call(words: list[str]) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ascendboot", *words])
        return (ended_here(words), *capsys.readouterr())

    return call


@pytest.mark.parametrize(
    ("what", "words", "said"),
    [pytest.param(*case, id=f"{case[0]}-{case[1][0]}") for case in cases()],
)
def test_bad_input_is_refused_in_one_message_before_anything_is_written(
    what: str,
    words: list[str],
    said: str,
    called: Callable[[list[str]], tuple[int, str, str]],
    tmp_path: Path,
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, out, err = called(words)
    unread = what in ("two verbs", "a flag twice")
    assert code == (125 if words[0] == "train" and not unread else 2), err
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(tmp_path.rglob("*")) == before


SURROUNDINGS: dict[str, dict[str, str | None]] = {
    "no HOME": {"HOME": None},
    "HOME is gone": {"HOME": "/sys/nowhere"},
    "40 columns": {"COLUMNS": "40"},
    "read-only": {"HOME": "/sys/nowhere", "place": "/sys"},
}


@pytest.mark.parametrize("around", SURROUNDINGS)
@pytest.mark.parametrize("verb", [*with_flag("inventory")])
def test_no_verb_needs_a_home_a_wide_terminal_or_a_folder_to_fail_properly(
    verb: str,
    around: str,
    called: Callable[[list[str]], tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SURROUNDINGS[around].items():
        if name == "place":
            monkeypatch.chdir(str(value))
        elif value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
    code, out, err = called(line(verb, "-i", str(tmp_path / "x.yaml")))
    assert code in (0, 1, 2, 4, 125)
    assert out or err


@pytest.mark.parametrize(
    ("line", "code"),
    [("help check", 0), ("--list", 0), ("setup -i é….yaml", 2), ("train é.py --no", 2), ("é", 2)],
)
def test_an_ascii_terminal_gets_everything_without_a_traceback(line: str, code: int) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ended(MAIN, *line.split(), env={**os.environ, **ascii_only}, stdin=subprocess.DEVNULL)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert (done.stdout + done.stderr).isascii()
