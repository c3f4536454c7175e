"""What a job needs of its nodes, and what earlier jobs left there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ascendboot.checks.finding import Finding
from ascendboot.facts.environment import device_node_query
from ascendboot.facts.query import Fact, value_of
from ascendboot.hccl.variables import hccl_ports
from ascendboot.launch.launchers.registry import traits_of
from ascendboot.readiness.queries import (
    HOST,
    VERSIONS,
    WORK,
    Jobs,
    NodeProbe,
    parse_data,
    parse_device_ips,
    parse_disk,
    parse_health,
    parse_holders,
    parse_jobs,
    parse_lacks,
    parse_listeners,
    parse_opening,
    parse_packages,
    parse_ports,
    parse_present,
)
from ascendboot.transport.api import Command, Effect

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ascendboot.model.cluster import Cluster, Node
    from ascendboot.setup.record import SetupRecord

_MOST_PORTS = 1024
_STATES_FIRST_PORT = "HCCL_IF_BASE_PORT"
_OF_LINKS = {"link": "links", "tls": "tls"}
"""The check that needs a query of hccn_tool."""


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
    meets = launcher.sets_meeting or not with_table
    placement = record.placement(cluster)
    devices: dict[str, dict[int, str | None]] = {node.name: {} for node in placement.nodes}
    for slot in placement.slots:
        devices[slot.node.name][slot.device_id] = slot.device_ip if with_table else None
    linked: dict[str, tuple[int, ...]] = dict.fromkeys(devices, ())
    for slot in placement.slots if len(devices) > 1 and cluster.product != "a3" else ():
        if slot.device_ip:
            linked[slot.node.name] += (slot.device_id,)
    envs = {node.name: cluster.env_of(node) for node in placement.nodes}
    alone = len(placement.nodes) == 1
    from_host = any(cluster.serves_from_host(node) for node in cluster.nodes)
    return JobRequirements(
        base=record.base,
        python=cluster.python,
        mpirun=record.mpirun if launcher.openmpi else "",
        module=launcher.module,
        script=script,
        primary=placement.primary.name,
        meeting_port=cluster.chief_port if meets else None,
        hccl_ports={name: () if alone else _ports_of_hccl(env) for name, env in envs.items()},
        hccl_is_stated=frozenset(name for name, env in envs.items() if _STATES_FIRST_PORT in env),
        sshd_port=None if from_host else record.port,
        containers={node.name: node.container for node in placement.nodes},
        devices=devices,
        linked=linked,
        data=cluster.data,
        used=_used(cluster, record),
        skipped=frozenset(skipped),
    )


def work_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries for the workload side; all share one run of one script."""
    with_ports = job.makes("ports")
    ports = [f"{port:04X}" for port in job.ports_on(node.name)] if with_ports else []
    sshd = f"{job.sshd_port:04X}" if job.sshd_port and with_ports else ""
    words = (job.base, job.python, job.module, job.script or "", job.mpirun)
    data = job.data if job.makes("data") else ()
    with_versions = bool(job.module) or (job.makes("packages") and len(job.devices) > 1)
    command = Command(
        argv=(
            *("bash", "-c", WORK, "ascendboot", *map(str, words)),
            *("|".join(ports), VERSIONS if with_versions else "", sshd),
            *data,
        ),
        purpose="look at what the job needs",
        effect=Effect.READ,
        timeout_s=30.0 + 6.0 * len(data),
    )
    packages = Fact(command, parse_packages, f"ask {job.python} for packages")
    return {
        **({"packages": packages} if with_versions else {}),
        **({"data": Fact(command, parse_data, "look for the data")} if data else {}),
        **(device_node_query(node) if job.makes("devices") else {}),
        "lacks": Fact(command, parse_lacks, "look for programs"),
        "opening": Fact(command, parse_opening, "see how the script begins"),
        "jobs": Fact(command, parse_jobs, "look for jobs"),
        "listeners": Fact(command, parse_listeners, "see who has the ports"),
        "disk": Fact(command, parse_disk, "measure the free disk space"),
    }


def host_queries(job: JobRequirements, node: Node) -> dict[str, Fact[Any]]:
    """The queries about devices for the host side; they are slow, so they run beside the others."""
    users = "users" if job.makes("devices") else ""
    ips = job.devices[node.name] if job.makes("device-ips") else {}
    # A device with two ports has two addresses, but hccn.conf holds one.
    pairs = [f"{id_}={ip}" for id_, ip in ips.items() if ip and "," not in ip]
    linked = job.linked[node.name]
    queries = [what for what in ("link", "tls") if linked and job.makes(_OF_LINKS[what])]
    if not (users or pairs or queries):
        return {}
    command = Command(
        argv=(
            *("bash", "-c", HOST, "ascendboot", users),
            *(" ".join(queries), " ".join(map(str, linked)), *pairs),
        ),
        purpose="look at the devices",
        effect=Effect.READ,
        timeout_s=60.0,
        aside=True,
    )
    holders = Fact(command, parse_holders, "see who uses the devices")
    present = Fact(command, parse_present, "see which devices there are")
    health = Fact(command, parse_health, "see how the devices are")
    ports = Fact(command, parse_ports, "read links and TLS switches of the devices")
    addresses = Fact(command, parse_device_ips, "read the addresses of the devices")
    return {
        **({"holders": holders, "present": present, "health": health} if users else {}),
        **({"device_ips": addresses} if pairs else {}),
        **({"ports": ports} if queries else {}),
    }


def _ports_of_hccl(env: Mapping[str, str]) -> tuple[int, ...]:
    ports = sorted({port for ports in hccl_ports(env) for port in ports})
    return tuple(ports) if len(ports) <= _MOST_PORTS else ()


def _used(cluster: Cluster, record: SetupRecord) -> frozenset[str]:
    used = {"torch", "torch_npu"} if cluster.is_for_torch else set()
    used |= traits_of(record.launcher).packages
    if cluster.profile == "rec-sdk-tf":
        used |= {"tensorflow", "npu_bridge", "horovod"}
    return frozenset(used)


_SHOWN = 8


@dataclass(frozen=True)
class Leftover:
    """Processes that remain of a job whose launcher has ended."""

    job_id: str
    folder: PurePosixPath
    """The folder of the job, the same on every node."""
    pids: Mapping[str, tuple[int, ...]]
    """By node."""


def job_rules(probes: Mapping[str, NodeProbe]) -> Iterator[Finding]:
    """Finds running jobs, leftovers of jobs and processes without a record."""
    left = {leftover.job_id for leftover in leftovers(probes)}
    known = _known(probes)
    recorded = {folder.job_id for jobs in known.values() for folder in jobs.folders}
    for node, jobs in known.items():
        for job_id in dict.fromkeys(process.job_id for process in jobs.processes):
            if job_id in left:
                yield _is_left(node, job_id, jobs)
            elif job_id not in recorded:
                yield _without_record(node, job_id, jobs)
            else:
                yield Finding(
                    id="jobs",
                    level="error",
                    nodes=(node,),
                    text=f"job {job_id} runs on this node",
                    remedy=f"wait for its end, or end it: stop --job {job_id}",
                )


def leftovers(probes: Mapping[str, NodeProbe]) -> tuple[Leftover, ...]:
    """The jobs whose launcher started on one of these nodes and runs on none of them.

    A job whose launcher started on no node of these counts as running.
    """
    known = _known(probes)
    folders = [folder for jobs in known.values() for folder in jobs.folders]
    lives = {process.job_id for jobs in known.values() for process in jobs.processes}
    gone = dict.fromkeys(f.job_id for f in folders if f.launcher == "gone" and f.job_id in lives)
    runs = {f.job_id for f in folders if f.launcher == "runs"}
    return tuple(
        Leftover(
            job_id,
            next(PurePosixPath(f.path) for f in folders if f.job_id == job_id),
            {node: pids for node, jobs in known.items() if (pids := _pids(jobs, job_id))},
        )
        for job_id in gone
        if job_id not in runs
    )


def _known(probes: Mapping[str, NodeProbe]) -> dict[str, Jobs]:
    return {node: jobs for node, probe in probes.items() if (jobs := value_of(probe.jobs))}


def _pids(jobs: Jobs, job_id: str) -> tuple[int, ...]:
    return tuple(process.pid for process in jobs.processes if process.job_id == job_id)


def _without_record(node: str, job_id: str, jobs: Jobs) -> Finding:
    """`stop` cannot end these: it ends jobs that have a record."""
    return Finding(
        id="jobs",
        level="error",
        nodes=(node,),
        text=f"processes carry the id of job {job_id}, and no node has a folder of "
        f"this job: {_named(jobs, job_id)}",
        remedy="end these processes with kill, or start them without the variable "
        "ASCENDBOOT_JOB_ID",
    )


def _named(jobs: Jobs, job_id: str) -> str:
    processes = [process for process in jobs.processes if process.job_id == job_id]
    pids = ", ".join(str(process.pid) for process in processes[:_SHOWN])
    more = f" and {len(processes) - _SHOWN} more" if len(processes) > _SHOWN else ""
    return f"pid {pids}{more} ({processes[0].command})"


def _is_left(node: str, job_id: str, jobs: Jobs) -> Finding:
    count = len(_pids(jobs, job_id))
    what = "process is" if count == 1 else "processes are"
    return Finding(
        id="leftovers",
        level="error",
        nodes=(node,),
        text=f"{count} {what} left of job {job_id}, whose launcher is gone: {_named(jobs, job_id)}",
        remedy=f"end them: stop --job {job_id}, or train with --stop-leftovers",
    )
