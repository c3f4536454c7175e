"""`init`: write the inventory of a new cluster."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ascendboot.checks.finding import grouped
from ascendboot.cli.common import among
from ascendboot.cli.session import NodesUnreachableError
from ascendboot.cli.setup import addresses_of, left_nodes, nodes_set_up
from ascendboot.cli.verbs import Call, verb
from ascendboot.console.screen import Screen
from ascendboot.errors import InventoryError, NodeError, UnreachableError, UsageError, excerpt
from ascendboot.export.volcano import template
from ascendboot.facts.container import ENGINES, running_queries
from ascendboot.facts.node_facts import host_queries
from ascendboot.facts.query import Answer, Unanswered, query, value_of
from ascendboot.inventory import schema, values
from ascendboot.inventory.load import load
from ascendboot.inventory.sources import Host, hosts_of
from ascendboot.inventory.yaml import FOLDER
from ascendboot.model.cluster import Cluster, Node
from ascendboot.model.files import write_atomically
from ascendboot.model.names import counted, fold
from ascendboot.state import State
from ascendboot.transport.hostkeys import UnknownHostKeyError
from ascendboot.transport.pool import results_and_errors
from ascendboot.transport.ssh import keys_of_alias
from ascendboot.value import Struct, asdict, field, replace

Ask = Callable[[str, str, Callable[[str], object]], str]
"""Returns the answer to a question, or its default; a check raises what is wrong with it."""
_FURTHER = ("primary", "code", "env", "data", "launcher", "resources", "profile", "checkpoint")
_OF_ONE_NODE = ("address", "cluster_address", "server_id", "groups")
_VIRTUAL = re.compile(r"(docker|br-|veth|virbr|cni|flannel|podman|cali|tunl|kube).*")
_FACTS = ("host", "interfaces", "npus", *ENGINES["auto"])
_NUMBERED = re.compile("node-[0-9]+")
_NETWORK = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}")
_NONE = "none"
_SUDO = ("nopasswd", "ask", _NONE)
_NOT_WRITTEN = (
    "init: no node is left, so nothing is written; correct this, then repeat. --accept-new "
    "accepts unknown host keys"
)
_NO_ADDRESS = "{}: left out: its name has no IPv4 address here; state its address"
_HOSTS = "Hosts, such as atlas-[01-16] or root@192.0.2.11 root@192.0.2.12"


@verb(
    shared=("forks", "json"),
    positional=[],
    bare="host",
    stopped="Stopped: no inventory was written.",
    iterable=["host"],
    help={
        "host": "A host; also without the flag: NAME, USER@NAME:PORT or atlas-[01-16]",
        "from": "A hostfile, ~/.ssh/config or an inventory of Ansible; - for standard input",
        "name": "The name of the cluster. Default: that of its nodes, without numbers",
        "user": "The login name, where a host states none. Default: as with ssh",
        "identity": "The private key, where a host states none. Default: as with ssh",
        "sudo": "nopasswd, ask (for a password) or none, of users who are not root. Default: as"
        " --from states, otherwise none",
        "container": "The container in which ranks run, or none. Default: the only one that runs",
        "cluster-network": "The network between the nodes, such as 192.0.2.0/24. Default: where SSH"
        " reaches them, otherwise the first that all have",
        "output": "The file to write; - for standard output. Default: inventories/NAME.yaml",
        "no-query": "Connect to no node",
        "accept-new": "Accept and remember unknown host keys, and print them",
        "force": "Overwrite the file",
        "yes": "Ask nothing; take the defaults",
        "json": "Print what was found as JSON on standard output",
    },
)
def init(
    call: Call,
    host: list[str],
    *,
    from_: str = "",
    name: str = "",
    user: str = "",
    identity: str = "",
    sudo: str = "",
    container: str = "",
    cluster_network: str = "",
    output: str = "",
    no_query: bool = False,
    accept_new: bool = False,
    force: bool = False,
    yes: bool = False,
) -> None:
    """Write the inventory of a new cluster.

    Queries the nodes for NPUs, running containers and networks, and asks what
    it must. Changes nothing on them. Hosts can come from a hostfile of Open MPI
    or DeepSpeed, from ~/.ssh/config, or from an inventory of Ansible or
    ascend-deployer. What is not taken over is listed; passwords never are.

    Examples:
      invoke init atlas-[01-16] --user root
      invoke init root@192.0.2.11 root@192.0.2.12:2222 --name two-node
      invoke init --from hosts.ini --container rec-sdk --output atlas.yaml

    Exit codes: 0 done, 2 wrong usage, 4 a node is unreachable (the inventory
    marks it; if none answers nothing is written), 130 interrupted.
    """
    screen = Screen(json_mode=call.json or output == "-")
    asks = sys.stdin.isatty() and not (yes or call.json)
    ask: Ask = partial(_answer, screen) if asks else lambda _, default, _check: default
    words = host or ([] if from_ else ask(_HOSTS, "", lambda text: hosts_of(text.split())).split())
    if not (words or from_):
        raise UsageError("init: names no host; write init HOST, or init --from FILE")
    source = Path(os.path.expanduser("/dev/stdin" if from_ == "-" else from_))  # noqa: PTH111
    keys_of = None if _is_own_config(source) else partial(keys_of_alias, str(source))
    hosts, notes = hosts_of(words, source if from_ else None, keys_of)
    name = name or ask("Name of the cluster", _free_name(hosts, call.state), _check_names)
    path = Path(output or f"{FOLDER}/{name}.yaml")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file with --output")
    if output != "-" and not force and os.path.lexists(path):
        raise UsageError(f"{path}: is there already; --force overwrites it, --output names another")
    among("init: --sudo", sudo or None, _SUDO)
    _check_network(cluster_network, no_query=no_query)
    if not (user or any("user" in host.keys for host in hosts)):
        user = ask("Login name on the nodes; empty: as with ssh", "", partial(_check_names, "c"))
    draft = _Draft(name, from_, _nodes(hosts, {"user": user, "identity": identity}), notes)
    draft.choose_sudo(draft.probe(call), sudo, ask)
    cluster = draft.probe(call)
    if not no_query:
        draft.query(call, cluster, screen, accept_new=accept_new)
        draft.choose_network(cluster_network, ask)
    draft.choose_container(container, ask)
    draft.finish(call, screen, path)


def _answer(screen: Screen, question: str, default: str, check: Callable[[str], object]) -> str:
    """Ask until the answer is valid."""
    while True:
        answer = screen.answer(question, default)
        try:
            check(answer)
        except (InventoryError, UsageError) as error:
            screen.errors(str(error), "yellow")
        else:
            return answer


def _check_names(name: str, user: str = "") -> None:
    """Raise InventoryError unless an inventory can have these names."""
    keys = {"address": "192.0.2.1", **({"user": user} if user else {})}
    _Draft(name, "", [_Node("node", keys)], []).loaded()


def _check_network(network: str, *, no_query: bool) -> None:
    """Refuse before any connection what cannot be a network of the nodes."""
    if network and no_query:
        raise UsageError("--cluster-network: only the nodes know it; leave out --no-query")
    if network and not _NETWORK.fullmatch(network):
        why = f'"{network}" is no network; write one such as 192.168.0.0/16'
        raise UsageError(f"--cluster-network: {why}")


def _is_own_config(path: Path) -> bool:
    """Whether connecting reads this file."""
    own = Path(os.path.expanduser("~/.ssh/config"))  # noqa: PTH111 - never raises
    return own.exists() and path.exists() and path.samefile(own)


class _Node(Struct):
    """A node of the new inventory, and what it answers."""

    name: str
    keys: dict[str, Any]
    at: str = ""
    """Its address; that of the keys may be an alias in ~/.ssh/config."""
    error: str = ""
    comment: str = ""
    hostname: str = ""
    """Empty: it did not answer."""
    networks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Its IPv4 address and interface in each network."""
    running: Mapping[str, str] = field(default_factory=dict)
    """The images of its running containers, by name."""

    @property
    def lacks_address(self) -> bool:
        """Whether no inventory with it could be loaded."""
        where = self.keys.get("cluster_address", self.keys["address"])
        return values.why_not_cluster_ip(where) is not None

    def take(self, answers: Mapping[str, Answer[Any]]) -> list[str]:
        """Fill in what it answers; returns what it could not answer or has otherwise."""
        system, npus = value_of(answers["host"]), value_of(answers["npus"])
        self.hostname = system.hostname if system else self.name
        for engine in reversed(ENGINES["auto"]):
            self.running = {**self.running, **(value_of(answers[engine]) or {})}
        self.networks = {
            each.network: (each.address, interface.name)
            for interface in value_of(answers["interfaces"]) or ()
            if interface.is_up and not _VIRTUAL.match(interface.name)
            for each in interface.addresses
            if each.scope == "global" and ":" not in each.address
        }
        notes = [excerpt(a.message) for a in answers.values() if isinstance(a, Unanswered)]
        if system and system.uid:
            notes.append(f"{system.user} is not root, so setup may lack rights; --sudo gives them")
        slots = self.keys.pop("devices", None)
        if npus and npus.npus:
            self.keys["devices"] = number = len(npus.npus)
            self.comment = f"{number} x {', '.join(sorted({n.chip_name for n in npus.npus}))}"
            if slots not in (None, number):
                notes.append(f"slots={slots}: left out: it has {counted(number, 'NPU')}")
        return notes


class _Draft(Struct):
    """The new inventory."""

    name: str
    source: str
    nodes: list[_Node]
    notes: list[str]
    choices: list[str] = field(default_factory=list)
    """Comments on what the operator may choose."""
    accepted: list[tuple[_Node, str]] = field(default_factory=list)
    """Nodes with a new host key, and its fingerprint."""

    @property
    def answered(self) -> list[_Node]:
        """The nodes that answered: all of them, or at least one."""
        return [node for node in self.nodes if node.hostname]

    def probe(self, call: Call) -> Cluster:
        """The cluster as far as SSH needs it, with ~/.ssh/config."""
        places = [f"0.0.{n >> 8}.{n & 255}" for n in range(1, len(self.nodes) + 1)]
        cluster = replace(self.loaded(places), source="the new inventory")
        cluster = call.with_ssh_config(cluster)
        for node, reached in zip(self.nodes, cluster.nodes, strict=True):
            node.at = reached.address
        return cluster

    def choose_sudo(self, cluster: Cluster, sudo: str, ask: Ask) -> None:
        """State how users who are not root get its rights."""
        users = {node.ssh.user for node in cluster.nodes if node.ssh.sudo == _NONE} - {"root"}
        if users and not sudo:
            shown = ", ".join(sorted(users))
            words = f"sudo of {shown}, one of: nopasswd, ask (for a password), none"
            sudo = ask(words, _NONE, partial(among, "sudo", known=_SUDO))
        for node, reached in zip(self.nodes, cluster.nodes, strict=True):
            if sudo not in ("", reached.ssh.sudo) and reached.ssh.user != "root":
                node.keys["sudo"] = sudo

    def query(self, call: Call, cluster: Cluster, screen: Screen, *, accept_new: bool) -> None:
        """Connect to every node once, and fill in what it answers."""

        def answers_of(node: Node) -> dict[str, Answer[Any]]:
            facts = {**host_queries(cluster, node), **running_queries()}
            return query(hosts[node.name], {key: facts[key] for key in _FACTS})

        options = {"reads": True, "accept_new": accept_new}
        screen.working(f"Query {counted(len(self.nodes), 'node')}")
        try:
            with call.session("init", cluster, screen=screen, **options) as session:
                hosts, lost = session.connect_hosts_to_look(cluster.nodes)
                reached = [node for node in cluster.nodes if node.name in hosts]
                answers, failed = results_and_errors(
                    reached, answers_of, forks=call.forks, watch=screen.progress
                )
        finally:
            screen.rest()
        errors = {**lost, **failed}
        if not answers:
            folded = _folded((_without_inventory(error), name) for name, error in errors.items())
            raise NodesUnreachableError(*folded, _NOT_WRITTEN)
        keys = {each["node"]: each["fingerprint"] for each in session.accepted}
        for node in self.nodes:
            self.accepted += [(node, keys[node.name])] if node.name in keys else []
            node.error = str(errors.get(node.name, ""))
        self.notes += _folded(
            (note, node.name)
            for node in self.nodes
            if node.name in answers
            for note in node.take(answers[node.name])
        )
        names = {node.hostname for node in self.answered}
        is_free = names.isdisjoint(node.name for node in self.nodes if not node.hostname)
        valid = all(values.is_match(values.NAME, each) for each in names)
        for node in self.answered if len(names) == len(answers) and is_free and valid else ():
            node.name = node.hostname if _NUMBERED.fullmatch(node.name) else node.name
        counts = {node.keys.get("devices") for node in self.answered}
        for node in self.nodes if len(counts) == 1 and None not in counts else ():
            node.keys |= {"devices": next(iter(counts))}

    def choose_network(self, network: str, ask: Ask) -> None:
        """State where nodes reach each other, if that is not where SSH reaches them."""
        first, *others = [node.networks for node in self.answered]
        shared = [each for each in first if all(each in other for other in others)]
        reach = [(node.at, node.networks) for node in self.answered]
        shared.sort(key=lambda each: any(nets[each][0] != at for at, nets in reach))
        shown = ", ".join(f"{each} ({first[each][1]})" for each in shared)
        usual = shared[0] if shared else ""
        if not network and len(shared) > 1:
            check = partial(among, "network", known=shared)
            network = ask(f"Network between the nodes, one of: {shown}", usual, check)
            self.choices.append(f"Networks of all nodes: {shown}. cluster_address selects one.")
        if network and network not in shared:
            have = f"they share {shown}" if shared else "they share none"
            raise UsageError(f"--cluster-network: {network}: not all nodes have it; {have}")
        for node in self.answered:
            at, _ = node.networks.get(network or usual, ("", ""))
            if at and at != node.keys["address"]:
                node.keys.setdefault("cluster_address", at)

    def choose_container(self, container: str, ask: Ask) -> None:
        """State where ranks run, if that is known."""
        first, *others = [node.running for node in self.answered] or [{}]
        shared = [each for each in first if all(each in other for other in others)]
        if not container and not any("container" in node.keys for node in self.nodes):
            shown = ", ".join(" of ".join(filter(None, (n, first[n]))) for n in shared)
            usual = shared[0] if len(shared) == 1 else _NONE
            check = partial(among, "container", known=(*shared, _NONE))
            words = f"Container of the ranks, one of: {shown}, none"
            container = ask(words, usual, check) if shared else _NONE
            if shared and container == _NONE:
                words = f"On all nodes run: {shown}. `container: NAME` under defaults selects one"
                self.choices.append(f"{words}; without it ranks run on the servers.")
            elif any((first, *others)) and container == _NONE:
                self.choices.append(
                    "No container runs on all nodes; state each node's `container`."
                )
        if container not in ("", _NONE):
            for node in self.nodes:
                node.keys.setdefault("container", container)
            lacking = fold(n.name for n in self.answered if container not in n.running)
            self.notes += [f"{lacking}: no container {container} runs there"] if lacking else []

    def text(self, places: Sequence[str] = ()) -> str:
        """The file; `places` replace the addresses between the nodes."""
        first, *others = [node.keys for node in self.nodes]
        common = {
            key: value
            for key, value in first.items()
            if key not in _OF_ONE_NODE and all(keys.get(key) == value for keys in others)
        }
        rows = [(n, {k: v for k, v in n.keys.items() if k not in common}) for n in self.nodes]
        for (_, keys), place in zip(rows, places, strict=False):
            keys["cluster_address"] = place
        shapes = schema.whole()["properties"]
        text = template("begin.yaml.j2").render(
            name=self.name,
            source=self.source,
            nodes=[(n, keys, not places and n.lacks_address) for n, keys in rows],
            defaults=common,
            groups=sorted({group for _, keys in rows for group in keys.get("groups", ())}),
            choices=self.choices,
            further=[(k, shapes[k]["description"], shapes[k]["examples"][0]) for k in _FURTHER],
        )
        # Of what nodes answer, no control character gets into a comment.
        return "".join(each for each in text if each == "\n" or each.isprintable())

    def loaded(self, places: Sequence[str] = ()) -> Cluster:
        """The cluster of this inventory, as every verb will load it; InventoryError if invalid."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "inventory.yaml")
            file.write_text(self.text(places), encoding="utf-8")
            try:
                return load(file)
            except InventoryError as error:
                place = re.compile(rf"\S*{re.escape(file.parent.name)}/{file.name}(:\d+)*")
                found = [place.sub("the new inventory", each) for each in error.problems]
                raise InventoryError(found) from error

    def finish(self, call: Call, screen: Screen, path: Path) -> None:
        """Check and deliver the inventory, and end the verb."""
        for node in (node for node in self.nodes if node.lacks_address):
            with suppress(OSError):
                found = socket.gethostbyname(node.at)
                node.keys |= {} if found.startswith("127.") else {"cluster_address": found}
            node.error = node.error or (_NO_ADDRESS.format(node.name) if node.lacks_address else "")
        errors = [node.error for node in self.nodes if node.error]
        if all(node.lacks_address for node in self.nodes):
            raise UsageError(*errors, _NOT_WRITTEN)
        left_nodes(call.state, self.loaded())
        text, is_file = self.text(), str(path) != "-"
        if is_file:
            write_atomically(path, text.encode(), mode=0o644)
        elif not call.json:
            screen.text(text.removesuffix("\n"))
        for note in (*self.notes, *errors):
            screen.error(note, "red" if note in errors else "yellow")
        code = UnreachableError.exit_code if errors else 0
        document: dict[str, object] = {
            "exit_code": code,
            "cluster": self.name,
            "path": str(path) if is_file else None,
            "inventory": text,
            "nodes": [asdict(node) for node in self.nodes],
            "not_carried_over": self.notes,
            "accepted_host_keys": [{"node": n.name, "fingerprint": f} for n, f in self.accepted],
        }
        where = path.stem if path.parent == Path(FOLDER) else str(path)
        next_ = f"Next: ascendboot check {shlex.quote(where)}"
        stated = sum(not node.lacks_address for node in self.nodes)
        written = f"{path}: written, with {counted(stated, 'node')}"
        written += (
            f" ({len(self.nodes) - stated} commented out)" if stated < len(self.nodes) else ""
        )
        for one in {node.keys.get("container") for node in self.nodes} - {None}:
            written += f", ranks in the container {one}"
        call.end(code, document, (written, next_) if is_file else ())


def _without_inventory(error: NodeError) -> str:
    """The message where an unknown host key cannot be put into an inventory yet."""
    if isinstance(error, UnknownHostKeyError):
        return f"{error.condition}, run init again with --accept-new"
    return error.message


def _folded(notes: Iterable[tuple[str, str]]) -> list[str]:
    """The notes with their nodes; equal ones once."""
    return [f"{fold(names)}: {note}" for note, names in grouped(notes).items()]


def _nodes(hosts: Sequence[Host], defaults: Mapping[str, str]) -> list[_Node]:
    """The nodes of hosts; a host that is named by its address alone gets a number as name."""
    width = len(str(len(hosts)))
    usual = {key: value for key, value in defaults.items() if value}
    nodes = []
    for number, host in enumerate(hosts, 1):
        keys = {**usual, **host.keys, **({"groups": list(host.groups)} if host.groups else {})}
        at = keys.get("cluster_address", keys["address"])
        implied = {"cluster_address": keys["address"], "server_id": at}
        keys = {key: value for key, value in keys.items() if implied.get(key) != value}
        if "identity" in keys and (key := Path(keys["identity"])).exists():
            keys["identity"] = str(key.absolute())
        name = f"node-{number:0{width}}" if values.ip_of(host.name) else host.name
        nodes.append(_Node(name, keys))
    return nodes


def _free_name(hosts: Sequence[Host], state: State) -> str:
    """`atlas` of atlas-01 to atlas-16, with a number if another was set up as that."""
    stems = {re.sub(r"[^A-Za-z]*[0-9].*|\..*", "", host.name) for host in hosts}
    stem = stems.pop() if len(stems) == 1 and stems != {""} else "cluster"
    stated = {str(each) for host in hosts for each in host.keys.values()}
    name, number = stem, 1
    while (known := addresses_of(nodes_set_up(state, name))) and known.isdisjoint(stated):
        number += 1
        name = f"{stem}-{number}"
    return name
