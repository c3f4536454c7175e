"""Simulated nodes for setup: they keep files, keys and the state of an sshd."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ascendboot.checks.probes import Coverage
from ascendboot.errors import NodeError, UnreachableError
from ascendboot.facts.node_facts import NodeFacts
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answered, answer_to
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import Authority, Control
from ascendboot.model.report import Outcome, Report, StepResult
from ascendboot.setup import ca
from ascendboot.setup.apply import apply_setup, check_cluster, plan_setup
from ascendboot.setup.cluster_plan import NO_FACTS, ClusterFacts, FactsRecord
from ascendboot.setup.results import Progress, Stopped
from ascendboot.setup.survey import Survey
from ascendboot.setup.verify import Expectation
from ascendboot.transport.api import Command, HostSide, Transport
from ascendboot.transport.guard import ReadOnly
from ascendboot.value import as_json, asdict, from_json, replace
from tests.fake_transport import Answer, FakeTransport, Rule, framed
from tests.unit.checks import well

BASE = "/var/lib/ascendboot/lab"
WELL = "3 packets transmitted, 3 received, 0.00% packet loss"


def private_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def public_key(name: str) -> str:
    """The public key called `name`, as OpenSSH writes it."""
    return ca._public_text(private_key(name))


def authority(name: str = "first") -> Authority:
    """The CA called `name`."""
    keys = {kind: private_key(f"{name} {kind} CA") for kind in ("user", "host")}
    user, host = map(ca._public_text, keys.values())
    return Authority(user=user, host=host, sign=partial(ca._sign, keys))


@dataclass
class SimulatedNode:
    """One server; files, keys and sshd outlive its connections."""

    number: int
    transport: FakeTransport = field(init=False)
    keys: dict[str, str] = field(default_factory=dict)
    daemon: str = ""
    nft: str = "absent"
    """The state of the cluster's table of nft, as a node reports it."""
    broken: dict[str, Answer] = field(default_factory=dict)
    """Answers of commands that fail, by a part of their purpose."""
    rule: Rule = field(default_factory=lambda: network)
    """The results of its attempts to reach other nodes."""
    inside: SimulatedNode | None = None
    """Its container, if it has one."""
    wiped: int = 0
    has_one_session: bool = False
    jobs: str = "end\n"
    """The answer about its jobs."""
    ports: dict[int, dict[str, str]] = field(default_factory=dict)
    """What is set on the network ports of its NPUs, which is also in its hccn.conf."""

    def __post_init__(self) -> None:
        self.reconnect()

    @property
    def work(self) -> SimulatedNode:
        """Where ranks run."""
        return self.inside or self

    def text(self, path: str) -> str:
        """The text of a file that setup wrote."""
        return self.transport.files[f"{BASE}/{path}"].content.decode()

    def wipe(self) -> None:
        """Remove everything of ascendboot, as a new container does."""
        self.transport.files.clear()
        self.keys.clear()
        self.daemon = ""
        self.wiped += 1

    def reconnect(self) -> FakeTransport:
        """A new connection to the same server."""
        kept = self.transport.files if hasattr(self, "transport") else {}
        self.transport = FakeTransport(
            f"lab-{self.number}",
            rules=(self._answer, self._of_ports, self.rule),
            files=kept,
            has_one_session=self.has_one_session,
        )
        if self.inside is not None:
            self.transport.containers["rec-sdk"] = self.inside.reconnect()
        return self.transport

    def _answer(self, command: Command) -> Answer | str | None:
        """The answer to a command by its purpose."""
        for part, answer in self.broken.items():
            if part in command.purpose:
                return answer
        match command.purpose:
            case "look at what ascendboot has set up":
                return self._own(with_nft="with_firewall=yes" in command.argv[2])
            case "look for jobs":
                return self.jobs
            case "note what is made here":
                pass
            case "make sshd/host_key" | "make trust/cluster_key":
                path = command.purpose.removeprefix("make ")
                times = self.wiped + (path in self.keys)
                self.keys[path] = public_key(f"{path} of {self.number}" + "again" * times)
            case "start the cluster's sshd":
                config = self.transport.files[f"{BASE}/sshd/sshd_config"].content
                host_key = self.keys["sshd/host_key"].encode()
                certificate = self.transport.files.get(f"{BASE}/sshd/host_key-cert.pub")
                digest = sha256(certificate.content).hexdigest() if certificate else "-"
                identity = sha256(config + host_key + b"\n").hexdigest()
                self.daemon = f"{identity} {digest}"
            case purpose if purpose.endswith(" of nft"):
                rules = self.transport.files[f"{BASE}/env/firewall.nft"].content
                loaded = f"loaded {sha256(rules).hexdigest()}"
                self.nft = loaded if purpose.startswith("load") else "absent"
            case purpose if purpose.startswith("remove "):
                path = purpose.removeprefix("remove ")
                self.keys.pop(path, None)
                self.transport.files.pop(f"{BASE}/{path}", None)
            case _:
                return None
        return Answer()

    def _of_ports(self, command: Command) -> Answer | str | None:
        if command.purpose == "query the NPUs":
            return Answer(framed(self._ports()))
        if command.purpose != "set the network of the NPUs":
            return None
        form = r"^hccn_tool -i (\d+) -(\w+) -s \S+ (\S+)(?: netmask)?( \S+)?$"
        for device_id, what, *values in re.findall(form, command.stdin.decode(), re.MULTILINE):
            self.ports[int(device_id)][what] = "".join(values)
        return Answer()

    def _ports(self) -> dict[str, str]:
        sections, conf = {"hccn_tool": "/usr/bin/hccn_tool"}, []
        for device_id, port in self.ports.items():
            ip, mask = port["ip"].split()
            sections[f"{device_id}/ip"] = f"ipaddr:{ip}\nnetmask:{mask}"
            sections[f"{device_id}/gateway"] = f"default gateway:{port['gateway']}, Iface:eth0"
            values = {"address": ip, "netmask": mask, "gateway": port["gateway"]}
            conf += [f"{name}_{device_id}={value}" for name, value in values.items()]
        return {**sections, "hccn_conf": "\n".join(conf)}

    def _own(self, *, with_nft: bool) -> str:
        lines = [f"base {BASE}"]
        for path, file in self.transport.files.items():
            own = path.removeprefix(f"{BASE}/")
            lines.append(f"mode {file.mode:o} {own}")
            lines.append(f"{sha256(file.content).hexdigest()}  {own}")
            if own.endswith("-cert.pub"):
                lines.append(f"certificate {own} {file.content.decode()}".rstrip())
        for path, key in self.keys.items():
            lines += [f"mode 600 {path}", f"key {path} {key}"]
        if config := self.transport.files.get(f"{BASE}/sshd/sshd_config"):
            lines += re.findall(r"^(port \d+)$", config.content.decode().lower(), re.MULTILINE)
        if owner := self.transport.files.get(f"{BASE}/owner"):
            lines.append(f"owner {owner.content.decode()}".strip())
        if self.daemon:
            lines.append(f"sshd 77 {self.daemon}")
        if with_nft or self.nft != "absent":
            lines.append(f"firewall {self.nft}")
        return "\n".join([*lines, "end\n"])


@dataclass
class Simulation:
    """A cluster of simulated nodes, on which setup and check run."""

    nodes: list[SimulatedNode]
    cluster: Cluster
    facts: dict[str, NodeFacts]
    unreachable: set[str] = field(default_factory=set)
    shown: list[str] = field(default_factory=list)
    interrupted: threading.Event = field(default_factory=threading.Event)
    authority: Authority | None = field(default_factory=authority)
    former: Mapping[str, Node] = field(default_factory=dict)
    control: Control | None = None
    take_over: bool = False
    rekeys: bool = False
    record: Any = None
    """What setup recorded of the nodes, as JSON."""

    @classmethod
    def of(cls, count: int, **stated: Any) -> Simulation:
        """A number of nodes without problems and without setup; `stated` of the cluster."""
        numbers = range(1, count + 1)
        return cls(
            [SimulatedNode(n) for n in numbers],
            well.cluster(*(well.node(n) for n in numbers), **stated),
            {f"lab-{n}": well.facts(n) for n in numbers},
        )

    @classmethod
    def with_containers(cls, count: int, **stated: Any) -> Simulation:
        """The same with a running container on each."""
        plain = cls.of(count, **stated)
        for node in plain.nodes:
            node.inside = SimulatedNode(node.number)
        nodes = tuple(replace(node, container="rec-sdk") for node in plain.cluster.nodes)
        plain.cluster = replace(plain.cluster, nodes=nodes)
        for name, seen in plain.facts.items():
            plain.change(name, container=running(), work_machine=seen.machine)
        return plain

    def change(self, node: str, **facts: Any) -> None:
        """Change the facts of one node."""
        self.facts[node] = replace(self.facts[node], **facts)

    def working(self, title: str) -> None:
        """A phase begins."""

    def progress(self, words: str) -> None:
        """How far the phase is."""

    def phase(self, title: str, results: Sequence[StepResult]) -> None:
        """A phase has ended; as on the screen, one without results is not shown."""
        self.shown += [title] if results else []

    def walk(self, *, planning: bool = False, only: Sequence[str] = ()) -> Report:
        """Run `setup`, or `setup --plan`, also with --nodes."""
        if planning:
            return self._run(lambda survey: plan_setup(survey, self._connect_to_look), only)
        return self._run(lambda survey: apply_setup(survey, self._connect), only)

    def check(self, coverage: Coverage = "ring") -> Report:
        """Run `check`."""
        return self._run(lambda survey: check_cluster(survey, self._connect_to_look, coverage))

    def _run(self, walk: Callable[[Survey], object], only: Sequence[str] = ()) -> Report:
        self.shown.clear()
        progress = Progress(self.cluster, self, self.interrupted, only=only)
        record = from_json(self.record, FactsRecord) if self.record else FactsRecord(NO_FACTS, {})
        survey = Survey(
            progress=progress,
            recorded=record.fitting(self.cluster),
            keep=self._keep,
            run_query=self._query,
            authority=self.authority,
            former=self.former,
            control=self.control,
            take_over=self.take_over,
            rekeys=self.rekeys,
        )
        with suppress(Stopped):
            walk(survey)
        return progress.report("run")

    def _keep(self, facts: ClusterFacts) -> None:
        self.record = as_json(FactsRecord.of(self.cluster, facts))

    def _query(self, transport: Transport, queries: Mapping[str, Any]) -> dict[str, Any]:
        facts = self.facts[transport.node]
        known = {name: value for name, value in asdict(facts).items() if name != "node"}
        asked = {name: queries[name] for name in ("own", "ports") if name in queries}
        return {**known, **{n: answer_to(q, transport.run(q.command)) for n, q in asked.items()}}

    def _connect(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
        opened = {
            f"lab-{n.number}": n.reconnect()
            for n in self.nodes
            if f"lab-{n.number}" not in self.unreachable
        }
        for node in self.nodes:
            node.work.transport.rules = (*node.work.transport.rules, self._proof)
        return opened, {n: UnreachableError(n, "no answer") for n in sorted(self.unreachable)}

    def _connect_to_look(
        self, nodes: Sequence[Node]
    ) -> tuple[Mapping[str, HostSide], Mapping[str, NodeError]]:
        opened, errors = self._connect(nodes)
        return {name: ReadOnly(transport) for name, transport in opened.items()}, errors

    def _proof(self, command: Command) -> str | None:
        if command.purpose != "log in from the primary":
            return None
        files = {
            path.removeprefix(f"{BASE}/"): file.content.decode()
            for path, file in sorted(self.nodes[0].work.transport.files.items())
            if "/resources/" in path
        }
        expected = Expectation(
            cluster=self.cluster,
            base=PurePosixPath(BASE),
            files=files,
            mpirun="/usr/bin/mpirun" if "orted" in command.argv[2] else "",
            has_wrapper="rank-exec" in command.argv[2],
        )
        answers = {
            node.name: "\n".join(expected.wanted_answer(node)) for node in self.cluster.nodes
        }
        return "".join(
            f"{name} 0 {base64.b64encode(words.encode()).decode()} \n"
            for name, words in answers.items()
        )


def changed(report: Report, outcome: Outcome = Outcome.CHANGED) -> set[tuple[str, str]]:
    """Node and step of the results with this outcome."""
    return {(r.node, r.step) for r in report.results if r.outcome is outcome}


def rows(report: Report, outcome: Outcome = Outcome.CHANGED) -> list[tuple[str, str, str]]:
    """Node, step and detail of the results with this outcome."""
    return [(r.node, r.step, r.detail) for r in report.results if r.outcome is outcome]


def details(report: Report, outcome: Outcome = Outcome.BLOCKED) -> list[str]:
    """The details of the results with this outcome."""
    return [r.detail for r in report.results if r.outcome is outcome]


def running(**changes: Any) -> Answered[Engines]:
    """A running container, with `changes`."""
    container = Container(engine="/usr/bin/docker", id="a" * 64, status="running")
    return Answered(Engines(container=replace(container, **changes)))


def network(command: Command, *, ping: str = WELL, knock: str = "0 ") -> Answer | None:
    """The output of the network script if all attempts have the same result."""
    if command.purpose != "try the network":
        return None
    wanted = [line.split()[:2] for line in command.stdin.decode().splitlines()]
    tcp = "\n".join(f"{n} {knock}" for kind, n in wanted if kind == "tcp")
    pings = {f"ping/{n}": ping for kind, n in wanted if kind == "ping"}
    return Answer(framed({"hccn_tool": "/usr/bin/hccn_tool", **pings, "tcp": tcp}))
