"""The shape of a practice cluster: nodes, devices, networks."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Address, IPv4Network
from typing import Literal, TypeAlias

from ascendboot.errors import UsageError
from ascendboot.model.cluster import Device
from ascendboot.model.names import counted
from ascendboot.value import Value, replace

CHIPS = {"a2": "910B3", "a3": "Ascend910", "a5": "Ascend950PR"}
"""The names of chips in npu-smi; it prints "Ascend " before that of A2."""
DRIVER = "24.1.0"
_SUPER_POD_SIZE = 384
ROOT_INFO = "etc/hccl_rootinfo.json"
TOPOLOGY = "usr/local/Ascend/driver/topo/950/atlas_850_1.json"


def world_text(shape: Shape, node: LabNode) -> str:
    """The file from which npu-smi and hccn_tool on `node` take their answers."""
    lines = [
        f"# The state of the stand-in driver of {node.name}. Faults are marks in faults/.",
        f"chip {CHIPS[shape.product]}",
        f"driver {DRIVER}",
    ]
    lines.extend(
        f"device {device.device_id} address={device.device_ip} netmask={shape.npu.netmask}"
        f" gateway={shape.gateway} netdetect={shape.gateway} tls=0"
        for device in node.devices
    )
    for device in node.devices if shape.product == "a3" else ():
        # All nodes are in one super pod; the bits of an SDID are the HDK's (dcmia3_164).
        card, die = divmod(device.device_id, 2)
        sdid = node.number << 22 | card << 18 | die << 16 | device.device_id
        place = f"sdid={sdid} size={_SUPER_POD_SIZE} pod=0 server={node.number}"
        lines.append(f"spod {device.device_id} {place}")
    return "\n".join(lines) + "\n"


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
    """The topology that root infos name; only its name is read."""
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
    """`/etc/hccn.conf` as hccn_tool leaves it after each device was configured in turn."""
    return "".join(
        f"address_{device.device_id}={device.device_ip}\n"
        f"netmask_{device.device_id}={shape.npu.netmask}\n"
        f"netdetect_{device.device_id}={shape.gateway}\n"
        f"gateway_{device.device_id}={shape.gateway}\n"
        for device in node.devices
    )


def hosts_text(shape: Shape) -> str:
    """`/etc/hosts` of every node."""
    lines = ["127.0.0.1 localhost", *(f"{node.address} {node.name}" for node in shape.nodes)]
    return "\n".join(lines) + "\n"


DEFAULT_NETWORKS = "198.18.0.0/16,198.19.0.0/16"
Product: TypeAlias = Literal["a2", "a3", "a5"]
PRODUCTS: tuple[Product, ...] = ("a2", "a3", "a5")

PREFIX = "ablab-"
"""The prefix of all namespaces and interfaces of labs; the lab's id follows."""

_ID = re.compile("[0-9a-f]{8}")
_MOST_NODES = 254
_MOST_DEVICES = 16
_FIRST_DEVICE = 100
_NODE_STRIDE = 256
_PARTS = (20, 19, 18)
"""The prefixes of parts of the default networks: beside one lab, fourteen of up to 15 nodes, six of
up to 31, or two of up to 63."""


class LabNode(Value):
    """One practice server."""

    number: int
    name: str
    address: IPv4Address
    devices: tuple[Device, ...]
    namespace: str


class Shape(Value):
    """The size and the networks of a lab; everything else about it follows from these."""

    node_count: int
    device_count: int
    management: IPv4Network
    npu: IPv4Network
    containers: bool = False
    """Whether each node runs a container for its ranks."""
    product: Product = "a2"
    """The product that the stand-ins of the NPU tools report."""

    @classmethod
    def requested(
        cls,
        nodes: int,
        devices: int,
        networks: str,
        *,
        containers: bool = False,
        product: str = "a2",
    ) -> Shape:
        """The shape that the operator requests; UsageError if it is not possible."""
        counts = (("--nodes", nodes, _MOST_NODES), ("--devices", devices, _MOST_DEVICES))
        for option, value, most in counts:
            if not 1 <= value <= most:
                raise UsageError(f"{option}: {value} cannot be; from 1 to {most} can")
        management, npu = _networks(networks)
        if product not in PRODUCTS:
            raise UsageError(f'--product: "{product}" cannot be; {", ".join(PRODUCTS)} can')
        if product == "a3" and devices % 2:
            raise UsageError(f"--devices: {devices} cannot be with --product a3: two are on a card")
        shape = cls(nodes, devices, management, npu, containers, product)
        _check_room("management", management, shape.nodes[-1].address, shape.operator_address)
        last = shape.nodes[-1].devices[-1].device_ip or ""
        _check_room("NPU", npu, IPv4Address(last), shape.gateway)
        return shape

    def elsewhere(self) -> tuple[Shape, ...]:
        """The same lab in other parts of its networks, for use beside another lab.

        A lab uses both ends of its networks, and routes to narrower networks win, so such labs do
        not collide. Empty if a part is too small.
        """
        for prefix in _PARTS:
            networks = (n.subnets(new_prefix=prefix) for n in (self.management, self.npu))
            pairs = zip(*networks, strict=True)
            parts = [replace(self, management=management, npu=npu) for management, npu in pairs]
            if IPv4Address(parts[0].nodes[-1].devices[-1].device_ip or "") < parts[0].gateway:
                return tuple(parts[1:-1])
        return ()

    @property
    def lab_id(self) -> str:
        """Short name of the lab, unique among labs that can run side by side."""
        return f"{int(self.management.network_address):08x}"

    @property
    def prefix(self) -> str:
        """The prefix of this lab's namespaces, and its interface on the control machine."""
        return prefix_of(self.lab_id)

    @property
    def operator_address(self) -> IPv4Address:
        """The machine's own address on the management network."""
        return self.management.broadcast_address - 1

    @property
    def gateway(self) -> IPv4Address:
        """The NPU network's switch: gateway and netdetect address of every NPU."""
        return self.npu.broadcast_address - 1

    @property
    def management_switch(self) -> str:
        """The namespace that holds the management network's bridge."""
        return f"{self.prefix}-mgmt"

    @property
    def npu_switch(self) -> str:
        """The namespace that holds the NPU network's bridge."""
        return f"{self.prefix}-npu"

    @property
    def nodes(self) -> tuple[LabNode, ...]:
        """The nodes, from lab-1 on."""
        return tuple(self._node(number) for number in range(1, self.node_count + 1))

    def device_namespace(self, node: LabNode, device: Device) -> str:
        """The namespace that is the NPU `device` of `node`."""
        return f"{node.namespace}d{device.device_id}"

    def described(self) -> str:
        """`2 nodes of 8 NPUs on 198.18.0.0/16 and 198.19.0.0/16`, for messages."""
        what = "" if self.product == "a2" else f" of {self.product}"
        what += " with containers" if self.containers else ""
        size = f"{counted(self.node_count, 'node')} of {counted(self.device_count, 'NPU')}"
        return f"{size}{what} on {self.management} and {self.npu}"

    def _node(self, number: int) -> LabNode:
        first = self.npu.network_address + number * _NODE_STRIDE + _FIRST_DEVICE
        return LabNode(
            number=number,
            name=f"lab-{number}",
            address=self.management.network_address + number,
            devices=tuple(Device(i, str(first + i)) for i in range(self.device_count)),
            namespace=f"{self.prefix}-n{number}",
        )


def lab_called(word: str) -> str:
    """Check the id of a lab that the operator wrote, because it names a folder."""
    if not _ID.fullmatch(word):
        what = f'"{word}" is not the id of a lab, such as c6120000; lab.status lists them'
        raise UsageError(f"--lab: {what}")
    return word


def prefix_of(lab_id: str) -> str:
    """The prefix of the namespaces of a lab."""
    return f"{PREFIX}{lab_id}"


def _networks(text: str) -> tuple[IPv4Network, IPv4Network]:
    words = text.split(",")
    if len(words) != 2:  # noqa: PLR2004 - management and NPU
        remedy = f"state MANAGEMENT,NPU, for example {DEFAULT_NETWORKS}"
        raise UsageError(f'--network: "{text}" is not two networks; {remedy}')
    management, npu = (_network(word.strip()) for word in words)
    if management.overlaps(npu):
        raise UsageError(f"--network: {management} and {npu} overlap; state two separate networks")
    return management, npu


def _network(word: str) -> IPv4Network:
    try:
        network = IPv4Network(word)
    except ValueError as error:
        raise UsageError(f'--network: "{word}" is not an IPv4 network: {error}') from error
    if not network.is_private or network.is_loopback or network.is_link_local:
        what = "a lab takes private networks only, for example from 198.18.0.0/15 or 10.0.0.0/8"
        raise UsageError(f"--network: {network} belongs to others; {what}")
    return network


def _check_room(what: str, network: IPv4Network, last: IPv4Address, ours: IPv4Address) -> None:
    if last >= ours:
        why = f"{network} is too small: the last {what} address would be {last}"
        remedy = "state a larger network, fewer --nodes or fewer --devices"
        raise UsageError(f"--network: {why}; {remedy}")
