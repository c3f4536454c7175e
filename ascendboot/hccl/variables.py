"""The environment variables of HCCL and the NPU software: allowed values and contradictions."""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache

from ascendboot.value import Value, data_file, field

PRODUCT_NAMES = {"910": "910", "a2": "A2", "a3": "A3", "a5": "950"}
"""The inventory's words for products, as HCCL's manual calls them."""

WITHOUT_CM = {word: PRODUCT_NAMES[word] for word in ("a3", "a5")}
"""Products whose HCCL reads no CM_ variables."""

_PREFIXES = ("HCCL_", "ASCEND_")
_ALIKE = 0.9
"""HCOMM_DEBUG_CONFIG is a variable of its own, less than this like HCCL_DEBUG_CONFIG."""
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LAST_PORT = 65535


class _Kind(Value, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    form: str = ""
    """What the value is, where a text can say it."""

    @property
    def words(self) -> str:
        """Completes "… is not " in messages."""
        return self.form

    def takes(self, value: str) -> bool:
        """Whether the value is of this kind, on some product."""
        raise NotImplementedError

    def why_not(self, value: str, product: str = "auto") -> str | None:
        """Why the value is none of this kind; None when it is."""
        shown = json.dumps(value, ensure_ascii=False)
        return None if self.takes(value) else f"{shown} is not {self.words}"


class Whole(_Kind, tag="whole"):
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

    def takes(self, value: str) -> bool:
        """Whether the text is a number within the limits."""
        if not _WHOLE.fullmatch(value):
            return False
        return self.least <= int(value) <= self.most and int(value) % self.multiple_of == 0

    def why_not(self, value: str, product: str = "auto") -> str | None:
        """The limits; if the value is in bytes instead of MB, also the number of MB."""
        reason = super().why_not(value, product)
        if reason and self.unit == "MB" and _WHOLE.fullmatch(value):
            meant, rest = divmod(int(value), 1024**2)
            return f"{reason}; write {meant}" if meant >= self.least and not rest else reason
        return reason


class ByProduct(_Kind, tag="by-product"):
    """A different range on each product; without a product the widest counts."""

    kinds: dict[str, Whole]

    @property
    def words(self) -> str:
        """All ranges, products with the same one together."""
        groups: dict[str, list[str]] = {}
        for product, kind in self.kinds.items():
            groups.setdefault(kind.words, []).append(PRODUCT_NAMES[product])
        return "; ".join(f"on {', '.join(names)} {words}" for words, names in groups.items())

    def takes(self, value: str) -> bool:
        """By any of the ranges."""
        return any(kind.takes(value) for kind in self.kinds.values())

    def why_not(self, value: str, product: str = "auto") -> str | None:
        """By the range of the product, where it is known."""
        if product not in self.kinds:
            return super().why_not(value, product)
        reason = self.kinds[product].why_not(value, product)
        return f"{reason} on {PRODUCT_NAMES[product]}" if reason else None


class Choice(_Kind, tag="choice"):
    """One of some words."""

    values: tuple[str, ...]

    @property
    def words(self) -> str:
        """`one of TRUE, FALSE`."""
        return "one of " + ", ".join(self.values)

    def takes(self, value: str) -> bool:
        """Exactly as written: HCCL refuses another case."""
        return value in self.values


class Text(_Kind, tag="text"):
    """A text of a certain form."""

    pattern: str

    def takes(self, value: str) -> bool:
        """By the form alone."""
        return re.fullmatch(self.pattern, value) is not None


class Address(_Kind, tag="address"):
    """An IP address of the node."""

    form: str = "an IP address"

    def takes(self, value: str) -> bool:
        """IPv4 or IPv6, without anything around it."""
        try:
            return bool(ipaddress.ip_address(value))
        except ValueError:
            return False


class Ports(_Kind, tag="ports"):
    """`auto`, or ports and ranges of ports that do not overlap."""

    form: str = "auto, or ports and ranges such as 60000,60050-60100 that do not overlap"

    def takes(self, value: str) -> bool:
        """By the form and the numbers."""
        return value == "auto" or _port_ranges(value) is not None

    def why_not(self, value: str, product: str = "auto") -> str | None:
        """Also names a port that is listed twice."""
        ranges = sorted(_port_ranges(value) or (), key=lambda ports: ports.start)
        for one, other in itertools.pairwise(ranges):
            if other.start < one.stop:
                return f"{json.dumps(value)}: port {other.start} is listed twice"
        return super().why_not(value, product)


def _port_ranges(value: str) -> list[range] | None:
    found = []
    for part in value.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= _LAST_PORT:
            return None
        found.append(range(first, last + 1))
    return found


class Items(_Kind, tag="items"):
    """Items `key:value`, each key at most once; where `groups` has names, also by group."""

    kinds: dict[str, Whole | Choice | Text]
    separator: str = ","
    groups: tuple[str, ...] = ()
    """Names of groups, as in `one=key:value/other=key:value`."""
    products: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The only products that read a key, by the inventory's words; a key left out: all."""

    def why_not(self, value: str, product: str = "auto") -> str | None:
        """The first item that is wrong; HCCL would ignore some without a word."""
        if not self.groups or "=" not in value:
            return self._why_not_items(value, product)
        names = [group.partition("=")[0].strip() for group in value.split("/")]
        for name, group in zip(names, value.split("/"), strict=True):
            if name not in self.groups or names.count(name) > 1:
                why = "stated twice" if name in self.groups else f"none of {', '.join(self.groups)}"
                return f"{json.dumps(name)} is {why}"
            if reason := self._why_not_items(group.partition("=")[2], product):
                return f"{name}: {reason}"
        return None

    def _why_not_items(self, value: str, product: str) -> str | None:
        items = [item.strip(" ") for item in value.split(self.separator)]
        keys = [item.partition(":")[0] for item in items]
        for key, item in zip(keys, items, strict=True):
            if key not in self.kinds:
                return f"{json.dumps(item)} does not begin with {', '.join(self.kinds)}"
            if keys.count(key) > 1:
                return f"{key} is stated twice"
            if product in PRODUCT_NAMES and product not in self.products.get(key, PRODUCT_NAMES):
                return f"{key} is not read on {PRODUCT_NAMES[product]}"
            if reason := self.kinds[key].why_not(item.partition(":")[2]):
                return f"{key}: {reason}"
        return None


class Variable(Value, kw_only=True, forbid_unknown_fields=True):
    """One variable, as HCCL's manual and its source describe it."""

    name: str
    kind: Whole | ByProduct | Choice | Text | Address | Ports | Items
    meaning: str
    example: str
    default: str = ""
    products: tuple[str, ...] = ()
    """The only products that read it, by the inventory's words; empty: all."""

    @property
    def product_names(self) -> str:
        """As the manual calls them."""
        return ", ".join(PRODUCT_NAMES[product] for product in self.products) or "all"


@cache
def variables() -> dict[str, Variable]:
    """All variables by name, in the order of the reference page."""
    return {each.name: each for each in data_file("hccl/variables.yaml", list[Variable])}


def why_not(name: str, value: str, product: str = "auto") -> str | None:
    """Why the software would refuse or misread this value; None when nothing is known."""
    variable = variables().get(name)
    if variable is None:
        return None
    reason = variable.kind.why_not(value, product)
    if reason is None and name == "ASCEND_RT_VISIBLE_DEVICES":
        ids = [int(part) for part in value.split(",")]
        return None if ids == sorted(set(ids)) else f'"{value}" is not in ascending order'
    return reason


def why_not_read(name: str, product: str) -> str | None:
    """Why this product does not read the variable; None when it does, or is not known."""
    variable = variables().get(name)
    if variable is None or product not in PRODUCT_NAMES:
        return None
    if not variable.products or product in variable.products:
        return None
    where = f"{variable.product_names} only, not on {PRODUCT_NAMES[product]}"
    return f"is read on {where}; remove it"


def near_miss(name: str) -> str | None:
    """The variable that an unknown name was probably meant to be; None for any other name."""
    if name in variables():
        return None
    known = [known for known in variables() if known.startswith(_PREFIXES)]
    return next(iter(difflib.get_close_matches(name.upper(), known, n=1, cutoff=_ALIKE)), None)


PORT_RANGES = ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_NPU_SOCKET_PORT_RANGE")
INTRA_ROCE = "HCCL_INTRA_ROCE_ENABLE"
_WITHOUT_HCCS = "HCCL_INTER_HCCS_DISABLE"
_MODE = "HCCL_OP_EXPANSION_MODE"
_PORTS_OF_BASE = 32
_LONGEST_S = {"AIV": 1091, "CCU_SCHED": 65535, "CCU_MS": 65535}
"""How long HCCL waits in a step at most, by where a step is computed (HCCL's manual, CANN 9)."""


class Conflict(Value):
    """Two or more variables that contradict each other."""

    names: tuple[str, ...]
    """The variables concerned; the problem is reported at the first that is stated."""
    text: str


def conflicts(env: Mapping[str, str]) -> Iterator[Conflict]:
    """Find contradictions in the whole environment of a job; ignore values that are wrong alone."""
    sound = {name: value for name, value in env.items() if why_not(name, value) is None}
    yield from _timeouts(sound)
    switch, addresses = "HCCL_WHITELIST_DISABLE", "HCCL_WHITELIST_FILE"
    if sound.get(switch) == "0" and addresses not in sound:
        words = f"0 enables the list of allowed addresses, and {addresses} is not set"
        yield Conflict((switch,), f"{words}; set it, or write 1")
    # Inside a server both 0 means PCIe; hcomm refuses one of them alone.
    roce, pcie = INTRA_ROCE, "HCCL_INTRA_PCIE_ENABLE"
    if sound.get(roce) == sound.get(pcie) == "1":
        yield Conflict((roce, pcie), f"{pcie} is 1 as well; set one of the two to 0")
    for name, other in ((roce, pcie), (pcie, roce)):
        if sound.get(name) == "0" and other not in sound:
            yield Conflict((name,), f"0 alone leaves no link between NPUs of a server; set {other}")
    ports, base = PORT_RANGES[0], "HCCL_IF_BASE_PORT"
    if ports in sound and base in sound:
        yield Conflict((base, ports), f"{ports} overrides {base}; keep one of the two")


def forces_roce(env: Mapping[str, str], *, servers: int) -> bool:
    """Whether the variables send over RoCE what would stay within a server or a super pod."""
    between = servers > 1 and env.get(_WITHOUT_HCCS) == "TRUE"
    return between or env.get(INTRA_ROCE) == "1"


def hccl_ports(env: Mapping[str, str]) -> list[range]:
    """The ports of the host that HCCL will take, where it does not choose them itself."""
    stated = env.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if stated is not None:
        return _port_ranges(stated) or []
    base = env.get("HCCL_IF_BASE_PORT", "60000")
    if why_not("HCCL_IF_BASE_PORT", base):
        return []
    return [range(int(base), int(base) + _PORTS_OF_BASE)]


BUFFSIZE = "HCCL_BUFFSIZE"
STRATEGIES = "HIGH_AVAILABILITY"
"""The ways in which MindIO goes on after a fault, joined by commas, as MindSpeed-LLM reads them."""


def elastic_memory_mb(env: Mapping[str, str]) -> int | None:
    """How much more memory of each NPU MindIO's elastic training takes, at most, in MB.

    None: `env` does not select it, or HCCL_BUFFSIZE is invalid. Source: the elastic training page
    of MindCluster: HCCL_BUFFSIZE x 2 x 9, by default 200 MB.
    """
    size = env.get(BUFFSIZE, "200")
    if "elastic-training" not in env.get(STRATEGIES, "").split(",") or why_not(BUFFSIZE, size):
        return None
    return int(size) * 2 * 9


def _timeouts(env: Mapping[str, str]) -> Iterator[Conflict]:
    """HCCL's manual (debug_thinking): ranks must wait longer for a step than for each other."""
    connect, execute = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"
    wait, step = int(env.get(connect, "120")), int(env.get(execute, "1836"))
    mode = env.get(_MODE, "")
    most = _LONGEST_S.get(mode)
    if most and step > most and execute in env:
        why = f"{step} s is more than the {most} s that {_MODE} {mode} allows"
        yield Conflict((execute, _MODE), f"{why}; write less, or another mode")
    # In AIV 0 means the most, not no limit.
    in_aiv = mode == "AIV" and (step == 0 or step >= _LONGEST_S[mode])
    if in_aiv:
        step = _LONGEST_S[mode]
    if step and wait >= step:
        why = f", the most in {_MODE} {mode}" if in_aiv else ""
        yield Conflict(
            (connect, execute, _MODE) if in_aiv else (execute, connect),
            f"{connect} ({wait} s) must be less than {execute} ({step} s{why}): otherwise ranks "
            "abort a step while others still wait at the start; "
            f"{'lower the first' if in_aiv else 'raise the second or lower the first'}",
        )
