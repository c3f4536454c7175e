"""Setup of nodes whose ranks run in containers: what each side gets and is queried for."""

from __future__ import annotations

import base64

import pytest

from ascendboot.facts.parsers.system import Engines, Listener
from ascendboot.facts.query import Answered
from ascendboot.model.cluster import ContainerExec, Trust
from ascendboot.model.report import Outcome
from ascendboot.transport.api import Command
from ascendboot.value import replace
from tests.engine import simulated
from tests.engine.simulated import BASE, SimulatedNode, Simulation, changed, details, running
from tests.fake_transport import Answer, framed
from tests.unit.checks import well

OF_RANKS = {
    *("env/node.env", "env/rank-exec", "env/keep.sh"),
    *("resources/hccl_json_16p_2_host.json", "resources/hostfile"),
}
OF_SSHD = {"sshd/host_key", "sshd/sshd_config", "sshd", "trust/authorized_keys"}
OF_EVERY_NODE = {*OF_RANKS, *OF_SSHD, "sshd/host_key-cert.pub"}


def test_everything_goes_into_the_containers_and_nothing_to_the_hosts() -> None:
    cluster = Simulation.with_containers(2)
    assert cluster.walk().exit_code == 0
    assert [dict(node.transport.files) for node in cluster.nodes] == [{}, {}]
    assert [node.daemon for node in cluster.nodes] == ["", ""]
    assert all(f"{BASE}/env/rank-exec" in n.work.transport.files for n in cluster.nodes)
    assert all(node.work.daemon for node in cluster.nodes)
    assert cluster.nodes[0].transport.entered == [ContainerExec("/usr/bin/docker", "rec-sdk")]


def test_each_side_is_queried_once_and_a_second_setup_changes_nothing() -> None:
    cluster = Simulation.with_containers(2)
    cluster.walk()
    second = cluster.walk()
    assert changed(second) == set()
    # The host: queries and network; the container: queries, and on the primary the logins.
    assert [len(n.transport.executions) for n in cluster.nodes] == [2, 2]
    assert [len(n.work.transport.executions) for n in cluster.nodes] == [2, 1]


def test_a_restarted_container_gets_only_its_sshd_again() -> None:
    cluster = Simulation.with_containers(2)
    cluster.walk()
    cluster.nodes[1].work.daemon = ""
    assert changed(cluster.walk()) == {("lab-2", "sshd")}


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_a_new_container_gets_all_its_files_again(trust: Trust) -> None:
    cluster = Simulation.with_containers(2, trust=trust)
    cluster.walk()
    cluster.nodes[1].work.wipe()
    wanted = {("lab-2", step) for step in OF_EVERY_NODE}
    if trust == "pinned":
        wanted -= {("lab-2", "sshd/host_key-cert.pub")}
        wanted |= {("lab-1", "trust/known_hosts")}
    assert changed(cluster.walk()) == wanted


def test_the_cluster_s_sshd_in_a_container_does_not_block_its_own_port() -> None:
    cluster = Simulation.with_containers(2)
    cluster.walk()
    ours = Listener(address="198.18.0.1", port=12345, program="sshd", pid=4711)
    cluster.change("lab-1", listeners=Answered((ours,)))
    assert changed(cluster.walk()) == set()


def test_if_a_container_cannot_be_entered_nothing_is_written() -> None:
    cluster = Simulation.with_containers(2)
    cluster.change("lab-2", container=Answered(Engines(names=("other",))))
    assert details(cluster.walk()) == [
        "lab-2: there is no container rec-sdk; there are other. Start it, or correct `container`."
    ]
    assert [len(n.transport.executions) for n in cluster.nodes] == [1, 1]
    assert [len(n.work.transport.executions) for n in cluster.nodes] == [1, 0]


def test_check_reports_a_stopped_container() -> None:
    cluster = Simulation.with_containers(3)
    cluster.walk()
    cluster.change("lab-3", container=running(status="exited"))
    causes = {(r.node, r.cause.id) for r in cluster.check().results if r.cause}
    assert causes == {("lab-3", "container-stopped")}


def test_check_continues_after_a_node_that_could_not_be_queried() -> None:
    cluster = Simulation.with_containers(3)
    cluster.walk()
    for side in (cluster.nodes[0], cluster.nodes[2].work):
        side.broken["look at what ascendboot"] = Answer(stderr="no more processes", exit_code=1)
    results = cluster.check().results
    failed = [(r.node, r.phase) for r in results if r.outcome is Outcome.FAILED]
    assert failed == [("lab-1", "ask"), ("lab-3", "ask")]


def test_a_plan_enters_the_containers_and_writes_nothing() -> None:
    cluster = Simulation.with_containers(2)
    report = cluster.walk(planning=True)
    assert (report.exit_code, report.count(Outcome.WOULD_CHANGE) > 0) == (0, True)
    assert [len(n.work.transport.executions) for n in cluster.nodes] == [1, 1]


def via_engine() -> Simulation:
    cluster = Simulation.with_containers(2, ssh_via="engine")
    for number in (1, 2):
        cluster.change(f"lab-{number}", host=Answered(well.system(number, user="operator")))
    return cluster


OF_HOSTS = {*("sshd/sshd_config", "sshd/enter", "trust/authorized_keys"), "sshd/host_key-cert.pub"}


def names(node: SimulatedNode) -> set[str]:
    return {path.removeprefix(f"{BASE}/") for path in node.transport.files}


def test_via_the_engine_only_the_sshd_is_on_the_host() -> None:
    cluster = via_engine()
    assert cluster.walk().exit_code == 0
    first, second = cluster.nodes
    assert [names(node) for node in cluster.nodes] == [OF_HOSTS, OF_HOSTS]
    assert [(bool(n.daemon), bool(n.work.daemon)) for n in cluster.nodes] == [(True, False)] * 2
    client = {"trust/known_hosts", "trust/ssh_config"}
    client |= {"trust/cluster_key.pub", "trust/cluster_key-cert.pub"}
    assert (names(first.work), names(second.work)) == (OF_RANKS | client, OF_RANKS)
    assert (set(first.work.keys), set(second.work.keys)) == ({"trust/cluster_key"}, set())
    config = first.text("sshd/sshd_config")
    assert f"ForceCommand {BASE}/sshd/enter\n" in config
    assert "AllowUsers operator\n" in config
    client_config = first.work.text("trust/ssh_config")
    assert "User operator\n" in client_config
    assert changed(cluster.walk()) == set()


def test_via_the_engine_each_side_is_repaired_separately() -> None:
    cluster = via_engine()
    cluster.walk()
    cluster.nodes[0].daemon = ""
    cluster.nodes[1].work.wipe()
    ours = {("lab-2", step) for step in OF_RANKS}
    assert changed(cluster.walk()) == {("lab-1", "sshd"), *ours}


LEFT = (
    "lab-[1-2]: what setup installed is still in the container rec-sdk, which the inventory no "
    "longer names. Run reset, then setup; or remove that container."
)


@pytest.mark.parametrize(("status", "found"), [("running", {LEFT}), ("exited", set())])
def test_a_container_that_is_no_longer_named_is_reset_first(status: str, found: set[str]) -> None:
    cluster = Simulation.with_containers(2)
    cluster.walk()
    cluster.former = {node.name: node for node in cluster.cluster.nodes}
    inspected = f"{'a' * 64} {status} image"
    parts = {"docker": "/usr/bin/docker", "docker/inspect": inspected, "docker/bash": ""}
    for node in cluster.nodes:
        node.broken["look for the container"] = Answer(framed(parts))
    plain = tuple(replace(node, container=None) for node in cluster.cluster.nodes)
    cluster.cluster = replace(cluster.cluster, nodes=plain)
    assert {r.detail for r in cluster.check().results if "is still in" in r.detail} == found


def test_a_change_of_ssh_via_needs_a_reset() -> None:
    cluster = Simulation.with_containers(2)
    cluster.walk()
    cluster.cluster = replace(cluster.cluster, ssh_via="engine")
    left = "lab-[1-2]: the cluster's sshd {} is left from another `ssh.via` or `container`. "
    left += "Run reset, then setup."
    assert set(details(cluster.walk())) == {left.format("in the container")}
    back = via_engine()
    back.walk()
    back.cluster = replace(back.cluster, ssh_via="sshd")
    assert set(details(back.walk())) == {left.format("on the host side")}


ENDED = "Connection reset by 198.18.0.2 port 12345"
COMPLAINT = 'chroot("/run/sshd"): Operation not permitted [preauth]'


@pytest.mark.parametrize("via", ["sshd", "engine"])
def test_item_16_a_login_that_fails_quotes_the_log_of_the_sshd_that_refused_it(via: str) -> None:
    cluster = via_engine() if via == "engine" else Simulation.with_containers(2)
    assert cluster.walk().exit_code == 0
    first, second = cluster.nodes
    failed = base64.b64encode(ENDED.encode()).decode()
    first.work.broken["log in from the primary"] = Answer(f"lab-2 255  {failed}\n")

    def log(command: Command) -> Answer | str | None:
        if f"-- {BASE}/sshd/sshd.log " in command.argv[2]:
            return f"root:x:0:0::/root:/bin/bash\n{COMPLAINT}\n"
        return simulated.network(command)

    for side in (first, first.work, second, second.work):
        side.broken["read the log of the cluster's sshd"] = Answer()
    of_sshd = second if via == "engine" else second.work
    of_sshd.broken.clear()
    of_sshd.rule = log
    for report in (cluster.walk(), cluster.check()):
        [told] = [r.detail for r in report.results if (r.node, r.step) == ("lab-2", "login")]
        assert told.startswith(f"lab-2: could not log in from lab-1: {ENDED}; its sshd.log says ")
        assert f'"{COMPLAINT}"' in told
