"""The inventory: the YAML that the operator writes, read into a Cluster or refused with reasons.

Import from the modules: `load` brings pydantic with it, and most verbs can do without (`kept`).
"""
