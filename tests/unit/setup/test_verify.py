"""Logins from the primary: a good answer, and the problem that every other one shows."""

from __future__ import annotations

import base64
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ascendboot.errors import NotUnderstoodError
from ascendboot.setup import verify
from ascendboot.transport.api import Effect, Result
from ascendboot.value import replace
from tests.fake_transport import Answer
from tests.here import Here, node_here
from tests.unit.checks import well

CLUSTER = replace(well.TWO, env={"HCCL_CONNECT_TIMEOUT": "1200"})
BASE = PurePosixPath("/var/lib/ascendboot/lab")
EXPECTED = verify.Expectation(
    cluster=CLUSTER,
    base=BASE,
    files={"resources/hostfile": "198.18.0.1 slots=8\n"},
    mpirun="/usr/bin/mpirun",
)
READ = f"read {BASE}/sshd/sshd.log there"
LATE = (
    "could not log in from lab-1: no answer within 20 s; is the way there slow "
    f"(ping 198.18.0.2 on lab-1), or the node overloaded? Else {READ}"
)
GOOD_LINES = EXPECTED.wanted_answer(CLUSTER.primary)
GOOD = "\n".join(GOOD_LINES)


def answer(*lines: tuple[str, int, str, str]) -> Result:
    text = "".join(
        f"{name} {exit_code} {_b64(out)} {_b64(err)}\n" for name, exit_code, out, err in lines
    )
    return Answer(text).to(verify.verification_command(EXPECTED), "lab-1")


def problems(
    result: Result, expected: verify.Expectation = EXPECTED, **found: verify.Evidence
) -> dict[str, Any]:
    """The problems of each node; `found` is evidence by names with `_` for `-`."""
    evidence = {name.replace("_", "-"): each for name, each in found.items()}
    logins = verify.read_verification(expected, result)
    nodes = expected.cluster.nodes
    return {n.name: verify.login_problems(expected, n, logins[n.name], evidence) for n in nodes}


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_logins_that_find_what_was_written_have_no_problem() -> None:
    assert verify.verification_command(EXPECTED).effect is Effect.READ
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", 0, GOOD, ""))
    assert problems(result) == {"lab-1": (), "lab-2": ()}


@pytest.mark.parametrize(
    ("code", "err", "problem"),
    [
        (
            255,
            "Warning: x\nroot@198.18.0.2: Permission denied (publickey).\n",
            f"could not log in from lab-1: root@198.18.0.2: Permission denied (publickey).; {READ}",
        ),
        (124, "", LATE),
        (
            0,
            "",
            (
                "could not log in from lab-1: no output; see what the start-up files of the user "
                f"do without a terminal, and {READ}"
            ),
        ),
    ],
    ids=["refused", "late", "silent"],
)
def test_the_problem_of_a_login_is_named(code: int, err: str, problem: str) -> None:
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", code, "", err))
    assert problems(result) == {"lab-1": (), "lab-2": (problem,)}


OTHER = f"{'0' * 64}  -"


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        (GOOD, f"Welcome!\n{GOOD}", 'the login prints "Welcome!" before a command runs; silence'),
        ("can run /usr/bin/orted", "", "/usr/bin/orted cannot be run; install the same Open MPI"),
        (f"can run {BASE}/env/rank-exec\n", "", f"{BASE}/env/rank-exec cannot be run; mount"),
        (GOOD_LINES[0], OTHER, "the inventory's environment does not arrive as it was written"),
        (GOOD_LINES[1], OTHER, "resources/hostfile does not arrive as it was written"),
    ],
    ids=["noise", "no Open MPI", "noexec", "environment", "file"],
)
def test_the_problem_that_a_login_finds_is_named(line: str, instead: str, problem: str) -> None:
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", 0, GOOD.replace(line, instead), ""))
    found = problems(result)
    assert [len(found["lab-1"]), len(found["lab-2"])] == [0, 1]
    assert found["lab-2"][0].startswith(problem)


LINE = "does not run the line by which mpirun starts its daemon"
ALIKE = "give root the same shell of the family of sh on all nodes: usermod -s /bin/bash root"
LOGS_IN = ("Connection from 198.18.0.1 port 4", "Accepted publickey for root from 198.18.0.1")
OF_7_4 = (
    "Did not receive identification string from 198.18.0.1 port 54722\r",
    "rexec line 18: Unsupported option UsePAM\r",
)
"""What OpenSSH 7.4 writes of a connection that only tests the port, and without PAM."""
NO_CHROOT = 'chroot("/run/sshd"): Operation not permitted [preauth]'


@pytest.mark.parametrize(
    ("shells", "code", "err", "log", "problem"),
    [
        (
            ("/bin/bash", "/usr/bin/fish"),
            127,
            "fish: Unsupported use of '='.\nPATH=/usr/bin\n^\n",
            LOGS_IN,
            (
                f"root has the login shell /usr/bin/fish, which {LINE}: "
                f"\"fish: Unsupported use of '='.\"; {ALIKE}"
            ),
        ),
        (
            ("/bin/tcsh", "/bin/bash"),
            2,
            "bash: syntax error\n",
            LOGS_IN,
            (
                f"root has the login shell /bin/bash, which {LINE} (it writes for /bin/tcsh, the "
                f'login shell on lab-1): "bash: syntax error"; {ALIKE}'
            ),
        ),
        (
            ("/bin/tcsh", "/bin/tcsh"),
            1,
            "/bin/tcsh: No entry for terminal\n",
            LOGS_IN,
            (
                "could not log in from lab-1: /bin/tcsh: No entry for terminal; see what the "
                f"start-up files of root do without a terminal, and {READ}"
            ),
        ),
        (
            ("/bin/bash", "/usr/bin/fish"),
            255,
            "Connection reset by 198.18.0.2 port 12345\n",
            (*LOGS_IN, f"{NO_CHROOT}\r", "Disconnected from user root", *OF_7_4),
            (
                "could not log in from lab-1: Connection reset by 198.18.0.2 port 12345; its "
                f'sshd.log says "{NO_CHROOT}"; {READ}'
            ),
        ),
        (
            ("/bin/bash", "/bin/bash"),
            *(124, "", (*LOGS_IN, "Closing connection to 198.18.0.1 port 47928"), LATE),
        ),
    ],
)
def test_hostile_16_evidence_of_the_node_says_why_a_login_broke_off(
    shells: tuple[str, str], code: int, err: str, log: tuple[str, ...], problem: str
) -> None:
    one, two = (
        verify.read_evidence(
            replace(answer(), stdout="\n".join((f"root:x:0:0::/root:{s}", *log)).encode())
        )
        for s in shells
    )
    result = answer(("lab-1", 0, GOOD, ""), ("lab-2", code, "", err))
    assert problems(result, EXPECTED, lab_1=one, lab_2=two) == {"lab-1": (), "lab-2": (problem,)}


def test_a_node_without_an_answer_has_a_problem() -> None:
    assert problems(answer(("lab-1", 0, GOOD, ""))) == {
        "lab-1": (),
        "lab-2": (f"could not log in from lab-1: it gave no answer; {READ}",),
    }


@pytest.mark.parametrize(
    "line",
    [b"lab-1 0 b2s=", b"lab-1 x b2s= b2s=", b"lab-1 0 *** b2s=", b"Welcome", b"lab-1 0 o b2s="],
)
def test_a_line_of_another_form_is_named(line: bytes) -> None:
    with pytest.raises(NotUnderstoodError, match=r"^logins: line 1 not understood: "):
        verify.read_verification(EXPECTED, replace(answer(), stdout=line + b"\n"))


def test_no_name_of_a_variable_disturbs_the_verification(tmp_path: Path) -> None:
    """The real probe, with an `ssh` that runs it on this machine."""
    env = {"n": "5", "f": "6", "name": "7"}
    own = {"f": "of lab-2", "ascendboot": "8", "z": ""}
    (tmp_path / "env").mkdir()
    lines = "".join(f"export {name}='{value}'\n" for name, value in {**env, **own}.items())
    (tmp_path / "env/node.env").write_text(lines)
    (tmp_path / "hosts").write_text("198.18.0.1\n")
    Here(tmp_path).put("ssh", 'shift 5\nbash -c "$*"')
    Here(tmp_path).put("orted", "")
    first, second = CLUSTER.nodes
    expected = replace(
        EXPECTED,
        cluster=replace(CLUSTER, env=env, nodes=(first, replace(second, env=own))),
        base=PurePosixPath(tmp_path),
        files={"hosts": "198.18.0.1\n"},
        mpirun=str(tmp_path / "mpirun"),
        has_wrapper=False,
    )
    result = node_here("lab-1", tmp_path).run(verify.verification_command(expected)).checked()
    # Both logins reach the second node, where a variable differs from that of the first.
    differs = "the inventory's environment does not arrive as it was written"
    assert problems(result, expected) == {"lab-1": (differs,), "lab-2": ()}
