"""What the verbs of rank tables do with a table that they made: judge it, then hand it over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ascendboot.errors import AscendbootError, UsageError
from ascendboot.ranktable.source import from_text
from ascendboot.ranktable.validate import validate
from ascendboot.ranktable.verdict import sentence
from ascendboot.state import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ascendboot.console import Screen
    from ascendboot.ranktable.reading import Table
    from ascendboot.ranktable.rule import Job, Product


def deliver(
    table: Table,
    screen: Screen,
    *,
    output: str | None,
    product: Product | None = None,
    job: Job | None = None,
    force: bool = False,
    left_out: Sequence[str] = (),
) -> None:
    """Write the table, or print it; what is worth knowing goes to standard error.

    Raises:
        AscendbootError: HCCL would refuse it; nothing is written.
        UsageError: the file is there and holds something else.
    """
    try:
        text = table.to_json()
        source = from_text("the new table", text)
    except RecursionError:
        raise UsageError(
            "the table: a member that HCCL does not know is nested too deeply"
        ) from None
    if output is not None:
        source = replace(source, absolute=str(Path(output).absolute()))
    problems = validate(source, product=product, job=job)
    for problem in problems:
        screen.error(f"the new table: {sentence(problem)}")
    if any(problem.level == "error" for problem in problems):
        raise AscendbootError("the new table is refused and was not written")
    if left_out:
        screen.error(f"left out, because the new generation has no room: {', '.join(left_out)}")
    if output is not None:
        _write(Path(output), text, force=force)
    if screen.json_mode:
        screen.json({"output": output, "left_out": list(left_out), "table": json.loads(text)})
    elif output is None:
        screen.text(text.removesuffix("\n"))
    else:
        screen.say(
            f"{output}: written, {table.world_size} rank{'' if table.world_size == 1 else 's'}"
        )


def _write(path: Path, text: str, *, force: bool) -> None:
    if path.exists() and not force:
        if not path.is_file() or path.read_bytes() != text.encode():
            raise UsageError(
                f"{path}: could not be written: it is there and holds something else; choose "
                "another name, or say --force"
            )
        return
    write_text(path, text)
    path.chmod(0o644)
