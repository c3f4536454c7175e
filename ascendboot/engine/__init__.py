"""Walks over all nodes: survey them, change what differs, prove that it works."""
