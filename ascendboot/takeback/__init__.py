"""Taking back what `setup` and `train` did: what is left of it, and one reset of a cluster."""
