"""The ports that `firewall` closes, and the parameters of Open MPI that they come from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascendboot.model.ports import OPENMPI_PORTS, closed_ports, openmpi_value, with_port_ranges
from tests.unit.inventory.written import loaded, refused

HEAD = "cluster: c\nnodes: {n1: {address: 192.0.2.1}, n2: {address: 192.0.2.2}}\n"
CLOSED = f"{HEAD}firewall: true\n"
OTHERS = "state other ports for Open MPI or resources.chief_port"
OOB, BTL = "oob_tcp_dynamic_ipv4_ports", "btl_tcp_port_min_v4"
NO_PORT = "which is no port; state for example"
CHIEF = {*range(61000, 61100)}


def test_without_the_key_mpirun_gets_no_ports_and_with_it_all_listeners_have_some() -> None:
    plain, closed = loaded(HEAD), loaded(CLOSED)
    assert (plain.firewall, plain.mpi_args) == (False, ())
    words = closed.mpi_args
    assert dict(zip(words[1::3], words[2::3], strict=True)) == OPENMPI_PORTS
    assert set(words[::3]) == {"--mca"}
    assert closed_ports(closed) == CHIEF | {*range(62000, 62008), *range(62100, 63000)}


def test_stated_ports_replace_the_default_and_are_closed_wherever_they_are_stated() -> None:
    cluster = loaded(
        "cluster: c\n"
        "nodes: {n1: {address: 192.0.2.1, env: {OMPI_MCA_btl_tcp_port_min_v6: 40000}}}\n"
        "firewall: true\n"
        "resources: {chief_port: 30000}\n"
        'launcher: {mpi_args: [--mca, oob_tcp_dynamic_ipv4_ports, "50000-50003,50009"]}\n'
        "env: {OMPI_MCA_btl_tcp_port_min_v4: 50200, OMPI_MCA_btl_tcp_port_range_v4: 2,"
        " OMPI_MCA_oob_tcp_static_ipv6_ports: 7000}\n"
    )
    oob = {*range(50000, 50004), 50009, 7000, *range(62004, 62008)}
    btl = {50200, 50201, *range(62100, 63000), *range(40000, 40900)}
    assert closed_ports(cluster) == {*range(30000, 30100)} | oob | btl
    assert "btl_tcp_port_min_v4" not in cluster.mpi_args
    assert openmpi_value(cluster, "btl_tcp_port_min_v4", cluster.env) == "50200"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (f"env: {{OMPI_MCA_{OOB}: any}}", f'{OOB} is "any", {NO_PORT} 62000-62003'),
        (f"env: {{OMPI_MCA_{BTL}: 62200-62300}}", f'{BTL} is "62200-62300", {NO_PORT} 62100'),
        (
            "env: {OMPI_MCA_btl_tcp_port_range_v6: 9000}",
            "ports end at 65535, and those to close at 71099; state others",
        ),
        ("defaults: {port: 62122}", f"it would close port 62122, where n1 takes logins; {OTHERS}"),
    ],
)
def test_ports_that_cannot_be_closed_are_refused_with_the_file(lines: str, problem: str) -> None:
    assert refused(f"{CLOSED}{lines}\n") == [f"i.yaml:3: firewall: {problem}"]


@given(st.dictionaries(st.sampled_from(sorted(OPENMPI_PORTS)), st.just("7")))
def test_each_parameter_is_given_to_mpirun_once(stated: dict[str, str]) -> None:
    args = tuple(word for item in stated.items() for word in ("--mca", *item))
    both = with_port_ranges(args, {}), with_port_ranges((), {f"OMPI_MCA_{n}": "7" for n in stated})
    assert sorted(both[0][1::3]) == sorted(OPENMPI_PORTS)
    assert sorted(both[1][1::3]) == sorted(OPENMPI_PORTS.keys() - stated)
    assert with_port_ranges(both[0], {}) == both[0]
