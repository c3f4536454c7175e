"""What a job needs of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.hccl.variables import hccl_ports
from ascendboot.launch.launchers.registry import traits_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import PurePosixPath

    from ascendboot.model.cluster import Cluster
    from ascendboot.setup.record import SetupRecord

_MOST_PORTS = 1024
_STATES_FIRST_PORT = "HCCL_IF_BASE_PORT"


@dataclass(frozen=True, kw_only=True)
class JobRequirements:
    """What a job needs, as known before any query of a node."""

    base: PurePosixPath
    python: str
    mpirun: str
    """Empty if the job does not use Open MPI."""
    module: str
    """The module that the interpreter must have; may be empty."""
    script: PurePosixPath | None
    """Its path on the nodes; None: it comes from the control machine."""
    primary: str
    meeting_port: int | None
    """The port on the primary where the ranks meet, if they do."""
    hccl_ports: Mapping[str, tuple[int, ...]]
    """By node; empty if HCCL needs none or chooses its own."""
    hccl_is_stated: frozenset[str]
    """The nodes whose first HCCL port the inventory states: HCCL takes no other."""
    sshd_port: int | None
    """The port of the cluster's sshd, if it listens on the workload side."""
    containers: Mapping[str, str | None]
    """By node, the container in which its ranks run."""
    devices: Mapping[str, Mapping[int, str | None]]
    """By node, the devices of the job with their IP in the rank table, if there is one."""
    linked: Mapping[str, tuple[int, ...]]
    """By node, the devices that use their network ports; empty for a job on one node."""
    data: tuple[str, ...]
    """Paths that must be readable."""
    used: frozenset[str]
    """Packages that the job uses whatever the script imports."""
    skipped: frozenset[str]
    """Ids of the checks that the operator skips."""

    def makes(self, check: str) -> bool:
        """Whether a check is made."""
        return check not in self.skipped

    def ports_on(self, node: str) -> tuple[int, ...]:
        """The ports that must be free on a node, without that of our sshd."""
        meeting = (self.meeting_port,) if self.meeting_port and node == self.primary else ()
        return (*meeting, *self.hccl_ports[node])


def job_requirements(
    cluster: Cluster, record: SetupRecord, script: PurePosixPath | None, skipped: Collection[str]
) -> JobRequirements:
    """Derives what a job of this cluster needs from the inventory and the record of setup."""
    launcher = traits_of(record.launcher)
    with_table = cluster.resource_mode == "rank-table"
    placement = record.placement(cluster)
    many = len(placement.nodes) > 1
    devices: dict[str, dict[int, str | None]] = {node.name: {} for node in placement.nodes}
    linked: dict[str, tuple[int, ...]] = dict.fromkeys(devices, ())
    for slot in placement.slots:
        devices[slot.node.name][slot.device_id] = slot.device_ip if with_table else None
        if many and slot.device_ip and cluster.product != "a3":
            linked[slot.node.name] += (slot.device_id,)
    envs = {node.name: cluster.env_of(node) for node in placement.nodes}
    used = {"torch", "torch_npu"} if cluster.is_for_torch else set()
    if cluster.profile == "rec-sdk-tf":
        used |= {"tensorflow", "npu_bridge", "horovod"}
    from_host = any(cluster.serves_from_host(node) for node in cluster.nodes)
    return JobRequirements(
        base=record.base,
        python=cluster.python,
        mpirun=record.mpirun if launcher.openmpi else "",
        module=launcher.module,
        script=script,
        primary=placement.primary.name,
        meeting_port=cluster.chief_port if launcher.sets_meeting or not with_table else None,
        hccl_ports={name: _ports_of_hccl(env) if many else () for name, env in envs.items()},
        hccl_is_stated=frozenset(name for name, env in envs.items() if _STATES_FIRST_PORT in env),
        sshd_port=None if from_host else record.port,
        containers={node.name: node.container for node in placement.nodes},
        devices=devices,
        linked=linked,
        data=cluster.data,
        used=frozenset(used) | launcher.packages,
        skipped=frozenset(skipped),
    )


def _ports_of_hccl(env: Mapping[str, str]) -> tuple[int, ...]:
    ports = sorted({port for ports in hccl_ports(env) for port in ports})
    return tuple(ports) if len(ports) <= _MOST_PORTS else ()
