"""What stands before a rank's lines at a terminal: in colours there, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress

import pytest
import yaml

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import PROGRAM, Operator

pytestmark = pytest.mark.cluster

JOB = """\
import sys, time
print("begins \\x1b[1mbold")
print("wipes \\x1b[2J\\x9b2J")
print("0 %\\r100 %")
time.sleep(float(sys.argv[1]))
print("ends")
"""
COLOURS = {"lab-1": 36, "lab-2": 33}
COLOURED = [
    f"\x1b[0;{COLOURS[node]}m{node}:{rank} |\x1b[0m "
    for node, rank in (("lab-1", 0), ("lab-1", 1), ("lab-2", 2), ("lab-2", 3))
]
PLAIN = [re.sub(r"\x1b\[[0-9;]*m", "", prefix) for prefix in COLOURED]


@pytest.fixture(scope="module")
def operator(bring_up_once: Callable[..., Lab]) -> Operator:
    operator = Operator(bring_up_once(nodes=2, devices=2))
    document = yaml.safe_load(operator.lab.inventory.read_text())
    document["launcher"] = {"kind": "mpirun"}
    inventory = operator.lab.directory / "colours.yaml"
    inventory.write_text(yaml.safe_dump(document))
    (operator.lab.directory / "job.py").write_text(JOB)
    assert operator.setup(inventory=inventory).code == 0
    return operator


def lines(prefixes: list[str]) -> list[str]:
    """All that the ranks print, behind these."""
    of_rank = ["{}begins \x1b[1mbold", "{}wipes \x1b[2J\x9b2J", "{0}0 %\r{0}100 %", "{}ends"]
    return sorted(line.format(prefix) for prefix in prefixes for line in of_rank)


def legible(prefixes: list[str]) -> list[str]:
    """The same at a terminal, where the words of ranks have colours and do nothing else."""
    shown = (line.replace("bold", "bold\x1b[0m") for line in lines(prefixes))
    return sorted(line.replace("wipes \x1b[2J\x9b", "wipes \\x1b[2J\\x9b") for line in shown)


def at_a_terminal(operator: Operator, *args: str, **env: str) -> list[str]:
    """The lines of its standard output, which is a terminal, sorted; its standard error is not."""
    ours, theirs = pty.openpty()
    usual = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [PROGRAM, *args],
        cwd=operator.lab.directory,
        env={**usual, "TERM": "xterm", **env},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # EIO: nobody writes any more
            while block := os.read(ours, 65536):
                seen += block
        assert process.wait(120) == 0
    os.close(ours)
    return sorted(seen.decode().removesuffix("\r\n").split("\r\n"))


def test_row_18_prefixes_have_a_colour_by_node_at_a_terminal_in_train_and_in_logs(
    operator: Operator,
) -> None:
    assert at_a_terminal(operator, "train", "job.py", "--", "0") == legible(COLOURED)
    assert at_a_terminal(operator, "logs") == legible(COLOURED)
    assert at_a_terminal(operator, "logs", "--node", "lab-2") == legible(COLOURED[2:])
    found = [f"{prefix}\x1b[1;31mend\x1b[0ms" for prefix in COLOURED[3:]]
    assert at_a_terminal(operator, "logs", "--rank", "3", "--grep", "end") == found


def test_row_18_so_they_have_in_what_logs_follows(operator: Operator) -> None:
    job = operator.call("train", "job.py", "--detach", "--", "3").out.strip()
    assert at_a_terminal(operator, "logs", "--job", job, "--follow") == legible(COLOURED)
    folder = operator.lab.directory / ".ascendboot/runs" / job
    words = "begins \x1b[1mbold\nwipes \x1b[2J\x9b2J\n0 %\r100 %\nends\n"
    assert (folder / "rank.0.log").read_bytes() == words.encode()


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=lambda env: next(iter(env))
)
def test_row_18_no_colours_where_a_terminal_has_or_is_to_have_none(
    operator: Operator, env: dict[str, str]
) -> None:
    assert at_a_terminal(operator, "train", "job.py", "--", "0", **env) == legible(PLAIN)


def test_row_18_no_colours_in_a_pipe_unless_somebody_asks_for_them(operator: Operator) -> None:
    for env, prefixes in (({}, PLAIN), ({"FORCE_COLOR": "1"}, COLOURED)):
        process = operator.start("train", "job.py", "--", "0", env={"NO_COLOR": "", **env})
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        # `text` of the pipe makes one line end of each \r, too
        assert sorted(out.splitlines()) == sorted("\n".join(lines(prefixes)).splitlines())
