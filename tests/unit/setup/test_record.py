"""The record of a setup, and when it no longer matches the inventory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from ascendboot import __version__, templates
from ascendboot.errors import AscendbootError, NodeError
from ascendboot.facts.installed import Installed, Open
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.hccn_tool import LldpNeighbour
from ascendboot.facts.query import Answered, Unanswered
from ascendboot.model.cluster import Cluster, LauncherChoice, Placement
from ascendboot.model.files import OwnFile
from ascendboot.readiness.queries import job_requirements
from ascendboot.setup import cluster_plan, record
from ascendboot.setup.record import SetupRecord
from ascendboot.value import as_json, replace
from tests.unit.checks import well

BASE = PurePosixPath("/var/lib/ascendboot/lab")
FACTS = {"lab-1": well.facts(1), "lab-2": well.facts(2)}


def recorded(
    cluster: Cluster = well.TWO, facts: Mapping[str, NodeFacts] = FACTS, **files: OwnFile
) -> SetupRecord:
    own = Installed(base=BASE, files={name.replace("_", "/"): file for name, file in files.items()})
    seen = cluster_plan.ClusterFacts(facts, {"lab-1": own, "lab-2": own})
    plan = cluster_plan.ClusterPlan(
        port=12345,
        placement=Placement.on(cluster, cluster_plan.devices_in_order(cluster, facts)),
        networks=("198.18.0.0/16",),
        base=BASE,
        mpirun="/usr/bin/mpirun",
        launcher=LauncherChoice("horovod", "it was asked for", "/opt/bin/horovodrun"),
        launcher_env={"PYTHONPATH": "/opt/mx_rec/libasc"},
    )
    paths = {"lab-1": {"env/node"}, "lab-2": {"env/node", "env/other"}}
    return cluster_plan.setup_record(cluster, plan, seen, paths)


def test_recorded_facts_count_while_the_inventory_states_the_same_of_a_node() -> None:
    own = {name: Installed(base=BASE) for name in FACTS}
    seen = cluster_plan.FactsRecord.of(well.TWO, cluster_plan.ClusterFacts(FACTS, own))
    first, second = (replace(node, env={"A": "1"}) for node in well.TWO.nodes)
    one, two = well.TWO.nodes
    nodes = [(one, two), (one, second), (first, two)]
    changed = [replace(well.TWO, nodes=each) for each in nodes]
    other = replace(well.TWO, python="python3.11")
    fitting = [sorted(seen.fitting(cluster).nodes) for cluster in (*changed, other)]
    assert fitting == [["lab-1", "lab-2"], ["lab-1"], [], []]


def test_only_files_of_steps_are_recorded() -> None:
    whole = recorded(env_node=OwnFile("aa", 0o644), env_stray=OwnFile("bb", 0o644))
    assert {name: dict(node.files) for name, node in whole.nodes.items()} == {
        "lab-1": {"env/node": OwnFile("aa", 0o644)},
        "lab-2": {"env/node": OwnFile("aa", 0o644)},
    }
    left = Installed(base=BASE, files={"env/node": OwnFile("aa", 0o644)})
    assert whole.nodes["lab-1"].problems(left, now=0.0) == ()  # as a server alone has none
    served = replace(whole.nodes["lab-1"], sshd="identity")
    assert served.problems(left, now=0.0) == ("the cluster's sshd does not run",)


def test_a_node_whose_user_is_unknown_is_not_recorded() -> None:
    silent = Unanswered("failed", "could not read the names of the system: no name for user ID 7")
    unknown = {**FACTS, "lab-2": replace(FACTS["lab-2"], system=silent)}
    with pytest.raises(NodeError, match=r"^lab-2: could not record the setup: the user that"):
        recorded(facts=unknown)


def test_a_record_is_read_as_it_was_written() -> None:
    whole = recorded(env_node=OwnFile("aa", 0o644))
    assert SetupRecord.from_json(json.loads(json.dumps(as_json(whole)))) == whole
    assert whole.version == __version__


@pytest.mark.parametrize("key", ["nodes", "slots", "launcher", "base"])
@pytest.mark.parametrize("form", [None, 7, ["x"]], ids=str)
def test_a_record_of_another_form_is_refused(key: str, form: object) -> None:
    document = {**as_json(recorded()), key: form}
    with pytest.raises(AscendbootError, match=r"cannot be read .*; run setup again$"):
        SetupRecord.from_json(document)


def test_a_container_that_the_inventory_no_longer_names_is_known() -> None:
    in_one = replace(well.TWO, nodes=tuple(replace(n, container="one") for n in well.TWO.nodes))
    before = recorded(in_one)
    first, second = in_one.nodes
    assert before.in_former_containers(in_one) == {}
    mixed = replace(in_one, nodes=(replace(first, container=None), replace(second, container="b")))
    assert before.in_former_containers(mixed) == {"lab-1": first, "lab-2": second}
    on_servers = {node.name: node for node in well.TWO.nodes}
    assert recorded().in_former_containers(in_one) == on_servers


def test_a_job_has_the_leaf_switches_that_setup_read_by_lldp() -> None:
    lab = replace(well.TWO, reads_leaves=True)
    seen = Answered({0: Answered(LldpNeighbour("b", "1")), 1: Answered(LldpNeighbour("a", "1"))})
    facts = {name: replace(each, neighbours=seen) for name, each in FACTS.items()}
    whole = SetupRecord.from_json(json.loads(json.dumps(as_json(recorded(lab, facts)))))
    of_job = lab.with_leaves(whole.leaves)
    assert {node.leaf for node in of_job.nodes} == {((0, "b"), (1, "a"))}
    assert whole.why_outdated(lab) is None
    assert recorded().leaves == {}


def test_what_setup_does_not_read_makes_no_record_outdated() -> None:
    moved = replace(
        well.TWO, source="elsewhere.yaml", log_limit=0, loss_form="cost <NUMBER>", data=("/d",)
    )
    assert recorded().why_outdated(moved) is None


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (__version__, "the inventory has changed since the cluster was set up"),
        ("0.0.7", f"ascendboot 0.0.7 set the cluster up; {__version__}, which runs now, reads the"),
    ],
)
def test_an_outdated_record_names_its_possible_cause(version: str, words: str) -> None:
    whole = replace(recorded(), version=version)
    assert (whole.why_outdated(replace(well.TWO, chief_port=61001)) or "").startswith(words)


def test_a_record_of_other_templates_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recorded()
    assert whole.why_outdated(well.TWO) is None
    shutil.copytree(templates.installed_templates(), tmp_path / "templates")
    monkeypatch.setattr(templates, "installed_templates", lambda: tmp_path / "templates")
    assert whole.why_outdated(well.TWO) is None
    with (tmp_path / "templates/env/keep.sh").open("a") as keep:
        keep.write("# new\n")
    why = whole.why_outdated(well.TWO)
    assert "set up by another version of ascendboot" in (why or "")
    before = SetupRecord.from_json({**as_json(whole), "templates": ""})
    assert before.why_outdated(well.TWO) == why


def test_a_key_that_a_later_version_adds_makes_no_record_outdated() -> None:
    def digest(of: Any) -> Any:
        return record._stated(of)

    assert "chief_port" not in digest(well.TWO)
    assert digest(replace(well.TWO, chief_port=61001))["chief_port"] == 61001
    assert record.digest(replace(well.TWO, secret_env=frozenset("BA"))) != record.digest(well.TWO)
    assert {tuple(sorted(node)) for node in digest(well.TWO)["nodes"]} == {
        ("address", "cluster_address", "name", "server_id", "ssh")
    }


def findings(cluster: Cluster, one: Installed, two: Installed) -> list[str]:
    """The findings that block a plan; none if nothing does."""
    planned = cluster_plan.plan_cluster(
        cluster, cluster_plan.ClusterFacts(FACTS, {"lab-1": one, "lab-2": two})
    )
    if isinstance(planned, cluster_plan.ClusterPlan):
        return []
    return [f"{found.id} {found.level} {found.message}" for found in planned]


def test_mx_rec_gets_no_rank_table_behind_a_symbolic_link() -> None:
    plain, linked = Installed(base=BASE), Installed(base=BASE, leads_to="/data/lab")
    rec_sdk = replace(well.TWO, profile="rec-sdk-tf")
    assert findings(well.TWO, plain, linked) == []
    [found] = findings(rec_sdk, plain, linked)
    assert found.startswith("base-linked error lab-2: the cluster's folder /var/lib/ascendboot/lab")
    assert "through a symbolic link to /data/lab" in found
    assert findings(replace(rec_sdk, resource_mode="no-rank-table"), plain, linked) == []


def test_setup_writes_nothing_below_a_folder_that_others_can_write_to() -> None:
    below_open = Installed(base=BASE, open_above={"/var": Open(0o777)})
    [found] = findings(well.TWO, below_open, Installed(base=BASE))
    assert found.startswith("open-folders error lab-1: /var has mode 0777: others could replace")
    assert found.endswith("`chmod go-w /var` closes it.")


@pytest.mark.parametrize(
    ("pods", "env", "linked"),
    [
        ((0, 0), {}, ()),
        ((0, 1), {}, (0, 1, 2, 3)),
        ((0, None), {}, ()),
        ((0, 0), {"HCCL_INTER_HCCS_DISABLE": "FALSE", "HCCL_INTRA_ROCE_ENABLE": "0"}, ()),
        ((0, 0), {"HCCL_INTER_HCCS_DISABLE": "TRUE"}, (0, 1, 2, 3)),
        ((0,), {"HCCL_INTER_HCCS_DISABLE": "TRUE"}, ()),
        ((0,), {"HCCL_INTRA_ROCE_ENABLE": "1"}, (0, 1, 2, 3)),
    ],
)
def test_item_10_a_job_across_super_pods_or_forced_to_roce_needs_the_ports_of_its_devices(
    pods: tuple[int | None, ...], env: dict[str, str], linked: tuple[int, ...]
) -> None:
    a3 = replace(well.TWO, product="a3", env=env, nodes=well.TWO.nodes[: len(pods)])
    seen = {f"lab-{number}": well.a3(number, pod) for number, pod in enumerate(pods, 1)}
    whole = SetupRecord.from_json(as_json(recorded(a3, seen)))
    needs = job_requirements(a3, whole, None, ())
    assert (needs.linked, needs.crosses_pods) == (dict.fromkeys(seen, linked), bool(linked))
