"""The job's folder on a node that cannot be prepared."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ascendboot.templates import script
from tests.here import Here

# What stands in the way of the next file, as a disk without a free inode does.
MKDIR = '/bin/mkdir "$@" && { [ "$1" = -p ] || /bin/mkdir "${@: -1}/making"; }'


def test_nothing_is_left_on_a_disk_with_room_for_the_folder_only(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "env").mkdir(parents=True)
    (base / "env/node.env").touch()
    Here(base / "env").put("rank-exec", "")
    Here(tmp_path).put("mkdir", MKDIR)
    job = base / "jobs/job-1"
    values = (str(base), str(job), "", "bash", "", str(base), "", "", "", "", "cat >/dev/null")
    done = subprocess.run(
        ["/bin/bash", "-c", script("jobs-prepare.sh"), "prepare", *values, "rank.0.log"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "making: Is a directory" in done.stderr
    assert list((base / "jobs").iterdir()) == []
