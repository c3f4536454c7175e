"""Shell that runs beside a job: what minds a torchrun, and what keeps a log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ascendboot.launch.minding import MIND, NEEDS_ALL

KEEP = Path(__file__).parents[3] / "templates/env/keep.sh"


def run(script: str, folder: Path) -> None:
    words = ("bash", "-c", script)
    subprocess.run(words, cwd=folder, check=True, timeout=60)


def test_a_node_that_is_lost_is_sent_no_more_beats(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/bash\nexit 255\n")
    ssh.chmod(0o755)
    (tmp_path / "events").touch()
    script = f"""
PATH={tmp_path}:$PATH base={tmp_path} id=job who='launcher -' grace=5 watch=watch is_watched=
nodes=(a-2 a-3) addresses=(192.0.2.12 192.0.2.13)
now() {{ time=1.0; }}
agent() {{
  for tick in {{1..100}}; do [ "$(wc -l <lost)" != 2 ] || break; sleep 0.1; done
  sleep 0.3
  ls -l "/proc/$$/fd" | grep -c '^lrwx.* pipe:' >pipes
}}
{NEEDS_ALL}{MIND}
goes_on_without() {{ echo "$1" >>lost; }}
launcher
"""
    (tmp_path / "lost").touch()
    run(script, tmp_path)
    assert sorted((tmp_path / "lost").read_text().split()) == ["0", "1"]
    # All that it reads from comes through one.
    assert (tmp_path / "pipes").read_text() == "1\n"


def test_what_keeps_a_log_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    log, marks = tmp_path / "rank.0.log", tmp_path / "rank.0.marks"
    log.write_bytes(bytes(6 << 20))
    before = "100.0 6291456 1048576 4194304\n"
    marks.write_text(before)
    script = f"""
. {KEEP}
exec 3>>{log}
echo 'begins again' >&3
keep {log} {4 << 20} </dev/null
"""
    run(script, tmp_path)
    lines = marks.read_text().removeprefix(before).splitlines()
    assert [line.split(" ")[1:] for line in lines] == [["6291469", "1048576", "4194304"]]
