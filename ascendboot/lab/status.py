"""How a lab is: what really answers, and what lab.fault broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ascendboot.lab import containers, wiring
from ascendboot.lab.node import ssh_answers

if TYPE_CHECKING:
    from ascendboot.lab.cluster import Lab
    from ascendboot.lab.faults import Fault
    from ascendboot.lab.shape import LabNode


@dataclass(frozen=True)
class NodeStatus:
    """One node, as it was found."""

    node: LabNode
    up: bool
    ssh: bool
    links: dict[int, bool]
    faults: tuple[Fault, ...]
    container: str | None = None
    """The state of its container, as the engine says; None where nodes have none."""

    def to_json(self) -> dict[str, Any]:
        """The node as `lab.status --json` shows it."""
        return {
            "name": self.node.name,
            "address": str(self.node.address),
            "state": "up" if self.up else "down",
            "ssh": self.ssh,
            "container": self.container,
            "devices": [
                {
                    "device_id": device.device_id,
                    "device_ip": device.device_ip,
                    "link": "UP" if self.links[device.device_id] else "DOWN",
                }
                for device in self.node.devices
            ],
            "faults": [
                {
                    "kind": fault.kind,
                    "device": fault.device,
                    "times": fault.times,
                    "milliseconds": fault.milliseconds,
                    "seconds": fault.seconds,
                }
                for fault in self.faults
            ],
        }


def status_of(lab: Lab) -> tuple[NodeStatus, ...]:
    """What each node is like now."""
    return tuple(_node_status(lab, node) for node in lab.nodes)


def lab_json(lab: Lab) -> dict[str, Any]:
    """What does not change about a lab, as `--json` shows it."""
    return {
        "lab": lab.lab_id,
        "cluster": "lab",
        "directory": str(lab.directory),
        "inventory": str(lab.inventory),
        "networks": {"management": str(lab.shape.management), "npu": str(lab.shape.npu)},
        "device_count": lab.shape.device_count,
        "containers": lab.shape.containers,
    }


def _node_status(lab: Lab, node: LabNode) -> NodeStatus:
    up = lab.process(node.name) is not None
    return NodeStatus(
        node=node,
        up=up,
        ssh=up and ssh_answers(node),
        links=wiring.links_up(lab.shape, node),
        faults=tuple(lab.faults(node.name)),
        container=container_state(lab, node) if lab.shape.containers else None,
    )


def container_state(lab: Lab, node: LabNode) -> str:
    """As the node's engine says: `running`, `exited` …; or `absent`, or `node down`."""
    if lab.process(node.name) is None:
        return "node down"
    argv = ["podman", "container", "inspect", "--format", "{{.State.Status}}", containers.NAME]
    done = lab.exec(node.name, argv, check=False)
    return done.stdout.decode().strip() if done.returncode == 0 else "absent"
