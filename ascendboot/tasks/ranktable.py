"""`ranktable.*`: rank tables of every generation, with or without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from invoke.collection import Collection
from invoke.context import Context  # noqa: TC002 - Invoke reads the signature
from invoke.exceptions import Exit
from invoke.tasks import task

from ascendboot.console import Screen
from ascendboot.errors import UsageError
from ascendboot.ranktable.rules import JOBS, PRODUCTS
from ascendboot.ranktable.verdict import judge_file
from ascendboot.tasks.common import reports_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

W = TypeVar("W", bound=str)

_JSON_HELP = "Print the answer as JSON on standard output"
_PRODUCT_HELP = f"The product that is to read it: {', '.join(PRODUCTS)}; a5 is 950"


@task(
    help={
        "table": "The file",
        "file": "One more file; may be said again",
        "product": f"{_PRODUCT_HELP}. Without it, rules of one product only are warnings",
        "job": f"Also what a training stack wants of its table: {', '.join(JOBS)}",
        "json": _JSON_HELP,
    },
    iterable=["file"],
)
@reports_errors
def validate(  # noqa: PLR0917 - Invoke makes a flag of each
    c: Context,
    table: str,
    file: Sequence[str] | None = None,
    product: str | None = None,
    job: str | None = None,
    json: bool = False,
) -> None:
    """Name everything for which HCCL, or a training stack, would refuse a rank table.

    All problems at once, each with its rule, its place, HCCL's own words and what to do. The
    rules are in docs/reference/rank-table-rules.md.

    Examples:
      invoke ranktable.validate hccl_json_16p_2_host.json --product a2
      invoke ranktable.validate node-1.json --file node-2.json
      invoke ranktable.validate hccl.json --job rec-sdk-tf --json | jq '.files[].problems[].id'

    Exit codes: 0 valid (warnings allowed), 1 refused, 2 unreadable, not JSON or no rank table.
    """
    wanted_product = _among("--product", product, PRODUCTS)
    wanted_job = _among("--job", job, JOBS)
    names = (table, *(file or ()))
    verdicts = [judge_file(name, product=wanted_product, job=wanted_job) for name in names]
    code = max(verdict.exit_code for verdict in verdicts)
    screen = Screen(json_mode=json)
    if json:
        screen.json({"exit_code": code, "files": [verdict.to_json() for verdict in verdicts]})
    else:
        for verdict in verdicts:
            for line in verdict.told():
                screen.say(line)
    if code:
        raise Exit(code=code)


collection = Collection("ranktable", validate)


def _among(flag: str, word: str | None, known: Sequence[W]) -> W | None:
    """The value of a flag that takes one of some words.

    Raises:
        UsageError: it is another.
    """
    if word is None:
        return None
    for name in known:
        if word == name:
            return name
    raise UsageError(f'{flag}: "{word}" is none of {", ".join(known)}')
