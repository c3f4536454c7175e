"""Every rule that a rank table is judged by, and the page about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendboot.ranktable.rules_general import GENERAL
from ascendboot.ranktable.rules_special import SPECIAL

if TYPE_CHECKING:
    from ascendboot.ranktable.rule import Rule

RULES: tuple[Rule, ...] = (*GENERAL, *SPECIAL)
RULE_OF: dict[str, Rule] = {rule.id: rule for rule in RULES}

BY_PRODUCT = frozenset(
    {
        *("device-id", "device-set", "device-count", "address-family", "address-count"),
        *("super-device-twice", "super-device-id"),
    }
)
"""What a table made from sound facts may still be refused for, by some products."""

POD_ORDER, LOCAL_ID_TWICE = "pod-order", "local-id-twice"


def reference_markdown() -> str:
    """The page `docs/reference/rank-table-rules.md`."""
    rows = "\n".join(
        f"| `{rule.id}` | {rule.level} | {rule.about} | {_cell(rule.meaning)} | {_said(rule)} "
        f"| {_cell(rule.remedy)} |"
        for rule in RULES
    )
    return _PAGE.format(rows=rows)


def _said(rule: Rule) -> str:
    words = dict.fromkeys(text for text in (rule.hccl, rule.hccl_v2) if text)
    return ", in 2.0 ".join(f"`{_cell(text)}`" for text in words) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_PAGE = """\
# Rules of rank tables

What `ranktable.validate` looks at, by the `id` that it prints. An error is what HCCL, or the job
named with `--job`, refuses; a warning stops nothing. Rules of one product are warnings until
`--product` names it. Version 1.2 is A3's, 2.0 is that of 950, a group list (HCCL's "template 2")
that of 910: there the product need not be named. The rules are those of HCCL's own readers (hcomm,
`topoinfo_ranktable*.cc`, `config.cc`, `rank_table_info/*.cc`) and of its manual; those of jobs are
Rec SDK's, torch_npu's and MindSpore's.

| id | level | tables | meaning | HCCL says | what to do |
|---|---|---|---|---|---|
{rows}

## Not rank tables

Topology files (`peer_list`, `edge_list`) and tables of inference systems (`prefill_device_list`,
`server_group_list`) are recognised and named; the exit code is 2, as for text that is not JSON.
Comments, commas before a bracket, NaN and the like are named with line and column. A file may have
256 MiB.
"""
