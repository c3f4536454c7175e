"""The inventory: the YAML that the operator writes, read into a Cluster or refused with reasons."""

from __future__ import annotations

from ascendboot.inventory.find import locate
from ascendboot.inventory.load import load
from ascendboot.inventory.reference import reference_markdown, schema

__all__ = ["load", "locate", "reference_markdown", "schema"]
