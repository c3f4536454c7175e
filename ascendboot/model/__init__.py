"""Frozen values that describe the cluster, the job and the results; no I/O."""
