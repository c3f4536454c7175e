"""The collective preflight: all ranks meet before a job; every one that differs is named."""
