"""Every verb with bad input: its exit code, one message, no traceback, and nothing written."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ascendboot.cli.completion import PLACES, Outline, verbs_in
from tests.unit.cli.calls import MAIN, ended, ended_here, set_up

VERBS = {v: Outline.read(s) for place in PLACES for v, s in verbs_in(place).items()}
LISTS = {"env", "path", "file", "host", "hccn-conf"}
FILLED = {"kind": "busy", "count": "2", "source": "/etc/passwd", "dest": "/nowhere", "node": "n-2"}
BEFORE, AFTER = {"export.volcano": ["--image", "x"]}, {"exec": ["--", "true"]}
INVENTORY = 'cluster: x\nnodes: {"n-[1-3]": {address: "127.0.0.[1-3]", port: 1}}\n'
RECORD = ".ascendboot/clusters/x/nodes.json"
Called = Callable[[list[str]], tuple[int, str, str]]


def line(verb: str, *words: str) -> list[str]:
    """A call of the verb with all that it needs, and these words."""
    outline = VERBS[verb]
    needed = [FILLED.get(name, "none") for name in outline.bare if name not in outline.flags]
    return [verb, *needed, *BEFORE.get(verb, []), *words, *AFTER.get(verb, [])]


def with_flag(flag: str, *besides: str) -> Iterator[str]:
    """The verbs that have it."""
    yield from (v for v, o in VERBS.items() if flag in o.flags and v not in besides)


NAMING = (*with_flag("nodes", "lab.up"), "reset", "remove", "shell")
"""The verbs that take nodes, without those that need a job or a practice cluster."""
BAD_SETS = {
    "n-9": 'there is no "n-9", only n-[1-3]',
    "": ": is empty; ",
    ",": '"," names none of n-[1-3]',
    "@nobody": 'there is no "@nobody", only n-[1-3]',
    "n-[3-1]": '"n-[3-1]": [3-1] runs backwards; write [1-3]',
    "n-1^": '"n-1^": ^ stands between two sets; one is missing',
    "@n^": '"@n^": ^ stands between two sets; one is missing',
    "n-1^n-9": 'there is no "n-9", only n-[1-3]',
    "n-1 n%": 'there is no "n-1 n%", only n-[1-3]',
    "x-*": 'there is no "x-*", only n-[1-3]',
    "n-[1-3/0]": '"n-[1-3/0]": [1-3/0] is not a range; ',
}


def of_nodes(verb: str, nodes: str) -> list[str]:
    """A call of the verb for these nodes."""
    flag = next((f"--{name}" for name in ("nodes", "node") if name in VERBS[verb].flags), "")
    words = line(verb, "-i", "x.yaml", *([flag, nodes] if flag else []))
    return [nodes if word == FILLED["node"] else word for word in words]


def cases() -> Iterator[tuple[str, list[str], str]]:
    """What is wrong, the call, and a part of the message."""
    needs_none = ("report", "ranktable.convert", "ranktable.validate", "quarantine", "release")
    for verb, outline in VERBS.items():
        other = "check" if verb == "setup" else "setup"
        yield "two verbs", line(verb, other), f"{verb}, {other}: two verbs in one line; "
        for flag in [flag for flag in outline.flags if flag not in LISTS][:1]:
            twice = [f"--{flag}", *(["1"] if outline.flags[flag] else [])] * 2
            yield "a flag twice", line(verb, *twice), f"--{flag}: given more than once; "
    for verb in with_flag("inventory", *needs_none):
        yield "no inventory", line(verb), "no inventory is named: "
        yield "a folder", line(verb, "--inventory", "folder"), "folder is a folder; name the YAML"
        yield "unreadable", line(verb, "-i", "loop.yaml"), "loop.yaml: could not be read: "
        yield "not a text", line(verb, "-i", "bytes.yaml"), "bytes.yaml"
        yield "no nodes", line(verb, "-i", "empty.yaml"), "empty.yaml:2: nodes: "
        no_file = [*line(verb), "y"] if "inventory" in VERBS[verb].bare else line(verb, "-i", "y")
        yield "no file", no_file, "could not find the inventory y: tried y, y.yaml, inventories/y"
    for verb in NAMING:
        for nodes, said in BAD_SETS.items():
            yield f"nodes {nodes}", of_nodes(verb, nodes), said
    yield "no primary", of_nodes("train", "n-[2-3]"), "--nodes: "
    yield "the primary", of_nodes("remove", "n-[1-2]"), "could not remove n-1: it is the primary"
    for item in ("=x", "LR"):
        why = f'--env: "{item}" is not NAME=VALUE'
        yield "env", line("train", "-i", "x.yaml", "--env", item), why
    yield "no terminal", of_nodes("shell", "n-2"), "no terminal; run commands with: exec --nodes n"
    yield "no terminal", [*of_nodes("remove", "n-2"), "--forget"], "see --plan, or use --yes"
    yield "no absolute path", ["fetch", "n-1:/"], 'fetch: SOURCE: "n-1:/" is not an absolute path'
    for path, why in (("/", "is the whole disk: "), ("//.", "is the"), ("/a/..", "ends with ..: ")):
        yield f"fetch {path}", ["fetch", path], f'fetch: SOURCE: "{path}" {why}'
    yield "copy /", ["copy", "x.yaml", "/"], 'copy: DEST: "/" is the whole disk: state a file or'
    for verb in with_flag("job", "ranktable.convert", "ranktable.write", "ranktable.validate"):
        words = ["-i", "x.yaml"] if "inventory" in VERBS[verb].flags else []
        said = '"2026" may be 20260101-train-ab'
        yield "ambiguous job", line(verb, *words, "--job", "2026"), said
        yield "no such job", line(verb, *words, "--job", "2025"), "2025"


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Called:
    """Calls the program in a folder with inventories, a cluster that is set up, and two jobs."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\x00\xfe")
    (tmp_path / "empty.yaml").write_text("cluster: x\nnodes: {}\n")
    (tmp_path / "x.yaml").write_text(INVENTORY)
    set_up(tmp_path / "x.yaml")
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
    what: str, words: list[str], said: str, called: Called, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, out, err = called(words)
    invalid = what in ("unreadable", "not a text", "no nodes")
    assert code == (125 if words[0] == "train" and invalid else 2), err
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("verb", [v for v in NAMING if v not in ("train", "shell")])
def test_a_subset_may_lack_the_primary(verb: str, called: Called) -> None:
    code, *said = called([*of_nodes(verb, "n-[2-3]"), *(["--plan"] if verb == "remove" else [])])
    named = set(re.findall(r"\bn-\d\b(?=\S* *unreachable)", "".join(said)))
    logs_in = {"n-1"} if verb in ("setup", "check", "remove") else set()
    assert (code, named) == (4, {"n-2", "n-3"} | logs_in)


def test_folders_of_fetch_are_removed_if_nothing_came(called: Called, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in ("new/one", "mine", "mine/new"):
        assert called(["fetch", "/file", folder, "-i", "x.yaml"])[0] == 4
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("record", [None, "{}"])
@pytest.mark.parametrize("more", ["--yes", "--plan", "--forget --yes"])
def test_remove_is_refused_if_the_cluster_is_not_set_up(
    more: str, record: str | None, called: Called, tmp_path: Path
) -> None:
    (tmp_path / RECORD).write_text(record) if record else (tmp_path / RECORD).unlink()
    before = sorted(tmp_path.rglob("*"))
    words = (
        "remove: x is not set up from here: remove n-2 from x.yaml instead; reset --node n-2 "
        "removes what a stopped setup left, and adopt takes over what another control folder set "
        "up\n"
    )
    assert called([*of_nodes("remove", "n-2"), *more.split()]) == (2, "", words)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("setup x.yaml --exit-code", "setup: --exit-code is for --plan; add --plan, or leave it o"),
        ("check x.yaml --operation all_reduce", "--operation, --sizes, --floor and --devices bel"),
        ("check x.yaml --sizes 8K-256M", "--operation, --sizes, --floor and --devices belong to"),
    ],
)
def test_flags_without_effect_are_refused(line: str, said: str, called: Called) -> None:
    code, out, err = called(line.split())
    assert (code, out, said in err) == (2, "", True), err


class Terminal(io.TextIOWrapper):
    """A stream that the program takes for a terminal."""

    def isatty(self) -> bool:
        return True


NO_NAME = {"HOME": None, "LOGNAME": "", "USER": "", "LNAME": "", "USERNAME": ""}
SURROUNDINGS: dict[str, dict[str, str | None]] = {
    "no HOME": {"HOME": None},
    "no user name": NO_NAME,
    "HOME is gone": {"HOME": "/sys/nowhere"},
    "40 columns, ASCII": {"COLUMNS": "40", "TERM": "xterm"},
    "read-only": {"HOME": "/sys/nowhere"},
}
CODES = {
    **dict.fromkeys(VERBS, 2),
    **dict.fromkeys(("setup", "check", "adopt", "reset", "exec", "copy", "fetch"), 4),
    **dict.fromkeys(("ranktable.validate", "ranktable.write", "ranktable.convert"), 4),
    "train": 125,
    "jobs": 1,
    "topology.show": 0,
    "export.ansible": 0,
}
"""Of the call without flags: a usage error, or nodes that do not answer."""
READ_ONLY = {**dict.fromkeys(("setup", "adopt", "reset", "logs", "fetch"), 1), "jobs": 0}
"""Where nothing can be written, and no job is known."""


@pytest.mark.parametrize("around", SURROUNDINGS)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith("lab.")])
def test_no_verb_needs_a_home_a_wide_terminal_or_a_folder_to_end_properly(
    verb: str, around: str, called: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "é.yaml").write_text(f"defaults: {{user: ops}}\n{INVENTORY}")
    if around == "no user name":
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.chdir("/sys" if around == "read-only" else tmp_path)
    for name, value in SURROUNDINGS[around].items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(
            name, value
        )
    terminals = {name: Terminal(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
    for name, terminal in terminals.items() if "columns" in around else ():
        monkeypatch.setattr(sys, name, terminal)
    states = ["-i", str(tmp_path / "é.yaml")] if "inventory" in VERBS[verb].flags else []
    code, *said = called(line(verb, *states))
    assert code == (CODES | (READ_ONLY if around == "read-only" else {}))[verb], said
    written = b"".join(terminal.detach().getvalue() for terminal in terminals.values())  # type: ignore[attr-defined]
    assert any(said) or written
    shown = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*\w", "", written.decode()))
    wide = [row for row in shown if len(row) > 40 and " " in row.strip()]
    assert verb == "export.ansible" or wide == []  # its JSON is a document, not rows


def test_a_user_id_without_a_name_must_state_the_login_name(
    called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in NO_NAME.items():
        monkeypatch.setenv(name, value or "")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    missing = f"user is missing, and user id {os.geteuid()} has no login name here; state `user` in"
    for words, said in (
        ("check -i x.yaml", f"x.yaml:1: {missing} `defaults`, or --user with init"),
        ("init 127.0.0.1", f"the new inventory: {missing} `defaults`, or --user with init"),
        ("init --from ~/x", "~/x: could not be read: no such file or directory; name another file"),
    ):
        assert called(words.split()) == (2, "", f"{said}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_a_working_directory_that_is_gone_is_named(
    verb: str, called: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, out, err = called(line(verb))
    said = "the working directory no longer exists; cd to another folder\n"
    assert (code, out, err) == (2, "", said)
    if "json" in VERBS[verb].flags:
        document = json.loads(called(line(verb, "--json"))[1])
        assert (document["exit_code"], document["message"]) == (2, said.strip())
    assert called([verb, "--help"])[0] == called(["help", verb])[0] == 0


def test_the_program_tells_about_itself_where_the_working_directory_is_gone(tmp_path: Path) -> None:
    removed = f"import os; os.rmdir({str(tmp_path / 'x')!r}); {MAIN}"
    for words in ("--version", "--help", "--list", "help jobs", "--print-completion-script bash"):
        (tmp_path / "x").mkdir()
        done = ended(removed, *words.split(), cwd=tmp_path / "x")
        assert (done.returncode, done.stderr, done.stdout != "") == (0, "", True)


@pytest.mark.parametrize(
    ("line", "code"),
    [("help check", 0), ("--list", 0), ("setup -i é….yaml", 2), ("train é.py --no", 2), ("é", 2)],
)
def test_an_ascii_terminal_gets_everything_without_a_traceback(line: str, code: int) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ended(MAIN, *line.split(), env={**os.environ, **ascii_only}, stdin=subprocess.DEVNULL)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert (done.stdout + done.stderr).isascii()
