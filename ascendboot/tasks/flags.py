"""How a function becomes a verb: as with Invoke, but a short flag means one thing everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from invoke.tasks import Task
from invoke.tasks import task as invoke_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHORT: Final[Mapping[str, str]] = {
    "detach": "d",
    "follow": "f",
    "inventory": "i",
    "json": "j",
    "lines": "l",
    "node": "n",
    "plan": "p",
    "rank": "r",
    "yes": "y",
}
"""Flags with a short form. Left to itself Invoke gives one to every flag, of letters that are free:
`-j` of one verb is `--json`, of the next `--job`, and `-h` no help."""


class _Verb(Task[Any]):
    def arg_opts(self, name: str, default: str, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in SHORT and name not in self.positional:
            options["names"].append(SHORT[name])
        return options


def task(**options: Any) -> Callable[[Callable[..., object]], Task[Any]]:  # noqa: ANN401 - Invoke's
    """Make a verb of a function; `options` are those of Invoke's decorator of that name."""
    made: Callable[[Callable[..., object]], Task[Any]] = invoke_task(
        klass=_Verb, auto_shortflags=False, **options
    )
    return made
