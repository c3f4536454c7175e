"""Turns servers into a cluster, checks it, and removes it again."""
