"""Which program starts the ranks, and the rules about Horovod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.facts.api import Unanswered, value_of
from ascendboot.judge.finding import (
    Finding,
    differences,
    judged_nodes,
    known,
    too_old,
    unanswered,
)
from ascendboot.judge.limits import SSH_OPTIONS
from ascendboot.model.launcher import LauncherChoice
from ascendboot.model.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ascendboot.facts.node import NodeFacts
    from ascendboot.model.cluster import Cluster

_INSTALL_TORCH = "Install PyTorch for the Python that `code.python` states"
_INSTALL = "Install Horovod with MPI (HOROVOD_WITH_MPI=1) for the Python that `code.python` states"


def choose_launcher(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> LauncherChoice:
    """The program that the inventory states; for `auto` the first that suits it and works."""
    if cluster.launcher == "torchrun":
        return LauncherChoice("the inventory states it", torchrun=True)
    if cluster.launcher == "auto" and cluster.resource_mode == "root-info":
        return _for_root_info(cluster, facts)
    horovod = value_of(facts[cluster.primary_name].horovod)
    if cluster.launcher == "horovod":
        return LauncherChoice("the inventory states it", horovod.path if horovod else "horovodrun")
    if cluster.launcher == "mpirun":
        return LauncherChoice("the inventory states it")
    obstacle = _obstacle(cluster, facts)
    if obstacle or horovod is None:
        return LauncherChoice(obstacle)
    beside = f"Horovod {horovod.version} beside {cluster.python} works on {cluster.primary_name}"
    return LauncherChoice(beside, horovod.path)


def needs_openmpi(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> bool:
    """Whether jobs are started by a program that is or calls mpirun."""
    return cluster.primary_name not in facts or not choose_launcher(cluster, facts).torchrun


def launcher_rules(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """All findings of this module."""
    nodes = tuple(judged_nodes(cluster, facts))
    found = known({node.name: seen.horovod for node, seen in nodes})
    yield from differences(
        "horovod-differs",
        {name: horovod.version for name, horovod in found.items()},
        has="Horovod ",
        level="error",
        remedy="Install the same version on all nodes",
    )
    yield from differences(
        "torch-differs",
        {name: torch.words for name, torch in known({n.name: s.torch for n, s in nodes}).items()},
        has="",
        level="error",
        remedy="Install the same versions on all nodes",
    )
    for node, seen in nodes:
        if cluster.launcher == "torchrun":
            yield from unanswered("torch-missing", node, seen.torch, _INSTALL_TORCH)
        if node.name == cluster.primary_name:  # whatever starts ranks reaches the nodes by ssh
            yield from unanswered("ssh-missing", node, seen.ssh, "Install openssh-client")
            remedy = "Install OpenSSH 7.4 or later where ranks run"
            yield from too_old("ssh-old", node, value_of(seen.ssh), SSH_OPTIONS, remedy)
    if cluster.launcher != "horovod":
        return
    for node, seen in nodes:
        yield from unanswered("horovod-missing", node, seen.horovod, _INSTALL)
        horovod = value_of(seen.horovod)
        if horovod is not None and horovod.has_mpi is False:
            yield Finding(
                id="horovod-without-mpi",
                level="error",
                nodes=(node.name,),
                text=f"Horovod {horovod.version} was built without MPI",
                remedy=_INSTALL,
            )


def _for_root_info(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> LauncherChoice:
    nodes = tuple(judged_nodes(cluster, facts))
    found = known({node.name: seen.torch for node, seen in nodes})
    lacking = [node.name for node, _ in nodes if node.name not in found]
    if lacking:
        return LauncherChoice(f"{fold(lacking)}: there is no torch for {cluster.python}")
    versions = " and ".join(dict.fromkeys(torch.words for torch in found.values()))
    why = f"resources.mode is root-info, and {cluster.python} has {versions} on every node"
    return LauncherChoice(why, torchrun=True)


def _obstacle(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> str:
    """Why horovodrun cannot be taken; empty when it can."""
    primary = facts[cluster.primary_name]
    if isinstance(primary.horovod, Unanswered):
        return f"{cluster.primary_name}: {primary.horovod.why}"
    if not primary.horovod.value.has_mpi:
        return f"Horovod on {cluster.primary_name} was built without MPI"
    if isinstance(primary.ssh, Unanswered):
        return f"{cluster.primary_name}: {primary.ssh.message}"
    lacking = [n.name for n, seen in judged_nodes(cluster, facts) if value_of(seen.horovod) is None]
    return f"there is no Horovod on {fold(lacking)}" if lacking else ""
