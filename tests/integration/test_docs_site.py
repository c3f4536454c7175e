"""The documentation site: every page is in its navigation, and reading it needs no network."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tests.needs import missing

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe)[^>]+?src="([^"]+)"|<link[^>]+?href="([^"]+)"')
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not importlib.util.find_spec("furo"):
        missing("Sphinx and furo are not installed here; scripts/docs installs them")
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts/docs", built], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return built


def test_every_page_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text()
    _, _, tree = start.partition('<div class="sidebar-tree">')
    named = set(re.findall(r'href="([^"#]+)\.html"', tree.partition("</aside>")[0]))
    pages = {str(p.relative_to(ROOT).with_suffix("")) for p in ROOT.glob("docs/**/*.md")}
    assert len(pages) > 40
    assert pages | {"CHANGELOG", "bench/README", "docker/README"} <= named
    assert [name for name in named if not (site / f"{name}.html").exists()] == []


def test_reading_and_searching_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {
        (page.name, word)
        for page in (site / "index.html", site / "search.html", site / "docs/tutorial.html")
        for found in LOADED.findall(page.read_text())
        for word in found
        if word
    }
    assert len(loaded) > 10
    assert [row for row in loaded if re.match(r"(\w+:)?//", row[1])] == []
    styles = "".join(file.read_text() for file in site.glob("_static/**/*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []
    assert "hccl_connect_timeout" in (site / "searchindex.js").read_text()


@pytest.mark.parametrize("words", [["--serve"], ["a", "b"]])
def test_other_arguments_are_refused(words: list[str]) -> None:
    done = subprocess.run([ROOT / "scripts/docs", *words], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"scripts/docs --help" in done.stderr
