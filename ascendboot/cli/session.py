"""Opens the connections of one verb, and closes them."""

from __future__ import annotations

import getpass
import itertools
import logging
import sys
import threading
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ascendboot.checks.containers import obstacles
from ascendboot.console.screen import Screen
from ascendboot.console.streams import legible
from ascendboot.errors import AscendbootError, CommandError, NodeError, UsageError
from ascendboot.facts.container import container_exec, container_query
from ascendboot.facts.query import query
from ascendboot.model.cluster import ContainerExec
from ascendboot.model.names import fold
from ascendboot.model.secrets import masked, masked_json
from ascendboot.setup.record import SetupRecord
from ascendboot.setup.sync import CodeSender, read_source
from ascendboot.transport.guard import GuardedHost, ReadOnly, ReadOnlyHost
from ascendboot.transport.hostkeys import HostKeys
from ascendboot.transport.pool import connect_all, for_each
from ascendboot.transport.session import TOLD_AFTER_S, Waits
from ascendboot.transport.ssh import SshOpener

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.state import Run, State
    from ascendboot.transport.api import HostSide, Result, Transport
    from ascendboot.transport.guard import Fence
    from ascendboot.transport.hostkeys import Accepted


def way_in(node: Node, host: HostSide) -> ContainerExec:
    """What reaches into the container of a node that has one.

    Raises:
        NodeError: nothing does.
    """
    answer = query(host, dict(container_query(node)))["container"]
    way = container_exec(node, answer)
    if way is None:
        found = next(iter(obstacles(node, answer)))
        raise CommandError(node.name, f"{found.text}; {found.remedy}")
    return way


def code_sender(
    cluster: Cluster, interrupted: threading.Event, *, deletes: bool = False
) -> CodeSender | None:
    """The code that setup sends to the nodes, as far as it is known; None where it sends none.

    Raises:
        InventoryError: it cannot be read or sent.
        UsageError: something is to be deleted although nothing is sent.
    """
    source = read_source(cluster)
    if source is None and deletes:
        raise UsageError(
            f"--delete-code: {cluster.source} states no code.source, so there is nothing that the "
            "nodes could be made equal to; state one"
        )
    return CodeSender(cluster, source, deletes, interrupted) if source else None


_LOG = logging.getLogger(__name__)

_MOST_KEPT = 1 << 16


@dataclass
class Session:
    """What a verb needs to talk to the nodes of a cluster."""

    cluster: Cluster
    state: State
    run: Run
    forks: int
    host_keys: HostKeys
    hosts: dict[str, HostSide] = field(default_factory=dict)
    transports: dict[str, Transport] = field(default_factory=dict)
    """The workload sides."""
    waits: Waits = field(default_factory=Waits)
    fence: Fence | None = None
    """Lets write only while the cluster's lock is ours; None where none is taken."""
    problem: str = ""
    """Why the run's folder is not complete."""
    _numbers: dict[str, Iterator[int]] = field(
        default_factory=lambda: defaultdict(lambda: itertools.count(1))
    )

    @classmethod
    @contextmanager
    def opened(
        cls,
        cluster: Cluster,
        state: State,
        run: Run,
        *,
        accept_new: bool,
        forks: int,
        screen: Screen | None = None,
    ) -> Iterator[Session]:
        """A session whose connections end with the block; what is waited for long is said."""
        host_keys = HostKeys(state.known_hosts(cluster.name), accept_new=accept_new)
        session = cls(cluster, state, run, forks, host_keys)
        handler = _log_to(run)
        over = threading.Event()
        telling = (session.waits, screen, over)
        threading.Thread(target=_tell_of, args=telling, name="waits", daemon=True).start()
        try:
            yield session
        except AscendbootError as error:
            error.args = tuple(masked_json(error.args, run.secrets))
            raise
        finally:
            over.set()
            _close(session.hosts, cluster.nodes, forks=forks)
            logging.getLogger("ascendboot").removeHandler(handler)
            with suppress(OSError):
                handler.close()

    def connect_hosts(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
        """Connect to all host sides at once; the second mapping has nodes not reached."""

        def opened(node: Node) -> HostSide:
            transport = self._opener(node)
            if self.fence is not None and node == self.cluster.primary:
                self.fence.held_by(transport)
            return transport

        hosts, errors = connect_all(nodes, opened, forks=self.forks)
        self.hosts.update(hosts)
        return self.fenced(hosts), errors

    def fenced(self, hosts: Mapping[str, HostSide]) -> Mapping[str, HostSide]:
        """The same, for writes under the cluster's lock where one is taken."""
        fence = self.fence
        if fence is None:
            return hosts
        return {name: GuardedHost(host, fence.allow) for name, host in hosts.items()}

    def connect_hosts_to_look(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
        """As `connect_hosts`, but nothing that writes gets through."""
        hosts, errors = self.connect_hosts(nodes)
        return {name: ReadOnlyHost(host) for name, host in hosts.items()}, errors

    def connect(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, Transport], Mapping[str, NodeError]]:
        """Connect to the workload sides of all nodes at once, as recorded by the last setup.

        Without a record, the host side is queried.
        """
        hosts, errors = self.connect_hosts(nodes)
        engines = _engines(self.state, self.cluster)
        found = for_each(
            [node for node in nodes if node.name in hosts],
            lambda node: work_side(node, hosts[node.name], engines.get(node.name, "")),
            forks=self.forks,
        )
        lost = {name: side for name, side in found.items() if isinstance(side, NodeError)}
        sides = {name: side for name, side in found.items() if not isinstance(side, NodeError)}
        self.transports.update(sides)
        return sides, {**errors, **lost}

    def connect_to_look(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, Transport], Mapping[str, NodeError]]:
        """As `connect`, but nothing that writes gets through."""
        transports, errors = self.connect(nodes)
        return {name: ReadOnly(transport) for name, transport in transports.items()}, errors

    @cached_property
    def _opener(self) -> SshOpener:
        """One for the whole run: no passphrase is asked for twice."""
        return SshOpener(
            self.host_keys,
            nodes=self.cluster.nodes,
            ask=_ask,
            on_result=self.keep,
            waits=self.waits,
        )

    def connect_again(self, name: str) -> Transport:
        """Connect to the workload side of a node whose connection was lost.

        Raises:
            NodeError: it could not be reached.
        """
        if lost := self.hosts.pop(name, None):
            lost.close()
        sides, errors = self.connect([self.cluster.node(name)])
        if name in errors:
            raise errors[name]
        return sides[name]

    @property
    def former(self) -> Mapping[str, Node]:
        """Nodes that had another container at the last setup, as they were then."""
        applied = _applied(self.state, self.cluster)
        return applied.in_former_containers(self.cluster) if applied else {}

    @property
    def accepted(self) -> tuple[Accepted, ...]:
        """Host keys that were new and are accepted from now on."""
        return self.host_keys.accepted

    def keep(self, result: Result) -> None:
        """Keep a command and its answer in the run's folder; where that fails, `problem` says it.

        Never raises: it is called while commands run, and a full disk here must end none of them.
        """
        if self.fence is not None:
            self.fence.answered(result)
        text = (
            f"$ {result.shown()}\npurpose: {result.command.purpose}\n"
            f"exit {result.exit_code} after {result.duration_s:.3f} s\n"
            f"--- stdout\n{_truncated(result.stdout)}\n--- stderr\n{result.error_text}\n"
        )
        text = masked(text, result.command.secrets)
        try:
            self.run.log_command(result.node, next(self._numbers[result.node]), text)
        except OSError as error:
            if not self.problem:
                self.problem = f"could not keep every command in the run's folder: {error}"
                _LOG.warning("%s", self.problem)


def _tell_of(waits: Waits, screen: Screen | None, over: threading.Event) -> None:
    """Say for what the nodes are waited for that have made no progress for a while."""
    while not over.wait(1.0):
        if late := waits.late():
            screen = screen or _new_screen()
            for purpose, nodes in late.items():
                screen.say(
                    f"{fold(nodes)}: still waiting to {purpose}: no progress for "
                    f"{TOLD_AFTER_S:g} s; every wait has an end, Ctrl-C is a sooner one",
                    "yellow",
                )


def _new_screen() -> Screen:
    """One that takes nothing away from standard output."""
    return Screen(json_mode=True)


def _truncated(output: bytes) -> str:
    """So much of an output as the run's folder keeps: its beginning."""
    text = output[:_MOST_KEPT].decode(errors="replace")
    more = len(output) - _MOST_KEPT
    return text if more <= 0 else f"{text}\n--- {more} bytes more are not kept"


def read_only_run(state: State, verb: str, hidden: Sequence[str] = ()) -> Run:
    """The folder of a call that only looks: also where the working directory takes none."""
    try:
        return state.new_run(verb, hidden=hidden)
    except OSError as error:
        run = state.new_run_elsewhere(verb, hidden=hidden)
        _new_screen().say(
            f"{state.runs}: could not be written: {error.strerror or error}; what the nodes answer "
            f"is kept in {run.folder}",
            "yellow",
        )
        return run


def work_side(node: Node, host: HostSide, engine: str = "") -> Transport:
    """The workload side of a node; without `engine` the host side is asked for the way.

    Raises:
        NodeError: there is no way into the node's container.
    """
    if node.container is None:
        return host
    if engine:
        return host.inside(ContainerExec(engine, node.container))
    return host.inside(way_in(node, host))


def _engines(state: State, cluster: Cluster) -> dict[str, str]:
    """What reaches into each node's container, as far as the last setup remembers."""
    applied = _applied(state, cluster)
    return {name: node.engine for name, node in applied.nodes.items()} if applied else {}


def _applied(state: State, cluster: Cluster) -> SetupRecord | None:
    """What the last setup remembers; nothing also where another version wrote it."""
    try:
        document = state.applied(cluster.name)
        return SetupRecord.from_json(document) if document is not None else None
    except AscendbootError:
        return None  # then the nodes tell


def _close(transports: Mapping[str, HostSide], nodes: Sequence[Node], *, forks: int) -> None:
    """End all connections at once: one to a node that is gone takes its time."""
    opened = [node for node in nodes if node.name in transports]
    for_each(opened, lambda node: transports[node.name].close(), forks=forks)


class _RunLog(logging.FileHandler):
    """A log that loses lines rather than spilling tracebacks when its disk is full."""

    secrets: Sequence[str] = ()

    def format(self, record: logging.LogRecord) -> str:
        """A line, or several, without secrets."""
        return masked(super().format(record), self.secrets)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing of it."""


def _log_to(run: Run) -> logging.Handler:
    handler = _RunLog(run.folder / "run.log", encoding="utf-8", errors="backslashreplace")
    handler.secrets = run.secrets
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("ascendboot")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    return handler


def _ask(file: str) -> str | None:
    if not sys.stdin.isatty():
        return None
    return getpass.getpass(f"Passphrase of {legible(file)}: ")
