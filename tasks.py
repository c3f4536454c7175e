"""What `invoke` finds in a checkout: the same verbs as the console script `ascendboot`."""

import os
import sys

from invoke.main import program

from ascendboot.cli.program import CarefulExecutor, CarefulProgram, namespace, prepare, rewritten

# Invoke has already read its own flags, so `invoke VERB --help` is restarted as `--help VERB`;
# and it takes no list of paths.
if (words := rewritten(sys.argv)) != sys.argv:
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - this very program

prepare(sys.argv[1:])
program.__class__ = CarefulProgram  # Invoke has created it, and reads the verbs next
program.executor_class = CarefulExecutor
ns = namespace(sys.argv[1:])
