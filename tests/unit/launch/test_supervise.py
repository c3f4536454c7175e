"""Shell scripts that run beside a job: the supervisor of torchrun, and the writer of a log."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ascendboot.templates import script as shell_script
from tests.here import Here
from tests.waiting import wait_until

KEEP = Path(__file__).parents[3] / "templates/env/keep.sh"


def run(script: str, folder: Path) -> None:
    words = ("bash", "-c", script)
    subprocess.run(words, cwd=folder, check=True, timeout=300)


def test_a_node_that_has_ended_gets_no_more_heartbeats(tmp_path: Path) -> None:
    Here(tmp_path).put("ssh", "")
    (tmp_path / "events").touch()
    script = f"""
PATH={tmp_path}:$PATH base={tmp_path} job={tmp_path} who='launcher -' grace=5 watch=watch
is_watched= within=150 ending='it ends: '
nodes=(a-2 a-3) addresses=(192.0.2.12 192.0.2.13)
now() {{ time=1.0; }}
run() {{
  for tick in {{1..100}}; do
    ls -l "/proc/$$/fd" | grep -c '^lrwx.* pipe:' >pipes
    [ "$(<pipes)" != 1 ] || break
    sleep 0.1
  done
}}
{shell_script("supervise.sh")}
launcher
"""
    run(script, tmp_path)
    # All its input comes through one pipe.
    assert (tmp_path / "pipes").read_text() == "1\n"


# Does to SECONDS of a running bash what setting the clock does.
CLOCK_SET = "trap 'SECONDS=$((SECONDS + step))' USR1\n"


@contextmanager
def running(script: str, *words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running script, which ends with its stdin."""
    argv = ("bash", "-c", script, "script", *words)
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, cwd=folder, stdin=pipe, stdout=nowhere) as process:
        yield process
        assert process.stdin
        process.stdin.close()
        process.wait(30)


def test_setting_the_clock_does_not_end_torchrun(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as agent:
        fields = Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()
        (tmp_path / "events").write_text(f"agent 1 pid {agent.pid} start {fields[19]}\n")
        known = f"job={tmp_path} grace=1 node=a-2 step=1000\n"
        script = f"{known}{CLOCK_SET}{shell_script('supervise-watch.sh')}"
        with running(script, folder=tmp_path) as watch:
            wait_until((tmp_path / "watched").exists)
            watch.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
            assert watch.poll() is None
            assert agent.poll() is None
        agent.wait(10)
    assert agent.returncode == -signal.SIGTERM


def test_setting_the_clock_back_does_not_delay_samples(tmp_path: Path) -> None:
    (tmp_path / "events").touch()
    beat = tmp_path / "beat"

    def samples() -> int:
        return beat.read_text().count("sample")

    script = f"step=-100000\n{CLOCK_SET}exec >{beat}\n{shell_script('jobs-logs.sh')}"
    words = (str(tmp_path), "follow", "1", "1", "events", "0")
    with running(script, *words, folder=tmp_path) as follower:
        wait_until(lambda: beat.exists() and samples() > 0)
        follower.send_signal(signal.SIGUSR1)
        before = samples()
        wait_until(lambda: samples() >= before + 2)


@pytest.mark.parametrize("torn", ["", "100.5 6291456 1048576 52"], ids=["whole", "torn"])
def test_a_restarted_log_writer_continues_the_marks(tmp_path: Path, torn: str) -> None:
    """A full disk may have torn the last line: that one stays as it is."""
    log, marks = tmp_path / "rank.0.log", tmp_path / "rank.0.marks"
    log.write_bytes(bytes(6 << 20))
    before = f"100.0 6291456 1048576 4194304\n{torn}"
    marks.write_text(before)
    run(f". {KEEP}\nexec 3>>{log}\necho >&3\nkeep {log} {8 << 20} </dev/null\n", tmp_path)
    *ends_torn_line, line = marks.read_text().removeprefix(before).removesuffix("\n").split("\n")
    assert ends_torn_line == ([""] if torn else [])
    assert line.split(" ")[1:] == ["6291457", "1048576", "4194304"]
