"""Nodes behind jump hosts, with real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ascendboot.cli.verbs import Call
from tests.integration.real_sshd import (
    USER,
    Bench,
    connections_seen,
    free_port,
    know,
    refusal,
    works,
)

pytestmark = pytest.mark.integration


def test_row_05_a_jump_host_leads_to_the_node_and_is_shared(bench: Bench) -> None:
    jump, server = bench.server("LogLevel VERBOSE"), bench.server()
    know(bench.user_known_hosts, jump)
    text = f"{USER}@127.0.0.1:{jump.port}"
    before = connections_seen(jump)
    opener = bench.opener()
    transports = [opener(bench.node(server, name, jump=text)) for name in ("n1", "n2")]
    assert [works(transport) for transport in transports] == [True, True]
    assert connections_seen(jump) == before + 1
    transports[0].close()
    assert works(transports[1])
    transports[1].close()
    again = opener(bench.node(server, "n3", jump=text))
    assert works(again)
    again.close()
    assert connections_seen(jump) == before + 2


def test_of_several_jump_hosts_the_broken_one_is_named_once(bench: Bench) -> None:
    near, server = bench.server(), bench.server()
    far = f"{USER}@127.0.0.1:{free_port()}"
    node = bench.node(server, jump=f"{far},{USER}@127.0.0.1:{near.port}")
    words = f"n1: could not use the jump host {far}: unreachable: no sshd answers on port "
    assert str(refusal(bench, node)).startswith(words)


def test_another_node_can_be_the_jump_host(bench: Bench) -> None:
    gate, server = bench.server(), bench.server()
    nodes = [bench.node(gate, "gate"), bench.node(server, "n1", jump="gate")]
    assert works(bench.open(nodes[1], nodes=nodes))


def test_a_jump_hosts_key_is_checked_like_any_other(bench: Bench) -> None:
    jump, server = bench.server(), bench.server()
    error = refusal(bench, bench.node(server, jump=f"{USER}@127.0.0.1:{jump.port}"))
    assert str(error).startswith(
        f"n1: could not use the jump host {USER}@127.0.0.1:{jump.port}: refused to log in: its "
        f"host key is not known: ED25519 {jump.fingerprint}"
    )


def test_a_node_that_its_jump_host_does_not_reach_is_reported(bench: Bench) -> None:
    gate, server = bench.server(), bench.server()
    port = free_port()
    nodes = [bench.node(gate, "gate"), bench.node(server, "n1", jump="gate", port=port)]
    error = refusal(bench, nodes[1], nodes=nodes)
    assert f"the jump host gate does not reach port {port} of 127.0.0.1" in str(error)


CONFIG = """\
Host node
  HostName 127.0.0.1
  Port {node.port}
  IdentityFile {key}
  HostKeyAlias Atlas
  ProxyJump far,127.0.0.1:{near.port}
Host far
  HostName 127.0.0.1
  Port {far.port}
  HostKeyAlias gate
Host *
  User {user}
  IdentityFile {key}
"""


def test_the_operators_ssh_config_leads_through_two_jump_hosts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, near, server = bench.server("LogLevel VERBOSE"), bench.server(), bench.server()
    monkeypatch.setenv("HOME", str(bench.folder))
    monkeypatch.chdir(bench.folder)
    places = {"far": far, "near": near, "node": server, "key": bench.identity, "user": USER}
    (bench.folder / ".ssh").mkdir()
    (bench.folder / ".ssh/config").write_text(CONFIG.format(**places))
    node = "{address: node, cluster_address: 198.51.100.1}"
    Path("x.yaml").write_text(f"cluster: x\nnodes: {{n1: {node}}}\n")
    names = {"gate": far, f"[127.0.0.1]:{near.port}": near, "atlas": server}
    keys = "".join(f"{name} {place.host_key}\n" for name, place in names.items())
    bench.user_known_hosts.write_text(keys)
    before = connections_seen(far)
    assert works(bench.open(Call("x.yaml").cluster().nodes[0]))
    assert connections_seen(far) == before + 1
