"""The judge on containers: one test per rule, over the whole message."""

from __future__ import annotations

import pytest

from ascendboot.facts.parsers.software import Sshd
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import SshAccess
from tests.unit.checks.well import cluster, facts, judged, node

DOCKER = "/usr/bin/docker"
WISH = cluster(node(1, container="rec-sdk"), node(2, container="rec-sdk"))
DENIED = (
    "Got permission denied while trying to connect to the Docker daemon socket at "
    "unix:///var/run/docker.sock: dial unix /var/run/docker.sock: connect: permission denied"
)

NO_BASH = 'exec: "bash": executable file not found in $PATH: unknown'


def found(status: str = "running", obstacle: str = "") -> Answered[Engines]:
    container = Container(engine=DOCKER, id="a" * 64, status=status, obstacle=obstacle)
    return Answered(Engines(container=container))


def both(answer: Answered[Engines] | Unanswered) -> list[str]:
    seen = (facts(n, container=answer, work_machine=facts(n).machine) for n in (1, 2))
    return judged(WISH, *seen)


def test_a_running_container_on_the_host_network_is_well() -> None:
    assert both(found()) == []


@pytest.mark.parametrize(
    ("answer", "id_", "message"),
    [
        (
            Unanswered("missing", "could not look for the container rec-sdk: there is no docker"),
            "engine-missing",
            (
                "could not look for the container rec-sdk: there is no docker. Install docker or "
                "podman, or remove `container`: ranks then run on the host itself."
            ),
        ),
        (
            Answered(Engines(refused={DOCKER: DENIED})),
            "engine-refused",
            (
                f"docker refused: {DENIED}. Let this user use docker (group docker), or log in as "
                "root."
            ),
        ),
        (
            Answered(Engines(names=("other", "third"))),
            "container-absent",
            (
                "there is no container rec-sdk; there are other, third. Start it, or correct "
                "`container`."
            ),
        ),
        (
            Answered(Engines()),
            "container-absent",
            (
                "there is no container rec-sdk; there is none at all. Start it, or correct "
                "`container`."
            ),
        ),
        (
            found("exited"),
            "container-stopped",
            "the container rec-sdk is exited. Start it: docker start rec-sdk.",
        ),
        (
            found("paused"),
            "container-stopped",
            "the container rec-sdk is paused. Let it go on: docker unpause rec-sdk.",
        ),
        (
            found(obstacle=NO_BASH),
            "container-without-bash",
            f"could not run bash in the container rec-sdk: {NO_BASH}. Install bash in its image.",
        ),
    ],
    ids=["no-engine", "denied", "absent", "none-at-all", "exited", "paused", "no-bash"],
)
def test_a_container_that_cannot_be_used(
    answer: Answered[Engines] | Unanswered, id_: str, message: str
) -> None:
    assert both(answer) == [f"{id_} error lab-[1-2]: {message}"]


def test_a_user_may_not_see_the_container_that_there_is() -> None:
    access = SshAccess(user="ann")
    wish = cluster(node(1, container="rec-sdk", ssh=access))
    [message] = judged(wish, facts(1, container=Answered(Engines())))
    assert message == (
        "container-absent error lab-1: there is no container rec-sdk; there is none at all. Start "
        "it, or correct `container`, or log in as the user who started it: podman shows each user "
        "nothing but his own containers."
    )


def test_a_network_of_its_own_is_refused() -> None:
    wish = cluster(node(1, container="rec-sdk"))
    inside = Answered("boot-1 net:[77]")
    [message] = judged(wish, facts(1, container=found(), work_machine=inside))
    assert message == (
        "container-network error lab-1: the container rec-sdk has a network of its own: the "
        "other nodes do not reach its ranks at the cluster address. Start it anew with --network "
        "host."
    )


def test_ranks_that_lack_what_the_image_sets_are_named() -> None:
    words = "could not read what the image and `run -e` set: root may not read it"
    unread = {"first_process": Unanswered("failed", words), "work_machine": facts(1).machine}
    [message] = judged(cluster(node(1, container="rec-sdk")), facts(1, container=found(), **unread))
    assert message == (
        f"container-environment warning lab-1: {words}. Ranks may lack it: state what they need "
        "under `env` (PATH, LD_LIBRARY_PATH, …), or start the container so that its first process "
        "runs as the user who trains."
    )


def test_a_locked_account_is_named_before_a_login_fails() -> None:
    locked = Answered(Sshd("/usr/sbin/sshd", "9.2p1", lets_us_in=False))
    same = {"container": found(), "work_machine": facts(1).machine, "sshd": locked}
    wish = cluster(node(1, container="rec-sdk"))
    text = (
        "account-locked error lab-1: the account root{} is locked (its password in /etc/shadow "
        "begins with !): the cluster's sshd would let nobody in. Forbid passwords without locking "
        "it: usermod -p '*' root{}."
    )
    image = ", in the image; or state `ssh: {via: engine}`"
    assert judged(wish, facts(1, **same)) == [text.format(" in the container rec-sdk", image)]
    assert judged(cluster(node(1)), facts(1, sshd=locked)) == [text.format("", "")]


def test_what_the_image_lacks_is_named() -> None:
    wish = cluster(node(1, container="rec-sdk"))
    lacking = Unanswered("missing", "could not find the OpenSSH server in the container rec-sdk")
    seen = facts(1, container=found(), work_machine=facts(1).machine, sshd=lacking)
    [message] = judged(wish, seen)
    assert message == (
        "sshd-missing error lab-1: could not find the OpenSSH server in the container rec-sdk. "
        "Install openssh-server in the image of rec-sdk, or state `ssh: {via: engine}`."
    )


_SINCE_7_4 = "DisableForwarding (since 7.4), KexAlgorithms curve25519-sha256 (since 7.4)"
_LACKING = {
    "7.4p1": "",
    "7.3p1": _SINCE_7_4,
    "6.6.1p1": f"{_SINCE_7_4}, restrict in authorized_keys (since 7.2), HostKeyAlgorithms (since "
    "7.0), PubkeyAcceptedKeyTypes (since 6.8), AllowStreamLocalForwarding (since 6.7), "
    "PermitUserRC (since 6.7)",
}


@pytest.mark.parametrize(("version", "unknown"), _LACKING.items())
def test_13_an_sshd_that_does_not_know_our_options_is_named(version: str, unknown: str) -> None:
    same = {"container": found(), "work_machine": facts(1).machine}
    seen = facts(1, **same, sshd=Answered(Sshd("/usr/sbin/sshd", version)))
    assert judged(cluster(node(1, container="rec-sdk")), seen) == [
        f"sshd-old error lab-1: /usr/sbin/sshd is of OpenSSH {version}, which does not know "
        f"{each}. Install OpenSSH 7.4 or later in the image of rec-sdk, or state "
        "`ssh: {via: engine}`."
        for each in [unknown]
        if each
    ]
