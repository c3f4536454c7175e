"""How a verb ends: its words are said, then comes the document of --json, then the exit code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from invoke.exceptions import Exit

from ascendboot.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ascendboot.console import Screen


def end(screen: Screen, code: int, document: Mapping[str, object] | None) -> None:
    """End a verb that has said what it had to; `document` is None without --json.

    Raises:
        Exit: it does not end with 0: its own code comes first, then that of an answer lost.
    """
    if document is not None:
        try:
            screen.json(document)
        except OutputError as error:
            raise Exit(str(error), code=code or error.exit_code) from error
    if code := code or (OutputError.exit_code if screen.lost_answer else 0):
        raise Exit(code=code)


def exit_with(
    words: str,
    code: int,
    flags: Mapping[str, object],
    besides: Mapping[str, object] | None = None,
) -> Exit:
    """What ends a verb that was called with `flags` and could not do what was asked.

    With --json there is a document, too; `besides` is what else such a document of this verb has.
    """
    if flags.get("json"):
        from ascendboot.console import Screen  # noqa: PLC0415 - only in that case

        with suppress(OutputError):  # standard error says the same
            Screen(json_mode=True).json({**(besides or {}), "exit_code": code, "message": words})
    return Exit(words, code=code)
