"""What a shell completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from invoke.parser.context import to_flag

from ascendboot.cli.completion import PLACES, Outline, candidates, verbs_in
from ascendboot.cli.program import namespace
from ascendboot.lab.faults import KINDS
from tests.here import Here
from tests.unit.cli.calls import MAIN, ended

ROOT = Path(__file__).parents[3]
VERBS = {name: source for place in PLACES for name, source in verbs_in(place).items()}


def test_the_source_tells_the_verbs_with_their_arguments_as_importing_them_does() -> None:
    tasks = namespace()
    assert set(VERBS) == set(tasks.task_names)
    for name, source in VERBS.items():
        arguments = tasks[name].get_arguments()
        flags = {to_flag(str(a.name))[2:]: a.takes_value for a in arguments if not a.positional}
        bare = [a.name for a in arguments if a.positional] + [tasks[name].bare or "bare"]
        outline = Outline.read(source)
        assert (name, dict(outline.flags)) == (name, flags)
        assert [*outline.bare, "bare"][: len(bare)] == bare


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with inventories, a lab, two jobs, and two supervised ones."""
    nodes = 'cluster: x\nnodes: {"atlas-[01-02]": {address: "192.0.2.[1-2]"}}\n'
    files = {"two.yaml": nodes, "inventories/site.yaml": nodes, "broken.yaml": "nodes: ["}
    files |= {f".ascendboot/runs/2026010{day}-train-ab/plan.json": "{}" for day in (1, 2)}
    for day, end in (("03", "{}"), ("04", "null")):
        folder = f".ascendboot/runs/202601{day}-train-ab"
        files |= {f"{folder}/g{number}/plan.json": "{}" for number in (1, 2)}
        files[f"{folder}/supervise/state.json"] = f'{{\n "end": {end}\n}}\n'
    files["groups.yaml"] = nodes + "groups: {rack1: {}}\n"
    files[".ascendboot/lab.yaml"] = nodes.replace("atlas", "lab")
    files[".ascendboot/odd.yaml"] = 'nodes: {"$(reboot)": {}, "a\\nb": {}, "\\e(0": {}, a-1: {}}\n'
    files[".ascendboot/current"] = "two.yaml\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASCENDBOOT_INVENTORY", raising=False)
    return tmp_path


ATLAS = ["atlas-01", "atlas-02"]
JOBS = [f"2026010{day}-train-ab" for day in (4, 3, 2, 1)]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", [*VERBS, "help"]),
        ("ran", [name for name in VERBS if name.startswith("ranktable.")]),
        ("ranktable.d", ["ranktable.diff"]),
        ("help tr", ["train"]),
        ("--v", ["--version"]),
        ("trian --", []),
        ("train --no", ["--nodes"]),
        ("train main.py --ma", ["--max-restarts"]),
        ("train main.py -- --no", []),
        ("train ", []),
        ("train m.py --nodes ", ATLAS),
        ("train m.py --nodes atlas-02,", ["atlas-02,atlas-01"]),
        ("exec --nodes=atlas-02", ["--nodes=atlas-02"]),
        ("exec --nodes = atlas-02", ["atlas-02"]),
        ("exec -i inventories/site.yaml --nodes ", ATLAS),
        ("exec -i broken.yaml --nodes ", []),
        ("exec -i none --nodes ", []),
        ("exec -i .ascendboot/odd.yaml --nodes ", ["a-1"]),
        ("exec --plan --nodes ", ATLAS),
        ("quarantine ", ATLAS),
        ("remove atlas-01,", ["atlas-01,atlas-02"]),
        ("lab.fault ", ["lab-01", "lab-02"]),
        ("lab.fault lab-01 ", list(KINDS)),
        ("lab.fault lab-01 node", ["node-down"]),
        ("exec -i groups.yaml --nodes atlas-01,", ["atlas-01,atlas-02", "atlas-01,@rack1"]),
        ("exec -i groups.yaml --nodes @r", ["@rack1"]),
        ("exec -i groups.yaml --nodes @ r", ["@rack1"]),
        ("exec -i groups.yaml --nodes =@ r", ["@rack1"]),
        ("exec -i groups.yaml --nodes atlas-01, @ r", ["@rack1"]),
        ("shell -i groups.yaml ", ATLAS),
        *((f"{verb} --job ", JOBS) for verb in ("status", "logs", "stop", "doctor", "report")),
        ("events --job ", JOBS[:2]),
        *((f"{verb} --job 2026", JOBS[:1]) for verb in ("quarantine", "release", "resize")),
        ("train --resume 2026", JOBS[:1]),
        ("ranktable.validate --job ", ["rec-sdk-tf", "mindspore", "torch"]),
        ("setup ", ["broken.yaml", "groups.yaml", "two.yaml", "site"]),
        ("check -i s", ["site"]),
        ("check --level ", ["quick", "full"]),
        ("train --on-hang=s", ["--on-hang=stop"]),
    ],
)
def test_words_flags_and_values_are_completed(line: str, found: list[str]) -> None:
    assert candidates(["ascendboot", *line.split(" ")]) == found


@pytest.mark.usefixtures("place")
def test_completion_imports_neither_verbs_nor_libraries_for_them() -> None:
    program = (
        "import sys; from ascendboot.cli.__main__ import main; main(); "
        "print({'paramiko', 'pydantic', 'invoke', 'rich'} & set(sys.modules))"
    )
    done = ended(program, "--complete", "--", "ascendboot", "exec", "--nodes", "atlas-01")
    assert (done.stdout, done.stderr) == ("atlas-01\nset()\n", "")


SHELLS = {
    "bash": 'COMP_WORDS=(x exec --nodes ""); COMP_CWORD=3; _ascendboot; echo ${COMPREPLY[@]}',
    "zsh": "words=(ascendboot exec --nodes ''); CURRENT=4; _ascendboot",
    "fish": "complete -C 'ascendboot exec --nodes '",
}
STUBS = {"zsh": "compdef() { :; }\ncompadd() { print $found; }\n"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shells_use_it(shell: str, place: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = ended(MAIN, "--print-completion-script", shell).stdout
    Here(place).put("ascendboot", f'exec {sys.executable} -m ascendboot.cli "$@"')
    path = {"PATH": f"{place}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    argv = [shell, "-c", f"{STUBS.get(shell, '')}{script}{SHELLS[shell]}"]
    found = subprocess.run(argv, env={**os.environ, **path}, stdout=subprocess.PIPE, check=True)
    assert [name for name in found.stdout.decode().split() if name in ATLAS] == ATLAS


def test_bash_gets_names_that_it_cannot_run() -> None:
    script = ended(MAIN, "--print-completion-script", "bash").stdout
    stub = "ascendboot() { printf '%s\\n' '$(id) x' lab-1,lab-2; }\n"
    call = "COMP_WORDS=(x); COMP_CWORD=0; _ascendboot; printf '%s\\n' \"${COMPREPLY[@]}\""
    argv = ["bash", "-c", stub + script + call]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"\\$\\(id\\)\\ x\nlab-1,lab-2\n"
