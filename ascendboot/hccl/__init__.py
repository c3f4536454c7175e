"""The variables by which HCCL and the NPU software are set: what each may be, and why not."""

from __future__ import annotations

from ascendboot.hccl.conflicts import INTRA_ROCE, Problem, conflicts, hccl_ports
from ascendboot.hccl.kinds import WITHOUT_CM
from ascendboot.hccl.page import reference_markdown
from ascendboot.hccl.variables import VARIABLES, Variable, why_not, why_not_read

__all__ = [
    "INTRA_ROCE",
    "VARIABLES",
    "WITHOUT_CM",
    "Problem",
    "Variable",
    "conflicts",
    "hccl_ports",
    "reference_markdown",
    "why_not",
    "why_not_read",
]
