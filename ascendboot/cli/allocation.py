"""Inside an allocation of Slurm: its nodes as an inventory, or as a part of one."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from ascendboot.errors import UsageError
from ascendboot.inventory.yaml import VARIABLE
from ascendboot.model.cluster import Cluster
from ascendboot.model.names import expand_list, fold
from ascendboot.value import Value, replace

_OWN: Final = re.compile(r"slurm-\d+\.yaml")
_ADDRESS: Final = re.compile(r"^NodeName=(\S+) .*\bNodeAddr=(\S+)", re.MULTILINE)
_LONGEST_NAME: Final = 64


class Allocation(Value):
    """The job of Slurm in which this process runs."""

    job_id: str
    nodes: tuple[str, ...]

    @classmethod
    def current(cls, environ: Mapping[str, str]) -> Allocation | None:
        """Read what Slurm sets; None outside of an allocation, UsageError if it is no such list."""
        job_id, nodes = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_JOB_NODELIST", "")
        if not (job_id.isdecimal() and nodes):
            return None
        try:
            return cls(job_id, expand_list(nodes))
        except ValueError as error:
            raise UsageError(f"SLURM_JOB_NODELIST: {error}; unset it, or use salloc") from None

    def part_of(self, cluster: Cluster) -> Cluster:
        """The nodes of the allocation as a cluster of their own; UsageError if it cannot be one."""
        where = f"{cluster.source}: could not be used in Slurm job {self.job_id}"
        if lacking := sorted({*self.nodes}.difference(node.name for node in cluster.nodes)):
            raise UsageError(
                f"{where}: the inventory has no node {fold(lacking)}; add it by its name in Slurm, "
                "or unset SLURM_JOB_NODELIST to use all nodes of the inventory"
            )
        nodes = tuple(node for node in cluster.nodes if node.name in self.nodes)
        if nodes == cluster.nodes:
            return cluster
        if cluster.own_table is not None:
            raise UsageError(
                f"{where}: resources.file lists nodes that are not in the job; leave it out"
            )
        names = [node.name for node in nodes]
        end = f"-slurm-{self.job_id}"
        return replace(
            cluster,
            # So that its files, ports and records are not those of another allocation.
            name=cluster.name[: _LONGEST_NAME - len(end)] + end,
            nodes=nodes,
            primary_name=cluster.primary_name if cluster.primary_name in names else names[0],
            standby=tuple(name for name in cluster.standby if name in names),
        )

    def inventory(self, root: Path, environ: Mapping[str, str]) -> Path | None:
        """Write the inventory of the allocation into the control folder `root`.

        None where the operator has named another; UsageError if Slurm does not tell addresses.
        """
        try:
            last = root.parent / (root / "current").read_text(errors="replace").strip()
        except FileNotFoundError:
            last = root / "slurm-0.yaml"
        is_own = last.parent == root and _OWN.fullmatch(last.name)
        if environ.get(VARIABLE) or not is_own:
            return None
        nodes = {name: _reached(name, at) for name, at in self._addresses().items()}
        keys = {"cluster": f"slurm-{self.job_id}", "launcher": {"kind": "srun"}, "nodes": nodes}
        path = root / f"slurm-{self.job_id}.yaml"
        root.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"# The nodes of Slurm job {self.job_id}. Written by ascendboot at each call.\n"
            f"{yaml.safe_dump(keys, sort_keys=False)}"
        )
        return path

    def _addresses(self) -> dict[str, str]:
        argv = ("scontrol", "--oneliner", "show", "node", ",".join(self.nodes))
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
            found = dict(_ADDRESS.findall(done.stdout))
            problem = done.stderr.strip().rpartition("\n")[2]
        except (OSError, subprocess.TimeoutExpired) as error:
            found, problem = {}, str(error)
        if not {*self.nodes} <= found.keys():
            raise UsageError(
                f"Slurm job {self.job_id}: could not find the addresses of its nodes: scontrol "
                f"show node: {problem or 'names other nodes'}; write an inventory and use "
                "--inventory"
            )
        return {name: found[name] for name in self.nodes}


def _reached(name: str, address: str) -> dict[str, str]:
    """The keys `address` and `cluster_address` of a node."""
    try:
        ip = socket.gethostbyname(address)
        why = "it is a loopback address" if ip.startswith("127.") else ""
    except OSError as error:
        ip, why = "", str(error)
    if why:
        raise UsageError(
            f"{name}: could not find the IPv4 address of {address}: {why}; state NodeAddr in "
            "slurm.conf, or write an inventory and use --inventory"
        )
    return {"address": address} if ip == address else {"address": address, "cluster_address": ip}
