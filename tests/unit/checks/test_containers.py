"""Findings about job containers and the training code."""

from __future__ import annotations

from typing import Any

import pytest

from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.software import Sshd
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import Cluster, SshAccess
from ascendboot.model.files import CodeTree, Entry
from ascendboot.value import replace
from tests.unit.checks.well import TWO, alike, cluster, facts, found, messages, node, only

DOCKER = "/usr/bin/docker"
IN_CONTAINERS = cluster(node(1, container="rec-sdk"), node(2, container="rec-sdk"))
ALONE = cluster(node(1, container="rec-sdk"))
BESIDE = cluster(node(1, container="rec-sdk"), node(2))
DENIED = "permission denied while trying to connect to the Docker daemon socket"
NO_BASH = 'exec: "bash": executable file not found in $PATH: unknown'


def engines(status: str = "running", obstacle: str = "") -> Answered[Engines]:
    container = Container(engine=DOCKER, id="a" * 64, status=status, obstacle=obstacle)
    return Answered(Engines(container=container))


def running(**changes: Any) -> NodeFacts:
    """The facts of a node whose container runs on the host's network."""
    plain = {"container": engines(), "work_machine": facts(1).machine}
    return facts(1, **plain | changes)


def test_a_running_container_on_the_host_network_has_no_finding() -> None:
    assert found(ALONE, running()) == ""


@pytest.mark.parametrize(
    ("answer", "pattern"),
    [
        (
            Unanswered("missing", "could not look for the container rec-sdk: no docker"),
            "engine-missing: …: no docker. Install docker or podman, or remove `container`…",
        ),
        (
            Answered(Engines(refused={DOCKER: DENIED})),
            f"engine-refused: docker refused: {DENIED}. Let this user use docker (group docker)…",
        ),
        (
            Answered(Engines(refused={DOCKER: DENIED, "/usr/bin/podman": "no"})),
            f"…: docker refused: {DENIED}; podman refused: no. Let … as root; or …: podman ps -a.",
        ),
        (
            Answered(Engines(names=("other", "third"))),
            "container-absent: there is no container rec-sdk; there are other, third. Start it, …",
        ),
        (Answered(Engines()), "container-absent: … rec-sdk; there is none at all. Start it, or …"),
        (engines("exited"), "container-stopped: … rec-sdk is exited. Start it: docker start …"),
        (engines("paused"), "container-stopped: … rec-sdk is paused. …: docker unpause rec-sdk."),
        (
            engines(obstacle=NO_BASH),
            f"container-without-bash: …: {NO_BASH}. Install bash in its image.",
        ),
    ],
)
def test_an_unusable_container(answer: Answered[Engines] | Unanswered, pattern: str) -> None:
    seen = (facts(n, container=answer, work_machine=facts(n).machine) for n in (1, 2))
    message = only(messages(IN_CONTAINERS, *seen))
    assert alike(message, pattern.replace(":", " error lab-[1-2]:", 1))


def test_podman_hides_containers_of_other_users() -> None:
    lab = cluster(node(1, container="rec-sdk", ssh=SshAccess(user="ann")))
    message = only(messages(lab, facts(1, container=Answered(Engines()))))
    assert alike(message, "container-absent … or log in as the user who started it: podman shows …")


IMAGE = "rec-sdk, or state `ssh: {via: engine}`."


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        (
            {"work_machine": Answered("boot-1 net:[77]")},
            "container-network error lab-1: … a network of its own: …",
        ),
        (
            {"first_process": Unanswered("failed", "could not read what the image sets: no")},
            "container-environment warning lab-1: … image sets: no. Ranks may lack it: … `env` …",
        ),
    ],
)
def test_a_container_that_jobs_cannot_use_well(changes: dict[str, Any], pattern: str) -> None:
    assert alike(only(messages(ALONE, running(**changes))), pattern)


def test_a_locked_account_is_named_before_a_login_fails() -> None:
    locked = Answered(Sshd("/usr/sbin/sshd", "9.2p1", accepts_login=False))
    message = only(messages(TWO, facts(1, sshd=locked), facts(2)))
    assert alike(message, "account-locked error lab-1: the account root is … usermod -p '*' root.")
    message = only(messages(BESIDE, running(sshd=locked), facts(2)))
    assert alike(message, "account-locked … root in the container rec-sdk … -p '*' root, in the …")


def test_what_the_image_lacks_is_named() -> None:
    lacking = Unanswered("missing", "could not find the OpenSSH server in the container rec-sdk")
    assert messages(ALONE, running(sshd=lacking)) == []  # nobody logs in there
    message = only(messages(BESIDE, running(sshd=lacking), facts(2)))
    assert message == (
        f"sshd-missing error lab-1: {lacking.message}. Install openssh-server in the image of "
        f"{IMAGE}"
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
    seen = running(sshd=Answered(Sshd("/usr/sbin/sshd", version)))
    assert messages(BESIDE, seen, facts(2)) == [
        f"sshd-old error lab-1: /usr/sbin/sshd is of OpenSSH {version}, which lacks "
        f"{each}. Install OpenSSH 7.4 or later in the image of {IMAGE}"
        for each in [unknown]
        if each
    ]


THERE = Answered(CodeTree())
ABSENT = Answered(CodeTree(state="absent"))
LOCKED = Answered(CodeTree(state="unreadable"))
CODE = replace(TWO, code_path="/work")


def tree(**files: str) -> Answered[CodeTree]:
    return Answered(CodeTree(entries={n.replace("_", "."): Entry(v) for n, v in files.items()}))


def compared(first: Any, *others: Any, lab: Cluster = CODE) -> str:
    """What is found in trees of nodes."""
    seen = [facts(n, code_tree=each) for n, each in enumerate((first, *others), 1)]
    nodes = tuple(node(n) for n in range(1, len(seen) + 1))
    return found(replace(lab, nodes=nodes), *seen)


GOOD = tree(a_py="1", b_py="1", main_py="1", ckpt="1")
OTHER = tree(main_py="b")
FULL = Answered(CodeTree(excess=(10001, 5 * 1024**2)))
TOO_MUCH = "/work was not compared: … 10000 files or 512 MiB (10001 files and 5 MiB were counted)"
FIND = Unanswered("failed", "could not look at the files of /work: find is not on PATH")


@pytest.mark.parametrize(
    ("trees", "pattern"),
    [
        ((tree(main_py="a"), tree(main_py="a")), ""),
        (
            (GOOD, tree(a_py="2", b_py="2", main_py="2", ckpt="1"), GOOD),
            "code-differs error lab-2: a.py differs from lab-1, b.py differs from lab-1; 1 more",
        ),
        (
            (GOOD, tree(a_py="1", main_py="1")),
            "code-differs error lab-2: b.py is …\ncode-others-differ warning lab-2: ckpt is …",
        ),
        (  # jobs left these where they ran
            (tree(main_py="a", fusion_result_json="1"), tree(main_py="a", rank_log="2")),
            "code-others-differ warning lab-2: fusion.result.json is missing…",
        ),
        (
            (tree(main_py="a", train_log="1"), tree(main_py="a", train_log="2")),
            "code-others-differ warning lab-2: train.log differs from lab-1",
        ),
        (
            (tree(main_py="a"), OTHER, OTHER),
            "code-differs error lab-[2-3]: main.py differs from lab-1",
        ),
        ((tree(main_py="a"), FULL), f"code-too-much warning lab-2: {TOO_MUCH}"),
        ((FULL, tree(main_py="a")), f"code-too-much warning lab-1: {TOO_MUCH}"),
        ((FIND, tree()), f"code-unknown error lab-1: {FIND.message}"),
    ],
)
def test_code_that_differs(trees: tuple[Any, ...], pattern: str) -> None:
    assert alike(compared(*trees), pattern)


SENT = replace(CODE, code_source="./here")
FROM_PRIMARY = replace(CODE, code_source="primary")
MISSING = "code-missing error lab-{}: the code path /work {}"


@pytest.mark.parametrize(
    ("lab", "first", "other", "text"),
    [
        (CODE, THERE, ABSENT, MISSING.format(2, "does not exist")),
        (SENT, THERE, ABSENT, ""),
        (SENT, THERE, LOCKED, MISSING.format(2, "cannot be read")),
        (FROM_PRIMARY, ABSENT, ABSENT, MISSING.format(1, "does not exist")),
    ],
)
def test_code_that_setup_sends_need_not_be_there_but_must_be_readable(
    lab: Cluster, first: Any, other: Any, text: str
) -> None:
    assert found(lab, facts(1, code_tree=first), facts(2, code_tree=other)) == text
    assert compared(tree(main_py="a"), OTHER, lab=SENT) == ""


def test_what_the_primary_could_not_send_is_named() -> None:
    odd = {"a\nb": Entry("1"), "link": Entry(target="../x"), "secret": Entry("")}
    trees = Answered(CodeTree(entries={**odd, "main.py": Entry("1")})), Answered(CodeTree())
    assert compared(*trees, lab=FROM_PRIMARY) == (
        "code-not-sent error lab-1: a\\nb has a name that cannot be sent; rename it, link is a "
        "symbolic link that leads out of the tree, to ../x; 1 more"
    )


def test_code_that_is_to_be_sent_is_awaited_also_where_the_primary_is_unreachable() -> None:
    assert found(replace(FROM_PRIMARY, nodes=(node(2),)), facts(2, code_tree=ABSENT)) == ""
