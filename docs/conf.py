"""How Sphinx makes the documentation site from the pages; `scripts/docs` calls it.

The pages stay where they are. The tables of the README are the navigation, so no page is missing.
"""

import re
from datetime import datetime, timezone

from sphinx.application import Sphinx

project = "ascendboot"
author = "the ascendboot authors"
project_copyright = f"{datetime.now(timezone.utc):%Y}, {author}"
root_doc = "README"
_FOLDERS = ("", "bench/", "docker/", "docker/**/", "docs/", "docs/**/", "examples/*/")
include_patterns = [f"{folder}*.md" for folder in _FOLDERS]
extensions = ["myst_parser"]
myst_heading_anchors = 6

html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_domain_indices = html_use_index = False


def _with_navigation(_app: Sphinx, page: str, text: list[str]) -> None:
    """Append the pages that the README names as hidden toctrees, one for each heading."""
    if page != root_doc:
        return
    tables = text[0].partition("## Documentation")[2]
    parts = re.split(r"^\*\*(.+)\*\*$", tables, flags=re.MULTILINE)
    for caption, part in zip(parts[1::2], parts[2::2], strict=True):
        found = re.findall(r"\[[^]]+\]\((?!http)([^)#]+?)(?:README\.md|\.md|/)?\)", part)
        names = [f"{name}README" if name.endswith("/") else name for name in found]
        rows = "\n".join(dict.fromkeys(names))
        text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{rows}\n```\n"


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", _with_navigation)
