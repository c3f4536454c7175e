"""What every phase of setup works with: cluster, facts, plan, rendered templates."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ascendboot.facts.query import value_of
from ascendboot.model.cluster import Cluster, Node, Placement
from ascendboot.model.files import Authority, Control, Owner, fingerprint
from ascendboot.setup.cluster_plan import ClusterFacts, ClusterPlan
from ascendboot.templates import installed_templates


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(installed_templates()),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - shell and sshd files, not HTML; values go through `q`
    )
    environment.filters["q"] = shlex.quote
    return environment


def rendered(template: str, **values: object) -> str:
    """A template with `values` filled in; a name that is missing raises jinja2.UndefinedError."""
    return _environment().get_template(template).render(values)


def chief_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Variables of all ranks without a rank table; CM_WORKER_IP differs by node.

    CM_WORKER_SIZE counts all ranks of the job (HCCL's own example: 16 on two nodes of 8), not
    those of one node.
    """
    return {
        "CM_CHIEF_IP": placement.primary.cluster_address,
        "CM_CHIEF_PORT": str(cluster.chief_port),
        "CM_CHIEF_DEVICE": str(cluster.chief_device),
        "CM_WORKER_SIZE": str(placement.world_size),
    }


def meeting_settings(cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Where PyTorch's ranks meet; what the inventory states for scripts of its own counts."""
    settings = {
        "MASTER_ADDR": placement.primary.cluster_address,
        "MASTER_PORT": str(cluster.chief_port),
    }
    return {name: value for name, value in settings.items() if name not in cluster.env}


def rank_table_name(placement: Placement) -> str:
    """`hccl_json_16p_2_host.json`, or `hccl_json_8p.json` for one node, as Rec SDK names them."""
    servers = len(placement.nodes)
    hosts = f"_{servers}_host" if servers > 1 else ""
    return f"hccl_json_{placement.world_size}p{hosts}.json"


@dataclass(frozen=True, kw_only=True)
class Context:
    """Everything that steps are made from."""

    cluster: Cluster
    plan: ClusterPlan
    facts: ClusterFacts
    authority: Authority | None = None
    """Who signs certificates; None where trust needs none, or its keys are not made yet."""
    control: Control | None = None
    """The control folder, which nodes record; None: they record none."""
    now: float = field(default_factory=time.time)
    """The time on the operator's side, in seconds since the epoch."""

    @cached_property
    def resources(self) -> Mapping[str, str]:
        """Name and text of every file below `resources/`; equal on all nodes.

        Both files have the nodes in the order of the ranks.
        """
        placement, table = self.plan.placement, self.plan.rank_table
        hostfile = "".join(
            f"{n.cluster_address} slots={len(placement.ranks_on(n))}\n" for n in placement.nodes
        )
        named = {rank_table_name(placement): table} if table else {}
        return {**named, "hostfile": hostfile}

    @cached_property
    def owner(self) -> Owner | None:
        """What every node records of the control folder; None while its key is not made yet.

        A record of the same key stays as it is: control folders may share the key.
        """
        certified = self.cluster.trust == "ca"
        made = fingerprint(self.authority.host) if self.authority else ""
        key = made if certified else (self.control.id if self.control else "")
        if self.control is None or not key:
            return None
        there = (self.facts.sshd_side(node.name).owner for node in self.cluster.nodes)
        return next((o for o in there if o and o.key == key), self.control.owner(key))

    def text(self, template: str, **values: object) -> str:
        """A template with `values` and those of the cluster filled in."""
        of_cluster = {
            "cluster": self.cluster.name,
            "primary": self.cluster.primary_name,
            "port": self.plan.port,
            "base": str(self.plan.base),
        }
        return rendered(template, **{**of_cluster, **values})

    def user(self, node: Node) -> str:
        """The login name that we really have on a node, on the side where our sshd runs."""
        facts = self.facts.nodes[node.name]
        system = value_of(facts.host if node.name in self.facts.sshd_sides else facts.system)
        return system.user if system else node.ssh.user
