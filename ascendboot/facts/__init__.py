"""Queries to nodes, and the facts in their answers."""
