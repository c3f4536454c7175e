"""Frozen values that describe the cluster, the job and the results; nothing here does I/O."""
