"""Every variable of HCCL and the NPU software that this version knows, with its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ascendboot.hccl.kinds import (
    PRODUCT_NAMES,
    Address,
    ByProduct,
    Choice,
    Megabytes,
    Ports,
    Text,
    Whole,
)

if TYPE_CHECKING:
    from ascendboot.hccl.kinds import Kind

_MOST = 2**31 - 1
_SWITCH = Choice(("0", "1"))
_PATH = Text("an absolute path", r"/[^\s]*")
_IDS = r"(0|[1-9][0-9]*)(,(0|[1-9][0-9]*))*"
_NAMES = r"[^\s,=^]+(,[^\s,=^]+)*"
_A2_ON = ("a2", "a3", "a5")


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable, as HCCL's manual and its source (externalinput.cc) describe it."""

    name: str
    kind: Kind
    meaning: str
    default: str = ""
    products: tuple[str, ...] = ()
    """The only products that read it, by the inventory's words; empty: all."""
    example: str = ""

    @property
    def product_names(self) -> str:
        """As the manual calls them."""
        return ", ".join(PRODUCT_NAMES[product] for product in self.products) or "all"


VARIABLES: dict[str, Variable] = {
    variable.name: variable
    for variable in (
        Variable(
            name="HCCL_CONNECT_TIMEOUT",
            kind=Whole(120, 7200, "seconds"),
            default="120",
            meaning="How long ranks wait for each other at the start; HCCL adds 20 s. Less than "
            "HCCL_EXEC_TIMEOUT",
            example="1200",
        ),
        Variable(
            name="HCCL_EXEC_TIMEOUT",
            kind=ByProduct(
                {
                    "910": Whole(1, 17340, "seconds"),
                    "a2": Whole(0, _MOST, "seconds"),
                    "a3": Whole(0, _MOST, "seconds"),
                    "a5": Whole(0, _MOST, "seconds"),
                }
            ),
            default="1836",
            meaning="How long a rank waits for the others in a step; 910 rounds down to a multiple "
            "of 68, elsewhere 0 is for ever; with HCCL_OP_EXPANSION_MODE AIV at most 1091, which 0 "
            "means there, with CCU_SCHED and CCU_MS at most 65535",
            example="1836",
        ),
        Variable(
            name="HCCL_BUFFSIZE",
            kind=Megabytes(1, 65536),
            default="200",
            meaning="Buffer of each communicator, which takes it twice. HCCL itself knows no "
            "upper limit; no NPU has more",
            example="200",
        ),
        Variable(
            name="HCCL_IF_IP",
            kind=Address(),
            meaning="The node's address for the start without a rank table; counts before "
            "HCCL_SOCKET_IFNAME. Set for each node by ascendboot: stated only for one node",
            example="198.51.100.1",
        ),
        Variable(
            name="HCCL_SOCKET_IFNAME",
            kind=Text(
                "prefixes such as eth,enp, exact names such as =eth0, or either after ^ to leave "
                "them out",
                rf"\^?=?{_NAMES}",
            ),
            meaning="Which interfaces the start without a rank table takes; the first match counts",
            example="=eth0",
        ),
        Variable(
            name="HCCL_SOCKET_FAMILY",
            kind=Choice(("AF_INET", "AF_INET6")),
            default="AF_INET",
            meaning="IPv4 or IPv6 for the start",
            example="AF_INET",
        ),
        Variable(
            name="HCCL_IF_BASE_PORT",
            kind=Whole(1024, 65520),
            default="60000",
            meaning="The first of 32 ports on every node. Not beside HCCL_HOST_SOCKET_PORT_RANGE, "
            "and not over `resources.chief_port`",
            example="60000",
        ),
        Variable(
            name="HCCL_HOST_SOCKET_PORT_RANGE",
            kind=Ports(),
            products=_A2_ON,
            meaning="Ports of the host, in place of HCCL_IF_BASE_PORT; needed where several "
            "processes share an NPU",
            example="60000-60050",
        ),
        Variable(
            name="HCCL_NPU_SOCKET_PORT_RANGE",
            kind=Ports(),
            default="16666",
            products=_A2_ON,
            meaning="Ports of the NPU; all ranks set it or none",
            example="61000-61050",
        ),
        Variable(
            name="HCCL_WHITELIST_DISABLE",
            kind=_SWITCH,
            default="1",
            meaning="1: any address may connect; 0 wants HCCL_WHITELIST_FILE",
            example="1",
        ),
        Variable(
            name="HCCL_WHITELIST_FILE",
            kind=_PATH,
            meaning='JSON on every node, IPv4: `{"host_ip": ["192.0.2.11"], "device_ip": []}`',
            example="/etc/hccl_whitelist.json",
        ),
        Variable(
            name="HCCL_INTRA_ROCE_ENABLE",
            kind=_SWITCH,
            default="0",
            meaning="1: NPUs of one server talk by RoCE, and all need a device IP. Only for Atlas "
            "300T Pro, 200T A2 Box16, and A3 with LLM-DataDist",
            example="0",
        ),
        Variable(
            name="HCCL_INTRA_PCIE_ENABLE",
            kind=_SWITCH,
            default="1",
            meaning="1: they talk by PCIe. Exactly one of the two is 1",
            example="1",
        ),
        Variable(
            name="HCCL_INTER_HCCS_DISABLE",
            kind=Choice(("TRUE", "FALSE")),
            default="FALSE",
            products=("a3",),
            meaning="TRUE: servers of one super pod talk by RoCE",
            example="FALSE",
        ),
        Variable(
            name="HCCL_LOGIC_SUPERPOD_ID",
            kind=Text("a text of at most 127 characters", r"[^\s]{1,127}"),
            products=("a3",),
            meaning="Splits a super pod: ranks with the same text form one",
            example="pod-1",
        ),
        Variable(
            name="HCCL_OP_RETRY_ENABLE",
            kind=Text("levels such as L0:0, L1:0, L2:0", r"L[0-2]:[01](, ?L[0-2]:[01]){0,2}"),
            default="L0:0, L1:0, L2:0",
            products=("a3",),
            meaning="Repeats a step that failed, by level; 1 wants `host_ip` in the rank table",
            example="L0:0, L1:1, L2:1",
        ),
        Variable(
            name="HCCL_RDMA_TC",
            kind=Whole(0, 255, multiple_of=4),
            default="132",
            meaning="Traffic class of RoCE",
            example="132",
        ),
        Variable(
            name="HCCL_RDMA_SL",
            kind=Whole(0, 7),
            default="4",
            meaning="Service level of RoCE; that of the switch",
            example="4",
        ),
        Variable(
            name="HCCL_RDMA_TIMEOUT",
            kind=ByProduct({"910": Whole(5, 24), "a2": Whole(5, 20), "a3": Whole(5, 20)}),
            default="20",
            meaning="Wait before RoCE sends again: 4.096 µs * 2 to this power",
            example="20",
        ),
        Variable(
            name="HCCL_RDMA_RETRY_CNT",
            kind=Whole(1, 7),
            default="7",
            meaning="How often RoCE sends again",
            example="7",
        ),
        Variable(
            name="HCCL_OP_EXPANSION_MODE",
            kind=Choice(("AI_CPU", "AIV", "HOST", "HOST_TS", "CCU_SCHED", "CCU_MS")),
            meaning="Where a step is worked out; which of them exist depends on product and CANN",
            example="AI_CPU",
        ),
        Variable(
            name="HCCL_TOPO_FILE_PATH",
            kind=_PATH,
            products=("a5",),
            meaning="Topology file of a rank table v2.0",
            example="/etc/hccl_topo.json",
        ),
        Variable(
            name="JOB_ID",
            kind=Text("a text without white space", r"[^\s]+"),
            meaning="The job's id for TensorFlow's NPU software; any",
            example="10086",
        ),
        Variable(
            name="ASCEND_RT_VISIBLE_DEVICES",
            kind=Text("logic ids in ascending order, with commas and no blanks", _IDS),
            meaning="Which devices a process sees; then DEVICE_ID is a place in this list. Set by "
            "ascendboot for PyTorch where `devices` leaves some out",
            example="0,1,2,3",
        ),
        Variable(
            name="ASCEND_GLOBAL_LOG_LEVEL",
            kind=Choice(("0", "1", "2", "3", "4")),
            meaning="0 debug, 1 info, 2 warning, 3 error, 4 nothing",
            example="3",
        ),
        Variable(
            name="ASCEND_PROCESS_LOG_PATH",
            kind=_PATH,
            meaning="Folder of the NPU software's logs; default `$HOME/ascend/log`",
            example="/var/log/npu",
        ),
        Variable(
            name="ASCEND_SLOG_PRINT_TO_STDOUT",
            kind=_SWITCH,
            default="0",
            meaning="1: these logs go to the rank's output",
            example="0",
        ),
    )
}
"""By name. Sources: HCCL's manual (hccl_env/*.md), externalinput.cc, CANN 9 environment pages."""


def why_not(name: str, value: str, product: str = "auto") -> str | None:
    """Why the software would refuse or misread this value; None when nothing is known."""
    variable = VARIABLES.get(name)
    if variable is None:
        return None
    reason = variable.kind.why_not(value, product)
    if reason is None and name == "ASCEND_RT_VISIBLE_DEVICES":
        ids = [int(part) for part in value.split(",")]
        return None if ids == sorted(set(ids)) else f'"{value}" is not in ascending order'
    return reason


def why_not_read(name: str, product: str) -> str | None:
    """Why this product does not read the variable; None when it does, or is not known."""
    variable = VARIABLES.get(name)
    if variable is None or product not in PRODUCT_NAMES or not variable.products:
        return None
    if product in variable.products:
        return None
    where = f"{variable.product_names} only, not on {PRODUCT_NAMES[product]}"
    return f"is read on {where}; remove it"
