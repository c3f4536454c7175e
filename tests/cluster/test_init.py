"""`init` on practice nodes: what it writes can be set up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ascendboot.lab.cluster import Lab
from tests.cluster.operating import Operator

pytestmark = pytest.mark.cluster


def test_from_addresses_to_a_cluster(bring_up: Callable[..., Lab]) -> None:
    lab = bring_up(nodes=2, devices=2)
    operator = Operator(lab)
    hosts = lab.directory / "hostfile"
    hosts.write_text("".join(f"root@{node.address} slots=8\n" for node in lab.nodes))
    flags = ("--from", str(hosts), "--identity", str(lab.identity), "--name", "new")
    refused = operator.call("init", *flags, exits=4)
    assert "the same, run init again with --accept-new\n" in refused.err
    assert "nothing is written" in refused.err
    done = operator.call("init", *flags, "--accept-new", "--json", exits=0)
    assert done.err.count("accepted the new host key") == 2
    assert [each["node"] for each in done.json["accepted_host_keys"]] == ["lab-1", "lab-2"]
    assert [each["name"] for each in done.json["nodes"]] == ["lab-1", "lab-2"]
    assert "node-[1-2]: slots=8: left out: it has 2 NPUs" in done.json["not_carried_over"]
    assert "  lab-1: {address: " in done.json["inventory"]
    assert "  devices: 2\n" in done.json["inventory"]
    path = lab.directory / "inventories/new.yaml"
    assert path.read_text() == done.json["inventory"]
    assert operator.setup(inventory=path).json["exit_code"] == 0
    asked = ("192.0.2.250:1", "--force", "--output", str(path), "--accept-new")
    part = operator.call("init", *flags[:4], "--name", "new", *asked, exits=4)
    assert "written, with 3 nodes" in part.out
    assert "  # node-1: unreachable: " in path.read_text()


def test_the_only_container_is_that_of_the_ranks(container_cluster: Lab) -> None:
    operator = Operator(container_cluster)
    hosts = [f"root@{node.address}" for node in container_cluster.nodes]
    flags = ("--identity", str(container_cluster.identity), "--name", "lab", "--output")
    done = operator.call("init", *hosts, *flags, "found.yaml", exits=0)
    assert "ranks in the container rec-sdk\n" in done.out
    inventory = container_cluster.directory / "found.yaml"
    assert operator.call("exec", "--", "true", inventory=inventory).code == 0
    operator.sh("lab-2", "podman rename rec-sdk other")
    try:
        done = operator.call("init", *hosts, *flags, "-", exits=0)
    finally:
        operator.sh("lab-2", "podman rename other rec-sdk")
    assert "# No container runs on all nodes;" in done.out
    assert "\n  container:" not in done.out
