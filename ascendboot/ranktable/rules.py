"""The rules of rank tables, which `rules.yaml` lists, and the problem reported for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeAlias

from ascendboot.ranktable.text import JsonPath, lines_of, shown
from ascendboot.value import Struct, Value, data_file, field, replace

Level: TypeAlias = Literal["error", "warning"]
Product: TypeAlias = Literal["910", "a2", "a3", "a5", "310p"]
Job: TypeAlias = Literal["rec-sdk-tf", "mindspore", "torch"]

PRODUCTS: tuple[Product, ...] = ("910", "a2", "a3", "a5", "310p")
JOBS: tuple[Job, ...] = ("rec-sdk-tf", "mindspore", "torch")

CALLED: dict[Product, str] = {"910": "910", "a2": "A2", "a3": "A3", "a5": "950", "310p": "300I Duo"}
"""What operators call a product."""

BY_PRODUCT = frozenset(
    {
        *("device-id", "device-set", "device-count", "address-family", "address-count"),
        *("super-device-twice", "super-device-id"),
    }
)
"""The rules by which some products refuse a table made from correct facts."""

POD_ORDER, LOCAL_ID_TWICE = "pod-order", "local-id-twice"


class Rule(Value, kw_only=True, forbid_unknown_fields=True):
    """One rule; `hccl` is HCCL's message with the values to fill in between braces."""

    id: str
    about: str
    """The generations that the rule is about."""
    meaning: str
    remedy: str
    hccl: str = ""
    hccl_v2: str | None = None
    """The message of the reader of version 2.0, where it differs."""
    level: Level = "error"


@cache
def rules() -> dict[str, Rule]:
    """All rules by id, in the order of the reference page."""
    return {rule.id: rule for rule in data_file("ranktable/rules.yaml", list[Rule])}


class Problem(Value, kw_only=True):
    """One problem and its place in the document."""

    id: str
    level: Level
    path: JsonPath
    line: int = 0
    """Where the path leads in the file; 0: not looked up."""
    text: str
    hccl: str = ""
    """HCCL's message; empty where HCCL prints nothing."""

    @property
    def remedy(self) -> str:
        """What to do."""
        return rules()[self.id].remedy

    @property
    def where(self) -> str:
        """The place as text."""
        return shown(self.path)


def located(text: str, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The problems of a table with their lines in its text."""
    at = lines_of(text, [problem.path for problem in problems]) if problems else {}
    return tuple(replace(problem, line=at[problem.path]) for problem in problems)


class TableCheck(Struct):
    """What a table is checked for, and the problems found so far."""

    product: Product | None = None
    job: Job | None = None
    intra_roce: bool = False
    """Whether ranks of one server use RoCE, too (HCCL_INTRA_ROCE_ENABLE)."""
    is_v2: bool = False
    """Whether HCCL reads the table with the reader of version 2.0, which has other messages."""
    problems: list[Problem] = field(default_factory=list)

    def report(
        self,
        rule_id: str,
        path: JsonPath,
        text: str,
        /,
        *,
        level: Level | None = None,
        hccl: str | None = None,
        **details: object,
    ) -> None:
        """Add a problem; `hccl` is HCCL's message, else `details` fill in that of the rule.

        HCCL prints only what it refuses, so a warning has no message of HCCL.
        """
        rule = rules()[rule_id]
        level = level or rule.level
        message = ""
        if level == "error":
            template = rule.hccl_v2 if self.is_v2 and rule.hccl_v2 is not None else rule.hccl
            message = template.format(**details) if hccl is None else hccl
        self.problems.append(Problem(id=rule_id, level=level, path=path, text=text, hccl=message))

    def level_on(self, product: Product) -> Level | None:
        """The level of a rule of one product: none on others, a warning on an unknown one."""
        if self.product is None:
            return "warning"
        return "error" if self.product == product else None
