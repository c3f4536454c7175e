"""Every file that we write on a node is a Jinja template; this fills them in."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Templates:
    """The templates of one folder; a name that is not filled in is an error, not an empty text."""

    def __init__(self, folder: Path) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(folder),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # noqa: S701 - shell and sshd files, not HTML; values go through `q`
        )
        self._environment.filters["q"] = shlex.quote

    def text(self, name: str, values: Mapping[str, object]) -> str:
        """The template called `name` with `values` filled in.

        Raises:
            jinja2.UndefinedError: the template uses a name that is not in `values`.
        """
        return self._environment.get_template(name).render(values)
