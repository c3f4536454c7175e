"""The environment variables of HCCL and the NPU software: allowed values and contradictions."""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LAST_PORT = 65535


class Kind(Protocol):
    """A kind of value; `product` is one of the inventory's words, `auto` where it is not known."""

    @property
    def words(self) -> str:
        """Completes "… is not " in messages."""
        ...

    @property
    def schema(self) -> Mapping[str, Any]:
        """What a JSON schema can say of it."""
        ...

    def why_not(self, value: str, product: str) -> str | None:
        """Why the value is none of this kind; None when it is."""
        ...


def _not(value: str, words: str) -> str:
    return f"{json.dumps(value, ensure_ascii=False)} is not {words}"


@dataclass(frozen=True)
class Whole:
    """A whole number within limits."""

    least: int
    most: int
    unit: str = ""
    multiple_of: int = 1

    @property
    def words(self) -> str:
        """`a whole number from 120 to 7200, in seconds`."""
        number = f"a multiple of {self.multiple_of}" if self.multiple_of > 1 else "a whole number"
        unit = f", in {self.unit}" if self.unit else ""
        return f"{number} from {self.least} to {self.most}{unit}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """As a number or as text: the inventory takes both."""
        multiple = {"multipleOf": self.multiple_of} if self.multiple_of > 1 else {}
        number = {"type": "integer", "minimum": self.least, "maximum": self.most, **multiple}
        return {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+$"}]}

    def why_not(self, value: str, product: str) -> str | None:
        """Also where it is a number outside."""
        if not _WHOLE.fullmatch(value):
            return _not(value, self.words)
        number = int(value)
        if self.least <= number <= self.most and number % self.multiple_of == 0:
            return None
        return _not(value, self.words)


@dataclass(frozen=True)
class Megabytes:
    """A size in MB; people take the unit for bytes."""

    least: int
    most: int

    @property
    def words(self) -> str:
        """`a whole number of MB from 1 to 65536`."""
        return f"a whole number of MB from {self.least} to {self.most}"

    @property
    def schema(self) -> Mapping[str, Any]:
        """As of any whole number."""
        return Whole(self.least, self.most).schema

    def why_not(self, value: str, product: str) -> str | None:
        """With the number of MB where bytes were meant."""
        reason = Whole(self.least, self.most).why_not(value, product)
        if reason is None:
            return None
        meant, rest = divmod(int(value), 1024**2) if value.isdecimal() else (0, 1)
        hint = f": the unit is MB; write {meant}" if meant >= self.least and not rest else ""
        return _not(value, self.words) + hint


@dataclass(frozen=True)
class ByProduct:
    """Another range on each product; without a product all of them count together."""

    kinds: Mapping[str, Whole]

    @property
    def words(self) -> str:
        """All ranges, products with the same one together."""
        groups: dict[str, list[str]] = {}
        for product, kind in self.kinds.items():
            groups.setdefault(kind.words, []).append(PRODUCT_NAMES[product])
        return "; ".join(f"on {', '.join(names)} {words}" for words, names in groups.items())

    @property
    def schema(self) -> Mapping[str, Any]:
        """The widest range."""
        return self._widest.schema

    @property
    def _widest(self) -> Whole:
        kinds = self.kinds.values()
        return Whole(min(k.least for k in kinds), max(k.most for k in kinds))

    def why_not(self, value: str, product: str) -> str | None:
        """By the range of the product, or by all of them."""
        if product in self.kinds:
            reason = self.kinds[product].why_not(value, product)
            return f"{reason} on {PRODUCT_NAMES[product]}" if reason else None
        return _not(value, self.words) if self._widest.why_not(value, product) else None


PRODUCT_NAMES = {"910": "910", "a2": "A2", "a3": "A3", "a5": "950"}
"""The inventory's words for products, as HCCL's manual calls them."""

WITHOUT_CM = {word: PRODUCT_NAMES[word] for word in ("a3", "a5")}
"""Products whose HCCL reads no CM_ variables."""


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    values: tuple[str, ...]

    @property
    def words(self) -> str:
        """`one of TRUE, FALSE`."""
        return "one of " + ", ".join(self.values)

    @property
    def schema(self) -> Mapping[str, Any]:
        """Numbers may stand without quotes."""
        numbers = [int(value) for value in self.values if value.isdecimal()]
        return {"enum": [*self.values, *numbers]}

    def why_not(self, value: str, product: str) -> str | None:
        """Exactly as written: HCCL does not forgive another case."""
        return None if value in self.values else _not(value, self.words)


@dataclass(frozen=True)
class Text:
    """A text of a certain form."""

    words: str
    pattern: str
    schema: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", {"type": ["string", "integer"], "pattern": self.pattern})

    def why_not(self, value: str, product: str) -> str | None:
        """By the form alone."""
        return None if re.fullmatch(self.pattern, value) else _not(value, self.words)


@dataclass(frozen=True)
class Address:
    """An IP address of the node."""

    words: str = "an IP address"

    @property
    def schema(self) -> Mapping[str, Any]:
        """A text."""
        return {"type": "string"}

    def why_not(self, value: str, product: str) -> str | None:
        """IPv4 or IPv6, without anything around it."""
        try:
            ipaddress.ip_address(value)
        except ValueError:
            return _not(value, self.words)
        return None


@dataclass(frozen=True)
class Ports:
    """`auto`, or ports and ranges of ports that do not overlap."""

    words: str = "auto, or ports and ranges such as 60000,60050-60100 that do not overlap"

    @property
    def schema(self) -> Mapping[str, Any]:
        """The form alone."""
        pattern = r"^(auto|[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)$"
        return {"type": ["string", "integer"], "pattern": pattern}

    def why_not(self, value: str, product: str) -> str | None:
        """With the range that goes backwards or stands twice."""
        if value == "auto":
            return None
        ranges = self.ranges(value)
        if ranges is None:
            return _not(value, self.words)
        taken = sorted(ranges, key=lambda ports: ports.start)
        for one, other in itertools.pairwise(taken):
            if other.start < one.stop:
                return f"{json.dumps(value)}: port {other.start} stands twice"
        return None

    def ranges(self, value: str) -> list[range] | None:
        """The ranges that the text names; None where it is none of this kind."""
        found = []
        for part in value.split(","):
            match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
            if match is None:
                return None
            first, last = int(match[1]), int(match[2] or match[1])
            if not 1 <= first <= last <= _LAST_PORT:
                return None
            found.append(range(first, last + 1))
        return found


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


INTRA_ROCE = "HCCL_INTRA_ROCE_ENABLE"
_MODE = "HCCL_OP_EXPANSION_MODE"
_PORTS_OF_BASE = 32
_LONGEST_S = {"AIV": 1091, "CCU_SCHED": 65535, "CCU_MS": 65535}
"""How long HCCL waits in a step at most, by where that is worked out (HCCL's manual, CANN 9)."""


@dataclass(frozen=True)
class Conflict:
    """Two or more variables that contradict each other."""

    names: tuple[str, ...]
    """The variables concerned; the problem is reported at the first that is stated."""
    text: str


def conflicts(env: Mapping[str, str]) -> Iterator[Conflict]:
    """What contradicts what in the whole environment of a job; single wrong values are left out."""
    sound = {name: value for name, value in env.items() if why_not(name, value) is None}
    yield from _timeouts(sound)
    yield from _whitelist(sound)
    yield from _roads(sound)
    yield from _ports(sound)


def hccl_ports(env: Mapping[str, str]) -> list[range]:
    """The ports of the host that HCCL will take, where it does not choose them itself."""
    stated = env.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if stated is not None:
        return Ports().ranges(stated) or []
    base = env.get("HCCL_IF_BASE_PORT", "60000")
    if why_not("HCCL_IF_BASE_PORT", base):
        return []
    return [range(int(base), int(base) + _PORTS_OF_BASE)]


def _timeouts(env: Mapping[str, str]) -> Iterator[Conflict]:
    """HCCL's manual (debug_thinking): ranks must wait longer for a step than for each other."""
    connect, execute = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"
    wait, step = int(env.get(connect, "120")), int(env.get(execute, "1836"))
    mode = env.get(_MODE, "")
    most = _LONGEST_S.get(mode)
    if most and step > most and execute in env:
        yield Conflict(
            (execute, _MODE),
            f"{step} s is more than the {most} s that {_MODE} {mode} allows; write less, or "
            "another mode",
        )
    # there 0 is not for ever, and counts as the most
    in_aiv = mode == "AIV" and (step == 0 or step >= _LONGEST_S[mode])
    if in_aiv:
        step = _LONGEST_S[mode]
    if step and wait >= step:
        why = f", the most in {_MODE} {mode}" if in_aiv else ""
        yield Conflict(
            (connect, execute, _MODE) if in_aiv else (execute, connect),
            f"{connect} ({wait} s) must be less than {execute} ({step} s{why}): else ranks give up "
            "a step while others are still being waited for at the start; "
            f"{'lower the first' if in_aiv else 'raise the second or lower the first'}",
        )


def _whitelist(env: Mapping[str, str]) -> Iterator[Conflict]:
    if env.get("HCCL_WHITELIST_DISABLE") == "0" and "HCCL_WHITELIST_FILE" not in env:
        yield Conflict(
            ("HCCL_WHITELIST_DISABLE",),
            "0 turns the list of allowed addresses on, and HCCL_WHITELIST_FILE does not say which; "
            "state it, or write 1",
        )


def _roads(env: Mapping[str, str]) -> Iterator[Conflict]:
    """Inside a server: RoCE or PCIe; both 0 is PCIe, one of them alone is refused (hcomm)."""
    roce, pcie = INTRA_ROCE, "HCCL_INTRA_PCIE_ENABLE"
    if env.get(roce) == "1" and env.get(pcie) == "1":
        yield Conflict((roce, pcie), f"{pcie} is 1 as well; set one of the two to 0")
    for name, other in ((roce, pcie), (pcie, roce)):
        if env.get(name) == "0" and other not in env:
            yield Conflict((name,), f"0 alone leaves no way between NPUs of a server; set {other}")


def _ports(env: Mapping[str, str]) -> Iterator[Conflict]:
    ports, base = "HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_IF_BASE_PORT"
    if ports in env and base in env:
        yield Conflict((base, ports), f"{ports} counts before {base}; keep one of the two")
