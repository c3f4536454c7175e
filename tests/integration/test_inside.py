"""Containers over a real sshd; a small program stands in for `docker exec -i`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from ascendboot.errors import CommandError, UnreachableError
from ascendboot.model.cluster import ContainerExec
from ascendboot.transport import script
from ascendboot.transport.api import HANGS
from ascendboot.transport.login_session import SshTransport
from tests.here import Here
from tests.integration.real_sshd import Sshd, bash, read
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

ODD = ["", " ", "a b", "$HOME", "`id`", "$(id)", "it's", '"', "\\", "\n", "*", "~", "!x", "ü", "-n"]
"""Arguments that a shell could change."""

# Messages and exit codes of docker 20.10 and podman 4.3.
ENGINE = """\
printf '%s\\0' "$@" >>{folder}/argv
[ "$1 $2 $3" = 'exec -i -e' ] || exit 125
export BASH_ENV={folder}/of_the_image "$4"
case $5 in
  absent) echo 'Error: No such container: absent' >&2; exit 1 ;;
  stopped) echo 'Error response from daemon: Container 0a1b is not running' >&2; exit 1 ;;
  gone) echo 'Error: no container with name or ID "gone" found: no such container' >&2; exit 125 ;;
  bare) echo 'OCI runtime exec failed: exec: "bash": executable file not found in $PATH: unknown'
    exit 126 ;;
  closed) echo 'Got permission denied while trying to connect to the Docker daemon socket' >&2
    exit 1 ;;
  hangs) echo $$ >{folder}/pid; exec sleep 600 ;;
  ends) shift 5; "$@" <&0 & echo "$!" >{folder}/pid; wait "$!" 2>/dev/null; exit 137 ;;
esac
shift 5
"$@" <&0
"""


@dataclass
class Box:
    """A host side and the engine on it."""

    host: SshTransport
    server: Sshd
    folder: Path

    def inside(self, name: str = "box") -> SshTransport:
        return self.host.inside(ContainerExec(str(self.folder / "docker"), name))

    def refusal(self, name: str) -> str:
        with pytest.raises(CommandError) as caught:
            self.inside(name).run(read("true", stdin=bytes(100_000)))
        return str(caught.value)


@pytest.fixture
def box(server: Sshd, transport: SshTransport) -> Box:
    folder = server.folder / "an engine's"
    folder.mkdir()
    Here(folder).put("docker", ENGINE.format(folder=f"'{folder}'".replace("'s'", "'\"'\"'s'")))
    (folder / "of_the_image").write_text("echo of the image; exit 3\n")
    return Box(transport, server, folder)


def test_input_and_output_are_as_on_the_host(box: Box) -> None:
    inside = box.inside()
    content = bytes(range(256)) * 4000
    words, both, given, nothing = inside.run_all(
        [
            read("printf", "%s\\0", *ODD),
            bash("printf 'o\\0'; printf 'e\\n\\n' >&2; exit 7"),
            read("cat", stdin=content),
            bash('cat; printf "<%s>" "${BASH_ENV-}"'),
        ]
    )
    assert words.stdout == "".join(f"{odd}\0" for odd in ODD).encode()
    assert (both.stdout, both.stderr, both.exit_code) == (b"o\0", b"e\n\n", 7)
    assert given.stdout == content
    assert nothing.stdout == b"<>"
    assert (inside.executions, box.host.executions) == (1, 0)


def test_the_engine_gets_its_argv_and_nothing_more(box: Box) -> None:
    assert box.inside("rec-sdk").run(read("echo", "x")).text == "x\n"
    *argv, program, end = (box.folder / "argv").read_bytes().decode().split("\0")
    words = ["exec", "-i", "-e", "BASH_ENV=", "rec-sdk", "bash", "--noprofile", "--norc", "-c"]
    assert (argv, end) == (words, "")
    assert program.startswith('eval "$(head -c ')


def test_a_limit_ends_what_runs_inside(box: Box) -> None:
    late, after = box.inside().run_all([bash("exec sleep 4321", timeout_s=1.0), bash("echo on")])
    assert late.outcome() == f"a script gave no answer within 1 s; {HANGS}"
    assert after.text == "on\n"


@pytest.fixture
def followed(box: Box) -> tuple[SshTransport, Path]:
    """A container in which a command is followed, and the file that it makes when it ends."""
    inside, end = box.inside(), box.server.folder / "closed"
    heard: list[bytes] = []
    inside.stream(bash(f"echo heard; cat; touch '{end}'"), heard.append)
    wait_until(lambda: b"".join(heard) == b"heard\n")
    return inside, end


def test_following_ends_with_the_host_side(box: Box, followed: tuple[SshTransport, Path]) -> None:
    inside, end = followed
    box.host.close()
    wait_until(end.exists)
    with pytest.raises(UnreachableError, match="the connection was lost: it was closed"):
        inside.run(read("true"))


def test_closing_the_inside_leaves_the_host_side_open(
    box: Box, followed: tuple[SshTransport, Path]
) -> None:
    inside, end = followed
    inside.close()
    wait_until(end.exists)
    assert box.host.run(read("echo", "open")).text == "open\n"


def test_a_lost_connection_ends_commands_in_the_container(
    box: Box, followed: tuple[SshTransport, Path]
) -> None:
    inside, end = followed
    with pytest.raises(UnreachableError, match=r"^n1: could not try it: the connection was lost"):
        inside.run(bash(f"{box.server.kill_sessions()}; sleep 60"))
    wait_until(end.exists)


NO_BASH = 'OCI runtime exec failed: exec: "bash": executable file not found in $PATH: unknown'
NOT_ALLOWED = "Got permission denied while trying to connect to the Docker daemon socket"


@pytest.mark.parametrize(
    ("name", "code", "words", "remedy"),
    [
        ("absent", 1, "Error: No such container: absent", "start it, or correct `container`"),
        (
            *("stopped", 1, "Error response from daemon: Container 0a1b is not running"),
            "start it: docker start stopped",
        ),
        (
            *("gone", 125, 'Error: no container with name or ID "gone" found: no such container'),
            "start it, or correct `container`",
        ),
        ("bare", 126, NO_BASH, "install bash in its image"),
        ("closed", 1, NOT_ALLOWED, "let this user use docker (group docker), or log in as root"),
    ],
)
def test_an_engine_that_refuses_is_quoted(
    box: Box, name: str, code: int, words: str, remedy: str
) -> None:
    assert box.refusal(name) == (
        f"n1: could not try it in the container {name}: docker exec ended with exit {code}: "
        f"{words}; {remedy}"
    )


def test_a_missing_engine_is_named(box: Box) -> None:
    (box.folder / "docker").unlink()
    message = box.refusal("box")
    assert message.startswith(
        "n1: could not try it in the container box: docker exec ended with exit 127: "
    )
    assert message.endswith("; is docker still on the host side? Run setup, which looks again")


def test_a_container_that_ends_in_the_middle_is_named(box: Box) -> None:
    end = bash(f'kill -9 "$(cat "{box.folder}/pid")"')
    with pytest.raises(CommandError) as caught:
        box.inside("ends").run_all([bash("echo first"), end])
    assert str(caught.value) == (
        "n1: could not try it: the reply from the container ends broke off while it ran: exit "
        "137; was it stopped? Check with docker ps -a"
    )


def test_an_engine_that_does_not_answer_is_given_up(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascendboot.transport.login_session._MARGIN_S", 1.0)
    monkeypatch.setattr(script, "KILL_AFTER_S", 0.5)
    with pytest.raises(CommandError) as caught:
        box.inside("hangs").run(bash("true", timeout_s=0.5))
    assert re.fullmatch(
        r"n1: could not try it in the container hangs: docker exec started nothing within "
        r"\d+ s; does the engine answer\? docker ps",
        str(caught.value),
    )
    os.kill(int((box.folder / "pid").read_text()), 9)
