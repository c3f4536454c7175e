"""Queries real servers once, and keeps what their tools printed. Nothing is written there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ascendboot.cli.session import work_side
from ascendboot.cli.verbs import Call
from ascendboot.errors import AscendbootError, NotUnderstoodError
from ascendboot.facts.node_facts import host_queries, work_queries
from ascendboot.facts.parsers.base import split
from ascendboot.facts.query import Answer, query
from ascendboot.model.cluster import Cluster, Node
from ascendboot.transport.api import Command, HostSide, Result, RunsAll
from ascendboot.value import Struct

_ENVIRONMENT = {"first_process", "environment"}
"""Variables of a container, which may be secrets; the files are meant to be sent."""

Found = Mapping[str, Mapping[str, Answer[Any]]]
"""By node and fact."""


class Keeping(Struct):
    """Runs commands on one side of a node, and keeps what each tool printed in a file."""

    inner: RunsAll
    folder: Path

    def run_all(self, commands: Sequence[Command]) -> tuple[Result, ...]:
        """Run them as `inner` does."""
        results = self.inner.run_all(commands)
        self.folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            try:
                sections = split(result.stdout, "")
                outputs = {n: (s.exit_code, s.content) for n, s in sections.items()}
            except NotUnderstoodError:
                outputs = {result.command.purpose: (result.exit_code, result.stdout)}
            for name, (code, content) in outputs.items():
                file = re.sub(r"\W+", "-", name) + ("" if code == 0 else f".exit-{code}")
                if name not in _ENVIRONMENT:
                    (self.folder / file).write_bytes(content)
        return results


@pytest.fixture(scope="session")
def call(pytestconfig: pytest.Config) -> Call:
    inventory = pytestconfig.getoption("inventory")
    if inventory is None:
        raise pytest.UsageError("-m hardware needs --inventory FILE: the servers to query")
    return Call(inventory, forks=16, json=True)


@pytest.fixture(scope="session")
def found(call: Call, pytestconfig: pytest.Config) -> Found:
    """The answers of all servers."""
    raw, cluster = Path(pytestconfig.getoption("raw") or "hardware-raw"), call.cluster()
    with call.session("check", cluster, reads=True) as session:
        return session.look_at(cluster.nodes, lambda n, host: _of_node(cluster, n, host, raw))


def _of_node(cluster: Cluster, node: Node, host: HostSide, raw: Path) -> dict[str, Answer[Any]]:
    answers = query(Keeping(host, raw / node.name / "host"), host_queries(cluster, node))
    try:
        work = work_side(node, host)
    except AscendbootError as error:
        pytest.fail(str(error))
    side = "container" if node.container else "host"
    return answers | query(Keeping(work, raw / node.name / side), work_queries(cluster, node))
