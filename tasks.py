"""What `invoke` finds in a checkout: the same verbs as the console script `ascendboot`."""

import sys

from invoke.main import program

from ascendboot.cli.program import CarefulExecutor, CarefulProgram, namespace, prepare

prepare(sys.argv[1:])
program.__class__ = CarefulProgram  # Invoke has created it, and reads the verbs next
program.executor_class = CarefulExecutor
ns = namespace(sys.argv[1:])
