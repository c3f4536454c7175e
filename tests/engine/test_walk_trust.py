"""Trust between nodes: both kinds, renewal, another CA, another primary."""

from __future__ import annotations

import pytest

from ascendboot.facts.installed import _certificate
from ascendboot.facts.parsers.hccn_tool import DeviceAddress
from ascendboot.facts.query import NOT_QUERIED, Answered
from ascendboot.model import files
from ascendboot.model.cluster import Trust
from ascendboot.model.files import Control
from ascendboot.model.report import Outcome
from ascendboot.value import replace
from tests.engine.simulated import (
    BASE,
    SimulatedNode,
    Simulation,
    authority,
    changed,
    details,
    rows,
)
from tests.unit.checks import well

COMMON = {"authorized_keys"}
OF_PRIMARY = COMMON | {"cluster_key", "known_hosts", "ssh_config"}
CERTIFICATES = {"sshd/host_key-cert.pub", "trust/cluster_key-cert.pub"}
OF_CA = CERTIFICATES | {"trust/cluster_key.pub"}


def trust_files(node: SimulatedNode) -> set[str]:
    paths = {path.removeprefix(f"{BASE}/") for path in node.transport.files} | node.keys.keys()
    return {path for path in paths if path.startswith("trust/") or path in CERTIFICATES}


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_both_kinds_take_four_executions_at_first_and_two_without_changes_later(
    trust: Trust,
) -> None:
    cluster = Simulation.of(3, trust=trust)
    assert cluster.walk().exit_code == 0
    assert [len(n.transport.executions) for n in cluster.nodes] == [4, 4, 4]
    second = cluster.walk()
    assert (second.exit_code, rows(second)) == (0, [])
    assert [len(n.transport.executions) for n in cluster.nodes] == [2, 2, 2]


def test_with_certificates_one_line_authorizes_and_one_line_identifies_hosts() -> None:
    cluster = Simulation.of(3, trust="ca")
    cluster.walk()
    user, host = authority().user, authority().host
    assert [n.text("trust/authorized_keys") for n in cluster.nodes] == [
        f'cert-authority,restrict,from="198.18.0.1",principals="mpi-lab" {user} ascendboot lab\n'
    ] * 3
    assert cluster.nodes[0].text("trust/known_hosts") == f"@cert-authority [*]:12345 {host}\n"
    config = cluster.nodes[0].text("trust/ssh_config")
    assert "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com\n" in config
    assert "StrictHostKeyChecking yes\n" in config


def test_pinned_trust_names_every_key() -> None:
    cluster = Simulation.of(2, trust="pinned")
    cluster.walk()
    first, second = cluster.nodes
    assert second.text("trust/authorized_keys") == (
        f'restrict,from="198.18.0.1" {first.keys["trust/cluster_key"]} ascendboot lab\n'
    )
    assert first.text("trust/known_hosts") == (
        f"[198.18.0.1]:12345 {first.keys['sshd/host_key']}\n"
        f"[198.18.0.2]:12345 {second.keys['sshd/host_key']}\n"
    )
    assert "Certificate" not in first.text("trust/ssh_config")
    assert "Certificate" not in first.text("sshd/sshd_config")


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_a_first_setup_of_some_nodes_names_the_others(trust: Trust) -> None:
    cluster = Simulation.of(3, trust=trust)
    first, second, third = (node.name for node in cluster.cluster.nodes)
    done = cluster.walk(only=(first, second))
    assert done.exit_code == 0
    assert {r.node for r in done.results if r.outcome is Outcome.CHANGED} == {first, second}
    assert done.results[-1].node == third
    assert not cluster.nodes[2].keys
    rest = cluster.walk(only=(first, third))
    assert {r.node for r in rest.results if r.outcome is Outcome.CHANGED} <= {first, third}
    assert not any(r.outcome is Outcome.CHANGED for r in cluster.walk().results)


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_a_node_that_is_left_out_may_be_down_if_it_was_set_up(trust: Trust) -> None:
    cluster = Simulation.of(3, trust=trust)
    first, second, third = (node.name for node in cluster.cluster.nodes)
    cluster.unreachable = {third}
    unknown = cluster.walk(only=(first, second))
    assert unknown.exit_code == 4
    [why] = details(unknown, Outcome.UNREACHABLE)
    assert why.startswith("lab-3: no answer. Setup of other nodes needs its devices, host key")

    cluster.unreachable = set()
    cluster.walk()
    whole = [dict(node.transport.files) for node in cluster.nodes]
    cluster.unreachable = {third}
    cluster.nodes[1].wipe()
    for planning in (True, False):
        done = cluster.walk(planning=planning, only=(first, second))
        assert done.exit_code == 0
        [warned] = [r for r in done.results if r.step == "node-not-compared"]
        assert warned.is_warning
        assert warned.detail == (
            "warning: lab-3: was not compared, and counts as the last setup left it: no answer. "
            "Run setup again when it is back."
        )
    for node, were in zip(cluster.nodes, whole, strict=True):
        assert node.transport.files.keys() == were.keys()
        same = {path: file for path, file in were.items() if "/resources/" in path}
        assert same.items() <= node.transport.files.items()
    for node in cluster.nodes[1:] if trust == "pinned" else ():
        assert node.keys["sshd/host_key"] in cluster.nodes[0].text("trust/known_hosts")
    cluster.unreachable = set()
    assert changed(cluster.walk()) == set()

    cluster.unreachable = {third}
    moved = [
        replace(
            well.network(2, 0), addresses=Answered((DeviceAddress("198.19.9.9", "255.255.0.0"),))
        )
    ]
    cluster.change(second, **well.networks(2, *moved), hccn_conf=NOT_QUERIED)
    behind = cluster.walk(only=(first, second))
    assert behind.exit_code == 0
    assert (behind.results[-1].node, behind.results[-1].step) == (third, "not-as-setup-wishes")
    nodes = cluster.cluster.nodes
    for other in (
        replace(cluster.cluster, nodes=(*nodes[:2], replace(nodes[2], address="198.18.0.9"))),
        replace(cluster.cluster, env={"A": "1"}),
    ):
        cluster.cluster = other
        assert cluster.walk(only=(first, second)).exit_code == 4


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_on_port_22_hosts_are_known_by_their_plain_names(trust: Trust) -> None:
    cluster = Simulation.of(2, trust=trust)
    cluster.cluster = replace(cluster.cluster, ssh_port=22)
    cluster.walk()
    known = cluster.nodes[0].text("trust/known_hosts")
    assert known.startswith("@cert-authority * ssh-" if trust == "ca" else "198.18.0.1 ssh-")


def test_another_kind_of_trust_leaves_nothing_of_the_former() -> None:
    cluster = Simulation.of(2, trust="pinned")
    cluster.walk()
    before = [trust_files(node) for node in cluster.nodes]
    cluster.cluster = replace(cluster.cluster, trust="ca")
    assert cluster.walk().exit_code == 0
    of_ca = [OF_CA, {"sshd/host_key-cert.pub"}]
    assert [trust_files(node) for node in cluster.nodes] == [
        common | files for common, files in zip(before, of_ca, strict=True)
    ]
    cluster.cluster = replace(cluster.cluster, trust="pinned")
    assert cluster.walk().exit_code == 0
    assert [trust_files(node) for node in cluster.nodes] == before
    assert rows(cluster.walk()) == []


def test_another_primary_leaves_no_key_on_the_former() -> None:
    cluster = Simulation.of(2, trust="ca")
    cluster.walk()
    cluster.cluster = replace(cluster.cluster, primary_name="lab-2")
    cluster.nodes.reverse()
    assert cluster.walk().exit_code == 0
    assert [trust_files(node) for node in cluster.nodes] == [
        {f"trust/{name}" for name in OF_PRIMARY} | OF_CA,
        {f"trust/{name}" for name in COMMON} | {"sshd/host_key-cert.pub"},
    ]
    path = "trust/cluster_key-cert.pub"
    assert (certificate := _certificate(cluster.nodes[0].text(path)))
    assert certificate.claims.options == ("source-address 198.18.0.2/32",)
    assert rows(cluster.walk()) == []


def test_adding_a_node_changes_nothing_of_the_others_trust() -> None:
    cluster = Simulation.of(2, trust="ca")
    cluster.walk()
    cluster.nodes.append(SimulatedNode(3))
    cluster.cluster = well.cluster(*(well.node(n) for n in (1, 2, 3)))
    cluster.facts["lab-3"] = well.facts(3)
    report = cluster.walk()
    assert report.exit_code == 0
    assert {(r.node, r.phase) for r in report.results if r.outcome is Outcome.CHANGED} == {
        *(("lab-3", phase) for phase in ("sshd", "trust", "environment", "resources")),
        *((f"lab-{n}", "resources") for n in (1, 2)),
    }


def test_a_certificate_that_expires_soon_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, path = Simulation.of(2, trust="ca"), "sshd/host_key-cert.pub"
    with monkeypatch.context() as patch:
        patch.setattr(files, "VALID_DAYS", 99.5)
        cluster.walk()
    assert ("lab-2", path, f"{path} expires in 99 days") in rows(cluster.walk())
    assert rows(cluster.walk()) == []


def test_a_certificate_that_the_sshd_has_not_loaded_is_loaded() -> None:
    cluster = Simulation.of(2, trust="ca")
    cluster.walk()
    node = cluster.nodes[1]
    node.daemon = f"{node.daemon.split()[0]} {'0' * 64}"
    path = "sshd/host_key-cert.pub"
    assert rows(cluster.walk()) == [("lab-2", path, f"{path} is not what the running sshd shows")]


def test_a_lost_ca_is_reported_in_the_plan_and_replaced_everywhere() -> None:
    cluster = Simulation.of(2, trust="ca")
    cluster.walk()
    cluster.authority = None
    plan = cluster.walk(planning=True)
    again = (
        "not known before a new CA signs everything again; "
        "this control machine lacks the present CA's keys"
    )
    assert rows(plan, Outcome.WOULD_CHANGE) == [
        ("lab-1", "trust/authorized_keys", again),
        ("lab-1", "sshd/host_key-cert.pub", again),
        ("lab-1", "trust/cluster_key-cert.pub", again),
        ("lab-1", "trust/known_hosts", again),
        ("lab-2", "trust/authorized_keys", again),
        ("lab-2", "sshd/host_key-cert.pub", again),
    ]
    cluster.authority = authority("second")
    assert changed(cluster.walk()) == changed(plan, Outcome.WOULD_CHANGE)
    assert rows(cluster.walk()) == []


def control(name: str, *known: str) -> Control:
    """A control folder of `name`."""
    return Control(
        by=f"{name}@host",
        folder=f"/{name}",
        now="2026-01-02T03:04Z",
        known=frozenset(known),
        id=f"id:{name.encode().hex():0<32}",
    )


@pytest.mark.parametrize(("trust", "count"), [("ca", 10), ("pinned", 3)])
def test_a_plan_that_replaces_the_keys_has_a_row_for_every_change(trust: Trust, count: int) -> None:
    cluster = Simulation.of(2, trust=trust)
    keys = control("first").id, files.fingerprint(authority().host)
    cluster.control = first = control("first", *keys)
    cluster.walk()
    cluster.rekeys = True
    plan = changed(cluster.walk(planning=True), Outcome.WOULD_CHANGE)
    former = f"key:{files.fingerprint(cluster.nodes[0].keys['trust/cluster_key'])}"
    cluster.control = replace(first, known=first.known | {former})
    cluster.authority = authority("second")
    assert changed(cluster.walk()) == plan
    assert len(plan) == count
    assert not changed(cluster.walk())


@pytest.mark.parametrize("trust", ["ca", "pinned"])
def test_hostile_7_another_control_folder_changes_nothing_unless_it_takes_over(
    trust: Trust,
) -> None:
    cluster = Simulation.of(2, trust=trust)
    first, other = (control(name, control(name).id) for name in ("first", "other"))
    cluster.control = first
    assert cluster.walk().exit_code == 0
    assert rows(cluster.walk()) == []
    before = [dict(node.transport.files) for node in cluster.nodes]

    cluster.control, cluster.authority = other, authority("other")
    cluster.nodes[1].jobs = "process 7 j1\njob j1\nevent launcher - pid 7 start 1\nend\n"
    for cluster.take_over in (False, True):
        for planning in (True, False):
            refused = cluster.walk(planning=planning)
            assert refused.exit_code == 1
            told = details(refused)
            if cluster.take_over:
                assert told[0].startswith("lab-2: job j1 runs, and the takeover would replace")
            else:
                assert "lab-[1-2]: another control folder" in told[0]
                assert "/first of first@host, since 2026-01-02T03:04Z" in told[0]
                assert "run adopt" in told[0]
    assert [node.transport.files for node in cluster.nodes] == before

    cluster.nodes[1].jobs = "end\n"
    taken = cluster.walk()
    assert taken.exit_code == 0
    assert ("lab-1", "owner", "owner has other content") in rows(taken)
    cluster.take_over = False
    assert rows(cluster.walk()) == []
    cluster.control, cluster.authority = first, authority()
    assert cluster.check().exit_code == 1
    assert cluster.walk().exit_code == 1


def test_hostile_7_control_folders_that_share_the_ca_share_the_record() -> None:
    cluster = Simulation.of(3, trust="ca")
    cluster.control = control("first")
    cluster.walk()
    record = cluster.nodes[0].text("owner")
    cluster.control = control("second")
    cluster.nodes[2].wipe()
    assert cluster.walk().exit_code == 0
    assert [node.text("owner") for node in cluster.nodes] == [record] * 3
    cluster.nodes[0].transport.files.pop(f"{BASE}/owner")
    cluster.nodes[1].transport.files.pop(f"{BASE}/owner")
    cluster.authority = authority("other")
    assert any("the node has no other record" in words for words in details(cluster.walk()))
