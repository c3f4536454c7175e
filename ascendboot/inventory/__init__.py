"""The inventory: the YAML of the operator, loaded into a Cluster or refused with reasons."""
