"""Wishes about one node."""
