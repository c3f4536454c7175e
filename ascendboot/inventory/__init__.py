"""The inventory: the YAML that the operator writes, read into a Cluster or refused with reasons."""
