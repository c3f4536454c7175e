"""The live proof: what a good answer is, and what is said about every other."""

from __future__ import annotations

import base64
import os
import subprocess
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.model.cluster import Cluster, Node, SshAccess
from ascendboot.prove import Expectation, daemon_of, proof, rank_wrapper, read_proof, wanted_answer
from ascendboot.transport.api import Effect, Result


def node(name: str, address: str) -> Node:
    ssh = SshAccess(user="root")
    return Node(name=name, address=address, cluster_address=address, server_id=address, ssh=ssh)


CLUSTER = Cluster(
    name="lab",
    nodes=(node("lab-1", "198.18.0.1"), node("lab-2", "198.18.0.2")),
    primary_name="lab-1",
    source="lab.yaml",
    env={"HCCL_CONNECT_TIMEOUT": "1200"},
)
BASE = PurePosixPath("/var/lib/ascendboot/lab")
EXPECTED = Expectation(
    cluster=CLUSTER,
    base=BASE,
    files={"resources/hostfile": "198.18.0.1 slots=8\n"},
    programs={**rank_wrapper(BASE), **daemon_of("/usr/bin/mpirun")},
)
GOOD = "\n".join(wanted_answer(EXPECTED, CLUSTER.primary))


def answer(*lines: tuple[str, int, str, str], code: int = 0) -> Result:
    text = "".join(
        f"{name} {exit_code} {_b64(out)} {_b64(err)}\n" for name, exit_code, out, err in lines
    )
    return Result(
        node="lab-1",
        command=proof(EXPECTED),
        exit_code=code,
        stdout=text.encode(),
        stderr=b"",
        duration_s=0.1,
    )


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_proof_only_looks() -> None:
    assert proof(EXPECTED).effect is Effect.READ


def test_nothing_is_wrong_where_every_login_finds_what_was_written() -> None:
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", 0, GOOD, ""))
    assert read_proof(EXPECTED, result) == {"lab-1": (), "lab-2": ()}


@pytest.mark.parametrize(
    ("code", "out", "err", "problem"),
    [
        (
            255,
            "",
            "Warning: x\nroot@198.18.0.2: Permission denied (publickey).\n",
            "could not log in from lab-1: root@198.18.0.2: Permission denied (publickey).",
        ),
        (124, "", "", "could not log in from lab-1: no answer in time"),
        (0, "", "", "could not log in from lab-1: nothing was said"),
        (
            0,
            f"Welcome!\n{GOOD}",
            "",
            'the login prints "Welcome!" before a command runs; silence it',
        ),
        (
            0,
            GOOD.replace("can run /usr/bin/orted", ""),
            "",
            "/usr/bin/orted cannot be run; install the same Open MPI on every node",
        ),
        (
            0,
            GOOD.replace(f"can run {BASE}/env/rank-exec\n", ""),
            "",
            f"{BASE}/env/rank-exec cannot be run; mount the file system of {BASE} without noexec",
        ),
        (
            0,
            GOOD.replace(wanted_answer(EXPECTED, CLUSTER.primary)[0], f"{'0' * 64}  -"),
            "",
            "the inventory's environment does not arrive as it was written",
        ),
        (
            0,
            GOOD.replace(wanted_answer(EXPECTED, CLUSTER.primary)[1], f"{'0' * 64}  -"),
            "",
            "resources/hostfile does not arrive as it was written",
        ),
    ],
)
def test_what_is_wrong_is_named(code: int, out: str, err: str, problem: str) -> None:
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", code, out, err))
    assert read_proof(EXPECTED, result) == {"lab-1": (), "lab-2": (problem,)}


def test_a_node_without_an_answer_is_not_taken_for_well() -> None:
    assert read_proof(EXPECTED, answer(("lab-1", 0, GOOD, ""))) == {
        "lab-1": (),
        "lab-2": ("could not log in from the primary: it gave no answer",),
    }


@pytest.mark.parametrize(
    "line",
    [b"lab-1 0 b2s=", b"lab-1 x b2s= b2s=", b"lab-1 0 *** b2s=", b"Welcome", b"lab-1 0 o b2s="],
)
def test_a_line_of_another_form_is_named(line: bytes) -> None:
    with pytest.raises(NotUnderstoodError, match=r"^proof: line 1 not understood: "):
        read_proof(EXPECTED, replace(answer(), stdout=line + b"\n"))


def test_no_name_of_a_variable_disturbs_the_proof(tmp_path: Path) -> None:
    """The probe for real, by an `ssh` that runs here: the environment counts as it was written."""
    env = {"n": "5", "f": "6", "name": "7"}
    own = {"f": "of lab-2", "ascendboot": "8", "z": ""}
    (tmp_path / "env").mkdir()
    lines = "".join(f"export {name}='{value}'\n" for name, value in {**env, **own}.items())
    (tmp_path / "env/node.env").write_text(lines)
    (tmp_path / "hosts").write_text("198.18.0.1\n")
    for tool, text in (("ssh", '#!/bin/bash\nshift 5\nbash -c "$*"\n'), ("orted", "#!/bin/bash\n")):
        (tmp_path / tool).write_text(text)
        (tmp_path / tool).chmod(0o755)
    first, second = CLUSTER.nodes
    expected = replace(
        EXPECTED,
        cluster=replace(CLUSTER, env=env, nodes=(first, replace(second, env=own))),
        base=PurePosixPath(tmp_path),
        files={"hosts": "198.18.0.1\n"},
        programs=daemon_of(str(tmp_path / "mpirun")),
    )
    command = proof(expected)

    done = subprocess.run(
        command.argv,
        input=command.stdin,
        capture_output=True,
        check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )

    result = replace(answer(), command=command, stdout=done.stdout)
    # Both logins come to the second node, which has a variable otherwise than the first.
    differs = "the inventory's environment does not arrive as it was written"
    assert read_proof(expected, result) == {"lab-1": (differs,), "lab-2": ()}
