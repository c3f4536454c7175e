"""What a rank's log says of its failure: the first words of the last trouble in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ascendboot.launch.cause.known import code_in, is_of_a_peer, known_words
from ascendboot.launch.cause.peers import names_a_peer

if TYPE_CHECKING:
    from typing import Final

_CALM: Final = 20
"""So many ordinary lines between two errors: the first was overcome before the second came."""
_OVERCOME: Final = 200
"""So many ordinary lines after an error: the rank went on, it is no cause."""
_LONGEST: Final = 300
_MESSAGE_LINES: Final = 6

_PREFIX: Final = re.compile(r"(?:\[rank\d+\]: ?|\[\d+,\d+\]<std(?:err|out)>: ?)+")
_TRACEBACK: Final = re.compile(r"\s*Traceback \(most recent call last\):")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_EXCEPTION: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b(?::|$)")
_GOES_ON: Final = re.compile(r"\s|\[ERROR\] .* ERR\d{5} |\[Error\]|E[A-Z]\d{4}: ")
"""Lines by which torch_npu's exceptions go on: its own code, then CANN's with its solution."""
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d")
_STRONG: Final = re.compile(
    r"Fatal Python error|Segmentation fault|Bus error|terminate called|core dumped"
    r"|An error occurred in MPI_|Signal: \w+|\S\.py: error: |can't open file|: command not found"
    r"|could not start rank \d+"
)
_WEAK: Final = re.compile(
    r"\[ERROR\]|\bERROR\b|\bCRITICAL\b|\bFATAL\b|(?<![A-Za-z0-9])[EF]\d{4} \d\d:\d\d:|: [EF] \S+/"
)
_ENDED: Final = re.compile(r"KeyboardInterrupt|SignalException|\bSIGTERM\b|got signal: 15")
"""What ranks say when they are ended."""


@dataclass(frozen=True)
class Said:
    """One error in a log."""

    words: str
    line: str
    """The line of it on which a time stands, if one does."""
    offset: int
    """Of its first byte in the log."""
    of_a_peer: bool
    trouble: str = ""
    """Everything around it that belongs to this trouble: whom it names may stand in any line."""


@dataclass
class _Found:
    said: Said
    line: int
    """Number of its first line."""
    strong: bool
    calm_before: int
    """Ordinary lines since the error before it."""
    calm_after: int = 0


def said_in(tail: bytes, *, begins_at: int = 0) -> Said | None:
    """The first error of the last trouble in the end of a log; None where it tells of none.

    `begins_at` is where in the log `tail` begins. What came before twenty ordinary lines is another
    trouble; what is followed by two hundred is none.
    """
    lines = _lines(tail, begins_at)
    found = [f for f in _errors(lines) if f.calm_after <= _OVERCOME]
    trouble: list[_Found] = []
    for one in reversed(found):
        trouble.insert(0, one)
        if one.calm_before > _CALM:
            break
    if not trouble:
        return None
    strong = [one for one in trouble if one.strong]
    said = (strong or trouble)[0].said
    text = "\n".join(line for _, line in lines[max(0, trouble[0].line - _CALM) :])
    # Lines that are only marked as errors say less than one that names a peer.
    of_a_peer = said.of_a_peer or (not strong and names_a_peer(text))
    return replace(said, of_a_peer=of_a_peer, trouble=text)


def alike(words: str) -> str:
    """`words` without what differs between ranks that fail alike: numbers and addresses."""
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", words)


def _errors(lines: list[tuple[int, str]]) -> list[_Found]:
    found: list[_Found] = []
    number, calm, chained = 0, 0, False
    while number < len(lines):
        offset, line = lines[number]
        took, text, strong = _error_at([text for _, text in lines[number : number + 400]])
        if not took:
            chained = chained or line.startswith(_CHAINED)
            if line.strip() and not line.startswith((*_CHAINED, " ", "\t")):
                calm += 1
            number += 1
            continue
        if not (_ENDED.search(text) or (chained and found)):
            found.append(_Found(_said(text, line, offset), number, strong, calm))
            for before in found[:-1]:
                before.calm_after += calm
            calm = 0
        chained = False
        number += took
    for one in found:
        one.calm_after += calm
    return found


def _lines(tail: bytes, begins_at: int) -> list[tuple[int, str]]:
    lines, offset = [], begins_at
    for raw in tail.split(b"\n"):
        text = raw.decode(errors="replace").rstrip("\r")
        lines.append((offset, _PREFIX.sub("", text, count=1) if text.startswith("[") else text))
        offset += len(raw) + 1
    return lines


def _error_at(lines: list[str]) -> tuple[int, str, bool]:
    """How many lines the error takes that begins with the first, its text, whether it is sure."""
    first = lines[0]
    if _TRACEBACK.match(first):
        return _traceback(lines)
    if is_of_a_peer(first) or known_words(first) or code_in(first) or _STRONG.search(first):
        return 1, first, True
    if _EXCEPTION.match(first):
        return _with_message(lines, 0)
    return (1, first, False) if _WEAK.search(first) else (0, "", False)


def _traceback(lines: list[str]) -> tuple[int, str, bool]:
    for number, line in enumerate(lines[1:], 1):
        if line.strip() and not line.startswith((" ", "\t")):
            return _with_message(lines, number)
    return len(lines), lines[0].strip(), True


def _with_message(lines: list[str], number: int) -> tuple[int, str, bool]:
    """The exception on this line and what it goes on to say."""
    text = [lines[number]]
    for line in lines[number + 1 : number + _MESSAGE_LINES]:
        if not line.strip() or not _GOES_ON.match(line):
            break
        text.append(line)
    return number + len(text), "\n".join(text), True


def _said(text: str, line: str, offset: int) -> Said:
    first, *rest = lines = text.strip().splitlines()
    known = known_words(text)
    told = next((one.strip() for one in lines if known and known_words(one) is known), first)
    words = first if told == first else f"{first[: _LONGEST // 2]} … {told}"
    return Said(
        words=words[:_LONGEST],
        line=next((one for one in (line, first, *rest) if _TIME.search(one)), line),
        offset=offset,
        of_a_peer=is_of_a_peer(text) or names_a_peer(text),
    )
