"""Rank tables and hostfiles, made from a Placement."""
