"""The line by which mpirun starts its daemon, through real login shells on a real sshd."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ascendboot.setup.verify import mpirun_shell
from tests.here import Here
from tests.integration.launch_cluster import MPIRUN
from tests.needs import missing

pytestmark = pytest.mark.integration

SHELLS = ("/bin/bash", "/bin/sh", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh")
# Runs instead of ssh: records the words of the line up to the daemon's name, and the last word.
AGENT = """\
while [ "$1" != second ]; do shift; done; shift
line="$*"; echo "${line%%orted*}orted ${line##* }" >"$0.said"; exit 1
"""
AS_USER_OF = 'mount --bind "$1" /etc/passwd && shift && exec "$@"'


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_16_the_line_is_what_mpirun_sends(tmp_path: Path, shell: str) -> None:
    """For each login shell of the user, up to the name of the daemon."""
    if os.geteuid() != 0 or MPIRUN is None:
        missing("another login shell for mpirun needs root and Open MPI")
    passwd, agent = tmp_path / "passwd", Here(tmp_path).put("agent", AGENT)
    passwd.write_text(f"root:x:0:0::/root:{shell}\n")
    words = (*("--allow-run-as-root", "-H", "127.0.0.1,second"), "true")
    settings = (*("--mca", "plm_rsh_agent", agent), *("--mca", "plm_rsh_no_tree_spawn", "1"))
    ours = f'{mpirun_shell(MPIRUN)}echo "$mpirun_before {MPIRUN.replace("mpirun", "orted")}'
    ours += ' ${mpirun_after:-rest}"'

    def as_user(*argv: str) -> str:
        apart = ["/usr/bin/unshare", "--mount", "bash", "-c", AS_USER_OF, "-", str(passwd), *argv]
        env = {"PATH": os.environ["PATH"], "SHELL": shell}
        done = subprocess.run(
            apart, capture_output=True, text=True, check=False, timeout=300, env=env
        )
        return done.stdout

    as_user(MPIRUN, *settings, *words)
    sent = Path(f"{agent}.said").read_text().split()
    is_closed = sent[-1].endswith(")")
    assert [*sent[:-1], ")" if is_closed else "rest"] == as_user("bash", "-c", ours).split()
