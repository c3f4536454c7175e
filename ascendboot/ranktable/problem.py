"""Problem: one thing that is wrong with a rank table; Judging: where rules put what they find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ascendboot.ranktable.jsontext import shown
from ascendboot.ranktable.rules import RULE_OF

if TYPE_CHECKING:
    from ascendboot.ranktable.jsontext import Path
    from ascendboot.ranktable.rule import Job, Level, Product


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing found, and where in the document."""

    id: str
    level: Level
    path: Path
    text: str
    hccl: str = ""
    """What HCCL would print; empty where it says nothing."""

    @property
    def remedy(self) -> str:
        """What to do."""
        return RULE_OF[self.id].remedy

    @property
    def where(self) -> str:
        """The place in the document, as people write it."""
        return shown(self.path)


@dataclass
class Judging:
    """What a table is judged for, and what was found."""

    product: Product | None = None
    job: Job | None = None
    intra_roce: bool = False
    """Whether ranks of one server talk over RoCE, too (HCCL_INTRA_ROCE_ENABLE)."""
    is_v2: bool = False
    """Whether HCCL's reader of version 2.0 speaks, which has other words."""
    problems: list[Problem] = field(default_factory=list)

    def say(
        self,
        rule_id: str,
        path: Path,
        text: str,
        /,
        *,
        level: Level | None = None,
        hccl: str | None = None,
        **seen: object,
    ) -> None:
        """Note a problem; `hccl` is what HCCL prints, or `seen` what is filled into the rule's.

        HCCL prints what it refuses: what is a warning to us passes it.
        """
        rule = RULE_OF[rule_id]
        level = level or rule.level
        words = ""
        if level == "error":
            own = rule.hccl_v2 if self.is_v2 and rule.hccl_v2 is not None else rule.hccl
            words = own.format(**seen) if hccl is None else hccl
        self.problems.append(Problem(id=rule_id, level=level, path=path, text=text, hccl=words))

    def on(self, product: Product) -> Level | None:
        """How much a rule of a product weighs: nothing on others, little on an unknown one."""
        if self.product is None:
            return "warning"
        return "error" if self.product == product else None
