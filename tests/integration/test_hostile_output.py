"""Nodes that print without end: memory stays small, and the error names the cause."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.here import Here
from tests.integration.real_sshd import USER, Bench, needs_bash

pytestmark = [pytest.mark.integration, needs_bash]

HUNDRED_MB = "head -c 100000000 /dev/zero"
MOST_MIB = 200

FORGED = r"""
program=$(tr -d '\0')
[[ $program =~ ascendboot-begin-[0-9a-f]+ ]] && printf '\n%s\n' "${BASH_REMATCH[0]}"
exec yes 'and so on'
"""
"""A server that does not run the script and sends a forged answer."""

FLOOD = "n1: could not flood: flood printed more than 4 MiB; run it on the node"
CUT = "flood printed more than 4 MiB; run it on the node to see what it prints"
NOISE = (
    "n1: could not flood: the login printed more than 1 MiB before the script of ascendboot began: "
)


@dataclass(frozen=True)
class Hostile:
    """The programs and files of the node, and the expected messages."""

    tool: str = "echo fine"
    login: str = ""
    forced: str = ""
    plain: str = "as expected"
    npus: str = 'could not list the NPUs: npu-smi info -m: line 1 not understood: "fine"'
    error: str = ""


CUT_NPUS = "could not list the NPUs: it printed more than 128 KiB, which began: "
CASES = {
    "one line": Hostile(f"{HUNDRED_MB} | tr '\\0' x", plain=CUT, npus=f'{CUT_NPUS}"xxxx'),
    "endless": Hostile("exec yes", plain=CUT, npus=f'{CUT_NPUS}"y y y'),
    "binary": Hostile(
        "head -c 100000000 /dev/urandom", plain=CUT, npus="could not list the NPUs: "
    ),
    "stderr": Hostile(f"{HUNDRED_MB} | tr '\\0' x >&2; echo fine"),
    "start-up file": Hostile(login=f"{HUNDRED_MB} | tr '\\0' x", error=NOISE),
    "start-up file, endless": Hostile(login="yes", error=NOISE),
    "stderr of a start-up file": Hostile(login=f"{HUNDRED_MB} >&2"),
    "outside of sections": Hostile(forced="exec yes", error=NOISE),
    "a forged answer": Hostile(forced=FORGED, error=FLOOD),
}


@pytest.mark.parametrize("hostile", CASES.values(), ids=CASES)
def test_item_02_whatever_a_node_prints_is_bounded(bench: Bench, hostile: Hostile) -> None:
    forced = Here(bench.folder).put("forced", hostile.forced)
    server = bench.server(*([f"ForceCommand {forced}"] if hostile.forced else []))
    for name in ("npu-smi", "flood"):
        Here(server.folder).put(name, hostile.tool)
    (server.home / ".bashrc").write_text(f"{hostile.login}\nexport PATH={server.folder}:$PATH\n")
    reader = ("-m", "tests.integration.hostile_reader", USER, str(server.port))
    words = (*reader, str(bench.identity), server.fingerprint, str(bench.folder))
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=True, timeout=300
    )
    told = json.loads(done.stdout)
    assert told["peak_mib"] < MOST_MIB
    if hostile.error:
        assert told["error"].startswith(hostile.error)
        assert len(told["error"]) < 500
        return
    assert (told["plain"], told["after"]) == (hostile.plain, 0)
    assert told["npus"].startswith(hostile.npus)
    assert len(told["npus"]) < 500
