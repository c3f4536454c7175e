"""Variables that a node has by itself: what it gets, who is refused, and what its launcher sees."""

from __future__ import annotations

import pytest

from ascendboot.errors import InventoryError
from ascendboot.value import replace
from tests.unit.inventory.written import loaded, refused

NODES = """\
cluster: c
nodes:
  n1: {address: 192.0.2.1, env: {A: own, HCCL_SOCKET_IFNAME: eth1}}
  n2: {address: 192.0.2.2, groups: [g, h]}
  n[3-4]: {address: "192.0.2.[3-4]", env: {NUMBER: 0x10, YES: yes, DATE: 2024-01-01}}
groups:
  g: {env: {A: of g, B: of g}}
  h: {env: {B: of h, C: of h}}
defaults: {user: root, env: {C: of all, D: of all}}
env: {A: shared, E: shared}
hccl: {HCCL_SOCKET_IFNAME: eth0}
"""


def test_what_a_node_has_counts_before_groups_defaults_and_the_inventory() -> None:
    cluster = loaded(NODES)
    common = {"E": "shared", "D": "of all"}
    others = {**common, "A": "shared", "C": "of all", "HCCL_SOCKET_IFNAME": "eth0"}
    as_written = {"NUMBER": "0x10", "YES": "yes", "DATE": "2024-01-01"}
    assert {node.name: cluster.env_of(node) for node in cluster.nodes} == {
        "n1": {**common, "A": "own", "C": "of all", "HCCL_SOCKET_IFNAME": "eth1"},
        "n2": {**common, "A": "of g", "B": "of g", "C": "of h", "HCCL_SOCKET_IFNAME": "eth0"},
        "n3": {**others, **as_written},
        "n4": {**others, **as_written},
    }
    assert cluster.env == {"A": "shared", "E": "shared", "HCCL_SOCKET_IFNAME": "eth0"}


def test_nodes_that_differ_by_their_environment_alone_are_two_nodes() -> None:
    node = loaded(NODES).nodes[0]
    other = replace(node, env={"A": "else"})
    assert len({node, other, replace(node)}) == 2


HANDED_ON = """\
cluster: c
nodes:
  n1: {address: 192.0.2.1}
  n2: {address: 192.0.2.2, env: {LD_LIBRARY_PATH: /opt/lib}}
primary: n2
"""


@pytest.mark.parametrize("kind", ["auto", "horovod"])
def test_a_library_path_of_the_primary_alone_is_refused_where_horovodrun_would_spread_it(
    kind: str,
) -> None:
    text = f"{HANDED_ON}launcher: {{kind: {kind}}}\n"
    with pytest.raises(InventoryError, match=r"4: nodes\.n2\.env\.LD_LIBRARY_PATH: horovodrun"):
        loaded(text)
    assert loaded(f"{text}env: {{LD_LIBRARY_PATH: /usr/local/lib}}\n").launcher == kind


@pytest.mark.parametrize(
    "chosen",
    ["launcher: {kind: mpirun}", "launcher: {kind: torchrun}", "resources: {mode: root-info}"],
)
def test_a_library_path_of_the_primary_is_kept_where_horovodrun_is_never_chosen(
    chosen: str,
) -> None:
    cluster = loaded(f"{HANDED_ON}{chosen}\n")
    assert cluster.primary.env == {"LD_LIBRARY_PATH": "/opt/lib"}


ONE = "cluster: c\nnodes:\n  n1: {address: 192.0.2.1, env: {%s}}\n"


MODE, PORTS = "HCCL_OP_EXPANSION_MODE", "HCCL_HOST_SOCKET_PORT_RANGE"


@pytest.mark.parametrize(
    ("shared", "own", "said"),
    [
        ("HCCL_EXEC_TIMEOUT: 1837", f"{MODE}: AIV", f"{MODE}: 1837 s is more than the 1091 s"),
        ("HCCL_IF_BASE_PORT: 50000", f"{PORTS}: 50000-50100", f"{PORTS}: {PORTS} overrides HCCL_"),
    ],
)
def test_what_contradicts_shared_variables_is_told_where_the_node_states_it(
    shared: str, own: str, said: str
) -> None:
    [problem] = refused(f"{ONE % own}env: {{{shared}}}\n")
    assert problem.startswith(f"i.yaml:3: nodes.n1.env.{said}")


def test_what_a_node_makes_of_shared_variables_alone_is_told_at_the_node() -> None:
    own = ONE % "HCCL_OP_EXPANSION_MODE: HOST_TS"
    shared = "HCCL_OP_EXPANSION_MODE: AIV, HCCL_EXEC_TIMEOUT: 1092, HCCL_CONNECT_TIMEOUT: 1092"
    of_node, *_ = refused(f"{own}env: {{{shared}}}\n")
    assert of_node.startswith("i.yaml:3: nodes.n1: HCCL_CONNECT_TIMEOUT (1092 s) must be less than")


@pytest.mark.parametrize("chosen", ["launcher: {kind: torchrun}", "resources: {mode: root-info}"])
def test_a_meeting_place_of_a_node_is_refused_with_what_can_be_done(chosen: str) -> None:
    own = ONE % "MASTER_ADDR: 192.0.2.1"
    assert refused(f"{own}{chosen}\n") == [
        (
            "i.yaml:3: nodes.n1.env.MASTER_ADDR: the ranks meet on the primary, at "
            "resources.chief_port: remove it"
        )
    ]
    [problem] = refused(own)
    assert "state it under `env` of the inventory" in problem
    assert loaded(f"{ONE % 'A: b'}env: {{MASTER_ADDR: 192.0.2.1}}\n").env["MASTER_ADDR"]


def test_what_contradicts_in_the_inventory_already_is_told_once() -> None:
    [problem] = refused(f"{ONE % 'A: b'}env: {{HCCL_EXEC_TIMEOUT: 100}}\n")
    assert problem.startswith("i.yaml:4: env.HCCL_EXEC_TIMEOUT: ")


def test_an_address_of_each_node_is_what_hccl_wants() -> None:
    cluster = loaded(
        "cluster: c\n"
        "nodes:\n"
        "  n1: {address: 192.0.2.1, env: {HCCL_IF_IP: 198.51.100.1}}\n"
        "  n2: {address: 192.0.2.2, env: {HCCL_IF_IP: 198.51.100.2}}\n"
    )
    assert [node.env["HCCL_IF_IP"] for node in cluster.nodes] == ["198.51.100.1", "198.51.100.2"]
