"""The program `ascendboot`: Ctrl-C ends it with 130 also while everything else is imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from ascendboot.cli.program import main as run  # noqa: PLC0415

    run()


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
