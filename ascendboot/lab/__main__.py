"""Runs as root for a normal user: `python -m ascendboot.lab VERB REQUEST`, behind sudo."""

from __future__ import annotations

import json
import sys

from ascendboot.errors import AscendbootError, InterruptedRunError
from ascendboot.lab.client import answer, enter


def main(verb: str, text: str) -> int:
    """Answer one request on standard output; `shell` becomes the shell instead."""
    try:
        if verb == "shell":
            enter(json.loads(text))
        sys.stdout.write(answer(verb, text))
    except AscendbootError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
