"""Rank tables of every generation: read, validated, written, converted, shown; no I/O."""
