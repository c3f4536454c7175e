"""The phases of setup on simulated nodes: order, barriers, failures, interrupts."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import pytest

from ascendboot.facts.parsers.hccn_tool import LldpNeighbour
from ascendboot.facts.parsers.software import Horovod, Program
from ascendboot.facts.parsers.system import Listener
from ascendboot.facts.query import NOT_QUERIED, Answered, Unanswered
from ascendboot.model.cluster import ResourceMode
from ascendboot.model.report import Outcome
from ascendboot.setup.phases import SETUP
from ascendboot.transport.api import Effect
from ascendboot.value import replace
from tests.engine.simulated import BASE, Simulation, changed, details
from tests.fake_transport import Answer
from tests.unit.checks import well

TITLES = [
    "Reach the nodes",
    "Query every node",
    "Check the answers",
    *(phase.title for phase in SETUP if phase.name not in ("firewall", "npu-network")),
    "Verify logins from the primary",
    "Verify the network between the nodes",
]


def test_setup_runs_all_phases_in_order_and_converges() -> None:
    cluster = Simulation.of(3)
    report = cluster.walk()
    assert report.exit_code == 0
    assert cluster.shown == TITLES
    assert {r.outcome for r in report.results} == {Outcome.OK, Outcome.CHANGED}


OF_ALL = ("launcher", "rank-table")
"""Results about the whole cluster, which its primary has."""


def test_results_stand_in_the_inventory_s_order_whatever_the_timing() -> None:
    report = Simulation.of(12).walk()
    for phase in ("reach", "ask", "judge", "prove"):
        found = [r for r in report.results if r.phase == phase and r.step not in OF_ALL]
        assert [r.node for r in found] == [f"lab-{n}" for n in range(1, 13)]


def test_setup_reports_the_launcher_and_why() -> None:
    cluster = Simulation.of(2)
    horovod = Answered(Horovod("/opt/py/bin/horovodrun", "0.28.1", has_mpi=True))
    missing = Unanswered("missing", "could not find Horovod: there is no horovodrun beside python3")
    shim = f"{BASE}/env/bin/ssh"
    for both, words, has_shim in (
        (missing, "mpirun starts jobs: lab-1: there is no horovodrun beside python3", False),
        (horovod, "horovodrun starts jobs: Horovod 0.28.1 beside python3 works on lab-1", True),
        (missing, "mpirun starts jobs: lab-1: there is no horovodrun beside python3", False),
    ):
        for node in ("lab-1", "lab-2"):
            cluster.change(node, horovod=both, ssh=Answered(Program("/usr/bin/ssh", "9.2p1")))
        report = cluster.walk()
        told = [(r.node, r.detail) for r in report.results if r.step == "launcher"]
        assert told == [("lab-1", words)]
        assert [shim in node.transport.files for node in cluster.nodes] == [has_shim, False]


@pytest.mark.parametrize(
    ("mode", "reported", "files"),
    [
        (
            "rank-table",
            [("lab-1", "rank table: version 1.0, for A2")],
            {"hccl_json_16p_2_host.json", "hostfile"},
        ),
        ("no-rank-table", [], {"hostfile"}),
    ],
)
def test_setup_writes_the_rank_table_if_the_job_uses_one(
    mode: ResourceMode, reported: list[tuple[str, str]], files: set[str]
) -> None:
    cluster = Simulation.of(2, resource_mode=mode)
    report = cluster.walk()
    assert [(r.node, r.detail) for r in report.results if r.step == "rank-table"] == reported
    for node in cluster.nodes:
        written = map(PurePosixPath, node.transport.files)
        assert {path.name for path in written if path.parent.name == "resources"} == files


def test_rank_table_hostfile_and_report_follow_the_leaf_switches() -> None:
    cluster = Simulation.of(6)
    nodes = tuple(
        replace(node, leaf=f"leaf-{number % 3}")
        for number, node in enumerate(cluster.cluster.nodes)
    )
    cluster.cluster = replace(cluster.cluster, nodes=nodes)
    report = cluster.walk()
    ordered = [node.name for node in cluster.cluster.rank_order]
    assert ordered == ["lab-1", "lab-4", "lab-3", "lab-6", "lab-2", "lab-5"]
    assert [(r.node, r.detail) for r in report.results if r.step == "topology"] == [
        ("lab-1", "rank order by leaf switches: ring cost 6 before, 3 after (optimal)")
    ]
    plain = Simulation.of(2)
    plain.walk()
    assert "RANK_AFTER_ACC" in cluster.nodes[0].text("env/rank-exec")
    assert "RANK_AFTER_ACC" not in plain.nodes[0].text("env/rank-exec")
    addresses = [node.cluster_address for node in cluster.cluster.rank_order]
    for node in cluster.nodes:
        written = {PurePosixPath(p).name: f.content for p, f in node.transport.files.items()}
        hosts = [line.split()[0] for line in written["hostfile"].decode().splitlines()]
        table = json.loads(written["hccl_json_48p_6_host.json"])
        assert hosts == addresses
        assert [server["server_id"] for server in table["server_list"]] == addresses


def seen_by_lldp(cluster: Simulation, names: str) -> None:
    """The answers of nodes about their switches; `-`: none."""
    for node, name in zip(cluster.cluster.nodes, names, strict=True):
        answer = Answered(LldpNeighbour(name, "1")) if name != "-" else NOT_QUERIED
        cluster.change(node.name, neighbours=Answered(dict.fromkeys(range(8), answer)))


def topology_of(cluster: Simulation) -> tuple[list[str], list[str]]:
    """What setup says of the order, and the addresses in the hostfile."""
    report = cluster.walk()
    written = cluster.nodes[0].text("resources/hostfile").splitlines()
    words = [r.detail for r in report.results if r.step == "topology"]
    return words, [line.split()[0].rpartition(".")[2] for line in written]


def test_setup_orders_ranks_by_lldp_and_another_cable_is_a_change_of_the_plan() -> None:
    cluster = Simulation.of(4, reads_leaves=True)
    seen_by_lldp(cluster, "abab")
    report = cluster.walk(planning=True)
    words = "rank order by leaf switches: ring cost 32 before, 16 after (optimal)"
    assert [r.detail for r in report.results if r.step == "topology"] == [words]
    assert topology_of(cluster) == ([words], ["1", "3", "2", "4"])
    assert cluster.walk(planning=True).count(Outcome.WOULD_CHANGE) == 0
    seen_by_lldp(cluster, "aabb")
    found = [r.detail for r in cluster.check().results if r.step == "resources/hostfile"]
    assert len(found) == 4
    assert {"has other content" in words for words in found} == {True}
    words = "rank order by leaf switches: already optimal, ring cost 16"
    assert topology_of(cluster) == ([words], ["1", "2", "3", "4"])


def test_without_any_lldp_answer_the_order_is_that_of_the_inventory() -> None:
    cluster = Simulation.of(3, reads_leaves=True)
    seen_by_lldp(cluster, "---")
    assert topology_of(cluster) == ([], ["1", "2", "3"])


def test_a_plan_writes_nothing_and_announces_what_is_not_known_yet() -> None:
    cluster = Simulation.of(2)
    report = cluster.walk(planning=True)
    commands = [c for n in cluster.nodes for c in n.transport.commands]
    assert {c.effect for c in commands} == {Effect.READ}
    assert report.count(Outcome.WOULD_CHANGE) == 25
    later = {r.step: r.detail for r in report.results if r.detail.startswith("not known")}
    assert later == {
        "sshd/host_key-cert.pub": "not known before the host keys are made",
        "trust/cluster_key.pub": "not known before the cluster's key is made",
        "trust/cluster_key-cert.pub": "not known before the cluster's key is made",
    }


def test_a_plan_of_one_changed_byte_shows_that_byte() -> None:
    cluster = Simulation.of(2)
    cluster.walk()
    hostfile = cluster.nodes[1].transport.files[f"{BASE}/resources/hostfile"]
    hostfile.content = hostfile.content.replace(b"slots=8", b"slots=9", 1)
    report = cluster.walk(planning=True)
    [change] = [r for r in report.results if r.outcome is Outcome.WOULD_CHANGE]
    assert (change.node, change.step) == ("lab-2", "resources/hostfile")
    assert change.diff.splitlines()[2:] == [
        "@@ -1,2 +1,2 @@",
        "-198.18.0.1 slots=9",
        "+198.18.0.1 slots=8",
        " 198.18.0.2 slots=8",
    ]


def test_a_variable_of_one_node_changes_that_node_alone() -> None:
    cluster = Simulation.of(2)
    cluster.walk()
    first, second = cluster.cluster.nodes
    other = replace(second, env={"CACHE": "/mnt/nvme1"})
    cluster.cluster = replace(cluster.cluster, nodes=(first, other))
    plan, applied = cluster.walk(planning=True), cluster.walk()
    for report, outcome in ((plan, Outcome.WOULD_CHANGE), (applied, Outcome.CHANGED)):
        assert changed(report, outcome) == {("lab-2", "env/node.env")}
    [diff] = [r.diff for r in plan.results if r.diff]
    assert diff.splitlines()[-1] == "+export CACHE=/mnt/nvme1"
    assert cluster.walk().count(Outcome.CHANGED) == 0


def test_an_unreachable_node_stops_the_run_before_anything_is_written() -> None:
    cluster = Simulation.of(3)
    cluster.unreachable.add("lab-2")
    report = cluster.walk()
    assert report.exit_code == 4
    assert cluster.shown == TITLES[:3]
    assert [n.transport.files for n in cluster.nodes] == [{}, {}, {}]


def test_a_finding_blocks_every_node_and_other_findings_are_reported() -> None:
    cluster = Simulation.of(3)
    cluster.unreachable.add("lab-3")
    cluster.change("lab-2", **well.npus(*range(7)))
    report = cluster.walk()
    told = [(r.node, r.outcome) for r in report.results if r.outcome is not Outcome.OK]
    assert ("lab-3", Outcome.UNREACHABLE) in told
    assert ("lab-2", Outcome.BLOCKED) in told
    assert report.exit_code == 4
    assert [n.transport.files for n in cluster.nodes] == [{}, {}, {}]


def test_a_step_that_does_not_converge_fails_with_the_output_of_the_node() -> None:
    cluster = Simulation.of(2)
    cluster.nodes[1].broken["start the cluster's sshd"] = Answer(
        stderr="Bind to port 12345 on 198.18.0.2 failed: Address already in use.", exit_code=1
    )
    report = cluster.walk()
    assert report.exit_code == 1
    [failure] = [r for r in report.results if r.outcome is Outcome.FAILED]
    assert (failure.node, failure.step) == ("lab-2", "sshd")
    assert failure.detail == (
        "lab-2: sshd did not converge: could not start the cluster's sshd: a script exited 1: "
        "Bind to port 12345 on 198.18.0.2 failed: Address already in use; fix that and "
        "run setup again"
    )
    assert cluster.shown == TITLES[:4]
    cluster.nodes[1].broken.clear()
    assert cluster.walk().exit_code == 0
    assert cluster.walk().count(Outcome.CHANGED) == 0


def test_a_failing_node_does_not_lose_the_results_of_the_others() -> None:
    cluster = Simulation.of(3)
    cluster.nodes[2].broken["write sshd_config"] = Answer(exit_code=1, stderr="disk full")
    report = cluster.walk()
    nodes = {node for node, _ in changed(report)}
    failed = {node for node, _ in changed(report, Outcome.FAILED)}
    assert ({"lab-1", "lab-2"} <= nodes, failed) == (True, {"lab-3"})


def test_an_interrupt_ends_setup_before_the_next_phase() -> None:
    cluster = Simulation.of(2)
    cluster.interrupted.set()
    report = cluster.walk()
    assert (report.exit_code, cluster.shown) == (130, ["Reach the nodes"])


def test_a_stated_port_that_is_taken_is_refused_and_auto_takes_the_next() -> None:
    cluster = Simulation.of(2)
    taken = Answered((Listener(address="0.0.0.0", port=12345, pid=9, program="nginx"),))  # noqa: S104
    cluster.change("lab-2", listeners=taken)
    cluster.walk()
    assert "Port 12346" in cluster.nodes[0].text("sshd/sshd_config")
    free = cluster.cluster
    cluster.cluster = well.cluster(well.node(1), well.node(2), ssh_port=12345)
    [blocked] = details(cluster.walk())
    assert blocked == (
        "lab-2: could not use port 12345 for the cluster's sshd: it is taken by nginx (pid 9). "
        "State another ssh.port, or `auto`."
    )
    cluster.cluster = free
    # The port of the cluster's sshd stays when another becomes free.
    ours = Answered((Listener(address="198.18.0.1", port=12346, pid=77, program="sshd"),))
    for name in ("lab-1", "lab-2"):
        cluster.change(name, listeners=ours)
    assert cluster.walk().count(Outcome.CHANGED) == 0


def test_the_cluster_s_sshd_listens_at_the_cluster_address_alone() -> None:
    cluster = Simulation.of(2)
    cluster.walk()
    configs = [node.text("sshd/sshd_config") for node in cluster.nodes]
    addresses = [re.findall("^ListenAddress .*", text, re.MULTILINE) for text in configs]
    assert addresses == [["ListenAddress 198.18.0.1"], ["ListenAddress 198.18.0.2"]]
