"""Every verb, flag, exit code, outcome and phase is documented."""

from __future__ import annotations

import ast
import inspect
import re
import signal
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from ascendboot import errors
from ascendboot.cli.program import namespace
from ascendboot.inventory.load import load
from ascendboot.jobs.job_report import HUNG
from ascendboot.model.job import JobState
from ascendboot.model.report import Outcome
from ascendboot.setup.phases import SETUP
from ascendboot.supervise.core import CODE_GAVE_UP, CODE_NEEDS_OPERATOR

ROOT = Path(__file__).parent.parent
COMMANDS = (ROOT / "docs/reference/commands.md").read_text()
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]
TASKS = namespace()
ARGUMENTS = {name: TASKS[name].get_arguments() for name in TASKS.task_names}
NO_FINDINGS = {
    *("all-pairs", "not-queried", "not-understood", "no-rank-table", "rank-table", "root-info"),
    *("rec-sdk-tf", "dist-info", "egg-info"),
}
"""Words of the same form in the same modules."""


@pytest.mark.parametrize("name", sorted(TASKS.task_names))
def test_every_verb_and_flag_is_in_the_reference_and_has_help(name: str) -> None:
    assert re.search(rf"\b{re.escape(name)}\b", COMMANDS)
    told = inspect.getdoc(TASKS[name].body) or ""
    assert "Example" in told
    codes = set(re.findall(r"\b(\d+)\b", told.partition("Exit codes: ")[2]))
    assert codes, "its exit codes are not told"
    if "forks" in {argument.name for argument in ARGUMENTS[name]}:  # it connects to nodes
        assert {"0", str(errors.UnreachableError.exit_code)} <= codes
    for argument in ARGUMENTS[name]:
        if argument.positional:
            continue
        assert argument.help, f"{name} --{argument.name} has no help"
        assert f"--{argument.name.strip('_').replace('_', '-')}" in COMMANDS, argument.name


def test_every_exit_code_is_in_the_table() -> None:
    kinds = inspect.getmembers(errors, inspect.isclass)
    codes = {kind.exit_code for _, kind in kinds if issubclass(kind, errors.AscendbootError)}
    table = {int(c) for c in re.findall(r"^\| (\d+) \|", COMMANDS, re.MULTILINE)}
    of_pipe = 128 + signal.SIGPIPE
    assert codes | {0, 3, HUNG, CODE_GAVE_UP, CODE_NEEDS_OPERATOR, of_pipe} == table


def test_every_outcome_state_and_phase_is_named() -> None:
    words = [o.value for o in Outcome] + [s.value for s in JobState] + [p.name for p in SETUP]
    assert [word for word in words if f"`{word}`" not in COMMANDS] == []


def test_every_finding_is_in_the_list_and_every_id_there_exists() -> None:
    page = (ROOT / "docs/reference/findings.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {id_ for row in rows for id_ in re.findall(r"`([a-z0-9-]+)`", row)}
    assert listed == finding_ids()


def finding_ids() -> set[str]:
    """Every text of the form of an id in the modules that make findings."""
    folder = ROOT / "ascendboot"
    modules = [
        *folder.glob("checks/**/*.py"),
        *(folder / f"setup/{name}.py" for name in ("cluster_plan", "apply", "survey")),
    ]
    words = {text for text in texts_in(modules) if re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", text)}
    return words - NO_FINDINGS | {f"device-{what}-unknown" for what in ("ip", "link", "tls")}


def texts_in(modules: Iterable[Path]) -> set[str]:
    """Every text that stands in these modules."""
    return {
        node.value
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`(tests/[\w/]+\.py::\w+)`", page.read_text())
    }
    assert len(named) > 40
    there = {
        f"{path}::{node.name}"
        for path in sorted({name.partition("::")[0] for name in named})
        if (ROOT / path).exists()
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert sorted(named - there) == []


@pytest.mark.parametrize("name", ["lite-cluster-guide", "ddp-guide"])
def test_every_row_of_a_guide_has_a_test_or_a_reason(name: str) -> None:
    page = (ROOT / f"docs/reference/{name}.md").read_text().partition("\n## What is wrong")[0]
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    shown = [line.rpartition(" | ")[2] for line in rows if "shown by" not in line]
    proof = re.compile(r"`tests/[\w/]+\.py::\w+`|not here: \S|the same |\]\(")
    assert len(shown) > 20
    assert [cell for cell in shown if not proof.match(cell) and "](" not in cell] == []


def test_each_of_the_25_features_beside_other_tools_is_there_and_has_a_test() -> None:
    page = (ROOT / "docs/reference/comparison.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    features, tests = (
        [row for row in rows if ("::" in row[1]) is proof] for proof in (False, True)
    )
    numbers = [str(number) for number in range(1, 26)]
    assert ([n for n, _ in features], [n for n, _ in tests]) == (numbers, numbers)
    cells = [row.split(" | ") for _, row in features]
    assert [c for c in cells if len(c) != 7 or not c[1].startswith("yes")] == []
    assert {word for c in cells for word in c[2:]} == {"yes", "no", "partly", "\u2013"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_two_links_from_the_readme_at_most() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    wanted = {page for page in (*pages, *ROOT.glob("docs/**/*.md")) if not _is_of_tests(page)}
    near = pages_named_by(ROOT / "README.md") | {ROOT / "README.md"}
    reached = near.union(*map(pages_named_by, near))
    assert sorted(str(page.relative_to(ROOT)) for page in wanted - reached) == []


def _is_of_tests(page: Path) -> bool:
    first = page.relative_to(ROOT).parts[0]
    return first == "tests" or first.startswith(".")


def pages_named_by(page: Path) -> set[Path]:
    """The pages to which one leads."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    return {(page.parent / link).resolve() for link in links if link.endswith(".md")}


def test_every_state_and_exit_code_of_a_job_is_where_its_reader_looks() -> None:
    states = (ROOT / "docs/how-to/launch-a-job.md").read_text()
    assert [state.value for state in JobState if f"`{state.value}`" not in states] == []
    failed = (ROOT / "docs/how-to/read-a-failed-run.md").read_text()
    table = re.findall(r"^\| (\d+) \| ([^|]*)", COMMANDS, re.MULTILINE)
    codes = [code for code, verbs in table if "`train" in verbs and "all but" not in verbs]
    assert {"4", "125"} < set(codes)
    assert [code for code in codes if f"\n| {code} |" not in failed] == []


def test_every_room_is_in_the_table_of_the_house() -> None:
    table = (ROOT / "docs/explanation/architecture.md").read_text()
    rooms = {
        path.name if path.suffix else f"{path.name}/"
        for path in (ROOT / "ascendboot").iterdir()
        if path.suffix in {"", ".py"} and not path.name.startswith("__")
    }
    assert sorted(room for room in rooms if f"`{room}`" not in table) == []


def test_every_message_in_troubleshooting_is_one_of_ours() -> None:
    page = (ROOT / "docs/how-to/troubleshoot.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    messages = [words for row in rows for words in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 10
    texts = texts_in((ROOT / "ascendboot").rglob("*.py"))
    assert [words for words in messages if not any(words in text for text in texts)] == []


def test_every_heading_that_a_link_names_is_there() -> None:
    links = [
        (page, *link)
        for page in PAGES
        for link in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
    ]
    assert len(links) > 10
    broken = [
        (page.name, target, anchor)
        for page, target, anchor in links
        if anchor not in anchors_of(page.parent / target if target else page)
    ]
    assert broken == []


def anchors_of(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_changelog_says_nothing_twice() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line[:30] for line in lines if line.startswith(("- ", "#"))]
    assert sorted(entry for entry in set(entries) if entries.count(entry) > 1) == []


def test_every_command_in_a_page_has_a_verb_and_flags_that_exist() -> None:
    commands = [
        (page.name, verb, flags_of(words))
        for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*/README.md"))
        if not _is_of_tests(page)
        for verb, words in re.findall(
            r"(?:^|\$\(|&& )(?:invoke|ascendboot) ([a-z][\w.]*)([^&|#)\n]*)",
            code_in(page.read_text()),
            re.MULTILINE,
        )
    ]
    assert len(commands) > 100
    assert sorted({verb for _, verb, _ in commands} - set(TASKS.task_names)) == []
    known = {
        name: {f"--{argument.name.strip('_').replace('_', '-')}" for argument in ARGUMENTS[name]}
        for name in TASKS.task_names
    }
    wrong = [c for c in commands if c[1] in known and not c[2] <= known[c[1]] | {"--help"}]
    assert wrong == []


def code_in(page: str) -> str:
    """The code blocks and the inline code of a page, one piece per line."""
    fenced = re.compile(r"^ *```.*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    rest = fenced.sub("", page)
    indented, inline = re.findall(r"^ {4}(.*)", rest, re.MULTILINE), re.findall(r"`([^`]+)`", rest)
    return "\n".join((*fenced.findall(page), *indented, *inline))


def flags_of(words: str) -> set[str]:
    """The flags of ours in the rest of a command line; behind ` -- ` stand those of a script."""
    ours = words.partition(" -- ")[0]
    return set(re.findall(r"(?<=\s)--[a-z][a-z-]*", ours))


def test_every_inventory_in_a_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pages = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md"))
    blocks = [
        (page, textwrap.dedent(block))
        for page in pages
        for block in re.findall(
            r"^ *```yaml\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL
        )
    ]
    assert len(blocks) > 10
    for number, (page, block) in enumerate(blocks):
        file = tmp_path / f"{page.stem}-{number}.yaml"
        file.write_text(whole_inventory(block))
        load(file, with_own_table=False)


def whole_inventory(block: str) -> str:
    """What a page shows of an inventory, with what every inventory has."""
    cluster = "" if re.search(r"^cluster:", block, re.MULTILINE) else "cluster: of-a-page\n"
    nodes = (
        "" if re.search(r"^nodes:", block, re.MULTILINE) else "nodes: {n: {address: 192.0.2.1}}\n"
    )
    return cluster + nodes + block
