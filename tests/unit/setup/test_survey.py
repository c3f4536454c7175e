"""Findings about the nodes' answers, and about queries without an answer."""

from __future__ import annotations

import pytest

from ascendboot.checks.finding import Finding, numbers
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.query import Unanswered
from ascendboot.setup.survey import cluster_findings
from ascendboot.value import replace
from tests.unit.checks.well import TWO, cluster, facts, messages, node, second

MISSING = Unanswered("missing", "could not X: there is no x")
FAILED = Unanswered("failed", "could not X: it broke")
NOT_UNDERSTOOD = Unanswered("not-understood", "could not X: line 1")
DRIVER = "Is the Ascend driver installed on the host side?"


def test_there_are_no_findings_where_all_is_well() -> None:
    assert cluster_findings(TWO, {"lab-1": facts(1), "lab-2": facts(2)}) == ()


def test_missing_nodes_and_queries_that_were_not_made_are_not_checked() -> None:
    assert messages(TWO, facts(2)) == []
    assert messages(TWO, NodeFacts(node="lab-1"), NodeFacts(node="lab-2")) == []


def test_the_message_of_a_finding() -> None:
    finding = Finding(
        id="x", level="error", nodes=("lab-17", "lab-03"), text="it is off", remedy="Is it on?"
    )
    assert finding.message == "lab-[03,17]: it is off. Is it on?"
    assert replace(finding, remedy="").message == "lab-[03,17]: it is off."


def test_equal_findings_of_several_nodes_are_one_and_errors_come_first() -> None:
    wish = cluster(node(1), node(2), node(3))
    one, two = (facts(i, sshd=MISSING, clock=FAILED) for i in (1, 2))
    assert messages(wish, one, two, facts(3, sshd=FAILED)) == [
        "sshd-missing error lab-3: could not X: it broke.",
        (
            "sshd-missing error lab-[1-2]: could not X: there is no x. "
            "Install openssh-server on the host side."
        ),
        "clock-unknown warning lab-[1-2]: could not X: it broke.",
    ]


@pytest.mark.parametrize(
    ("fact", "remedy", "id_"),
    [
        ("npus", DRIVER, "npus-unknown"),
        ("device_networks", DRIVER, "device-networks-unknown"),
        ("sshd", "Install openssh-server on the host side.", "sshd-missing"),
        (
            "openmpi",
            "Install Open MPI 4.1 (package openmpi-bin), or put it in /usr/local/openmpi.",
            "openmpi-missing",
        ),
        ("python", "Install it, or state another `code.python`.", "python-missing"),
    ],
)
def test_a_tool_that_is_missing(fact: str, remedy: str, id_: str) -> None:
    message = f"{id_} error lab-2: could not X: there is no x. {remedy}"
    assert messages(TWO, facts(1), facts(2, **{fact: MISSING})) == [message]


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("npus", "npus-unknown error"),
        ("health", "device-health-unknown warning"),
        ("device_networks", "device-networks-unknown error"),
        ("hccn_conf", "hccn-conf-unknown info"),
        ("openmpi", "openmpi-missing error"),
        ("python", "python-missing error"),
        ("sshd", "sshd-missing error"),
        ("interfaces", "interfaces-unknown error"),
        ("place", "place-read-only error"),
        ("disk", "disk-unknown error"),
        ("code_tree", "code-unknown error"),
        ("system", "system-unknown error"),
        ("machine", "machine-unknown warning"),
        ("clock", "clock-unknown warning"),
        ("listeners", "listeners-unknown warning"),
    ],
)
def test_a_query_without_an_answer(fact: str, message: str) -> None:
    assert second(**{fact: FAILED}) == f"{message} lab-2: could not X: it broke"


def test_a_missing_hccn_conf_is_an_info_and_an_unreadable_one_a_warning() -> None:
    for answer, level in ((MISSING, "info"), (NOT_UNDERSTOOD, "warning")):
        message = f"hccn-conf-unknown {level} lab-2: {answer.message}"
        assert second(hccn_conf=answer) == message


def test_numbers_are_folded_in_order_only() -> None:
    assert numbers((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert numbers((2, 1)) == "2,1"
    assert numbers((1, 1)) == "1,1"
    assert numbers(()) == ""
