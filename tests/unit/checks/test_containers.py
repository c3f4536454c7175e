"""Findings about job containers and the training code: the whole message of each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ascendboot.facts.parsers.software import Sshd
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import SshAccess
from ascendboot.model.files import CodeTree, Entry
from tests.unit.checks.well import TWO, cluster, facts, judged, node

DOCKER = "/usr/bin/docker"
IN_CONTAINERS = cluster(node(1, container="rec-sdk"), node(2, container="rec-sdk"))
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
    return judged(IN_CONTAINERS, *seen)


def test_a_running_container_on_the_host_network_is_well() -> None:
    assert both(found()) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            Unanswered("missing", "could not look for the container rec-sdk: there is no docker"),
            "engine-missing: could not look for the container rec-sdk: there is no docker. Install "
            "docker or podman, or remove `container`: ranks then run on the host itself.",
            id="no engine",
        ),
        pytest.param(
            Answered(Engines(refused={DOCKER: DENIED})),
            f"engine-refused: docker refused: {DENIED}. Let this user use docker (group docker), "
            "or log in as root.",
            id="denied",
        ),
        pytest.param(
            Answered(Engines(names=("other", "third"))),
            "container-absent: there is no container rec-sdk; there are other, third. Start it, or "
            "correct `container`.",
            id="absent",
        ),
        pytest.param(
            Answered(Engines()),
            "container-absent: there is no container rec-sdk; there is none at all. Start it, or "
            "correct `container`.",
            id="none at all",
        ),
        pytest.param(
            found("exited"),
            "container-stopped: the container rec-sdk is exited. Start it: docker start rec-sdk.",
            id="exited",
        ),
        pytest.param(
            found("paused"),
            "container-stopped: the container rec-sdk is paused. Let it go on: docker unpause "
            "rec-sdk.",
            id="paused",
        ),
        pytest.param(
            found(obstacle=NO_BASH),
            f"container-without-bash: could not run bash in the container rec-sdk: {NO_BASH}. "
            "Install bash in its image.",
            id="no bash",
        ),
    ],
)
def test_a_container_that_cannot_be_used(
    answer: Answered[Engines] | Unanswered, message: str
) -> None:
    assert both(answer) == [message.replace(":", " error lab-[1-2]:", 1)]


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


THERE = Answered("readable")
ABSENT = Answered("absent")
LOCKED = Answered("unreadable")
CODE = replace(TWO, code_path="/work")
EQUAL = (
    "Make the folders equal, leave results out with `code.exclude`, or let setup send the code: "
    "`code.source`."
)


def tree(**files: str) -> Answered[CodeTree]:
    return Answered(CodeTree(entries={n.replace("_", "."): Entry(v) for n, v in files.items()}))


def compared(first: Any, *others: Any, wish: Any = CODE) -> list[str]:
    seen = [facts(n, code=THERE, code_tree=found) for n, found in enumerate((first, *others), 1)]
    nodes = tuple(node(n) for n in range(1, len(seen) + 1))
    return judged(replace(wish, nodes=nodes), *seen)


def test_equal_trees_are_well() -> None:
    assert compared(tree(main_py="a"), tree(main_py="a")) == []


def test_a_node_that_differs_is_named_with_its_first_files() -> None:
    good = tree(a_py="1", b_py="1", main_py="1", ckpt="1")
    words = "a.py differs from lab-1, b.py differs from lab-1; 1 more"
    assert compared(good, tree(a_py="2", b_py="2", main_py="2", ckpt="1"), good) == [
        f"code-differs error lab-2: {words}. {EQUAL}"
    ]
    assert compared(good, tree(a_py="1", main_py="1")) == [
        f"code-differs error lab-2: b.py is missing, which lab-1 has. {EQUAL}",
        (
            "code-others-differ warning lab-2: ckpt is missing, which lab-1 has. If jobs read it, "
            "make it equal; if a job left it, leave it out with `code.exclude`."
        ),
    ]


def test_what_jobs_left_where_they_ran_is_no_error() -> None:
    first, second = tree(main_py="a", fusion_result_json="1"), tree(main_py="a", rank_log="2")
    [found] = compared(first, second)
    assert found.startswith("code-others-differ warning lab-2: fusion.result.json is missing")
    equal = {"main_py": "a"}
    [found] = compared(tree(**equal, train_log="1"), tree(**equal, train_log="2"))
    assert found.startswith("code-others-differ warning lab-2: train.log differs from lab-1.")


def test_nodes_that_differ_alike_are_folded() -> None:
    other = tree(main_py="b")
    assert compared(tree(main_py="a"), other, other) == [
        f"code-differs error lab-[2-3]: main.py differs from lab-1. {EQUAL}"
    ]


def test_a_tree_that_is_too_much_is_not_compared() -> None:
    full = Answered(CodeTree(excess=(10001, 5 * 1024**2)))
    words = (
        "/work was not compared: it holds more than 10000 files or 512 MiB (10001 files and 5 MiB "
        "were counted). Leave data and results out with `code.exclude`."
    )
    assert compared(tree(main_py="a"), full) == [f"code-too-much warning lab-2: {words}"]
    assert compared(full, tree(main_py="a")) == [f"code-too-much warning lab-1: {words}"]


def test_where_setup_sends_the_code_it_need_not_be_there_but_must_be_readable() -> None:
    sent = replace(CODE, code_source="./here")
    different = (tree(main_py="a"), tree(main_py="b"))
    assert compared(*different, wish=sent) == []
    remedy = (
        "Put the code there on every node, have setup send it (`code.source`), or leave `code` "
        "out of the inventory."
    )
    for wish, code, wanted in (
        (CODE, ABSENT, ["code-missing error lab-2: the code path /work does not exist. " + remedy]),
        (sent, ABSENT, []),
        (sent, LOCKED, ["code-missing error lab-2: the code path /work cannot be read. " + remedy]),
    ):
        assert judged(wish, facts(1, code=THERE), facts(2, code=code)) == wanted
    lost = Unanswered("failed", "could not look at the files of /work: find is not on PATH")
    assert compared(lost, tree()) == [f"code-unknown error lab-1: {lost.message}."]


def test_what_the_primary_could_not_send_is_named() -> None:
    wish = replace(CODE, code_source="primary")
    odd = CodeTree(
        entries={
            "a\nb": Entry("1"),
            "link": Entry(target="../x"),
            "main.py": Entry("1"),
            "secret": Entry(""),
        }
    )
    words = (
        "a\\nb has a name that cannot be sent; rename it, link is a symbolic link that leads out "
        "of the tree, to ../x; 1 more. Remove it, or leave it out with `code.exclude`."
    )
    assert compared(Answered(odd), Answered(CodeTree()), wish=wish) == [
        f"code-not-sent error lab-1: {words}"
    ]
    seen = facts(1, code=ABSENT), facts(2, code=ABSENT)
    assert [finding.split(":")[0] for finding in judged(wish, *seen)] == [
        "code-missing error lab-1"
    ]


def test_code_that_is_to_be_sent_is_awaited_also_where_the_primary_is_unreachable() -> None:
    wish = replace(CODE, code_source="primary", nodes=(node(2),))
    assert judged(wish, facts(2, code=ABSENT)) == []
