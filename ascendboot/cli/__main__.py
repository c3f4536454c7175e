"""The program `ascendboot`: Ctrl-C ends it with 130 also while everything else is imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if sys.argv[1:2] == ["--complete"]:  # the shell waits
        from ascendboot.cli.completion import print_candidates  # noqa: PLC0415

        print_candidates(sys.argv)
    else:
        from ascendboot.cli.program import main as run  # noqa: PLC0415

        run()


def _end(*_: object) -> None:
    os.write(2, b"Stopped: interrupted; nothing was written.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
