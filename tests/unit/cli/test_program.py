"""The command line before Invoke reads it."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.parser.argument import Argument
from invoke.parser.context import to_flag
from invoke.program import Program
from invoke.tasks import task as invoke_task

from ascendboot.cli.common import whole_number
from ascendboot.cli.completion import SHORT
from ascendboot.cli.program import CarefulExecutor, CarefulProgram, namespace
from ascendboot.errors import UsageError
from ascendboot.readiness.ready import script_arguments
from tests.unit.cli.calls import (
    AS_INVOKE,
    MAIN,
    called,
    ended,
    ended_here,
    set_up,
    without_inventory,
)

SOME = {"setup", "train"}
LAB = {"lab.up", "lab.down", "lab.status", "lab.shell", "lab.fault"}
ALL = set(namespace().task_names)


@pytest.mark.parametrize(
    ("line", "verbs"),
    [
        ("train main.py -- --steps 100", {"train"}),
        ("setup --inventory two-node.yaml --plan", {"setup"}),
        ("setup --help", {"setup"}),
        ("lab.up --nodes 4", LAB),
        ("lab.up setup train main.py", {"setup", "train", *LAB}),
        ("setup train main.py", {"setup", "train"}),
        ("", ALL),
        ("--list", ALL),
        ("--help train", ALL),
        ("help train", {"train"}),
        ("help", ALL),
        ("--complete -- train", ALL),
        ("trian setup", ALL),
    ],
)
def test_a_line_that_begins_with_a_verb_loads_only_its_verbs(line: str, verbs: set[str]) -> None:
    assert set(namespace(line.split()).task_names) == verbs
    assert SOME | LAB < ALL


def arguments_of(verb: str) -> list[Argument]:
    found: list[Argument] = namespace()[verb].get_arguments()
    return found


def test_a_short_flag_means_the_same_in_every_verb() -> None:
    short: dict[str, set[str | None]] = {}
    for verb in ALL:
        for argument in arguments_of(verb):
            for name in argument.names:
                if len(name) == 1:
                    short.setdefault(name, set()).add(str(argument.name))
    assert short == {letter: {name} for name, letter in SHORT.items()}
    assert "h" not in short


def shown(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a call prints that runs no verb, or its message if it is refused with 2."""
    code, said = ended_here(line.split()), capsys.readouterr()
    assert code == (2 if said.err else 0)
    assert not (said.out and said.err)
    return said.out or said.err


@pytest.mark.parametrize("verb", sorted(ALL))
def test_help_fits_its_terminal_and_shows_usage_examples_and_every_flag(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = inspect.getdoc(namespace()[verb]) or ""
    assert f"\nExamples:\n  invoke {verb}" in text
    monkeypatch.setenv("COLUMNS", "40")
    narrow = shown(f"help {verb}", capsys).splitlines()
    assert [line for line in narrow if len(line) > 40 and not line.startswith("  ")] == []
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(f"{verb} --help", capsys).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert lines[0].startswith(f"Usage: ascendboot {verb} [OPTIONS]")
    examples = re.findall(r"^  (?:.*\| )?invoke (.*)", text, re.MULTILINE)
    assert [e for e in examples if not any(f"ascendboot {e}" in line for line in lines)] == []
    assert [line for line in lines if "invoke" in line] == []
    flags = {to_flag(str(a.name)) for a in arguments_of(verb) if not a.positional}
    assert flags <= set(re.findall(r"--[a-z-]+", "\n".join(lines)))


@pytest.mark.parametrize(
    ("verb", "usage"),
    [
        ("train", "train [OPTIONS] SCRIPT [-- ARGS]"),
        ("exec", "exec [OPTIONS] -- COMMAND"),
        ("setup", "setup [OPTIONS] [INVENTORY]"),
        ("doctor", "doctor [OPTIONS] [PATH...]"),
        ("lab.fault", "lab.fault [OPTIONS] NODE KIND"),
    ],
)
def test_usage_and_rows_of_help(verb: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(f"help {verb}", capsys)
    assert text.startswith(f"Usage: ascendboot {usage}\n\n")
    rows = {
        "train": ["  -p, --plan  ", "      --env NAME=VALUE ", "\nSupervise:\n", "[=ID,...]"],
        "exec": ["  -i, --inventory FILE ", "      --forks N "],
        "setup": ["\nArguments:\n  INVENTORY  The same as --inventory\n"],
        "doctor": ["\nArguments:\n  PATH  The same as --path\n"],
        "lab.fault": ["\nArguments:\n  NODE  "],
    }
    assert [row for row in rows.get(verb, []) if row not in text] == []


def test_verbs_are_listed_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    listed = shown("--list", capsys)
    assert set(re.findall(r"^  ([a-z][\w.]*)", listed, re.MULTILINE)) == ALL
    assert "\nRun jobs:\n  train   Run a script on all NPUs" in listed
    assert shown("", capsys) == shown("help", capsys) == shown("--help", capsys)
    assert shown("help help", capsys) == shown("--help help", capsys) == shown("", capsys)
    assert listed in shown("", capsys)
    of_lab = shown("help lab", capsys)
    assert set(re.findall(r"^  ([a-z][\w.]*)", of_lab, re.MULTILINE)) == LAB


_PRESSES = """\
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "ascendboot.cli.program": os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
_ENTRY = "from ascendboot.cli.__main__ import main; main()"
_ON_A_SCREEN = """\
import sys
from ascendboot.console.screen import Screen
{words}
sys.stderr.write("still here")
"""
_CLOSED = """\
import os, sys
from ascendboot.console.screen import Screen
from ascendboot.cli.program import prepare
prepare(["status"])
Screen().say("x")
sys.exit(os.open("/dev/null", os.O_RDONLY) + 4)
"""
"""Ends with 7 where the next file is not one of the three streams."""
_PRESSED = """\
import atexit, os, signal, sys, threading, time
# Where the tests run in a shell's background it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from invoke.executor import Executor
from invoke.parser.context import to_flag
from invoke.program import Program
def press(*_): os.kill(os.getpid(), signal.SIGINT)
def around(owner, name, before, after):
    inner = getattr(owner, name)
    def outer(*words, **named):
        if before: press()
        try: return inner(*words, **named)
        finally:
            if after: press()
    setattr(owner, name, outer)
class Loads:
    def find_spec(self, name, path=None, target=None):
        if name == "ascendboot.cli.status": press()
class Last:
    def __del__(self): press()
def late():
    while threading.main_thread().is_alive(): time.sleep(0.01)
    while True: press(); time.sleep(0.1)  # one may fall between two looks at what came
{window}
sys.argv = ["ascendboot", "status"]
from ascendboot.cli.program import main; main()
"""


def run_unread(program: str, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a program whose standard output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = ended(program, *words, stdout=writer)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("program", "words"),
    [
        *((MAIN, words) for words in ([], ["--help"], ["--version"])),
        *((MAIN, ["--print-completion-script", shell]) for shell in ("bash", "zsh", "fish")),
        *((p, w) for p in (MAIN, AS_INVOKE) for w in (["--list"], ["train", "--help"], ["-l"])),
    ],
)
def test_a_call_that_only_prints_ends_silently_with_its_reader(
    program: str, words: list[str]
) -> None:
    assert run_unread(program, *words) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize(
    "words",
    [
        'Screen().say("x"); Screen().say("y")',
        'Screen().text("x"); Screen().text("y")',
        'Screen(json_mode=True).json({"x": 1}); Screen().say("y")',
    ],
)
@pytest.mark.parametrize("wish", ["FORCE_COLOR", "_"])
def test_a_verb_continues_without_its_reader(
    words: str, wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(wish, "1")
    assert run_unread(_ON_A_SCREEN.format(words=words)) == (0, "still here")


@pytest.mark.parametrize("wish", ["FORCE_COLOR", "_"])
def test_a_verb_continues_when_its_progress_cannot_be_written(
    wish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(wish, "1")
    with Path("/dev/full").open("w") as full:
        done = ended(_ON_A_SCREEN.format(words='Screen().say("x"); Screen().say("y")'), stdout=full)
    said = "standard output: nothing is shown any longer: No space left on device\nstill here"
    assert (done.returncode, done.stderr) == (0, said)


@pytest.mark.parametrize("line", ["status", "train main.py"])
def test_the_exit_code_does_not_depend_on_the_message_being_written(
    line: str, tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        assert called(line, tmp_path, stderr=full).returncode == 2
    done = called(line, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no inventory is named: ")


def test_a_verb_continues_if_its_streams_are_closed() -> None:
    argv = ["/bin/sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>/dev/full', sys.executable, _CLOSED]
    assert subprocess.run(argv, check=False).returncode == 7


TABLE = str(Path(__file__).parents[2] / "data/ranktables/hccl-doc_A2_v1.0.json")
CLOSED, FULL = ("&-", "Bad file d"), ("/dev/full", "No space l")


@pytest.mark.parametrize(
    ("words", "closed", "why"),
    [
        ("--list", *CLOSED),
        ("check --help", *FULL),
        ("--version", *CLOSED),
        ("--print-completion-script bash", *FULL),
        (f"ranktable.show {TABLE}", *CLOSED),
        (f"ranktable.show {TABLE} --json", *FULL),
        (f"ranktable.diff {TABLE} {TABLE}", *FULL),
    ],
)
def test_a_lost_answer_is_no_success(words: str, closed: str, why: str) -> None:
    argv = ["/bin/sh", "-c", f'exec "$0" -c "$1" {words} >{closed}', sys.executable, MAIN]
    done = subprocess.run(argv, stderr=subprocess.PIPE, check=False, text=True)
    assert done.returncode == 1
    assert re.fullmatch(f"standard output: .*: {why}.*\n", done.stderr)


@pytest.mark.parametrize(
    "verb", ["check", "setup --plan", "reset --plan", "status", "ranktable.write"]
)
def test_a_read_only_verb_works_in_a_read_only_directory(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    inventory = tmp_path / "one.yaml"
    node = "{address: 127.0.0.1, port: 1}"
    inventory.write_text(f"cluster: x\nnodes:\n  a1: {node}\ndefaults: {{user: root}}\n")
    unwritable = Path("/sys")  # for root, too
    done = called(f"{verb} --inventory {inventory}", unwritable)
    said = f"/sys/.ascendboot/runs: could not be written: .* are kept in {tmp_path}/ascendboot-"
    assert re.match(said, done.stderr)
    # `status` has no job to ask about.
    assert done.returncode == (2 if verb == "status" else 4)


@pytest.mark.parametrize(
    ("window", "code"),
    [
        ("sys.meta_path.insert(0, Loads())", 130),
        ("around(Program, 'parse_core_args', True, False)", 130),
        ("around(Program, 'parse_tasks', False, True)", 130),
        ("around(Executor, 'execute', True, False)", 130),
        ("around(Path, 'cwd', True, False)", 130),
        ("import ascendboot.cli.verbs as e; around(e, 'exit_with', True, False)", 130),
        ("around(Executor, 'execute', False, True)", 130),
        ("threading.Thread(target=late).start()", 2),
        ("around(sys, 'exit', True, False)", 2),
        ("atexit.register(press)", 2),
        ("sys.last = Last()", 2),
    ],
)
def test_ctrl_c_at_any_time_ends_with_130_or_the_code_of_the_verb(
    window: str, code: int, tmp_path: Path
) -> None:
    program = _PRESSED.replace("{window}", window)
    done = ended(program, cwd=tmp_path, env=without_inventory(), timeout=300)
    assert done.returncode == code
    if code == 130:
        assert done.stderr.endswith(("nothing was written.\n", "a running job goes on.\n"))
    else:
        assert done.stderr.startswith("no inventory is named: ")
    assert "Traceback" not in done.stderr


def test_an_empty_value_is_refused_by_every_verb(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = 0
    for context in namespace().to_contexts():
        verb, needed = str(context.name), len(context.positional_args)
        for flag in context.flags.values():
            if flag.takes_value and not flag.positional:
                words = [verb, *["x"] * needed, f"{to_flag(str(flag.name))}="]
                assert ended_here(words) == 2, words
                assert f"{verb}: {words[-1][:-1]}: is empty; " in capsys.readouterr().err
                seen += 1
        if needed:
            assert ended_here([verb, *[""] * needed]) == 2
            assert f"{context.positional_args[0].name}: is empty" in capsys.readouterr().err.lower()
    assert seen > 100


@pytest.mark.parametrize("verb", ["setup", "adopt", "check", "reset", "remove a1"])
def test_ctrl_c_before_a_node_was_reached_says_that_nothing_was_written(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_text("cluster: x\nnodes: {a1: {address: 127.0.0.1, port: 1}}\n")
    window = "import ascendboot.cli.verbs as e; around(e, 'load', True, False)"
    words = [*verb.split(), "--inventory", "one.yaml"]
    program = _PRESSED.replace("{window}", window).replace('"status"', f"*{words}")
    done = ended(program, cwd=tmp_path, timeout=300)
    said = "Stopped: interrupted; nothing was written on the nodes.\n"
    assert (done.returncode, done.stderr) == (130, said)


def test_ctrl_c_at_a_question_says_that_nothing_was_changed(tmp_path: Path) -> None:
    nodes = "{a1: {address: 127.0.0.1, port: 1}, a2: {address: 127.0.0.2, port: 1}}"
    (tmp_path / "two.yaml").write_text(f"cluster: x\nnodes: {nodes}\n")
    set_up(tmp_path / "two.yaml")
    window = "from ascendboot.console.screen import Screen; around(Screen, 'say', False, True)"
    words = ["remove", "a2", "--forget", "--inventory", "two.yaml"]
    program = _PRESSED.replace("{window}", window).replace('"status"', f"*{words}")
    ours, terminal = pty.openpty()
    done = ended(program, cwd=tmp_path, stdin=terminal, timeout=300)
    os.close(ours)
    asked = "Forget a2 without removing anything there, and give a1 new keys? [y/N]\n"
    assert (done.returncode, done.stdout, done.stderr) == (
        130,
        asked,
        "Stopped: nothing was changed.\n",
    )


def test_item_23_ctrl_c_while_the_program_is_imported_ends_with_130() -> None:
    done = ended(f"{_PRESSES}\n{_ENTRY}")
    assert (done.returncode, done.stderr) == (130, "Stopped: interrupted; nothing was written.\n")


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["train", "main.py"], ()),
        (["train", "main.py", "--"], ()),
        (["train", "main.py", "--", "--steps", "3", "--", "a b"], ("--steps", "3", "--", "a b")),
    ],
)
def test_words_after_two_dashes_are_arguments_of_the_script(
    words: list[str], arguments: tuple[str, ...]
) -> None:
    assert script_arguments(["ascendboot", *words]) == arguments


REFUSED = ("--dry", "-p", "--pty", "-e", "-w", "--hide=both", "-T 3", "-D 1", "-F json", "-f x")
BEHIND = [
    flag
    for flag in Program().core_args() + Program().task_args()
    if flag.name not in {"help", "no-dedupe"}  # they mean behind a verb what they mean before it
]


@pytest.mark.parametrize(
    ("line", "flag"),
    list(zip(cycle(["{} status --json", "status --json {}"]), REFUSED, strict=False)),
)
def test_a_flag_of_invoke_without_effect_is_refused(flag: str, line: str, tmp_path: Path) -> None:
    done = called(line.format(flag), tmp_path)
    said = json.loads(done.stdout)
    assert (done.returncode, said["exit_code"]) == (2, 2)
    assert re.match("--[a-z-]+: not accepted: ", said["message"])
    assert done.stderr == f"{said['message']}\n"
    no_job = called(f"{flag} train main.py", tmp_path)
    assert (no_job.returncode, no_job.stdout) == (2, "")


@pytest.mark.parametrize("name", ["./main.py", "../main.py", "/none/main.py", "./"])
def test_a_path_without_a_file_on_the_control_machine_starts_nothing(
    name: str, tmp_path: Path
) -> None:
    done = called(f"train {name}", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"train: {name}: is no file on the control machine, ")


@pytest.mark.parametrize("flag", BEHIND, ids=lambda flag: flag.name)
def test_flags_of_invoke_that_a_verb_cannot_honour_are_refused_behind_it(
    flag: Argument, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    ran: list[str] = []
    verbs = Collection(invoke_task(lambda _: ran.append("spoil"), name="spoil"))
    program = CarefulProgram(executor_class=CarefulExecutor)
    monkeypatch.setattr(program, "load_collection", lambda: setattr(program, "collection", verbs))
    for name in flag.names:
        words = [f"--{name}" if len(name) > 1 else f"-{name}", *(["3"] if flag.takes_value else [])]
        with pytest.raises(SystemExit, match=r"^2$"):
            program.run(["invoke", "spoil", *words])
        assert capsys.readouterr().err.startswith(f"--{flag.name}: not accepted: ")
    assert ran == []


@pytest.mark.parametrize(
    ("program", "words"),
    [
        *((MAIN, words) for words in ("--version", "-D 1", "-- --plan")),
        *((AS_INVOKE, words) for words in ("-V", "--debug", "-- --plan")),
    ],
)
def test_reset_does_not_run_with_flags_that_mean_something_else(program: str, words: str) -> None:
    done = ended(program, "reset", "--yes", "--inventory", "none", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert ": not accepted: " in done.stderr


@pytest.mark.parametrize("line", ["status", "setup -p", "-d status", "train main.py -- --dry -e"])
def test_other_flags_reach_the_verb(line: str, tmp_path: Path) -> None:
    done = called(line, tmp_path)
    assert done.returncode == 2
    assert "no inventory is named" in done.stderr


def test_no_flag_is_parsed_as_a_number_by_invoke() -> None:
    numbers = {
        f"{verb} --{argument.name}"
        for verb in ALL
        for argument in arguments_of(verb)
        if argument.kind in (int, float)
    }
    assert numbers == set()


@pytest.mark.parametrize("forks", ["abc", "0", "-1", "1.5", "9" * 6000])
def test_forks_must_be_a_positive_number(forks: str) -> None:
    with pytest.raises(UsageError, match=r"^--forks: .* is not a whole number of at least 1$"):
        whole_number("--forks", forks, at_least=1)


def test_no_file_of_invoke_is_read(tmp_path: Path) -> None:
    (tmp_path / ".invoke.yaml").write_text("{")
    done = ended(MAIN, "--version", env={**os.environ, "HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")


_DASHES = "put words of a script or command after --: train main.py -- --steps 100"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("setupp", "setupp: no such verb; did you mean setup?"),
        ("lab.upp", "lab.upp: no such verb; did you mean lab.up?"),
        ("nothing-like-it", "nothing-like-it: no such verb; ascendboot help shows all verbs"),
        ("help trian", "trian: no such verb; did you mean train?"),
        ("jobs --hel", "jobs: --hel: no such flag; did you mean --help?"),
        (
            "--versoin",
            "--versoin: no such flag; put the verb first: ascendboot VERB --versoin; did",
        ),
        ("help setup extra", "help: extra: one word too many; ascendboot help shows all verbs"),
        ("help setup --foo", "help: --foo: one word too many; ascendboot help shows all verbs"),
        ("-- status", "-- status: no verb; put it first, without --"),
        ("--list-depth 1", "--list-depth: not accepted: it is for --list; add --list, or leave"),
        ("-D x", "--list-depth, --command-timeout: not a whole number: 'x'; leave the flag out"),
        ("train --nods lab-1 main.py", "train: --nods: no such flag; did you mean --nodes? Or "),
        ("copy --foo a /b", "copy: --foo: no such flag; did you mean --forks?"),
        ("--print-completion-script", "--print-completion-script: has no value; ascendboot help "),
        ("lab", "lab: no such verb; ascendboot help lab shows its verbs"),
        ("-i x setup", "-i: no such flag; put the verb first: ascendboot VERB -i; "),
        ("--list labb", "--list labb: no such group; ascendboot help shows all verbs"),
        ("--list-format x --list", '--list-format: "x" is not one of flat, nested, json; '),
        ("setup --invenotry x", "setup: --invenotry: no such flag; did you mean --inventory?"),
        ("stop lab-2", "stop: lab-2: one word too many; ascendboot help stop shows its flags"),
        ("setup a.yaml b.yaml", "setup: INVENTORY or --inventory: given more than once; "),
        ("check a.yaml -i b.yaml", "check: INVENTORY or --inventory: given more than once; "),
        ("setup a.yaml --noeds lab-1", "setup: --noeds: no such flag; "),
        ("setup --noeds lab-1 a.yaml", "setup: --noeds: no such flag; "),
        ("setup -p --plan", "setup: --plan: given more than once; "),
        ("logs --tail 3 --tail=4", "logs: --tail: given more than once; "),
        ("lab.up --nodes", "lab.up: --nodes: has no value; ascendboot help lab.up shows "),
        ("train", "train: no script; usage: ascendboot train [OPTIONS] SCRIPT [-- ARGS]"),
        ("lab.fault", "lab.fault: no node and no kind; usage: ascendboot lab.fault [OPTIONS] "),
        ("train main.py --steps 3", f"train: --steps: no such flag; {_DASHES}"),
        ("train main.py --plan 3", f"train: 3: one word too many; {_DASHES}"),
        (
            "train main.py --node 3",
            f"train: --node: no such flag; did you mean --nodes? Or {_DASHES}",
        ),
        ("train main.py --env", "train: --env: has no value; ascendboot help train shows"),
        ("train main.py --env --plan", "train: --env: has no value; ascendboot help train shows"),
        ("train main.py --elastic", "train: --elastic: has no value; ascendboot help train shows"),
        ("train --skip-checks main.py", "main.py: may be an argument, or the value of the flag"),
        ("copy -r folder /opt", "copy: -r: no such flag; ascendboot help copy shows its flags"),
        ("remove --echo a1", "remove: --echo: no such flag"),
        ("reset --plan=no", "reset: --plan: takes no value; leave it out"),
        ("exec ls", "exec: ls: one word too many; put words of a script or command after --: exec"),
        ("setup check", "setup, check: two verbs in one line; call them one after the other: asc"),
        ("train main.py status --json", "train, status: two verbs in one line; "),
    ],
)
def test_wrong_use_is_said_in_plain_words_with_a_remedy(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = shown(line, capsys)
    assert message.startswith(said)
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("setup a.yaml --plan", {"inventory": "a.yaml", "plan": True}),
        ("setup --plan a.yaml", {"inventory": "a.yaml", "plan": True}),
        ("check --level full --forks=3 a.yaml", {"inventory": "a.yaml", "level": "full"}),
        ("setup -i a.yaml", {"inventory": "a.yaml"}),
        ("setup -ia.yaml", {"inventory": "a.yaml"}),
        ("train status --env A=1 --env B=2", {"script": "status", "env": ["A=1", "B=2"]}),
        ("doctor a b.log --json", {"path": ["a", "b.log"], "json": True}),
        ("doctor --job J --rank-table T a", {"path": ["a"], "job": "J", "rank_table": "T"}),
        ("doctor --path a b", {"path": ["a", "b"]}),
        ("doctor --job=J -j", {"path": [], "job": "J", "json": True}),
    ],
)
def test_words_without_a_flag_are_values_of_the_flag_that_may_take_them(
    line: str, given: dict[str, object]
) -> None:
    program = CarefulProgram(name="ascendboot", namespace=namespace(line.split()))
    program.create_config()
    program.parse_core(["ascendboot", *line.split()])
    program.parse_collection()
    program.parse_tasks()
    (verb,) = program.tasks
    assert {name: verb.as_kwargs[name] for name in given} == given


def test_wrong_use_and_help_as_a_process() -> None:
    for program, line in ((MAIN, "setupp"), (AS_INVOKE, "train"), (AS_INVOKE, "setup check")):
        done = ended(program, *line.split())
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert ("invoke" in done.stderr) == (program == AS_INVOKE)
    helped = ended(AS_INVOKE, "train", "main.py", "--help").stdout
    assert helped.startswith("Usage: invoke train [OPTIONS] SCRIPT [-- ARGS]\n")
    assert "\n  invoke train main.py -- --steps 100" in helped
