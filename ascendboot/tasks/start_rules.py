"""What `train` is told about the time before the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ascendboot.before.checks import SKIPPABLE, skipped_checks

SKIP_CHECKS_HELP: Final = (
    f"Checks not to make before the start, by their ids: {','.join(SKIPPABLE)}; alone it skips all"
    " of these. To be said behind the script"
)
STOP_LEFTOVERS_HELP: Final = (
    "End what is left on the nodes of earlier jobs whose launcher is gone; without it you are asked"
)


@dataclass(frozen=True, kw_only=True)
class StartRules:
    """What is not looked at, and what becomes of what is left of earlier jobs."""

    skipped: tuple[str, ...]
    """Ids of checks that are not made."""
    ends_leftovers: bool
    """Nobody is asked before they are ended."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not checked, in words."""
        if not self.skipped:
            return ()
        return (f"not checked before the start: {', '.join(self.skipped)}",)


def start_rules(skip_checks: str | Literal[True] | None, *, stop_leftovers: bool) -> StartRules:
    """The rules by the values of the flags.

    Raises:
        UsageError: a check that is to be skipped does not exist, or has to be made.
    """
    return StartRules(skipped=skipped_checks(skip_checks), ends_leftovers=stop_leftovers)
