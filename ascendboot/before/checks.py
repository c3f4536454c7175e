"""The checks before a job, by the ids that `--skip-checks` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ascendboot.errors import UsageError


@dataclass(frozen=True)
class Check:
    """One thing that is looked at on all nodes; `always` says why it cannot be skipped."""

    id: str
    always: str = ""


CHECKS = (
    Check("setup"),
    Check("open-folders", "others could change what runs as your user"),
    Check("code"),
    Check("script", "no rank starts without it"),
    Check("data"),
    Check("programs", "no rank starts without them"),
    Check("jobs", "two jobs would spoil each other"),
    Check("leftovers", "end them: --stop-leftovers"),
    Check("rank-table", "ranks would take the wrong places"),
    Check("packages"),
    Check("devices"),
    Check("device-ips"),
    Check("links"),
    Check("tls"),
    Check("ports"),
    Check("disk"),
)
ORDER = tuple(check.id for check in CHECKS)
SKIPPABLE = tuple(check.id for check in CHECKS if not check.always)
_ALL = "all"


def skipped_checks(words: str | Literal[True] | None) -> tuple[str, ...]:
    """The ids that `--skip-checks` names, in the order of the checks; alone it means all.

    Raises:
        UsageError: there is no such check, or it cannot be skipped.
    """
    if not words:
        return ()
    if words is True or words == _ALL:
        return SKIPPABLE
    asked = [word.strip() for word in words.split(",")]
    problems = [
        f'"{check.id}" cannot be skipped: {check.always}'
        for check in CHECKS
        if check.id in asked and check.always
    ]
    problems += [f'there is no check "{word}"' for word in asked if word not in ORDER]
    if problems:
        known = ", ".join(SKIPPABLE)
        raise UsageError(f"--skip-checks: {'; '.join(problems)}. What can be skipped: {known}")
    return tuple(id_ for id_ in SKIPPABLE if id_ in asked)
