"""`firewall: true` on simulated nodes: the table of nft is desired state of every host."""

from __future__ import annotations

from typing import Any

import pytest

from ascendboot.model.cluster import SshVia
from ascendboot.model.ports import with_port_ranges
from ascendboot.model.report import Outcome
from tests.engine.simulated import BASE, Simulation, changed, details
from tests.fake_transport import Answer
from tests.unit.checks import well

TITLE = "Close the ports of jobs to other machines"
RULES = f"{BASE}/env/firewall.nft"
CLOSED: dict[str, Any] = {"firewall": True, "mpi_args": with_port_ranges((), {})}


def closing(count: int = 2) -> Simulation:
    return Simulation.of(count, **CLOSED)


def test_setup_loads_the_table_once_and_a_plan_only_announces_it() -> None:
    cluster = closing()
    planned = cluster.walk(planning=True)
    steps = {(n, s) for n in ("lab-1", "lab-2") for s in ("env/firewall.nft", "firewall")}
    assert steps <= changed(planned, Outcome.WOULD_CHANGE)
    assert [node.nft for node in cluster.nodes] == ["absent", "absent"]
    assert steps <= changed(cluster.walk())
    assert TITLE in cluster.shown
    assert changed(cluster.walk()) == set()


def test_all_nodes_have_the_same_rules_with_the_address_of_each_node() -> None:
    cluster = closing(3)
    cluster.walk()
    texts = {node.text("env/firewall.nft") for node in cluster.nodes}
    assert len(texts) == 1
    [text] = texts
    assert "elements = { 198.18.0.1, 198.18.0.2, 198.18.0.3 }" in text
    assert text.count("tcp dport { 61000-61099, 62000-62007, 62100-62999 } ") == 2
    assert "flush" not in text


def test_a_node_more_changes_the_rules_of_all_nodes() -> None:
    cluster, more = closing(2), closing(3)
    cluster.walk()
    more.nodes[:2] = cluster.nodes
    at_old_nodes = {item for item in changed(more.walk()) if item[0] != "lab-3"}
    assert {("lab-1", "firewall"), ("lab-2", "firewall")} <= at_old_nodes
    assert len({node.nft for node in more.nodes}) == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("absent", "is not loaded"),
        ("changed", "was changed"),
        (f"loaded {'0' * 64}", "is outdated"),
    ],
)
def test_check_names_a_node_whose_table_is_missing_or_differs_and_setup_restores_it(
    state: str, why: str
) -> None:
    cluster = closing()
    cluster.walk()
    cluster.nodes[1].nft = state
    found = [r for r in cluster.check().results if r.step == "firewall" and r.is_warning]
    text = f"the table inet ascendboot_lab of nft {why}"
    assert [(r.node, text in r.detail) for r in found] == [("lab-2", True)]
    assert changed(cluster.walk()) == {("lab-2", "firewall")}


def test_without_the_key_the_table_and_its_file_are_removed() -> None:
    cluster = closing()
    cluster.walk()
    cluster.cluster = well.cluster(*cluster.cluster.nodes)
    assert {("lab-1", "firewall"), ("lab-1", "env/firewall.nft")} <= changed(cluster.walk())
    assert [node.nft for node in cluster.nodes] == ["absent", "absent"]
    assert not any(RULES in node.transport.files for node in cluster.nodes)
    cluster.walk()
    assert TITLE not in cluster.shown


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("missing", "the host has no nft. Install the package nftables on the host"),
        ("refused Operation not permitted", "its tables: Operation not permitted. Log in as root"),
    ],
)
def test_a_node_that_cannot_have_the_table_blocks_setup_before_anything_is_written(
    state: str, words: str
) -> None:
    cluster = closing()
    cluster.nodes[1].nft = state
    [blocked] = details(cluster.walk())
    assert blocked.startswith("lab-2: could not close the ports of jobs (`firewall`): ")
    assert words in blocked
    assert not any(node.transport.files for node in cluster.nodes)


@pytest.mark.parametrize("via", ["sshd", "engine"])
def test_if_ranks_run_in_containers_the_table_is_on_the_hosts(via: SshVia) -> None:
    cluster = Simulation.with_containers(2, ssh_via=via, **CLOSED)
    for number in (1, 2) if via == "engine" else ():
        cluster.change(f"lab-{number}", host=well.facts(number).system)
    assert cluster.walk().exit_code == 0
    assert all(node.nft.startswith("loaded ") for node in cluster.nodes)
    assert [RULES in node.transport.files for node in cluster.nodes] == [True, True]
    assert {node.work.nft for node in cluster.nodes} == {"absent"}
    assert changed(cluster.walk()) == set()


def test_the_message_of_nft_is_shown_if_it_does_not_load_the_rules() -> None:
    cluster = closing()
    message = "firewall.nft:7:1-5: Error: Could not process rule: Operation not supported"
    cluster.nodes[1].broken["load the table"] = Answer(exit_code=1, stderr=message)
    [failed] = [r for r in cluster.walk().results if r.outcome is Outcome.FAILED]
    assert (failed.node, failed.step, message in failed.detail) == ("lab-2", "firewall", True)
