"""The texts by which a practice node knows its NPUs and its neighbours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascendboot.lab.shape import LabNode, Shape
    from ascendboot.model.cluster import Device

CHIPS = {"a2": "910B3", "a3": "Ascend910", "a5": "Ascend950PR"}
"""What npu-smi calls the chips of a product; "Ascend" and a space stand before that of A2."""
DRIVER = "24.1.0"
_SUPER_POD_SIZE = 384
ROOT_INFO = "etc/hccl_rootinfo.json"
TOPOLOGY = "usr/local/Ascend/driver/topo/950/atlas_850_1.json"


def world_text(shape: Shape, node: LabNode) -> str:
    """The file from which npu-smi and hccn_tool on `node` take their answers."""
    lines = [
        f"# What the stand-in driver of {node.name} believes. Faults are marks in faults/.",
        f"chip {CHIPS[shape.product]}",
        f"driver {DRIVER}",
    ]
    lines.extend(
        f"device {device.device_id} address={device.device_ip} netmask={shape.npu.netmask}"
        f" gateway={shape.gateway} netdetect={shape.gateway} tls=0 hccp=no"
        for device in node.devices
    )
    if shape.product == "a3":
        lines.extend(_super_pod_line(node, device) for device in node.devices)
    return "\n".join(lines) + "\n"


def _super_pod_line(node: LabNode, device: Device) -> str:
    """All nodes are in one super pod; the bits of an SDID are the HDK's (dcmia3_164)."""
    card, die = divmod(device.device_id, 2)
    sdid = node.number << 22 | card << 18 | die << 16 | device.device_id
    place = f"sdid={sdid} size={_SUPER_POD_SIZE} pod=0 server={node.number}"
    return f"spod {device.device_id} {place}"


def root_info_text(node: LabNode) -> str:
    """`/etc/hccl_rootinfo.json` of a server of 950: a mesh inside it, planes between servers."""
    ranks = [
        {
            "device_id": device.device_id,
            "local_id": device.device_id,
            "level_list": [
                _level(0, f"sp_0_srv_{node.number}", "TOPO_FILE_DESC", _eid(node, device, 0x8B)),
                _level(1, "sp_0", "CLOS", _eid(node, device, 0xDF)),
            ],
        }
        for device in node.devices
    ]
    info = {"version": "2.0", "topo_file_path": f"/{TOPOLOGY}", "rank_count": len(ranks)}
    return json.dumps({**info, "rank_list": ranks}) + "\n"


def topology_text() -> str:
    """The topology that root infos name; nothing here reads more of it than its name."""
    return json.dumps({"version": "2.0", "peer_count": 0, "peer_list": []}) + "\n"


def _level(layer: int, instance: str, kind: str, eid: str) -> dict[str, object]:
    address = {"addr_type": "EID", "addr": eid, "plane_id": "plane_0", "ports": [f"{layer}/0"]}
    return {
        "net_layer": layer,
        "net_instance_id": instance,
        "net_type": kind,
        "net_attr": "",
        "rank_addr_list": [address],
    }


def _eid(node: LabNode, device: Device, end: int) -> str:
    return f"{node.number:04x}{device.device_id:04x}00100000dfdf00{end:02x}".rjust(32, "0")


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
