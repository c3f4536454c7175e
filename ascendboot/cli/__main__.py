"""The program `ascendboot`: Ctrl-C ends it with 130 also while everything else is imported."""

from __future__ import annotations

import gc
import os
import signal

_NEW_OBJECTS = 50_000
"""Importing makes many objects, and none of them is garbage: look for it less often than usual."""


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(_NEW_OBJECTS)
    from ascendboot.cli.program import main as run  # noqa: PLC0415

    try:
        run()
    finally:
        gc.freeze()  # at its end Python would look through all objects again


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
