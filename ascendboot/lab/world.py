"""The texts by which a practice node knows its NPUs and its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.lab.shape import LabNode, Shape

CHIP = "910B3"
DRIVER = "24.1.0"


def world_text(shape: Shape, node: LabNode) -> str:
    """The file from which npu-smi and hccn_tool on `node` take their answers."""
    lines = [
        f"# What the stand-in driver of {node.name} believes. Faults are marks in faults/.",
        f"chip {CHIP}",
        f"driver {DRIVER}",
    ]
    lines.extend(
        f"device {device.device_id} address={device.device_ip} netmask={shape.npu.netmask}"
        f" gateway={shape.gateway} netdetect={shape.gateway} tls=0 hccp=no"
        for device in node.devices
    )
    return "\n".join(lines) + "\n"


def hccn_conf_text(shape: Shape, node: LabNode) -> str:
    """`/etc/hccn.conf` as hccn_tool leaves it after every device was configured in turn."""
    lines = []
    for device in node.devices:
        number = device.device_id
        lines.append(f"address_{number}={device.device_ip}")
        lines.append(f"netmask_{number}={shape.npu.netmask}")
        lines.append(f"netdetect_{number}={shape.gateway}")
        lines.append(f"gateway_{number}={shape.gateway}")
    return "\n".join(lines) + "\n"


def hosts_text(shape: Shape) -> str:
    """`/etc/hosts` of every node."""
    lines = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in shape.nodes)]
    return "\n".join(lines) + "\n"


def version_text() -> str:
    """The driver's version.info."""
    return f"Version={DRIVER}\npackage_version={DRIVER}\n"
