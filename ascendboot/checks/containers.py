"""Checks of job containers and of the training code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ascendboot.checks.finding import Finding, Findings, Level, error, unanswered, warning
from ascendboot.facts.container import ENGINES, PROGRAMS, container_in, is_foreign
from ascendboot.facts.derive import answered_nodes
from ascendboot.facts.node_facts import FactsByNode
from ascendboot.facts.parsers.system import Container, Engines
from ascendboot.facts.query import Answer, value_of
from ascendboot.model import files
from ascendboot.model.cluster import OWN_ONLY, Cluster, ContainerExec, Node
from ascendboot.value import replace

_MOST_NAMED = 6


def container_rules(cluster: Cluster, facts: FactsByNode) -> Findings:
    """Containers that ranks cannot run in, or not as they should."""
    for node, node_facts in answered_nodes(cluster, facts):
        if node.container is None:
            continue
        if is_foreign(cluster, node, node_facts.container):
            text = f"ascendboot did not create the container {node.container}: it is left as it is"
            remedy = "Remove it if nobody needs it, or state another `container.name`; or write "
            remedy += f"only `container: {node.container}` to use it as it is"
            yield error("container-not-ours", (node.name,), text, remedy)
            continue
        yield from obstacles(node, node_facts.container)
        found = container_in(node_facts.container)
        is_inside = cluster.has_logins and not cluster.serves_from_host(node)
        if found and found.lacks_capabilities and is_inside:
            text = f"root in the container {node.container} lacks one of the capabilities SETUID, "
            text += "SETGID and SYS_CHROOT: the cluster's sshd would refuse every login"
            remedy = "Re-create it with --cap-add SETUID,SETGID,SYS_CHROOT, or state "
            remedy += "`ssh: {via: engine}`"
            yield error("container-capabilities", (node.name,), text, remedy)
        yield from unanswered("container-network-unknown", node, node_facts.work_machine)
        host, inside = value_of(node_facts.machine), value_of(node_facts.work_machine)
        # Only on the host's network do ranks have the cluster address and our sshd its port.
        if host is not None and inside is not None and host != inside:
            text = f"the container {node.container} has a network of its own: the other nodes do "
            text += "not reach its ranks at the cluster address"
            remedy = "Re-create it with --network host"
            yield error("container-network", (node.name,), text, remedy)
        # Ranks get the image's variables from the first process of the container.
        answer, id_ = node_facts.first_process, "container-environment"
        for finding in unanswered(id_, node, answer, level="warning"):
            remedy = (
                "Ranks may lack it: state what they need under `env` (PATH, LD_LIBRARY_PATH, …), "
                "or start the container so that its first process runs as the user who trains"
            )
            yield replace(finding, remedy=remedy)


def busy_findings(busy: Mapping[str, tuple[str, Sequence[str]]]) -> Findings:
    """Containers that are not replaced: why they would be, and what runs in them, by node."""
    for name, (why, processes) in busy.items():
        text = f"{why}, and this runs in it: {', '.join(processes[:3])}"
        remedy = "End it (a job: stop --job ID), and run setup again"
        yield error("container-busy", (name,), text, remedy)


def obstacles(node: Node, answer: Answer[Engines]) -> Findings:
    """Why nothing can be run in the node's container; nothing if it can."""
    engines, name = value_of(answer), node.container or ""
    if engines is None:
        wanted = " or ".join(ENGINES[node.engine])
        remedy = f"Install {wanted}, or remove `container`: ranks then run on the host itself"
        yield from unanswered("engine-missing", node, answer, remedy)
    elif engines.container is not None:
        yield from _unusable(node, name, engines.container)
    elif engines.refused:
        refused = engines.refused.items()
        text = "; ".join(f"{PurePosixPath(path).name} refused: {words}" for path, words in refused)
        remedies = dict.fromkeys(ContainerExec(path, name).remedy(words) for path, words in refused)
        remedy = _sentence("; or ".join(remedies))
        yield error("engine-refused", (node.name,), text, remedy)
    else:
        more = len(engines.names) - _MOST_NAMED
        named = ", ".join(engines.names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        there = f"there are {named}" if named else "there is none at all"
        remedy = "Start it, or correct `container`"
        if node.creation is not None:
            remedy = "Run setup, which creates it"
        elif node.ssh.user != "root" and node.ssh.sudo == "none" and node.engine != "docker":
            remedy += f", or log in as the user who started it: {OWN_ONLY}"
        text = f"there is no container {name}; {there}"
        yield error("container-absent", (node.name,), text, remedy)


def _unusable(node: Node, name: str, found: Container) -> Findings:
    engine = PurePosixPath(found.engine).name
    id_, text = "container-stopped", f"the container {name} is {found.status}"
    if found.status == "paused":
        remedy = f"Resume it: {engine} unpause {name}"
    elif found.status != "running":
        remedy = f"Start it: {engine} start {name}"
    elif found.obstacle:
        id_ = "container-without-bash"
        text = f"could not run bash in the container {name}: {found.obstacle}"
        remedy = _sentence(ContainerExec(found.engine, name).remedy(found.obstacle))
    elif found.lacks:
        id_ = "container-without-programs"
        text = f"the container {name} has no {', '.join(found.lacks)}, which our scripts need"
        packages = (p for p, names in PROGRAMS.items() if not {*names}.isdisjoint(found.lacks))
        remedy = f"Install {', '.join(packages)} in its image"
    else:
        return
    yield error(id_, (node.name,), text, remedy)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def code_rules(cluster: Cluster, facts: FactsByNode) -> Findings:
    """Training code that is missing, differs, or cannot be sent."""
    trees = {}
    for node, node_facts in answered_nodes(cluster, facts):
        yield from unanswered("code-unknown", node, node_facts.code_tree)
        if tree := value_of(node_facts.code_tree):
            yield from _there(cluster, node, tree.state)
            trees[node.name] = tree
    if cluster.code_folder is None:
        yield from code_findings(cluster, trees)
    if cluster.code_source == files.PRIMARY and cluster.primary_name in trees:
        entries = trees[cluster.primary_name].entries
        reasons = {path: files.why_not_sent(path, entry) for path, entry in entries.items()}
        refused = [f"{ascii(path)[1:-1]} {why}" for path, why in reasons.items() if why]
        if refused:
            more = f"; {len(refused) - 2} more" if len(refused) > 2 else ""  # noqa: PLR2004
            text, remedy = ", ".join(refused[:2]), "Remove it, or leave it out with `code.exclude`"
            yield error("code-not-sent", (cluster.primary_name,), f"{text}{more}", remedy)


def _there(cluster: Cluster, node: Node, state: files.TreeState) -> Findings:
    is_sender = cluster.code_source == files.PRIMARY and node.name == cluster.primary_name
    is_sent = cluster.code_source is not None and not is_sender
    if state == "present" or (state == "absent" and is_sent):
        return
    why = "does not exist" if state == "absent" else "cannot be read"
    remedy = "Put it there on every node, have setup send it (`code.source`), or leave `code` out"
    yield error("code-missing", (node.name,), f"the code path {cluster.code_path} {why}", remedy)


def code_findings(cluster: Cluster, trees: Mapping[str, files.CodeTree]) -> Findings:
    """Nodes whose training code is too big to compare, or differs from the primary's."""
    for name, tree in trees.items():
        if tree.excess is not None:
            count, size = tree.excess
            most = f"{files.MOST_FILES} files or {files.MOST_BYTES // 1024**2} MiB"
            seen = f"{count} files and {size // 1024**2} MiB were counted"
            text = f"{cluster.code_path} was not compared: it holds more than {most} ({seen})"
            remedy = "Leave data and results out with `code.exclude`"
            level: Level = "warning" if cluster.code_source is None else "error"
            yield Finding("code-too-much", level, (name,), text, remedy)
    primary = cluster.primary_name
    reference = trees.get(primary)
    if reference is None or reference.excess is not None or cluster.code_source is not None:
        return
    for name, tree in trees.items():
        if tree.excess is not None or "absent" in (tree.state, reference.state):
            continue
        found = files.differences(reference, tree)
        if code := [difference for difference in found if difference.is_code]:
            remedy = "Make the folders equal, leave results out with `code.exclude`, or let setup "
            remedy += "send the code: `code.source`"
            yield error("code-differs", (name,), files.differences_text(code, primary), remedy)
        if rest := [difference for difference in found if not difference.is_code]:
            remedy = "If jobs read it, make it equal; if one left it, leave it out: `code.exclude`"
            text = files.differences_text(rest, primary)
            yield warning("code-others-differ", (name,), text, remedy)
