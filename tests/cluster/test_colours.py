"""The prefixes of rank output: coloured at a terminal, plain elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import PROGRAM, Operator
from tests.terminal import printed

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
    inventory = operator.inventory("colours.yaml", launcher={"kind": "mpirun"})
    operator.script("job.py", JOB)
    operator.setup(inventory=inventory, exits=0)
    return operator


def lines(prefixes: list[str]) -> list[str]:
    """All output of the ranks, with these prefixes."""
    of_rank = ["{}begins \x1b[1mbold", "{}wipes \x1b[2J\x9b2J", "{0}0 %\r{0}100 %", "{}ends"]
    return sorted(line.format(prefix) for prefix in prefixes for line in of_rank)


def legible(prefixes: list[str]) -> list[str]:
    """The same at a terminal: of the control sequences of ranks, only colours remain."""
    shown = (line.replace("bold", "bold\x1b[0m") for line in lines(prefixes))
    return sorted(line.replace("wipes \x1b[2J\x9b", "wipes \\x1b[2J\\x9b") for line in shown)


def at_a_terminal(operator: Operator, *args: str) -> list[str]:
    """Run ascendboot with a terminal as standard output; the sorted lines."""
    usual = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    others = dict.fromkeys(("stdin", "stderr"), subprocess.DEVNULL)
    seen = printed(
        [PROGRAM, *args], cwd=operator.lab.directory, env={**usual, "TERM": "xterm"}, **others
    )
    return sorted(seen.removesuffix("\r\n").split("\r\n"))


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


def test_row_18_no_colours_in_a_pipe_unless_somebody_asks_for_them(operator: Operator) -> None:
    for env, prefixes in (({}, PLAIN), ({"FORCE_COLOR": "1"}, COLOURED)):
        job = operator.start("train", "job.py", "--", "0", env={"NO_COLOR": "", **env})
        # `text` of the pipe makes one line end of each \r, too
        assert sorted(job.end(exits=0).out.splitlines()) == sorted(
            "\n".join(lines(prefixes)).splitlines()
        )
