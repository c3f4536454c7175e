"""Opens the connections of one verb, and closes them."""

from __future__ import annotations

import getpass
import logging
import sys
import termios
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count
from typing import TypeVar

from ascendboot.checks.containers import obstacles
from ascendboot.cli.common import UNCHANGED
from ascendboot.console.screen import Screen
from ascendboot.console.streams import legible
from ascendboot.errors import (
    AscendbootError,
    CommandError,
    InterruptedRunError,
    NodeError,
    UnreachableError,
    UsageError,
)
from ascendboot.facts.container import container_exec, container_query
from ascendboot.facts.query import query
from ascendboot.model.cluster import Cluster, ContainerExec, Node
from ascendboot.model.names import fold
from ascendboot.model.secrets import masked, masked_json
from ascendboot.setup.record import SetupRecord
from ascendboot.setup.sync import CodeSender, read_source
from ascendboot.state import Run, State
from ascendboot.transport.api import HostSide, Result, Transport
from ascendboot.transport.guard import Fence, Guarded, ReadOnly
from ascendboot.transport.hostkeys import HostKeys
from ascendboot.transport.login_session import REPORT_AFTER_S, Waits
from ascendboot.transport.pool import on_each, results_and_errors
from ascendboot.transport.ssh import SshOpener
from ascendboot.value import Struct, field

T = TypeVar("T")
Hosts = tuple[Mapping[str, HostSide], Mapping[str, NodeError]]
"""Host sides by node, and the errors of nodes that could not be reached."""
WorkSides = tuple[Mapping[str, Transport], Mapping[str, NodeError]]
"""The same of workload sides."""
_LOG = logging.getLogger(__name__)
_MOST_KEPT = 1 << 16


def code_sender(
    cluster: Cluster, interrupted: threading.Event, *, deletes: bool = False
) -> CodeSender | None:
    """Return the sender of the training code, if any; InventoryError if it cannot be read."""
    source = read_source(cluster)
    if source is None and deletes:
        raise UsageError(
            f"--delete-code: {cluster.source} states no code.source, so there is nothing that the "
            "nodes could be made equal to; state one"
        )
    return CodeSender(cluster, source, deletes, interrupted) if source else None


def setup_record_of(state: State, cluster: Cluster) -> SetupRecord | None:
    """Read the last setup's record, if any; AscendbootError if damaged, or of another version."""
    document = state.recall(cluster.name, "applied")
    return None if document is None else SetupRecord.from_json(document)


class Session(Struct, dict=True):
    """The connections of one verb to the nodes of a cluster, and its run."""

    cluster: Cluster
    state: State
    run: Run
    forks: int
    host_keys: HostKeys
    screen: Screen
    hosts: dict[str, HostSide] = field(default_factory=dict)
    transports: dict[str, Transport] = field(default_factory=dict)
    """The workload sides."""
    waits: Waits = field(default_factory=Waits)
    fence: Fence | None = None
    """Allows writes only while this run holds the cluster's lock; None without a lock."""
    unkept: frozenset[str] = frozenset()
    """Purposes of commands that repeat for hours, and so are not kept in the run's folder."""
    problem: str = ""
    """Why the run's folder is incomplete."""
    _numbers: dict[str, Iterator[int]] = field(
        default_factory=lambda: defaultdict(lambda: count(1))
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
        screen: Screen,
    ) -> Iterator[Session]:
        """Open a session that closes its connections at the end, and reports long waits."""
        known, source = state.known_hosts(cluster.name), cluster.source
        host_keys = HostKeys(known, accept_new=accept_new, inventory=source)
        session = cls(cluster, state, run, forks, host_keys, screen)
        handler = _RunLog(run)
        logger = logging.getLogger("ascendboot")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(handler)
        over = threading.Event()

        def report_waits() -> None:
            """Print which nodes make no progress, and the purpose of their commands."""
            while not over.wait(1.0):
                for (purpose, advice), nodes in session.waits.late().items():
                    words = f"no progress for {REPORT_AFTER_S:g} s; {advice}"
                    screen.say(f"{fold(nodes)}: still waiting to {purpose}: {words}", "yellow")

        threading.Thread(target=report_waits, name="waits", daemon=True).start()
        was_refused = False
        try:
            yield session
        except AscendbootError as error:
            was_refused = isinstance(error, UsageError)
            error.args = tuple(masked_json(error.args, run.secrets))
            raise
        finally:
            over.set()
            screen.rest()
            # In parallel, because closing a lost connection takes long.
            opened = [node for node in cluster.nodes if node.name in session.hosts]
            on_each(opened, lambda node: session.hosts[node.name].close(), forks=forks)
            logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()
                if was_refused and not session.hosts:  # nothing was done
                    (run.folder / "run.log").unlink()
                    run.folder.rmdir()

    @property
    def accepted(self) -> list[dict[str, str]]:
        """The host keys that this run accepted, for a report."""
        keys = self.host_keys.accepted
        return [{"node": name, "fingerprint": key.fingerprint} for name, key in keys.items()]

    def connect_hosts(self, nodes: Sequence[Node]) -> Hosts:
        """Connect to all host sides at once; UsageError if sudo lacks a password."""

        def opened(node: Node) -> HostSide:
            transport = self._opener(node)
            if self.fence is not None:
                self.fence.connected(transport)
            return transport

        watch = self.screen.progress
        try:
            if any(node.ssh.sudo == "ask" for node in nodes):
                self._opener.key_files.sudo_password()
            hosts, errors = results_and_errors(nodes, opened, forks=self.forks, watch=watch)
        except KeyboardInterrupt as error:
            if self.screen.end_question is None:
                raise
            self.screen.end_question()
            raise InterruptedRunError(UNCHANGED) from error
        for each in self.accepted:
            self.screen.say_once("{node}: accepted the new host key {fingerprint}".format_map(each))
        self.hosts.update(hosts)
        return self.fenced(hosts), errors

    def fenced(self, hosts: Mapping[str, HostSide]) -> Mapping[str, HostSide]:
        """Guard writes with the cluster's lock, if there is one."""
        if self.fence is None:
            return hosts
        return {name: Guarded(host, self.fence.allow) for name, host in hosts.items()}

    def connect_hosts_to_look(self, nodes: Sequence[Node]) -> Hosts:
        """Connect as `connect_hosts`, read-only."""
        hosts, errors = self.connect_hosts(nodes)
        return {name: ReadOnly(host) for name, host in hosts.items()}, errors

    def look_at(self, nodes: Sequence[Node], ask: Callable[[Node, HostSide], T]) -> dict[str, T]:
        """Return what `ask` finds on each node, read-only; AscendbootError if it cannot on one."""
        hosts, lost = self.connect_hosts_to_look(nodes)
        answers, failed = results_and_errors(
            () if lost else nodes, lambda node: ask(node, hosts[node.name]), forks=self.forks
        )
        if errors := [*lost.values(), *failed.values()]:
            is_lost = any(isinstance(error, UnreachableError) for error in errors)
            raise (NodesUnreachableError if is_lost else AscendbootError)(*map(str, errors))
        return answers

    def connect(self, nodes: Sequence[Node]) -> WorkSides:
        """Connect to the workload sides of all nodes at once, as recorded by the last setup.

        Without a record, the host side is queried.
        """
        hosts, errors = self.connect_hosts(nodes)
        record, former = self._record, self.former
        engines = {n: node.engine for n, node in record.nodes.items()} if record else {}
        sides, lost = results_and_errors(
            [former.get(node.name, node) for node in nodes if node.name in hosts],
            lambda node: work_side(node, hosts[node.name], engines.get(node.name, "")),
            forks=self.forks,
        )
        self.transports.update(sides)
        return sides, {**errors, **lost}

    def connect_to_look(self, nodes: Sequence[Node]) -> WorkSides:
        """Connect as `connect`, read-only."""
        transports, errors = self.connect(nodes)
        return {name: ReadOnly(transport) for name, transport in transports.items()}, errors

    @cached_property
    def _opener(self) -> SshOpener:
        """One opener per run, so that it prompts only once for a passphrase."""
        return SshOpener(
            self.host_keys,
            nodes=self.cluster.nodes,
            ask=self._ask,
            on_result=self.keep,
            waits=self.waits,
        )

    def _ask(self, text: str) -> str | None:
        if not sys.stdin.isatty():
            return None
        self.screen.rest()  # its spinner would be drawn over the question
        terminal, before = sys.stdin.fileno(), termios.tcgetattr(sys.stdin)

        def end() -> None:
            """Also for a thread that goes on reading."""
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            self.screen.line("")

        self.screen.end_question = end
        answer = None
        with suppress(EOFError):  # Ctrl-D
            answer = getpass.getpass(f"{legible(text)}: ")
        self.screen.end_question = None
        return answer

    def connect_again(self, name: str) -> Transport:
        """Connect again to the workload side of a node that was lost; NodeError if it fails."""
        if lost := self.hosts.pop(name, None):
            lost.close()
        sides, errors = self.connect([self.cluster.node(name)])
        if name in errors:
            raise errors[name]
        return sides[name]

    @property
    def _record(self) -> SetupRecord | None:
        """The record of the last setup; None if it is missing or of another version."""
        try:
            return setup_record_of(self.state, self.cluster)
        except AscendbootError:
            return None  # then the nodes are queried

    @property
    def former(self) -> Mapping[str, Node]:
        """Nodes that had another container at the last setup, as recorded then."""
        record = self._record
        return record.in_former_containers(self.cluster) if record else {}

    def keep(self, result: Result) -> None:
        """Keep a command and its result in the run's folder; a failure is kept in `problem`.

        Never raises, because a full disk on the control machine must not end a command.
        """
        if self.fence is not None:
            self.fence.answered(result)
        if result.command.purpose in self.unkept:
            return
        more = len(result.stdout) - _MOST_KEPT
        dropped = f"\n--- {more} bytes more are not kept" if more > 0 else ""
        stdout = result.stdout[:_MOST_KEPT].decode(errors="replace") + dropped
        text = (
            f"$ {result.command.shown()}\npurpose: {result.command.purpose}\n"
            f"exit {result.exit_code} after {result.duration_s:.3f} s\n"
            f"--- stdout\n{stdout}\n--- stderr\n{result.error_text}\n"
        )
        try:
            self.run.log_command(result.node, next(self._numbers[result.node]), text)
        except OSError as error:
            if not self.problem:
                self.problem = f"could not keep every command in the run's folder: {error}"
                _LOG.warning("%s", self.problem)


def read_only_run(state: State, verb: str, hidden: Sequence[str] = ()) -> Run:
    """Create the folder of a read-only run, elsewhere if the working directory is read-only."""
    try:
        return state.new_run(verb, hidden=hidden)
    except OSError as error:
        run = state.new_run_elsewhere(verb, hidden=hidden)
        Screen(json_mode=True).say(
            f"{state.runs}: could not be written: {error.strerror or error}; the "
            f"answers of the nodes are kept in {run.folder}",
            "yellow",
        )
        return run


def work_side(node: Node, host: HostSide, engine: str = "") -> Transport:
    """Return a node's workload side, with `engine` without a query; NodeError if it has none."""
    if node.container is None:
        return host
    if engine:
        return host.inside(ContainerExec(engine, node.container))
    answer = query(host, dict(container_query(node)))["container"]
    entry = container_exec(node, answer)
    if entry is None:
        found = next(iter(obstacles(node, answer)))
        raise CommandError(node.name, f"{found.text}; {found.remedy}")
    return host.inside(entry)


class NodesUnreachableError(AscendbootError):
    """Some nodes do not answer; the text names each."""

    exit_code = UnreachableError.exit_code


class _RunLog(logging.FileHandler):
    """A log that drops lines instead of printing tracebacks when its disk is full."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder / "run.log", encoding="utf-8", errors="backslashreplace")
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._secrets = run.secrets

    def format(self, record: logging.LogRecord) -> str:
        """Format a record without secrets."""
        return masked(super().format(record), self._secrets)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore the error."""
