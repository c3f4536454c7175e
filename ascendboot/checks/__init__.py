"""Findings: facts compared with each other and with the inventory."""
