"""The end of a verb that could not do what was asked: words, an exit code, and both as JSON."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from ascendboot.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping


def refused(
    words: str,
    code: int,
    flags: Mapping[str, object],
    besides: Mapping[str, object] | None = None,
) -> Exit:
    """What ends a verb that was called with `flags`; with --json there is a document, too.

    `besides` is what else such a document of this verb has.
    """
    if flags.get("json"):
        from ascendboot.console import Screen  # noqa: PLC0415 - only in that case

        with suppress(OutputError):  # standard error says the same
            Screen(json_mode=True).json({**(besides or {}), "exit_code": code, "message": words})
    return Exit(words, code=code)
