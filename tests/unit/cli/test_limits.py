"""How many files may be open: as many as the machine lets us."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource
from ascendboot.cli.common import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))
allow_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "(256, 256)\n"
