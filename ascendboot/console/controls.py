"""What the words of nodes, ranks and files may do to a terminal: be read, and nothing else."""

from __future__ import annotations

import re
from typing import Final

_C0: Final = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
"""But for the tab, the newline and the carriage return."""
_NOT_ASCII: Final = "\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""C1, where a terminal may take one character for `ESC [`, and what reorders or ends a line."""
_COLOUR: Final = r"\x1b\[[0-9;:]{0,32}m"
"""SGR alone; behind `[>` or `[?` the same letter sets modes of the terminal."""
_RESET: Final = ("\x1b[0m", "\x1b[m")

_IN_WORDS: Final = re.compile(rf"{_COLOUR}|(?P<shown>[{_C0}\r{_NOT_ASCII}]+)")
# Keras goes back over its bar before it returns to the start of the line.
_IN_LINES: Final = re.compile(
    rf"(?P<colour>{_COLOUR})|(?P<end>\n)|\x08+(?=\r)|(?P<shown>[{_C0}{_NOT_ASCII}]+)"
)
_IN_JSON: Final = re.compile(f"[\x7f{_NOT_ASCII}]")
_NOT_PLAIN: Final = re.compile(rb"[^\t\n\r -~]")


def legible(words: str) -> str:
    """Words for a person: colours go, any other control character is shown by its number."""
    return _IN_WORDS.sub(_number, words)


def legible_lines(block: bytes, encoding: str) -> bytes:
    """Whole lines of ranks for a terminal: colours stay, and end with their line.

    The way back to the start of a line stays, too: progress bars need it.
    """
    if _NOT_PLAIN.search(block) is None:
        return block
    colour = ""

    def passed(match: re.Match[str]) -> str:
        nonlocal colour
        if match["colour"]:
            colour = match[0]
            return colour
        if match["end"]:
            # A colour, or words made invisible, would go on in what others say next.
            reset = "" if not colour or colour in _RESET else _RESET[0]
            colour = ""
            return f"{reset}\n"
        return _number(match)

    words = _IN_LINES.sub(passed, block.decode(encoding, "backslashreplace"))
    return words.encode(encoding, "backslashreplace")


def escaped_json(document: str) -> str:
    """A JSON document, which means the same, without the characters that JSON need not escape."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _number(match: re.Match[str]) -> str:
    return (match["shown"] or "").encode("unicode_escape").decode()
