"""Finds a loss that went wrong in the output of ranks: nan, inf, or the same for long."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Final

from ascendboot.errors import AscendbootError
from ascendboot.jobs.output import Lines
from ascendboot.model.names import ranks_named
from ascendboot.value import Value, as_json, from_json

LOSSES_FILE: Final = "losses.jsonl"
"""In the folder of a job: each rank's loss that went wrong, one per line."""
SAME_LINES: Final = 20
SAME_S: Final = 60.0
_MARK: Final = "<NUMBER>"
_MOST: Final = 50
"""How many losses of one block are read."""
_BEFORE: Final = 1000
_AFTER: Final = 300
_NUMBER: Final = (
    rb"((?i:[+-]?(?:nan|inf(?:inity)?|\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d{1,4})?)))(?![\w/-])"
)
_USUAL: Final = re.compile(
    rb"(?:loss|Loss|LOSS)[\"'\])]{0,2}[ \t]{0,8}(?:[:=]{1,2}|is\b)?[ \t]{0,8}(?:tensor\()?\[?"
    + _NUMBER
)
"""`loss: 0.5`, `lm loss: 5.0E-01`, `loss = 0.5`, `'loss': 0.5`, `loss tensor(0.5`."""
_WORDS: Final = (b"loss", b"Loss", b"LOSS")
_STEP: Final = re.compile(
    rb"(?i:(?<![a-z])(?:step|iteration|iter)[\"']?[ \t]{0,16}[:=\[]?[ \t]{0,16})"
    rb"(\d{1,12})(?!\.\d|\w)"
    rb"|(?<![\d.])(\d{1,12})/\d{1,12} \["
)
"""`step 12`, `global_step = 12`, `iteration  12/ 100`; `12/100 [` of Keras and tqdm."""
_LINE_END: Final = re.compile(rb"[\r\n]")


class BadLoss(Value, kw_only=True):
    """A loss of one rank that went wrong."""

    rank: int
    node: str
    value: str
    """`nan`, `inf`, `-inf`, or the number that did not change."""
    step: str = ""
    """The step on the same line; empty if the line has none."""
    at: float | None = None
    """When the line arrived, Unix time of the control machine; None: unknown."""
    lines: int = 0
    """How many lines had the same value; 0: it is no number."""
    is_first: bool = True
    """Whether the output was searched from its beginning."""


class LossWatch:
    """Searches blocks of whole lines of one rank; each kind of fault is found once."""

    def __init__(self, rank: int, node: str, form: str = "", *, is_first: bool = True) -> None:
        """`form` is the operator's text with `<NUMBER>`; empty: the usual forms."""
        self._rank, self._node, self._is_first = rank, node, is_first
        before, _, after = form.partition(_MARK)
        self._words = (before.encode(),) if form else _WORDS
        own = re.escape(before.encode()) + _NUMBER + re.escape(after.encode())
        self._form = re.compile(own) if form else _USUAL
        self._value, self._count, self._since = "", 0, 0.0
        self._is_over = self._was_same = False

    def look(self, block: bytes, at: float | None = None) -> Iterator[BadLoss]:
        """Yield what went wrong in a block; an unchanged loss only if it came at Unix time `at`."""
        if self._is_over or not any(word in block for word in self._words):
            return
        line_ends = -1
        for match in islice(self._form.finditer(block), _MOST):
            value = match[1].decode().lower()
            if not value[-1].isdigit() and value[-1] != ".":
                self._is_over = True
                yield self._found(block, match, value, at)
                return
            if at is not None and match.start() > line_ends:
                end = _LINE_END.search(block, match.end())
                line_ends = end.start() if end else len(block)
                if self._is_same(value, at):
                    yield self._found(block, match, value, at, lines=self._count)

    def _is_same(self, value: str, at: float) -> bool:
        """Count a value; whether it has now been the same for long enough."""
        if value != self._value:
            self._value, self._count, self._since = value, 0, at
        self._count += 1
        is_long = self._count >= SAME_LINES and at - self._since >= SAME_S
        is_new, self._was_same = is_long and not self._was_same, self._was_same or is_long
        return is_new

    def _found(
        self, block: bytes, match: re.Match[bytes], value: str, at: float | None, *, lines: int = 0
    ) -> BadLoss:
        start, end = match.span()
        around = block[max(0, start - _BEFORE) : start].rpartition(b"\n")[2]
        around = around.rpartition(b"\r")[2] + _LINE_END.split(block[start : end + _AFTER], 1)[0]
        step = _STEP.search(around)
        return BadLoss(
            rank=self._rank,
            node=self._node,
            value=value,
            step=(step[1] or step[2]).decode() if step else "",
            at=at,
            lines=lines,
            is_first=self._is_first,
        )


class LossLines(Lines):
    """All lines of a rank; a loss that goes wrong in them is passed on."""

    def __init__(self, prefix: bytes, watch: LossWatch, found: Callable[[BadLoss], None]) -> None:
        super().__init__(prefix)
        self._watch = watch
        self._found = found

    def shown(self, block: bytes) -> bytes:
        """Search whole lines, and return them."""
        for bad in self._watch.look(block, time.time()):
            self._found(bad)
        return super().shown(block)


def loss_words(found: Sequence[BadLoss]) -> tuple[str, ...]:
    """Return one line for each kind of fault: the first rank, its step and time, and the others."""
    kinds = ([bad for bad in found if not bad.lines], [bad for bad in found if bad.lines])
    return tuple(_line(kind) for kind in kinds if kind)


def _line(found: Sequence[BadLoss]) -> str:
    first = min(found, key=lambda bad: (bad.at is None, bad.at or 0.0, bad.rank))
    others = {bad.rank for bad in found} - {first.rank}
    what, until = f"was {first.value}", " from step {} on" if first.is_first else " at step {}"
    if first.lines:
        what, until = f"was {first.value} on {first.lines} lines in a row", " until step {}"
    step = until.format(first.step) if first.step else ""
    at = ""
    if first.at is not None:
        at = f", at {datetime.fromtimestamp(first.at, timezone.utc):%H:%M:%S} UTC"
    also = f"; also {ranks_named(others)}" if others else ""
    return f"{first.node}: the loss of rank {first.rank} {what}{step}{at}{also}"


def record_loss(folder: Path, bad: BadLoss) -> None:
    """Add a loss that went wrong to those in a job's folder."""
    with (folder / LOSSES_FILE).open("a") as file:
        file.write(f"{json.dumps(as_json(bad))}\n")


def recorded_losses(folder: Path) -> tuple[BadLoss, ...]:
    """Return the losses that went wrong according to a job's folder; an unfinished line is left."""
    path = folder / LOSSES_FILE
    try:
        lines = path.read_text().split("\n")[:-1]
        return tuple(from_json(json.loads(line), BadLoss) for line in lines)
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise AscendbootError(f"{path}: could not be read ({error}); move it away") from error
